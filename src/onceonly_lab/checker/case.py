"""A history laid out for the rules: what was sent, what was read, what exists. Facts only, nothing is judged. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from onceonly_lab.checker.calls import FIRST_LINE, Call, Who, calls
from onceonly_lab.checker.commits import Commit, grouped
from onceonly_lab.history import RESTORE, Entry, Header, History, Kind, Mark, Op, Row


@dataclass(frozen=True)
class Read:
    """What one read showed.

    Attributes:
        sink: sink id.
        who: the reader.
        began: line where it began; ``None`` where that is not known.
        at: line of its answer.
        rows: in the order of the sink; ``None`` if they were not asked for.
        markers: by epoch; ``None`` if they were not asked for.
        final: nothing was going on any more.
        leaks: what nobody will end or remove.
    """

    sink: str
    who: Who
    began: int | None
    at: int
    rows: tuple[Row, ...] | None
    markers: Mapping[int, Mark] | None
    final: bool
    leaks: tuple[str, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each identity is there."""
        return Counter(row.identity for row in self.rows or ())


@dataclass(frozen=True)
class Case:
    """Everything that a run left behind.

    Attributes:
        header: what was promised.
        entries: the lines themselves.
        commits: by sink and epoch, in the order in which they were sent.
        installs: fences, by sink.
        reads: by sink, in order; those of the ledger too.
        computed: every time a batch was computed.
        told: records in the ledger and returns to the engine.
        stages: by manifest.
        inputs: rows of the source, in its order.
        golden: what a run without faults left, by sink.
        assertions: answers to the user's own queries.
        restores: lines where something was restored, by sink.
        settle: the time after the last fault; ``None`` if the history ends before.
    """

    header: Header
    entries: tuple[Entry, ...]
    commits: Mapping[tuple[str, int], tuple[Commit, ...]]
    installs: Mapping[str, tuple[Call, ...]]
    reads: Mapping[str, tuple[Read, ...]]
    computed: tuple[Call, ...]
    told: tuple[Call, ...]
    stages: Mapping[str, Call]
    inputs: tuple[Entry, ...]
    golden: Mapping[str, tuple[Row, ...]]
    assertions: tuple[Call, ...]
    restores: Mapping[str, tuple[int, ...]]
    settle: Call | None

    @property
    def settled(self) -> bool:
        """Whether all input was taken in the end."""
        return self.settle is not None and self.settle.outcome is Kind.OK

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks that are judged."""
        return tuple(promise.sink for promise in self.header.sinks)

    @cached_property
    def whole(self) -> frozenset[str]:
        """Sinks whose reads show an epoch whole or not at all."""
        return frozenset(promise.sink for promise in self.header.sinks if promise.whole)

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Place of every row in the input, by identity."""
        rows = (row.identity for entry in self.inputs for row in entry.rows or ())
        return {identity: rank for rank, identity in enumerate(rows)}

    @cached_property
    def keys(self) -> dict[str, str | None]:
        """Key of every row in the input, by identity."""
        return {row.identity: row.key for entry in self.inputs for row in entry.rows or ()}

    @cached_property
    def committing(self) -> frozenset[str]:
        """Sinks of which the history tells the commits; of a plain job it tells none."""
        return frozenset(sink for sink, _ in self.commits)

    def seen(self, sink: str) -> tuple[Read, ...]:
        """The reads of a sink, in order."""
        return self.reads.get(sink, ())

    def sent(self, sink: str, epoch: int) -> tuple[Commit, ...]:
        """The commits of an epoch to a sink, in order."""
        return self.commits.get((sink, epoch), ())

    def fences(self, sink: str) -> tuple[Call, ...]:
        """The fences that somebody tried to install in a sink, in order."""
        return self.installs.get(sink, ())

    def final(self, sink: str) -> Read | None:
        """The last read of a sink, after everything."""
        return next((read for read in reversed(self.seen(sink)) if read.final), None)

    def last_restore(self, sink: str, before: int) -> int:
        """The newest line before ``before`` where the sink was restored; 0 if there is none."""
        return max((line for line in self.restores.get(sink, ()) if line < before), default=0)


def lay_out(history: History, golden: History | None = None) -> Case:
    """Lay a history out.

    Args:
        history: the run.
        golden: the same run without faults, whose final reads say what is right.
    """
    found = calls(history.entries)
    by_op: dict[Op, list[Call]] = {op: [] for op in Op}
    for call in found:
        by_op[call.said.op or Op.READ].append(call)
    inputs = tuple(call.said for call in by_op[Op.INPUT])
    return Case(
        header=history.header,
        entries=history.entries,
        commits=grouped(by_op[Op.COMMIT], by_op[Op.LOOK_UP], inputs),
        installs=_by_sink(by_op[Op.INSTALL]),
        reads=_reads(by_op[Op.READ]),
        computed=tuple(call for call in found if call.said.op in (Op.STAGE, Op.PREPARE, Op.EXECUTE)),
        told=tuple(call for op in (Op.RECORD, Op.OFFER) for call in by_op[op] if call.outcome is Kind.OK),
        stages=_stages(by_op[Op.STAGE]),
        inputs=inputs,
        golden=_golden(by_op[Op.GOLDEN], golden),
        assertions=tuple(by_op[Op.ASSERTION]),
        restores=_restores(history.entries),
        settle=by_op[Op.SETTLE][-1] if by_op[Op.SETTLE] else None,
    )


def _by_sink(found: Iterable[Call]) -> dict[str, tuple[Call, ...]]:
    grouped: dict[str, list[Call]] = {}
    for call in found:
        grouped.setdefault(call.said.sink or "", []).append(call)
    return {sink: tuple(group) for sink, group in grouped.items()}


def _stages(found: Iterable[Call]) -> dict[str, Call]:
    """The stagings that may have left a manifest, the earliest of each."""
    kept: dict[str, Call] = {}
    for call in found:
        if call.said.manifest is not None and call.outcome is not Kind.FAIL:
            kept.setdefault(call.said.manifest, call)
    return kept


def _reads(found: Iterable[Call]) -> dict[str, tuple[Read, ...]]:
    answered = sorted((call for call in found if call.outcome is Kind.READ), key=lambda call: call.answered or call.at)
    return {sink: tuple(_read(call) for call in group) for sink, group in _by_sink(answered).items()}


def _read(call: Call) -> Read:
    said = call.said
    return Read(
        sink=said.sink or "",
        who=call.who,
        began=call.at if call.announced else None,
        at=call.answered or call.at,
        rows=said.rows,
        markers=None if said.markers is None else {mark.epoch: mark for mark in said.markers},
        final=said.final,
        leaks=said.leaks,
    )


def _golden(found: Iterable[Call], run: History | None) -> dict[str, tuple[Row, ...]]:
    told = {call.said.sink or "": call.said.rows or () for call in found}
    if run is None:
        return told
    last = {entry.sink or "": entry.rows for entry in run.entries if entry.kind is Kind.READ and entry.final}
    return {**told, **{sink: rows for sink, rows in last.items() if rows is not None}}


def _restores(entries: Sequence[Entry]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for line, entry in enumerate(entries, FIRST_LINE):
        if entry.kind is Kind.FAULT and entry.fault == RESTORE:
            found.setdefault(entry.sink or "", []).append(line)
    return {sink: tuple(lines) for sink, lines in found.items()}
