"""Checkpoint, ledger and marker formats of Spark and onceonly.

A leaf that imports nothing else of ours.
"""


def absent(package: str, name: str) -> str:
    """Return ``__version__`` for a package, read on demand, and raise AttributeError for another name that it lacks."""
    if name != "__version__":
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("onceonly")
