"""Checker rules for runs, visibility, and agreement of sinks with ledger."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from onceonly_lab.checker import series
from onceonly_lab.checker.case import Call, Case, Commit, Read, Who
from onceonly_lab.checker.finding import Anomaly, Finding, counted, found
from onceonly_lab.checker.reading import (
    Expected,
    Reading,
    excused,
    expected,
    not_before,
    replaced_by,
    shows,
    staged_too_late,
)
from onceonly_lab.checker.rules_rows import phantoms, strangers
from onceonly_lab.checker.rules_time import spelled
from onceonly_lab.checker.shares import output_of
from onceonly_lab.history import LEDGER, Kind, Mark, Op, Part, Promise, Range, UnreadableHistory

# ---- Rules about agreement: of sinks with one another, of the ledger with the sinks. Pure; each says what must hold.


def crossed(reading: Reading) -> Iterator[Finding]:
    """Sinks that hold an epoch hold the same rows of it, or of the output that each gets, and one time.

    Compared are the rows that sinks of one output were given, the rows of each sink and those that it wants, the values
    of rows that two of them hold, the digests of their markers, and what these say of time. A row that
    one sink lacks, doubles or invents has an anomaly of its own.
    """
    finals = [read for sink in reading.case.sinks if (read := reading.case.final(sink))]
    for left, right in _of_one_output(reading.case, finals):
        for epoch in sorted({*reading.epochs(left.sink)} & {*reading.epochs(right.sink)}):
            yield from _differing_rows(reading, left, right, epoch)
    for left, right in pairwise(finals):
        yield from _differing_values(reading, left, right)
        yield from _differing_markers(reading, left, right)
    for sink in reading.case.sinks:
        for read in reading.case.seen(sink):
            yield from _for_others(reading, read)


def _of_one_output(case: Case, finals: list[Read]) -> Iterator[tuple[Read, Read]]:
    for output in dict.fromkeys(promise.output for promise in case.header.sinks):
        yield from pairwise(read for read in finals if output_of(case, read.sink) == output)


def _for_others(reading: Reading, read: Read) -> Iterator[Finding]:
    """Rows that the sink does not want; which ones it wants was decided when its epoch was staged."""
    for epoch in reading.epochs(read.sink):
        if rows := strangers(reading, read, epoch):
            what = f"{counted(len(rows), 'row')} that the output of {read.sink} did not want when the epoch was staged"
            lines = (read.at, *(commit.at for commit in reading.landings(read.sink, epoch)))
            yield found(Anomaly.CROSS, read.sink, epoch, what, rows=rows, lines=lines)


def _differing_rows(reading: Reading, left: Read, right: Read, epoch: int) -> Iterator[Finding]:
    ours, theirs = reading.explains(left.sink, epoch), reading.explains(right.sink, epoch)
    if ours and theirs and ours.rows is not None and theirs.rows is not None and ours.rows != theirs.rows:
        rows = ours.rows ^ theirs.rows
        what = f"{counted(len(rows), 'row')} given to one of {left.sink} and {right.sink} only"
        yield found(Anomaly.CROSS, right.sink, epoch, what, rows=rows, lines=(*ours.call.lines, *theirs.call.lines))


def _differing_values(reading: Reading, left: Read, right: Read) -> Iterator[Finding]:
    wrong = {phantom for read in (left, right) for phantom in phantoms(reading, read, expected(reading, read.sink))}
    values = {row.identity: row.value for row in left.rows or () if row.value is not None}
    unlike: dict[int | None, list[str]] = {}
    for row in right.rows or ():
        if row.value is not None and values.get(row.identity, row.value) != row.value and row.identity not in wrong:
            unlike.setdefault(reading.home(right.sink, row.identity), []).append(row.identity)
    for epoch, rows in unlike.items():
        what = f"{counted(len(rows), 'row')} with other values in {left.sink} than in {right.sink}"
        yield found(Anomaly.CROSS, right.sink, epoch, what, rows=rows, lines=(left.at, right.at))


def _differing_markers(reading: Reading, left: Read, right: Read) -> Iterator[Finding]:
    for epoch in _unlike(reading.case, left, right):
        what = f"markers of {left.sink} and {right.sink} name other rows"
        yield found(Anomaly.CROSS, right.sink, epoch, what, lines=(left.at, right.at))
    ours, theirs = left.markers or {}, right.markers or {}
    for epoch in sorted(ours.keys() & theirs.keys()):
        if ours[epoch].time != theirs[epoch].time:
            what = f"{left.sink} says {spelled(ours[epoch])}, {right.sink} {spelled(theirs[epoch])}"
            yield found(Anomaly.CROSS, right.sink, epoch, what, lines=(left.at, right.at))


def _unlike(case: Case, left: Read, right: Read) -> list[int]:
    ours, theirs = left.markers or {}, right.markers or {}
    same = output_of(case, left.sink) == output_of(case, right.sink)
    both = ours.keys() & theirs.keys()
    return sorted(epoch for epoch in both if not _alike(ours[epoch], theirs[epoch], same_output=same))


def _alike(mark: Mark, other: Mark, *, same_output: bool = True) -> bool:
    """A digest is that of all good rows, whichever of them a sink gets."""
    same_digest = None in (mark.digest, other.digest) or mark.digest == other.digest
    return same_digest and (not same_output or None in (mark.count, other.count) or mark.count == other.count)


def misrecorded(reading: Reading) -> Iterator[Finding]:
    """What the ledger records, and the engine was told, is in every sink; what is in the sinks is recorded.

    An epoch of which sinks tell different things is :func:`crossed`'s; one that a sink has only rows of is a phantom's.
    """
    yield from _told_too_soon(reading)
    ledger = reading.case.final(LEDGER)
    if ledger is None or ledger.markers is None:
        return
    finals = [read for sink in reading.case.sinks if (read := reading.case.final(sink)) and read.markers is not None]
    unlike = {epoch for left, right in pairwise(finals) for epoch in _unlike(reading.case, left, right)}
    for read in finals:
        if not excused(reading.case, read.sink):
            yield from _compared(reading, ledger, read, unlike)


def _told_too_soon(reading: Reading) -> Iterator[Finding]:
    case = reading.case
    for sink in case.sinks:
        for call in case.told if sink in case.committing else ():
            epoch, reported_at = call.said.epoch, call.answered or call.at
            if epoch is None:
                continue
            landed = reading.landings(sink, epoch)
            if not any(not_before(case, commit) < reported_at for commit in landed):
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
        if not _alike(records[epoch], markers[epoch], same_output=not output_of(reading.case, read.sink)):
            yield found(Anomaly.AUDIT, read.sink, epoch, "recorded with other rows than its marker", lines=lines)


# ---- Rules about when: visible too early, seen and gone, written under a replaced fence. Pure.


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
        left = _replaced(reading, after)
        gone = sorted(before.counts.keys() - after.counts.keys() - phantoms(reading, before, right).keys() - left)
        if gone:
            home = reading.home(promise.sink, gone[0])
            what = f"{counted(len(gone), 'row')} seen, and gone"
            yield found(Anomaly.REGRESS, promise.sink, home, what, rows=gone, lines=lines)


def _replaced(reading: Reading, read: Read) -> set[str]:
    """Rows that have left by the time of a read, as it shows the epoch that has replaced them."""
    gone = series.replaced(reading, read.sink)
    shown = {epoch for epoch, by in gone.items() if read.markers is None or by.epoch in read.markers}
    sent = (commit for epoch in shown for commit in reading.case.sent(read.sink, epoch))
    return {identity for commit in sent for identity in commit.rows or ()}


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


# ---- Rules about the run: slices that meet, batches that repeat, an end that is reached. Pure.


def apart(reading: Reading) -> Iterator[Finding]:
    """The slices of a sink's epochs meet: each starts where the one before it ended, a series at the start."""
    begins = _begins(reading)
    for sink in reading.case.sinks:
        ends: dict[str, int] = dict(begins)
        for epoch in reading.epochs(sink):
            commit = reading.explains(sink, epoch)
            if commit is not None:
                if commit.call.said.replaces:
                    ends = dict(begins)
                yield from _unmet(commit, ends)
                ends.update({span.partition: span.end for span in commit.call.said.slice or ()})


def _begins(reading: Reading) -> dict[str, int]:
    """The first offset of every partition of the input."""
    begins: dict[str, int] = {}
    for entry in reading.case.inputs:
        for span in entry.slice or ():
            begins[span.partition] = min(span.start, begins.get(span.partition, span.start))
    return begins


def _unmet(commit: Commit, ends: dict[str, int]) -> Iterator[Finding]:
    wrong = [span for span in commit.call.said.slice or () if ends.get(span.partition, span.start) != span.start]
    if wrong:
        what = "; ".join(_distance(span, ends[span.partition]) for span in wrong)
        yield found(Anomaly.GAP, commit.sink, commit.epoch, what, lines=commit.call.lines)


def _distance(span: Range, end: int) -> str:
    word = "leaves out" if span.start > end else "takes again"
    low, high = sorted((span.start, end))
    return f"{span.partition} starts at {span.start}, not at {end}: {word} {low} to {high}"


def recomputed(reading: Reading) -> Iterator[Finding]:
    """A batch that is computed again gives the same rows, where the plan promises it.

    A stateful batch that is skipped is executed once more for its state: that one must always give the rows that were
    committed. A call that calls other rows bad has other good ones.
    """
    digests: dict[tuple[int | None, tuple[Range, ...] | None, tuple[Part, ...] | None], Call] = {}
    for call in _computations(reading):
        entry = call.said
        first = digests.setdefault((entry.epoch, entry.slice, entry.outputs), call)
        if first.said.digest != entry.digest:
            what = f"computed as {first.said.digest}, and again as {entry.digest}"
            yield found(Anomaly.NONDET, None, entry.epoch, what, lines=(*first.lines, *call.lines))


def _computations(reading: Reading) -> list[Call]:
    """What has to agree: everything in a deterministic run, else commits with the executions for state."""
    case = reading.case
    computed = [call for call in case.computed if call.outcome is Kind.OK and call.said.digest is not None]
    if case.header.deterministic:
        return computed
    executed_epochs = {call.said.epoch for call in computed if call.said.op is Op.EXECUTE}
    brought = [group[0].call for (_, epoch), group in reading.landed.items() if epoch in executed_epochs]
    chosen = [call for call in brought if call.said.digest is not None]
    return [*chosen, *(call for call in computed if call.said.op is Op.EXECUTE)]


def stuck(reading: Reading) -> Iterator[Finding]:
    """Once nothing is broken any more all input is taken, and no transaction, lock or staging stays behind."""
    case, settle = reading.case, reading.case.settle
    if settle is not None and settle.outcome is Kind.INFO:
        yield found(Anomaly.STUCK, None, None, "not all input was taken when time was up", lines=settle.lines)
    if settle is not None and settle.outcome is Kind.FAIL and settle.said.code not in case.header.refusals:
        what = f"the pipeline refused with {settle.said.code}, which is no answer to what was broken"
        yield found(Anomaly.STUCK, None, None, what, lines=settle.lines)
    for reads in case.reads.values():
        for read in reads:
            if read.final and read.leaks:
                what = f"left behind: {', '.join(read.leaks)}"
                yield found(Anomaly.STUCK, read.sink, None, what, lines=(read.at,))


def denied(reading: Reading) -> Iterator[Finding]:
    """The user's own queries hold; each says which anomaly it is when it does not.

    Raises:
        UnreadableHistory: a query names an anomaly that does not exist.
    """
    for call in reading.case.assertions:
        if call.outcome is Kind.FAIL:
            entry = call.said
            rows = [row.identity for row in entry.rows or ()]
            yield found(
                _named(call), entry.sink, entry.epoch, f"does not hold: {entry.note}", rows=rows, lines=call.lines
            )


def _named(call: Call) -> Anomaly:
    name = call.said.anomaly
    if name is not None and name not in list(Anomaly):
        raise UnreadableHistory(f"line {call.at}: there is no anomaly {name!r}")
    return Anomaly.AUDIT if name is None else Anomaly(name)
