"""What ought to be in a sink: the oracles of golden run and row identity. Pure.

A golden run says what is right for any plan, rows counted and with their values; where rows are replaced, values are
those of the end, for nobody knows in which others a reader may find them before. Without one, rows of the input are
expected as they are, once each: right for plans that keep every row and its identity. The user's own assertions are
the third oracle; they are judged where they were answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from onceonly_lab.checker.case import Case
from onceonly_lab.checker.reading import Reading
from onceonly_lab.history import Kind, Row


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sink ought to hold.

    Attributes:
        due: how often each identity must be there at the end.
        known: how often each identity may be there; ``None`` where nothing is known of the input.
        values: golden values, by identity.
        keeps: a row that is there once has its last value.
    """

    due: Counter[str]
    known: Counter[str] | None
    values: dict[str, frozenset[str | None]]
    keeps: bool = True

    def times(self, identity: str) -> int:
        """How often a row may be there."""
        return max(1, self.known[identity]) if self.known else 1

    def allows(self, row: Row, *, final: bool) -> bool:
        """Whether the row is one that somebody could have written; ``final``: in the last read of a sink."""
        if row.identity in self.values and row.value is not None and (final or self.keeps):
            return row.value in self.values[row.identity]
        return self.known is None or row.identity in self.known


def expected(reading: Reading, sink: str) -> Expected:
    """What a sink ought to hold at the end, and what it may hold at any time."""
    case = reading.case
    if sink in case.golden:
        keeps = all(promise.keeps for promise in case.header.sinks if promise.sink == sink)
        return _golden(case.golden[sink], case.settled, keeps=keeps)
    due = Counter(dict.fromkeys(_due(reading, sink), 1))
    sent = {identity for group in case.commits.values() for commit in group for identity in commit.rows or ()}
    known = Counter(dict.fromkeys(case.ranks if case.inputs else sent, 1))
    return Expected(due, known if case.inputs or sent else None, {})


def excused(case: Case, sink: str) -> bool:
    """Whether a sink was restored and the pipeline stopped because of it: what is missing then is not its doing."""
    stopped = case.settle is not None and case.settle.outcome is Kind.FAIL
    return stopped and any(case.restores.values()) and sink in case.sinks


def _golden(rows: tuple[Row, ...], settled: bool, *, keeps: bool) -> Expected:
    counts = Counter(row.identity for row in rows)
    values: dict[str, set[str | None]] = {}
    for row in rows:
        if row.value is not None:
            values.setdefault(row.identity, set()).add(row.value)
    frozen = {identity: frozenset(one) for identity, one in values.items()}
    # A pipeline that stopped for a reason holds rows that were to be replaced.
    return Expected(counts if settled else Counter(), counts, frozen if settled or keeps else {}, keeps)


def _due(reading: Reading, sink: str) -> Iterator[str]:
    """All input once it was taken; before, what the sink, the ledger or the engine's callback said yes to."""
    case = reading.case
    if case.settled and case.ranks:
        yield from case.ranks
        return
    told = {call.said.epoch for call in case.told if call.said.epoch is not None}
    for epoch in {*told, *reading.epochs(sink)}:
        commits = (reading.explains(one, epoch) for one in (sink, *case.sinks))
        yield from next((commit.rows for commit in commits if commit and commit.rows is not None), ())
