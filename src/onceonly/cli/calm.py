"""Errors become words and exit code 2: no traceback reaches a user, and no failure looks like a finding (1)."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from onceonly.audit.verdict import UNANSWERED
from onceonly.cli.failing import tell, tell_usage
from onceonly.cli.typed import TYPED
from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_checkpoints.jsonform import UnreadableMarker
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_checkpoints.sparklog import UnreadableCheckpoint
from onceonly_checkpoints.storage import UnreachableStorage

DEBUG = "ONCEONLY_DEBUG"
"""Set to anything to get the traceback of an unexpected error."""


class CalmGroup(TyperGroup):
    """The root of the command tree."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what was typed, for a plan to print it again."""
        TYPED.set(tuple(args))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command and put its errors into words."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if of_usage(error):
                raise
            if not _is_ours(error) and os.environ.get(DEBUG):
                raise
            give_up(words_for(error))


def give_up(words: str) -> NoReturn:
    """Say why there is no answer, and leave with code 2."""
    tell(words)
    raise typer.Exit(UNANSWERED)


def of_usage(error: Exception) -> bool:
    """Whether the parser did not understand what was typed. It shows such an error by itself; JSON is added here."""
    found: Any = error
    if not type(error).__module__.startswith("typer"):
        return False
    if hasattr(found, "format_message"):
        context = getattr(found, "ctx", None)
        verb = context.command_path.split()[1:] if context else []
        tell_usage(found.format_message(), " ".join(["onceonly", *verb]))
    return True


def _is_ours(error: Exception) -> bool:
    return isinstance(error, _KNOWN)


_KNOWN = (
    OnceOnlyError,
    LedgerUnavailable,
    UnreadableMarker,
    UnreadableCheckpoint,
    UnreachableStorage,
    OutcomeUnknown,
    Superseded,
    OSError,
)


def words_for(error: Exception) -> str:
    """The text of an error, without secrets: ours as it is, others with their class and how to see more."""
    if isinstance(error, OnceOnlyError):
        return str(error)
    text = mask(str(error)) or type(error).__name__
    if isinstance(error, LedgerUnavailable):
        return f"The ledger cannot be used: {text}\n  Next: check --ledger, or the variable ONCEONLY_LEDGER"
    if isinstance(error, Superseded):
        return f"{text}: another driver took the pipeline over\n  Next: stop it, then try again"
    if _is_ours(error):
        return f"Cannot answer: {text}"
    return f"Unexpected {type(error).__name__}: {text}\n  Next: the same command with {DEBUG}=1 shows where"
