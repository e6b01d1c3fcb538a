"""Load your functions by ``MODULE:NAME``, and start a Spark session for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceonly.cli.output import talk
from onceonly.errors.options import misused
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from onceonly.protocol import SparkSession

_WITH = typer.Option(
    "--with", metavar="MODULE:FUNCTION", help="function(spark) that returns the query's stream, or its writeStream."
)
WithOption = Annotated[str | None, _WITH]
JobOption = Annotated[str, _WITH]
"""The same, where a command cannot do without."""
TransformOption = Annotated[
    str | None, typer.Option("--transform", metavar="MODULE:FUNCTION", help="The query's transform=, if it has one.")
]
_WINDOWS = typer.Option("--windows", metavar="MODULE:NAME", help="The query's windows=.")
WindowsOption = Annotated[str | None, _WINDOWS]
DefinitionOption = Annotated[str, _WINDOWS]
"""The same, where a command cannot do without."""
StateOption = Annotated[
    StateFrom, typer.Option("--state", help="Where a query with state gets it from before the first epoch.")
]


def named(address: str) -> Any:
    """The object behind ``MODULE:NAME``, as ``python driver.py`` in the current directory would find it.

    Raises ``LookupError``: there is none; its text says why.
    """
    module, colon, name = address.partition(":")
    # The command's own directory is not the user's.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name) if colon and name else None
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(str(error)) from error


def _looked_up(address: str) -> tuple[Any, str]:
    """What an address names, ``None`` for nothing, and why it is not what was meant."""
    try:
        symbol = named(address)
    except LookupError as error:
        return None, str(error)
    return symbol, f"it is {type(symbol).__name__}"


def windows_of(address: str) -> Any:
    """The :class:`onceonly.windows.Windows` that ``--windows`` names (E110: it names none)."""
    from onceonly.windows import Windows

    definition, cause = _looked_up(address)
    if isinstance(definition, Windows):
        return definition
    raise misused(
        f"--windows {address!r} names no Windows.",
        cause,
        "name it as MODULE:NAME, from the directory of the module: --windows jobs.scores:PANES",
    )


def function(option: str, address: str) -> Callable[..., Any]:
    """The function that an option names (E110: it names none)."""
    symbol, cause = _looked_up(address)
    if symbol is None or not callable(symbol):
        raise misused(
            f"{option} {address!r} names no function.",
            cause,
            f"name it as MODULE:NAME, from the directory of the module: {option} jobs.orders:stream",
        )
    made: Callable[..., Any] = symbol
    return made


@contextmanager
def spark_session(what: str, *, kafka: bool = False) -> Generator[SparkSession]:
    """Give a session with Delta's jars, and end it where it was started here.

    Args:
        what: the command that needs it.
        kafka: whether it needs the jars of Spark's Kafka source, too.

    Raises:
        ConfigurationError: E108 PySpark is not installed; E110 there is no Java, or no way to the jars.
    """
    from onceonly.spark.jars import local_session, pyspark_version

    pyspark_version(what)
    with local_session("onceonly audit", lambda: talk("Starting Spark ..."), kafka=kafka) as session:
        yield session
