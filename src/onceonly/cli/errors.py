"""Turn errors into words, exit code 2 and JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from onceonly.audit.catalogue import UNANSWERED
from onceonly.cli.output import Output, emit_json, talk
from onceonly.errors import OnceOnlyError, mask
from onceonly.errors.read_refusal import read
from onceonly_checkpoints.install import upgrade

# ---- The command line that is running, as it was typed.

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())
"""Its arguments."""


def json_wanted() -> bool:
    """Whether it asks for JSON; known even where it cannot be understood otherwise."""
    words = TYPED.get()
    output = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, mark, value = word.partition("=")
        if name == "--output":
            output = value if mark else following
        elif word.startswith("-o"):
            output = word[2:] or following
    return (output or os.environ.get("ONCEONLY_OUTPUT", "")).lower() == Output.JSON


# ---- How an error leaves the command line: words on stderr, and where JSON was asked for, a document on stdout, too.


def tell(words: str) -> None:
    """Say why there is no answer."""
    talk(words)
    if json_wanted():
        emit_json({"error": to_json(words)})


def to_json(words: str) -> Mapping[str, Any]:
    """The parts of a message: ``code`` (none of other texts), ``message``, ``matter``, ``cause`` and ``next``."""
    if refusal := read(words):
        return {
            "code": refusal.code,
            "message": refusal.what,
            "matter": refusal.matter,
            "cause": refusal.cause,
            "next": refusal.next,
        }
    message, _, next_ = words.partition("\n  Next: ")
    return {"code": None, "message": message, "matter": "", "cause": "", "next": next_}


# ---- Errors become words and exit code 2: no traceback reaches a user, and no failure looks like a finding (1).

DEBUG = "ONCEONLY_DEBUG"
"""Set to anything to get the traceback of an unexpected error."""


class ErrorHandlingGroup(TyperGroup):
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
    usage_error: Any = error
    if not type(error).__module__.startswith("typer"):
        return False
    if hasattr(usage_error, "format_message") and json_wanted():
        context = getattr(usage_error, "ctx", None)
        verb = context.command_path.split()[1:] if context else []
        next_ = " ".join(["onceonly", *verb, "--help"])
        emit_json({"error": to_json(f"{usage_error.format_message()}\n  Next: {next_}")})
    return True


def _is_ours(error: Exception) -> bool:
    # Imported for a failure alone: these modules are four in five of the lines that `onceonly explain` would load.
    from onceonly.protocol import OutcomeUnknown, Superseded
    from onceonly_checkpoints.ledger import LedgerUnavailable
    from onceonly_checkpoints.model import UnreadableMarker
    from onceonly_checkpoints.spark.logs import UnreadableCheckpoint
    from onceonly_checkpoints.storage import UnreachableStorage

    known_errors = (OnceOnlyError, LedgerUnavailable, UnreadableMarker, UnreadableCheckpoint, UnreachableStorage)
    return isinstance(error, (*known_errors, OutcomeUnknown, Superseded, OSError))


_LOOK = "set that right, then the same command again; what does not answer is shown by: onceonly doctor"


def words_for(error: Exception) -> str:
    """The text of an error, without secrets: ours as it is, others with their class and how to see more."""
    if isinstance(error, OnceOnlyError):
        return str(error)
    from onceonly.protocol import Superseded
    from onceonly_checkpoints.ledger import LedgerUnavailable
    from onceonly_checkpoints.model import UnreadableMarker

    text = mask(str(error)) or type(error).__name__
    if isinstance(error, LedgerUnavailable):
        return f"The ledger cannot be used: {text}\n  Next: check --ledger, or the variable ONCEONLY_LEDGER"
    if isinstance(error, Superseded):
        return f"{text}: another driver took the pipeline over\n  Next: stop it, then try again"
    if _is_ours(error):
        return f"Cannot answer: {text}\n  Next: {upgrade() if isinstance(error, UnreadableMarker) else _LOOK}"
    return f"Unexpected {type(error).__name__}: {text}\n  Next: the same command with {DEBUG}=1 shows where"


# ---- Commands that need a package: where it is missing they say so, and every other command still runs.

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that looks at none of its arguments itself."""


def without(missing: ModuleNotFoundError, what: str, install: str) -> Callable[[], NoReturn]:
    """The command in place of one whose import failed. ``install`` is the command that helps.

    Raises ``ModuleNotFoundError``: it is a module of ours that is missing.
    """
    from onceonly.protocol.registry import is_ours

    if is_ours(missing):
        raise missing

    def command() -> NoReturn:
        """Not installed. Run it to see how to install it."""
        give_up(f"{what} needs {missing.name}: {install}")

    return command
