"""Asks before something is changed: the plan has been printed, ``--yes`` or a yes on the terminal carries it out."""

from __future__ import annotations

import sys

import typer

from onceonly.audit.verdict import UNANSWERED
from onceonly.cli.output import talk


def confirmed(yes: bool) -> bool:
    """Whether to go on.

    Raises:
        typer.Exit: with 2, nobody said yes; nothing was changed.
    """
    if yes or (sys.stdin.isatty() and typer.confirm("Do this?", err=True)):
        return True
    talk("Nothing was changed. Add --yes to do it.")
    raise typer.Exit(UNANSWERED)
