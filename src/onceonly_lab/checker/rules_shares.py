"""Checker rules for shares: accounts, quarantined rows and repeated keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onceonly_lab.checker.case import Read
from onceonly_lab.checker.finding import Anomaly, Finding, counted, found
from onceonly_lab.checker.reading import Reading, excused
from onceonly_lab.checker.rules_rows import missing_in
from onceonly_lab.history import BAD, Mark, Promise


def unbalanced(reading: Reading) -> Iterator[Finding]:
    """A marker accounts for all rows of its epoch: held in its sink, not wanted there, or bad.

    Whether the sink holds what its marker says is for other rules; here two numbers are compared that nobody who writes
    could have from the other: the rows of the input in the slice, and the sum of what the marker counts.
    """
    for sink in reading.case.sinks:
        for read in reading.case.seen(sink):
            for epoch, mark in (read.markers or {}).items():
                commit = reading.explains(sink, epoch)
                total = _accounted(mark)
                if commit is None or commit.rows is None or total is None or total == len(commit.epochs_rows):
                    continue
                what = f"the marker accounts for {total} of {counted(len(commit.epochs_rows), 'row')}"
                yield found(Anomaly.BALANCE, sink, epoch, what, lines=(*commit.call.lines, read.at))


def _accounted(mark: Mark) -> int | None:
    """Rows that a marker accounts for; ``None`` where it tells of no outputs, or the reader cannot tell."""
    if mark.count is None or mark.filtered is None or mark.bad is None:
        return None
    return mark.count + mark.filtered + mark.bad


def not_aside(reading: Reading) -> Iterator[Finding]:
    """A bad row stands once in the quarantine of its epoch, and in no other sink."""
    for promise in reading.case.header.sinks:
        for read in reading.case.seen(promise.sink):
            yield from _doubled(reading, read) if promise.output == BAD else _among_good(reading, read)
        if promise.output == BAD:
            yield from _kept_nowhere(reading, promise)


def _among_good(reading: Reading, read: Read) -> Iterator[Finding]:
    for epoch in reading.epochs(read.sink):
        commit = reading.explains(read.sink, epoch)
        if commit and (rows := commit.bad & reading.part(read, epoch).keys()):
            what = f"{counted(len(rows), 'bad row')} among the good ones"
            yield found(Anomaly.ASIDE, read.sink, epoch, what, rows=rows, lines=(*commit.call.lines, read.at))


def _doubled(reading: Reading, read: Read) -> Iterator[Finding]:
    for epoch, counts in reading.shown(read).items():
        if often := [identity for identity, count in counts.items() if count > 1]:
            what = f"{counted(len(often), 'bad row')} up to {max(counts.values())} times"
            yield found(Anomaly.ASIDE, read.sink, epoch, what, rows=often, lines=(read.at,))


def _kept_nowhere(reading: Reading, promise: Promise) -> Iterator[Finding]:
    read = reading.case.final(promise.sink)
    if read is None or read.rows is None or excused(reading.case, promise.sink):
        return
    for epoch, missing in missing_in(reading, promise, read).items():
        what = f"{counted(missing.total(), 'bad row')} missing from the quarantine at the end"
        yield found(Anomaly.ASIDE, promise.sink, epoch, what, rows=missing, lines=(read.at,))


def again(reading: Reading) -> Iterator[Finding]:
    """A sink that takes each key once holds one row of a key. A row that stands twice is doubled, and not ours."""
    keys = reading.case.keys
    for sink in (promise.sink for promise in reading.case.header.sinks if promise.once):
        for read in reading.case.seen(sink):
            of_key = Counter(keys[identity] for identity in read.counts if keys.get(identity) is not None)
            often = {key for key, count in of_key.items() if count > 1}
            if rows := sorted(identity for identity in read.counts if keys.get(identity) in often):
                what = f"{counted(len(often), 'key')} with more than one row"
                yield found(Anomaly.AGAIN, sink, reading.home(sink, rows[-1]), what, rows=rows, lines=(read.at,))
