"""Rules about the run: slices that meet, batches that repeat, an end that is reached. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceonly_lab.checker.anomaly import Anomaly
from onceonly_lab.checker.calls import Call
from onceonly_lab.checker.commits import Commit
from onceonly_lab.checker.finding import Finding, found
from onceonly_lab.checker.reading import Reading
from onceonly_lab.history import Kind, Op, Range, UnreadableHistory


def apart(reading: Reading) -> Iterator[Finding]:
    """The slices of a sink's epochs meet: each starts where the one before it ended, the first at the start."""
    begins = _begins(reading)
    for sink in reading.case.sinks:
        stands: dict[str, int] = dict(begins)
        for epoch in reading.epochs(sink):
            commit = reading.explains(sink, epoch)
            if commit is not None:
                yield from _unmet(commit, stands)
                stands.update({one.partition: one.end for one in commit.call.said.slice or ()})


def _begins(reading: Reading) -> dict[str, int]:
    """The first offset of every partition of the input."""
    begins: dict[str, int] = {}
    for entry in reading.case.inputs:
        for one in entry.slice or ():
            begins[one.partition] = min(one.start, begins.get(one.partition, one.start))
    return begins


def _unmet(commit: Commit, stands: dict[str, int]) -> Iterator[Finding]:
    wrong = [one for one in commit.call.said.slice or () if stands.get(one.partition, one.start) != one.start]
    if wrong:
        what = "; ".join(_distance(one, stands[one.partition]) for one in wrong)
        yield found(Anomaly.GAP, commit.sink, commit.epoch, what, lines=commit.call.lines)


def _distance(one: Range, stands: int) -> str:
    word = "leaves out" if one.start > stands else "takes again"
    low, high = sorted((one.start, stands))
    return f"{one.partition} starts at {one.start}, not at {stands}: {word} {low} to {high}"


def recomputed(reading: Reading) -> Iterator[Finding]:
    """A batch that is computed again gives the same rows, where the plan promises it.

    A stateful batch that is skipped is executed once more for its state: that one must always give the rows that were
    committed.
    """
    digests: dict[tuple[int | None, tuple[Range, ...] | None], Call] = {}
    for call in _computations(reading):
        said = call.said
        first = digests.setdefault((said.epoch, said.slice), call)
        if first.said.digest != said.digest:
            what = f"computed as {first.said.digest}, and again as {said.digest}"
            yield found(Anomaly.NONDET, None, said.epoch, what, lines=(*first.lines, *call.lines))


def _computations(reading: Reading) -> list[Call]:
    """What has to agree: everything in a deterministic run, else commits with the executions for state."""
    case = reading.case
    computed = [call for call in case.computed if call.outcome is Kind.OK and call.said.digest is not None]
    if case.header.deterministic:
        return computed
    again = {call.said.epoch for call in computed if call.said.op is Op.EXECUTE}
    brought = [group[0].call for (_, epoch), group in reading.landed.items() if epoch in again]
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
            said = call.said
            rows = [row.identity for row in said.rows or ()]
            yield found(_named(call), said.sink, said.epoch, f"does not hold: {said.note}", rows=rows, lines=call.lines)


def _named(call: Call) -> Anomaly:
    name = call.said.anomaly
    if name is not None and name not in list(Anomaly):
        raise UnreadableHistory(f"line {call.at}: there is no anomaly {name!r}")
    return Anomaly.AUDIT if name is None else Anomaly(name)
