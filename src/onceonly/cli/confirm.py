"""Asks before something is changed: the plan has been printed, ``--yes`` or a yes on the terminal carries it out."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping

import typer

from onceonly.audit.verdict import UNANSWERED
from onceonly.cli.output import emit_json, talk
from onceonly.cli.typed import TYPED, json_wanted
from onceonly.errors import mask

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
    said = ((bound or {}).get(word, word) for word in TYPED.get())
    return shlex.join(["onceonly", *(mask(without_password(word)) for word in said), "--yes"])


def without_password(word: str) -> str:
    """A word of the command line that leads to the same place: a URL, pairs of libpq, or a sink's address."""
    if _SINK.match(word):
        address, mark, table = word.rpartition("#")
        return f"{_without_password(address)}{mark}{table}" if mark else _without_password(word)
    return _without_password(word)


def _without_password(place: str) -> str:
    if "://" not in place:
        return _IN_PAIRS.sub("", place).rstrip() if _IN_PAIRS.search(place) else place
    for pattern, left in _IN_URL:
        place = pattern.sub(left, place)
    return place.rstrip("?&")


def confirmed(yes: bool, plan: Iterable[tuple[str, object]] = (), *, bound: Mapping[str, str] | None = None) -> bool:
    """Whether to go on.

    Args:
        yes: it was said in the command.
        plan: what would be done, for a command that prints JSON; in words it has been printed already.
        bound: as in :func:`again`.

    Raises:
        typer.Exit: with 2, nobody said yes; nothing was changed.
    """
    if yes or (sys.stdin.isatty() and not json_wanted() and typer.confirm("Do this?", err=True)):
        return True
    talk(f"Nothing was changed. To do it:\n{again(bound)}")
    if any(without_password(word) != word for word in TYPED.get()):
        talk(_FROM_WHERE)
    if json_wanted():
        emit_json({"changed": False, "plan": dict(plan), "next": again(bound)})
    raise typer.Exit(UNANSWERED)
