"""Checkpoint, ledger and marker formats of Spark and onceonly.

A leaf that imports nothing else of ours.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package, which imports the module of a name once it is asked for.

    Executors unpickle functions of a package. They must not pay for what only the driver needs.
    """

    def find(name: str) -> Any:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        if name != "__version__":
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("onceonly")

    return find
