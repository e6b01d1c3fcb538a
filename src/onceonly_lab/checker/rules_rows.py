"""Checker rules for rows: lost, duplicated, foreign, partial or unordered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onceonly_lab.checker import series
from onceonly_lab.checker.case import Commit, Read
from onceonly_lab.checker.finding import Anomaly, Finding, counted, found
from onceonly_lab.checker.reading import Expected, Reading, excused, expected, rows_for_others
from onceonly_lab.history import BAD, Kind, Promise, Row


def lost(reading: Reading) -> Iterator[Finding]:
    """Every row of the input is in every sink that it is for at the end.

    A row that is missing from an epoch of which other rows are there is :func:`torn`'s, not ours; where rows stand that
    are for other sinks it is ``rules_run.crossed``'s; a bad row is ``rules_shares.not_aside``'s.
    """
    for promise in reading.case.header.sinks:
        read = reading.case.final(promise.sink)
        if read is None or read.rows is None or excused(reading.case, promise.sink):
            continue
        for epoch, missing in missing_in(reading, promise, read).items() if promise.output != BAD else ():
            where = "of no epoch that is known" if epoch is None else f"of epoch {epoch}"
            what = f"{counted(missing.total(), 'row')} {where} missing at the end"
            yield found(Anomaly.LOSS, promise.sink, epoch, what, rows=missing, lines=(read.at,))


def missing_in(reading: Reading, promise: Promise, read: Read) -> dict[int | None, Counter[str]]:
    """Rows that are due in a sink and that its last read does not show, by epoch; without what other rules say."""
    if not promise.keeps and promise.sink not in reading.case.golden:
        return {}
    missing_rows: dict[int | None, Counter[str]] = {}
    held_keys = set[str | None]()
    if promise.once:
        # Keys are seen before rows are divided, so those of rows for other sinks as well.
        seen_rows = {*read.counts, *rows_for_others(reading, promise.sink)}
        held_keys = {reading.case.keys.get(row_id) for row_id in seen_rows} - {None}
    for identity, count in (expected(reading, promise.sink).due - read.counts).items():
        if reading.case.keys.get(identity) in held_keys:
            continue  # left out, because its key was seen before
        missing_rows.setdefault(reading.home(promise.sink, identity), Counter())[identity] = count
    epochs = [epoch for epoch in missing_rows if epoch is not None]
    partial = {epoch for epoch in epochs if _part_of(reading, promise, read, epoch) or strangers(reading, read, epoch)}
    return {epoch: rows for epoch, rows in missing_rows.items() if epoch not in partial}


def strangers(reading: Reading, read: Read, epoch: int) -> set[str]:
    """Good rows of an epoch that a read shows and that its sink does not want."""
    commit = reading.explains(read.sink, epoch)
    return set(reading.part(read, epoch).keys() & commit.unwanted) if commit and commit.unwanted else set()


def doubled(reading: Reading) -> Iterator[Finding]:
    """No read of a sink shows a row more often than the input has it, nor one that a full refresh has replaced.

    What stands twice in a quarantine is ``rules_shares.not_aside``'s.
    """
    yield from series.standing(reading)
    for sink in (promise.sink for promise in reading.case.header.sinks if promise.output != BAD):
        right = expected(reading, sink)
        for read in reading.case.seen(sink):
            for epoch, counts in reading.shown(read).items():
                often = {identity: count for identity, count in counts.items() if count > right.times(identity)}
                if often:
                    what = f"{counted(len(often), 'row')} up to {max(often.values())} times"
                    yield found(Anomaly.DUP, sink, epoch, what, rows=often, lines=_shown_by(reading, read, epoch))


def _shown_by(reading: Reading, read: Read, epoch: int | None) -> tuple[int, ...]:
    """The read, and every commit that may have brought the epoch."""
    sent = () if epoch is None else reading.case.sent(read.sink, epoch)
    return (read.at, *(commit.at for commit in sent if commit.at < read.at))


def phantom(reading: Reading) -> Iterator[Finding]:
    """Every row that a read shows is a row of the input, in an epoch that brought it and that has a marker."""
    for sink in reading.case.sinks:
        right = expected(reading, sink)
        for read in reading.case.seen(sink):
            by_reason: dict[tuple[str, int | None], list[str]] = {}
            for identity, reason in phantoms(reading, read, right).items():
                by_reason.setdefault(reason, []).append(identity)
            for (why, epoch), rows in by_reason.items():
                what = f"{counted(len(rows), 'row')} {why}"
                yield found(Anomaly.PHANTOM, sink, epoch, what, rows=rows, lines=(read.at,))


def phantoms(reading: Reading, read: Read, right: Expected) -> dict[str, tuple[str, int | None]]:
    """The rows of a read that should not exist: why, and in which epoch they stand, by identity."""
    reasons = {epoch: _unvouched(reading, read, epoch) for epoch in reading.shown(read) if epoch is not None}
    phantom_rows: dict[str, tuple[str, int | None]] = {}
    for row in read.rows or ():
        home = reading.home(read.sink, row.identity)
        epoch = row.epoch if home is None else home
        if not right.allows(row, final=read.final):
            phantom_rows[row.identity] = ("that nobody wrote like this", epoch)
        elif _astray(row, home):
            phantom_rows[row.identity] = ("in an epoch that did not bring it", row.epoch)
        elif epoch is not None and reasons[epoch]:
            phantom_rows[row.identity] = (reasons[epoch], epoch)
    return phantom_rows


def _astray(row: Row, home: int | None) -> bool:
    return row.epoch is not None and home is not None and row.epoch != home


def _unvouched(reading: Reading, read: Read, epoch: int) -> str:
    """Why an epoch that a read shows has no right to be there; empty if it has."""
    if read.markers is not None and epoch not in read.markers:
        return "of an epoch that no marker names"
    if read.sink not in reading.case.committing:
        return ""
    sent = reading.case.sent(read.sink, epoch)
    if not sent:
        return "of an epoch that nobody committed"
    before = [commit for commit in sent if commit.at < read.at]
    if before and all(commit.outcome is Kind.FAIL for commit in before):
        return "of an epoch whose commit failed"
    return ""


def torn(reading: Reading) -> Iterator[Finding]:
    """A read shows all rows of an epoch or none. At the end this holds in every sink that keeps its rows."""
    for promise in reading.case.header.sinks:
        for read in reading.case.seen(promise.sink):
            if read.rows is None or not promise.keeps or not (promise.whole or read.final):
                continue
            for epoch in reading.epochs(promise.sink):
                part = _part_of(reading, promise, read, epoch)
                if part:
                    missing = _absent(reading, read, epoch)
                    lines = _shown_by(reading, read, epoch)
                    yield found(Anomaly.TORN, promise.sink, epoch, part, rows=missing, lines=lines)


def _part_of(reading: Reading, promise: Promise, read: Read, epoch: int) -> str:
    """Which part of an epoch a read shows, in words; empty if it is all or nothing."""
    commit = reading.explains(promise.sink, epoch)
    total = _total(commit, read)
    if commit is None or not total or not promise.keeps or strangers(reading, read, epoch):
        return ""
    there = reading.part(read, epoch)
    count = len(there.keys() & commit.rows) if commit.rows is not None else len(there)
    if 0 < count < total:
        return f"{count} of {counted(total, 'row')} are visible"
    vouched = read.markers is not None and epoch in read.markers
    if count == 0 and vouched and promise.whole and _shown_later(reading, read, epoch):
        return f"its marker is visible, and none of {counted(total, 'row')}"
    return ""


def _total(commit: Commit | None, read: Read) -> int | None:
    if commit is None:
        return None
    mark = read.markers.get(commit.epoch) if read.markers else None
    return commit.count if commit.count is not None or mark is None else mark.count


def _absent(reading: Reading, read: Read, epoch: int) -> set[str]:
    commit = reading.explains(read.sink, epoch)
    brought = commit.rows if commit and commit.rows else frozenset[str]()
    return set(brought - reading.part(read, epoch).keys())


def _shown_later(reading: Reading, read: Read, epoch: int) -> bool:
    later = (other for other in reading.case.seen(read.sink) if other.at > read.at)
    return any(reading.part(other, epoch) for other in later)


def out_of_order(reading: Reading) -> Iterator[Finding]:
    """Rows of one key stand in an ordered sink in the order of the input; of a doubled row, the first counts."""
    for promise in reading.case.header.sinks:
        if promise.ordered:
            for read in reading.case.seen(promise.sink):
                yield from _disorder(reading, read)


def _disorder(reading: Reading, read: Read) -> Iterator[Finding]:
    newest: dict[str | None, str] = {}
    ranks, keys = reading.case.ranks, reading.case.keys
    for identity in dict.fromkeys(row.identity for row in read.rows or () if row.identity in ranks):
        before = newest.get(keys[identity])
        if before is not None and ranks[before] > ranks[identity]:
            key = f" of key {keys[identity]}" if keys[identity] is not None else ""
            what = f"row {identity}{key} stands after {before}, which follows it in the input"
            epoch = reading.home(read.sink, identity)
            yield found(Anomaly.ORDER, read.sink, epoch, what, rows=(before, identity), lines=(read.at,))
            return
        newest[keys[identity]] = identity
