"""Asks before something is changed: the plan has been printed, ``--yes`` or a yes on the terminal carries it out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable

import typer

from onceonly.audit.verdict import UNANSWERED
from onceonly.cli.output import emit_json, talk
from onceonly.cli.typed import TYPED, json_wanted
from onceonly.errors import mask


def again() -> str:
    """The command that is running, with ``--yes``, as it can be pasted; secrets stay where they come from."""
    return mask(shlex.join(["onceonly", *TYPED.get(), "--yes"]))


def confirmed(yes: bool, plan: Iterable[tuple[str, object]] = ()) -> bool:
    """Whether to go on.

    Args:
        yes: it was said in the command.
        plan: what would be done, for a command that prints JSON; in words it has been printed already.

    Raises:
        typer.Exit: with 2, nobody said yes; nothing was changed.
    """
    if yes or (sys.stdin.isatty() and not json_wanted() and typer.confirm("Do this?", err=True)):
        return True
    talk(f"Nothing was changed. To do it:\n{again()}")
    if json_wanted():
        emit_json({"changed": False, "plan": dict(plan), "next": again()})
    raise typer.Exit(UNANSWERED)
