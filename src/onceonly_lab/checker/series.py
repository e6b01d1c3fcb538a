"""Split epochs into series at each full refresh.

One row of the input stands for as many rows as there are series, of which the newest is due and the others may have
been there. So each series gets identities of its own, and every other rule judges a refresh without knowing of it; what
is said here is that rows of a series leave, and when.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onceonly_lab.checker.case import Call, Case, Commit, Read, grouped_as
from onceonly_lab.checker.finding import Anomaly, Finding, counted, found
from onceonly_lab.checker.reading import Reading
from onceonly_lab.history import Entry, Row

Starts = tuple[int, ...]
"""First epochs of the series after the first one, ascending."""


def told_apart(case: Case) -> Case:
    """The same case, each series with identities of its own; as it is where nothing was replaced."""
    starts = starts_of(commit for group in case.commits.values() for commit in group)
    if not starts:
        return case
    newest = len(starts)
    earlier_inputs = tuple(_input(entry, at) for at in range(newest) for entry in case.inputs)
    return replace(
        case,
        commits=grouped_as(case.commits, lambda commit: _commit(commit, starts)),
        reads={sink: tuple(_read(read, starts) for read in reads) for sink, reads in case.reads.items()},
        computed=tuple(_computed(call, starts) for call in case.computed),
        stages={manifest: _computed(call, starts) for manifest, call in case.stages.items()},
        inputs=tuple(_input(entry, newest) for entry in case.inputs),
        former=earlier_inputs,
    )


def starts_of(commits: Iterable[Commit]) -> Starts:
    """Where series begin, by what was ever sent."""
    return tuple(sorted({commit.epoch for commit in commits if commit.call.said.replaces}))


def _named(identity: str, series: int) -> str:
    return f"{identity}@{series + 1}" if series else identity


def _row(row: Row, series: int) -> Row:
    return replace(row, identity=_named(row.identity, series)) if series else row


def _input(entry: Entry, series: int) -> Entry:
    return replace(entry, rows=tuple(_row(row, series) for row in entry.rows or ())) if series else entry


def _commit(commit: Commit, starts: Starts) -> Commit:
    series = bisect_right(starts, commit.epoch)
    if commit.rows is None or not series:
        return commit
    bad, unwanted = _all_named(commit.bad, series), _all_named(commit.unwanted, series)
    return replace(commit, rows=_all_named(commit.rows, series), bad=bad, unwanted=unwanted)


def _all_named(identities: Iterable[str], series: int) -> frozenset[str]:
    return frozenset(_named(identity, series) for identity in identities)


def _computed(call: Call, starts: Starts) -> Call:
    series = bisect_right(starts, call.said.epoch or 0)
    if not call.said.outputs or not series:
        return call
    named = tuple(
        replace(output, rows=tuple(_named(row, series) for row in output.rows)) for output in call.said.outputs
    )
    return replace(call, said=replace(call.said, outputs=named))


def _read(read: Read, starts: Starts) -> Read:
    if read.rows is None:
        return read
    # A row that names no epoch is taken for one of the first series.
    return replace(read, rows=tuple(_row(row, bisect_right(starts, row.epoch or 0)) for row in read.rows))


def replaced(reading: Reading, sink: str) -> Mapping[int, Commit]:
    """Epochs of a sink whose rows have left, each with the commit that took them away."""
    gone: dict[int, Commit] = {}
    for (where, _), landed in sorted(reading.landed.items()):
        for commit in landed if where == sink else ():
            first, last = commit.call.said.replaces or (1, 0)
            gone.update(dict.fromkeys(range(first, last + 1), commit))
    return gone


def standing(reading: Reading) -> Iterator[Finding]:
    """Rows that an epoch replaces are gone wherever that epoch is seen, or has surely landed."""
    for sink in reading.case.sinks:
        gone = replaced(reading, sink)
        for read in reading.case.seen(sink) if gone else ():
            yield from _left(reading, read, gone)


def _left(reading: Reading, read: Read, gone: Mapping[int, Commit]) -> Iterator[Finding]:
    for epoch, counts in reading.shown(read).items():
        commit = gone.get(epoch or 0)
        if commit is not None and _landed_before(read, commit):
            what = f"{counted(len(counts), 'row')} that epoch {commit.epoch} has replaced"
            lines: Sequence[int] = (read.at, *commit.call.lines)
            yield found(Anomaly.DUP, read.sink, epoch, what, rows=counts, lines=lines)


def _landed_before(read: Read, commit: Commit) -> bool:
    marked = read.markers is not None and commit.epoch in read.markers
    return marked or (commit.known is not None and read.began is not None and commit.known < read.began)
