"""Load your own functions and objects by ``MODULE:NAME``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.errors import refuse
from onceonly_checkpoints.spark.replay_plan import StateFrom

_WITH = typer.Option(
    "--with", metavar="MODULE:FUNCTION", help="function(spark) that returns the query's stream, or its writeStream."
)
WithOption = Annotated[str | None, _WITH]
JobOption = Annotated[str, _WITH]
"""The same, where a command cannot do without."""
BeforeOption = Annotated[
    str | None, typer.Option("--before", metavar="MODULE:FUNCTION", help="The query's before=, if it has one.")
]
_PANES = typer.Option("--panes", metavar="MODULE:NAME", help="The query's panes=.")
PanesOption = Annotated[str | None, _PANES]
DefinitionOption = Annotated[str, _PANES]
"""The same, where a command cannot do without."""
StateOption = Annotated[
    StateFrom, typer.Option("--state", help="Where a query with state gets it from before the first epoch.")
]


def named(address: str) -> Any:
    """The object behind ``MODULE:NAME``, as ``python driver.py`` in the current directory would find it.

    Raises:
        LookupError: there is none; its text says why.
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
        found = named(address)
    except LookupError as error:
        return None, str(error)
    return found, f"it is {type(found).__name__}"


def panes_of(address: str) -> Any:
    """The :class:`onceonly.windows.Panes` that ``--panes`` names.

    Raises:
        ConfigurationError: E110, it names none.
    """
    from onceonly.windows import Panes

    found, cause = _looked_up(address)
    if isinstance(found, Panes):
        return found
    raise refuse(
        "E110",
        problem=f"--panes {address!r} names no Panes.",
        cause=cause,
        next="name it as MODULE:NAME, from the directory of the module: --panes jobs.scores:PANES",
    )


def function(option: str, address: str) -> Callable[..., Any]:
    """The function that an option names.

    Args:
        option: the option, for the message.
        address: ``MODULE:NAME``.

    Raises:
        ConfigurationError: E110, it names none.
    """
    found, cause = _looked_up(address)
    if found is None or not callable(found):
        raise refuse(
            "E110",
            problem=f"{option} {address!r} names no function.",
            cause=cause,
            next=f"name it as MODULE:NAME, from the directory of the module: {option} jobs.orders:stream",
        )
    made: Callable[..., Any] = found
    return made
