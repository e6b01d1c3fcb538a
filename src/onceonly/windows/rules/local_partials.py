"""Compute partial results of few rows in this process.

The rules are those by which Spark computes them for many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from onceonly.windows.rules import json_values
from onceonly.windows.rules.assigners import merged
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import Partial, WindowKey
from onceonly_checkpoints.model import canonical


class Row(NamedTuple):
    """Columns of a row that windows use.

    ``inputs`` are values of ``Panes.expressions``, in order. ``time`` is in the unit of the definition, or ``None``.
    ``mark`` is the condition of ``AtMark``.
    """

    key: Sequence[Any]
    time: int | None
    inputs: Sequence[Any]
    mark: bool = False


def key_text(definition: Definition, key: Sequence[Any]) -> str:
    """A key as in state and partial results: canonical JSON of its values."""
    return canonical([json_values.encode(kind, value) for kind, value in zip(definition.key_kinds, key, strict=True)])


def partials_of(definition: Definition, rows: Iterable[Row]) -> list[Partial]:
    """Partial results of rows for each window. Rows without a time are in none."""
    at = {text: place for place, text in enumerate(definition.panes.expressions)}
    takes = [[at[text] for text in value.inputs] for value in definition.panes.values.values()]
    found: dict[WindowKey, _Sum] = {}
    for row in rows:
        if row.time is None:
            continue
        key = key_text(definition, row.key)
        for start, end in definition.panes.window.of(row.time):
            one = found.setdefault(WindowKey(key, start, end), _Sum([None] * len(takes), row.time, row.time))
            one.add(definition, takes, row, row.time)
    partials = [one.partial(place) for place, one in found.items()]
    return sessions(definition, partials) if definition.sessions else partials


def sessions(definition: Definition, partials: Sequence[Partial]) -> list[Partial]:
    """Join partial results of overlapping sessions of one key."""
    by_key: dict[str, list[Partial]] = {}
    for partial in partials:
        by_key.setdefault(partial.place.key, []).append(partial)
    found: list[Partial] = []
    for key, own in by_key.items():
        for (start, end), members in merged((one.place.start, one.place.end) for one in own):
            found.append(joined(definition, WindowKey(key, start, end), [own[at] for at in sorted(members)]))
    return found


def joined(definition: Definition, place: WindowKey, partials: Sequence[Partial]) -> Partial:
    """Join one or more partial results, into one of ``place``."""
    values: list[Json] = list(partials[0].values)
    for partial in partials[1:]:
        values = [fold.merged(a, b) for fold, a, b in zip(definition.folds, values, partial.values, strict=True)]
    rows, marks = sum(partial.rows for partial in partials), sum(partial.marks for partial in partials)
    first, last = min(partial.first for partial in partials), max(partial.last for partial in partials)
    return Partial(place, tuple(values), rows, marks, first, last)


@dataclass(slots=True)
class _Sum:
    values: list[Json]
    first: int
    last: int
    count: int = 0
    marks: int = 0

    def add(self, definition: Definition, takes: Sequence[Sequence[int]], row: Row, time: int) -> None:
        for at, (fold, inputs) in enumerate(zip(definition.folds, takes, strict=True)):
            self.values[at] = fold.add(self.values[at], [row.inputs[one] for one in inputs])
        self.count += 1
        self.marks += row.mark
        self.first, self.last = min(self.first, time), max(self.last, time)

    def partial(self, place: WindowKey) -> Partial:
        return Partial(place, tuple(self.values), self.count, self.marks, self.first, self.last)
