"""Rules about agreement: of sinks with one another, of the ledger with the sinks. Pure; each says what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from onceonly_lab.checker.anomaly import Anomaly
from onceonly_lab.checker.case import Read
from onceonly_lab.checker.expected import excused, expected
from onceonly_lab.checker.finding import Finding, counted, found
from onceonly_lab.checker.reading import Reading, not_before
from onceonly_lab.checker.rules_rows import phantoms
from onceonly_lab.history import LEDGER, Mark, Op


def crossed(reading: Reading) -> Iterator[Finding]:
    """Sinks that hold an epoch hold the same rows of it.

    Compared are the rows that each sink was given, the values of rows that two of them hold, and the digests of their
    markers. A row that one sink lacks, doubles or invents has an anomaly of its own.
    """
    finals = [read for sink in reading.case.sinks if (read := reading.case.final(sink))]
    for left, right in pairwise(finals):
        for epoch in sorted({*reading.epochs(left.sink)} & {*reading.epochs(right.sink)}):
            yield from _differing_rows(reading, left, right, epoch)
        yield from _differing_values(reading, left, right)
        yield from _differing_markers(left, right)


def _differing_rows(reading: Reading, left: Read, right: Read, epoch: int) -> Iterator[Finding]:
    ours, theirs = reading.explains(left.sink, epoch), reading.explains(right.sink, epoch)
    if ours and theirs and ours.rows is not None and theirs.rows is not None and ours.rows != theirs.rows:
        rows = ours.rows ^ theirs.rows
        what = f"{counted(len(rows), 'row')} given to one of {left.sink} and {right.sink} only"
        yield found(Anomaly.CROSS, right.sink, epoch, what, rows=rows, lines=(*ours.call.lines, *theirs.call.lines))


def _differing_values(reading: Reading, left: Read, right: Read) -> Iterator[Finding]:
    wrong = {one for read in (left, right) for one in phantoms(reading, read, expected(reading, read.sink))}
    values = {row.identity: row.value for row in left.rows or () if row.value is not None}
    unlike: dict[int | None, list[str]] = {}
    for row in right.rows or ():
        if row.value is not None and values.get(row.identity, row.value) != row.value and row.identity not in wrong:
            unlike.setdefault(reading.home(right.sink, row.identity), []).append(row.identity)
    for epoch, rows in unlike.items():
        what = f"{counted(len(rows), 'row')} with other values in {left.sink} than in {right.sink}"
        yield found(Anomaly.CROSS, right.sink, epoch, what, rows=rows, lines=(left.at, right.at))


def _differing_markers(left: Read, right: Read) -> Iterator[Finding]:
    for epoch in _unlike(left, right):
        what = f"markers of {left.sink} and {right.sink} name other rows"
        yield found(Anomaly.CROSS, right.sink, epoch, what, lines=(left.at, right.at))


def _unlike(left: Read, right: Read) -> list[int]:
    ours, theirs = left.markers or {}, right.markers or {}
    return sorted(epoch for epoch in ours.keys() & theirs.keys() if not _alike(ours[epoch], theirs[epoch]))


def _alike(one: Mark, other: Mark) -> bool:
    same_digest = None in (one.digest, other.digest) or one.digest == other.digest
    return same_digest and (None in (one.count, other.count) or one.count == other.count)


def misrecorded(reading: Reading) -> Iterator[Finding]:
    """What the ledger records, and the engine was told, is in every sink; what is in the sinks is recorded.

    An epoch of which sinks tell different things is :func:`crossed`'s; one that a sink has only rows of is a phantom's.
    """
    yield from _told_too_soon(reading)
    ledger = reading.case.final(LEDGER)
    if ledger is None or ledger.markers is None:
        return
    finals = [read for sink in reading.case.sinks if (read := reading.case.final(sink)) and read.markers is not None]
    unlike = {epoch for left, right in pairwise(finals) for epoch in _unlike(left, right)}
    for read in finals:
        if not excused(reading.case, read.sink):
            yield from _compared(reading, ledger, read, unlike)


def _told_too_soon(reading: Reading) -> Iterator[Finding]:
    case = reading.case
    for sink in case.sinks:
        for call in case.told if sink in case.committing else ():
            epoch, told = call.said.epoch, call.answered or call.at
            if epoch is None:
                continue
            landed = reading.landings(sink, epoch)
            if not any(not_before(case, commit) < told for commit in landed):
                to_whom = "recorded" if call.said.op is Op.RECORD else "reported to the engine"
                what = f"{to_whom} before it was in the sink"
                lines = (*call.lines, *(line for commit in landed for line in commit.call.lines))
                yield found(Anomaly.AUDIT, sink, epoch, what, lines=lines)


def _compared(reading: Reading, ledger: Read, read: Read, unlike: set[int]) -> Iterator[Finding]:
    records, markers = ledger.markers or {}, read.markers or {}
    lines = (ledger.at, read.at)
    for epoch in sorted(records.keys() - markers.keys()):
        if not reading.part(read, epoch):
            yield found(Anomaly.AUDIT, read.sink, epoch, "recorded, and not in the sink", lines=lines)
    for epoch in sorted(markers.keys() - records.keys()):
        if reading.case.settled:
            yield found(Anomaly.AUDIT, read.sink, epoch, "in the sink, and not recorded", lines=lines)
    for epoch in sorted((records.keys() & markers.keys()) - unlike):
        if not _alike(records[epoch], markers[epoch]):
            yield found(Anomaly.AUDIT, read.sink, epoch, "recorded with other rows than its marker", lines=lines)
