"""Run a verb that changes something: plan, show, ask, do."""

from __future__ import annotations

import getpass
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from typer.core import TyperCommand

from onceonly.audit.catalogue import PLANNED
from onceonly.cli.connect import Connection
from onceonly.cli.errors import TYPED, json_wanted
from onceonly.cli.output import Output, emit_json, emit_pairs, talk
from onceonly.errors import mask
from onceonly.errors.options import misused
from onceonly.machine.source_order import describe
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.model import Adoption, AdoptionKind


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb is about to do.

    Attributes:
        pairs: the plan in words. A pair without a value is left out.
        run: does it, and says what came of it.
        bound: as in :func:`again`.
        output: of the plan. JSON prints it with the command that carries it out.
    """

    pairs: Sequence[tuple[str, object]]
    run: Callable[[], None]
    bound: Mapping[str, str] = field(default_factory=dict)
    output: Output = Output.TABLE


def carry_out(change: Change, *, yes: bool) -> None:
    """Print the plan, and do it after ``--yes`` or a yes on the terminal.

    Raises:
        typer.Exit: with 4, you did not confirm. Nothing was changed.
        OnceOnlyError: what the change raises.
    """
    as_json = change.output is Output.JSON
    if not as_json:
        emit_pairs(change.pairs)
    if confirmed(yes, change.pairs if as_json else (), bound=change.bound):
        change.run()


def plan_decision(
    connection: Connection, *own: tuple[str, object], after: str, newest: Epoch | None = None, does: str = ""
) -> tuple[tuple[str, object], ...]:
    """The plan of a decision that is written as an epoch without rows.

    Args:
        connection: the pipeline with its sinks.
        own: what the verb says of itself.
        after: what is true afterwards.
        newest: the newest epoch, where the plan names it.
        does: what is written, where it is more or less than an epoch without rows into every sink.
    """
    written = does or "writes an epoch without rows into every sink"
    return (
        ("pipeline", connection.pipeline),
        *own,
        ("sinks", connection.sinks_in_words),
        ("ledger", connection.certain_ledger.address),
        ("stands", f"epoch {newest.number}, at {describe(newest.written.end)}" if newest else None),
        ("does", f"{written}; every running driver of the pipeline is fenced out"),
        ("after", after),
    )


def because(reason: str) -> str:
    """What is put behind a decision in words; a decision without a reason has none."""
    return f": {reason}" if reason else ""


def decided(kind: AdoptionKind, reason: str, **named: Any) -> Adoption:
    """A decision of whoever runs this command, now.

    Args:
        kind: what is accepted.
        reason: why.
        named: what it names, as fields of ``Adoption``.
    """
    return Adoption(kind, reason=reason, who=_user(), at_ms=time.time_ns() // 1_000_000, **named)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        return ""


# ---- Asks before something is changed: the plan has been printed, ``--yes`` or a yes on the terminal carries it out.

_IN_URL = (
    (re.compile(r"(://[^:/?#@\s]*):[^/?#]*@"), r"\1@"),
    (re.compile(r"(?<=[?&])password=[^&#]*&?", re.IGNORECASE), ""),
)
_IN_PAIRS = re.compile(r"\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)\s*", re.IGNORECASE)
_SINK = re.compile(r"(?:--sink=|-s)?postgres:(?!//)")
_FROM_WHERE = "The password is not repeated: put it into PGPASSWORD or ~/.pgpass first."


def again(bound: Mapping[str, str] | None = None) -> str:
    """The command that is running, with ``--yes``, as it can be pasted; passwords are left out.

    Args:
        bound: words that say less than the plan does, with what is said instead.
    """
    words = ((bound or {}).get(word, word) for word in TYPED.get())
    return shlex.join(["onceonly", *(mask(without_password(word)) for word in words), "--yes"])


def without_password(word: str) -> str:
    """A word of the command line that leads to the same place: a URL, pairs of libpq, or a sink's address."""
    if _SINK.match(word):
        address, mark, table = word.rpartition("#")
        return f"{_without_password(address)}{mark}{table}" if mark else _without_password(word)
    return _without_password(word)


def _without_password(word: str) -> str:
    if "://" not in word:
        return _IN_PAIRS.sub("", word).rstrip() if _IN_PAIRS.search(word) else word
    for pattern, left in _IN_URL:
        word = pattern.sub(left, word)
    return word.rstrip("?&")


def confirmed(yes: bool, plan: Iterable[tuple[str, object]] = (), *, bound: Mapping[str, str] | None = None) -> bool:
    """Whether to go on.

    Args:
        yes: it was said in the command.
        plan: what would be done, for a command that prints JSON; in words it has been printed already.
        bound: as in :func:`again`.

    Raises:
        typer.Exit: with 4, you did not confirm; nothing was changed.
    """
    if yes or (sys.stdin.isatty() and not json_wanted() and typer.confirm("Do this?", err=True)):
        return True
    talk(f"Nothing was changed. To do it:\n{again(bound)}")
    if any(without_password(word) != word for word in TYPED.get()):
        talk(_FROM_WHERE)
    if json_wanted():
        emit_json({"changed": False, "plan": dict(plan), "next": again(bound)})
    raise typer.Exit(PLANNED)


# ---- What is typed.

_SPAN = re.compile(r"(\d+)(?:\.\.(\d+))?")


def span(text: str) -> tuple[int, int]:
    """Understand a range of epochs. Raises E110: it is none."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise misused(
            f"{text!r} is not a range of epochs.",
            "a range is written 3..5, one epoch 3",
            "the message that asks for it prints the range",
        )
    return int(match[1]), int(match[2] or match[1])


_RANGED = frozenset({"--accept-loss", "--accept-duplicates", "--keep-recomputed-state"})


class Ranged(TyperCommand):
    """An option whose range is left out is told which range applies, instead of only that one is missing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give options without a value an empty one."""
        filled: list[str] = []
        for at, word in enumerate(args):
            filled.append(word)
            following = args[at + 1] if at + 1 < len(args) else "--"
            # Offsets of a source look like anything, a name too: they stand behind an equals sign.
            if word == "--continue" or (word in _RANGED and following[:1] == "-"):
                filled.append("")
        return super().parse_args(ctx, filled)
