"""Objects of the user's own code that a command is given by name: ``MODULE:NAME``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from onceonly.errors import refuse
from onceonly_checkpoints.spark.replay import StateFrom

WithOption = Annotated[
    str | None,
    typer.Option(
        "--with", metavar="MODULE:FUNCTION", help="function(spark) that returns the query's stream, or its writeStream."
    ),
]
BeforeOption = Annotated[
    str | None, typer.Option("--before", metavar="MODULE:FUNCTION", help="The query's before=, if it has one.")
]
PanesOption = Annotated[
    str | None, typer.Option("--panes", metavar="MODULE:NAME", help="The query's panes=, if it has them.")
]
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


def panes_of(address: str) -> Any:
    """The :class:`onceonly.panes.Panes` that ``--panes`` names.

    Raises:
        ConfigurationError: E110, it names none.
    """
    from onceonly.panes import Panes

    try:
        found = named(address)
        cause = f"it is {type(found).__name__}"
    except LookupError as error:
        found, cause = None, str(error)
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
    try:
        found = named(address)
        cause = f"it is {type(found).__name__}"
    except LookupError as error:
        found, cause = None, str(error)
    if found is None or not callable(found):
        raise refuse(
            "E110",
            problem=f"{option} {address!r} names no function.",
            cause=cause,
            next=f"name it as MODULE:NAME, from the directory of the module: {option} jobs.orders:stream",
        )
    made: Callable[..., Any] = found
    return made
