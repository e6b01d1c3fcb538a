"""What can be wrong with the outputs of a run, by comparison with the source. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import accumulate

from onceonly_lab.necessity.world import RECORDS, TAKEN, Row, World

View = tuple[Row, ...]
"""What a reader sees at once."""


class Symptom(StrEnum):
    """What can be wrong."""

    LOSS = "LOSS"
    DUP = "DUP"
    WRONG = "WRONG"
    BROKEN = "BROKEN"
    TORN = "TORN"
    CHANGED = "CHANGED"
    DISAGREE = "DISAGREE"


MEANING: dict[Symptom, str] = {
    Symptom.LOSS: "a record has no row at the end",
    Symptom.DUP: "a record has several rows at the end",
    Symptom.WRONG: "a sum is not that of the records up to its own",
    Symptom.BROKEN: "a row does not follow from the committed row before it",
    Symptom.TORN: "a reader sees part of an epoch",
    Symptom.CHANGED: "a reader sees one record with two values",
    Symptom.DISAGREE: "two sinks hold different rows at the end",
}

_SUMS = tuple(accumulate(range(RECORDS + 1)))


def symptoms(views: Iterable[View], end: World, last: View) -> frozenset[Symptom]:
    """Everything that is wrong with a run.

    Args:
        views: what a reader saw after each durable step.
        end: the world after the run.
        last: what the reader sees in it.
    """
    seen = set(views)
    return frozenset((*_at_the_end(last), *_seen(seen), *([Symptom.DISAGREE] if _disagree(end) else [])))


def _at_the_end(last: View) -> Iterator[Symptom]:
    wrong: list[Symptom] = []
    records = {row.record for row in last}
    if len(records) < RECORDS:
        wrong.append(Symptom.LOSS)
    if len(last) > len(records):
        wrong.append(Symptom.DUP)
    if any(row.state.total != _SUMS[row.record] for row in last):
        wrong.append(Symptom.WRONG)
    # Where rows are missing, doubled or wrong, nothing can follow from the one before it.
    return iter(wrong or ([Symptom.BROKEN] if _breaks_off(last) else []))


def _breaks_off(last: View) -> bool:
    before: tuple[int, ...] = ()
    for row in sorted(last, key=lambda row: row.record):
        if row.state.draws[:-1] != before:
            return True
        before = row.state.draws
    return False


def _seen(views: set[View]) -> Iterator[Symptom]:
    if any(_torn({row.record for row in view}) for view in views):
        yield Symptom.TORN
    values = {(row.record, row.state) for view in views for row in view}
    if len(values) > len({record for record, _ in values}):
        yield Symptom.CHANGED


def _torn(records: set[int]) -> bool:
    return any((first in records) != (first + 1 in records) for first in range(1, RECORDS + 1, TAKEN))


def _disagree(end: World) -> bool:
    return end.second_marker > 0 and set(end.rows) != set(end.second)
