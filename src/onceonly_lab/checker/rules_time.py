"""Rules about when: visible too early, seen and gone, written under a replaced fence. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from onceonly_lab.checker.anomaly import Anomaly
from onceonly_lab.checker.calls import Who
from onceonly_lab.checker.case import Read
from onceonly_lab.checker.commits import Commit
from onceonly_lab.checker.expected import Expected, expected
from onceonly_lab.checker.finding import Finding, counted, found
from onceonly_lab.checker.reading import Reading, replaced_by, shows, staged_too_late
from onceonly_lab.checker.rules_rows import phantoms
from onceonly_lab.history import Promise


def early(reading: Reading) -> Iterator[Finding]:
    """Nothing of an epoch is visible before its bytes are staged and its commit is sent.

    An epoch that is shown and was never sent, or has no marker, is a phantom and not early.
    """
    for (sink, epoch), landed in reading.landed.items():
        for commit in landed:
            if staged_too_late(reading.case, commit):
                yield _staged_later(reading, commit)
        first = reading.case.commits[sink, epoch][0]
        for read in reading.case.seen(sink):
            if read.at < first.at and shows(read, first):
                what = "visible before any commit of it was sent"
                yield found(Anomaly.EARLY, sink, epoch, what, lines=(read.at, first.at))


def _staged_later(reading: Reading, commit: Commit) -> Finding:
    manifest = commit.call.said.manifest or ""
    stage = reading.case.stages.get(manifest)
    what = f"committed from {manifest}, which was {'staged later' if stage else 'never staged'}"
    lines = (*commit.call.lines, *(stage.lines if stage else ()))
    return found(Anomaly.EARLY, commit.sink, commit.epoch, what, lines=lines)


def regressed(reading: Reading) -> Iterator[Finding]:
    """What a reader has seen in a sink it sees there again, unless the sink was restored in between.

    Rows that should never have been seen may go; where an upsert replaces rows, only markers must stay.
    """
    for promise in reading.case.header.sinks:
        right = expected(reading, promise.sink)
        readers: dict[Who, list[Read]] = {}
        for read in reading.case.seen(promise.sink):
            readers.setdefault(read.who, []).append(read)
        for reads in readers.values():
            for before, after in pairwise(reads):
                yield from _gone(reading, promise, right, (before, after))


def _gone(reading: Reading, promise: Promise, right: Expected, reads: tuple[Read, Read]) -> Iterator[Finding]:
    before, after = reads
    since = before.at if before.began is None else before.began
    if reading.case.last_restore(promise.sink, after.at) > since:
        return
    lines = (before.at, after.at)
    if before.markers is not None and after.markers is not None:
        for epoch in sorted(before.markers.keys() - after.markers.keys()):
            yield found(Anomaly.REGRESS, promise.sink, epoch, "its marker was seen, and is gone", lines=lines)
    if before.rows is not None and after.rows is not None and promise.keeps:
        gone = sorted(before.counts.keys() - after.counts.keys() - phantoms(reading, before, right).keys())
        if gone:
            home = reading.home(promise.sink, gone[0])
            what = f"{counted(len(gone), 'row')} seen, and gone"
            yield found(Anomaly.REGRESS, promise.sink, home, what, rows=gone, lines=lines)


def zombie(reading: Reading) -> Iterator[Finding]:
    """Nothing appears in a sink under a fence that another one has replaced there."""
    for (sink, epoch), landed in reading.landed.items():
        for commit in landed:
            fence = replaced_by(reading.case, commit)
            if fence is not None:
                actor, incarnation = commit.call.who
                what = (
                    f"written by {actor} {incarnation} in generation {commit.generation}, "
                    f"after {fence.who[0]} {fence.who[1]} had installed generation {fence.said.generation}"
                )
                rows = commit.rows or ()
                yield found(Anomaly.ZOMBIE, sink, epoch, what, rows=rows, lines=(*commit.call.lines, *fence.lines))
