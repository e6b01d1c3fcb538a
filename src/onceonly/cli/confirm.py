"""Asks before something is changed: the plan has been printed, ``--yes`` or a yes on the terminal carries it out."""

from __future__ import annotations

import shlex
import sys
from contextvars import ContextVar

import typer

from onceonly.audit.verdict import UNANSWERED
from onceonly.cli.output import talk
from onceonly.errors import mask

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())
"""The arguments of the command line that is running."""


def again() -> str:
    """The command that is running, with ``--yes``, as it can be pasted; secrets stay where they come from."""
    return mask(shlex.join(["onceonly", *TYPED.get(), "--yes"]))


def confirmed(yes: bool) -> bool:
    """Whether to go on.

    Raises:
        typer.Exit: with 2, nobody said yes; nothing was changed.
    """
    if yes or (sys.stdin.isatty() and typer.confirm("Do this?", err=True)):
        return True
    talk(f"Nothing was changed. To do it:\n{again()}")
    raise typer.Exit(UNANSWERED)
