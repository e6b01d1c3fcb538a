"""Pairs what was invoked with its answer; an ``invoke`` without one is ``info``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from onceonly_lab.history import Entry, Kind, Op

FIRST_LINE = 2
"""Line of the first entry: the header is line 1."""

Who = tuple[str, int]
"""One start of an actor: its name and incarnation."""


@dataclass(frozen=True, slots=True)
class Call:
    """What an actor invoked, and what it was answered.

    Attributes:
        said: the invoke, completed by what only the answer says.
        at: line of the invoke; of the answer where nothing was invoked.
        outcome: ``ok``, ``fail``, ``info`` or ``read``.
        answered: line of the answer; ``None`` if there was none.
        announced: whether there was an invoke.
    """

    said: Entry
    at: int
    outcome: Kind
    answered: int | None
    announced: bool

    @property
    def who(self) -> Who:
        """Whose call it is."""
        return self.said.actor, self.said.incarnation

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines that show it."""
        return (self.at,) if self.answered in (None, self.at) else (self.at, self.answered or self.at)


def calls(entries: Iterable[Entry]) -> list[Call]:
    """Every call of a history, in the order of their first lines."""
    return sorted(_paired(entries), key=lambda call: call.at)


def _paired(entries: Iterable[Entry]) -> Iterator[Call]:
    waiting: dict[tuple[Who, Op, str | None], list[tuple[int, Entry]]] = {}
    for line, entry in enumerate(entries, FIRST_LINE):
        op = Op.READ if entry.kind is Kind.READ else entry.op
        if op is None:
            continue
        opened = waiting.setdefault(((entry.actor, entry.incarnation), op, entry.sink), [])
        if entry.kind is Kind.INVOKE:
            opened.append((line, entry))
        elif opened:
            at, invoke = opened.pop()
            yield Call(_completed(invoke, entry), at, entry.kind, line, announced=True)
        else:
            yield Call(entry, line, entry.kind, line, announced=False)
    for opened in waiting.values():
        yield from (Call(invoke, at, Kind.INFO, None, announced=True) for at, invoke in opened)


_SAID = tuple(field.name for field in fields(Entry) if field.name not in ("actor", "kind", "op", "incarnation", "time"))
_DEFAULTS = {field.name: field.default for field in fields(Entry)}


def _completed(invoke: Entry, answer: Entry) -> Entry:
    added: dict[str, Any] = {
        name: getattr(answer, name)
        for name in _SAID
        if getattr(invoke, name) == _DEFAULTS[name] and getattr(answer, name) != _DEFAULTS[name]
    }
    return replace(invoke, **added) if added else invoke
