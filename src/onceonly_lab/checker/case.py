"""Pair calls with answers in a history, and group commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from onceonly_lab.history import RESTORE, Entry, Header, History, Kind, Mark, Op, Range, Row

# ---- Pairs what was invoked with its answer; an ``invoke`` without one is ``info``. Pure.

FIRST_LINE = 2
"""Line of the first entry: the header is line 1."""

Who = tuple[str, int]
"""One start of an actor: its name and incarnation."""


@dataclass(frozen=True, slots=True)
class Call:
    """What an actor invoked, and what it was answered.

    Attributes:
        said: the invoke, completed by what only the answer says.
        at: line of the invoke; of the answer where nothing was invoked.
        outcome: ``ok``, ``fail``, ``info`` or ``read``.
        answered: line of the answer; ``None`` if there was none.
        announced: whether there was an invoke.
    """

    said: Entry
    at: int
    outcome: Kind
    answered: int | None
    announced: bool

    @property
    def who(self) -> Who:
        """Whose call it is."""
        return self.said.actor, self.said.incarnation

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines that show it."""
        return (self.at,) if self.answered in (None, self.at) else (self.at, self.answered or self.at)


def calls(entries: Iterable[Entry]) -> list[Call]:
    """Every call of a history, in the order of their first lines."""
    return sorted(_paired(entries), key=lambda call: call.at)


def _paired(entries: Iterable[Entry]) -> Iterator[Call]:
    waiting: dict[tuple[Who, Op, str | None], list[tuple[int, Entry]]] = {}
    for line, entry in enumerate(entries, FIRST_LINE):
        op = Op.READ if entry.kind is Kind.READ else entry.op
        if op is None:
            continue
        opened = waiting.setdefault(((entry.actor, entry.incarnation), op, entry.sink), [])
        if entry.kind is Kind.INVOKE:
            opened.append((line, entry))
        elif opened:
            at, invoke = opened.pop()
            yield Call(_completed(invoke, entry), at, entry.kind, line, announced=True)
        else:
            yield Call(entry, line, entry.kind, line, announced=False)
    for opened in waiting.values():
        yield from (Call(invoke, at, Kind.INFO, None, announced=True) for at, invoke in opened)


_SAID = tuple(field.name for field in fields(Entry) if field.name not in ("actor", "kind", "op", "incarnation", "time"))
_DEFAULTS = {field.name: field.default for field in fields(Entry)}


def _completed(invoke: Entry, answer: Entry) -> Entry:
    added: dict[str, Any] = {
        name: getattr(answer, name)
        for name in _SAID
        if getattr(invoke, name) == _DEFAULTS[name] and getattr(answer, name) != _DEFAULTS[name]
    }
    return replace(invoke, **added) if added else invoke


# ---- Commits and what became of them: sent, answered, looked up, and the rows they bring. Pure.


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit that was sent to one sink.

    Attributes:
        sink: sink id.
        epoch: number of the epoch.
        call: its invoke and answer; the outcome is the one that a later look-up found.
        known: line from which the outcome is certain; ``None`` if it never was.
        lost: its own answer did not come.
        rows: identities of what it brings; ``None`` where the history does not say.
        bad: of the epoch's other rows those that are bad; see :mod:`~onceonly_lab.checker.shares`.
        unwanted: of the epoch's other rows those that the sink does not want.
        divided: whether the epoch has outputs.
    """

    sink: str
    epoch: int
    call: Call
    known: int | None
    lost: bool
    rows: frozenset[str] | None
    bad: frozenset[str] = frozenset()
    unwanted: frozenset[str] = frozenset()
    divided: bool = False

    @property
    def epochs_rows(self) -> frozenset[str]:
        """All rows of its epoch, as far as they are known: what it brings, and what is not for its sink."""
        return (self.rows or frozenset[str]()) | self.bad | self.unwanted

    @property
    def at(self) -> int:
        """Line where it was sent."""
        return self.call.at

    @property
    def outcome(self) -> Kind:
        """``ok``, ``fail`` or ``info``."""
        return self.call.outcome

    @property
    def generation(self) -> int | None:
        """In whose name."""
        return self.call.said.generation

    @property
    def count(self) -> int | None:
        """How many rows it brings, where that is known."""
        return self.call.said.count if self.rows is None else len(self.rows)


def grouped(
    sent: Sequence[Call], look_ups: Sequence[Call], inputs: Sequence[Entry]
) -> dict[tuple[str, int], tuple[Commit, ...]]:
    """The commits that were sent, by sink and epoch.

    Args:
        sent: the calls that sent one.
        look_ups: the calls that looked for one whose answer was lost.
        inputs: rows of the source with their slices, for commits that do not name their rows.
    """
    commits: dict[tuple[str, int], list[Commit]] = {}
    for call in sent:
        sink, epoch = call.said.sink, call.said.epoch
        if sink is not None and epoch is not None:
            resolved = _looked_up(call, sent, look_ups) if call.outcome is Kind.INFO else None
            rows = _brought(call.said, inputs)
            commits.setdefault((sink, epoch), []).append(_commit((sink, epoch), call, resolved, rows))
    return {sink_epoch: tuple(group) for sink_epoch, group in commits.items()}


def grouped_as(
    groups: Mapping[tuple[str, int], tuple[Commit, ...]], change: Callable[[Commit], Commit]
) -> dict[tuple[str, int], tuple[Commit, ...]]:
    """The same commits, each changed."""
    return {sink_epoch: tuple(change(commit) for commit in group) for sink_epoch, group in groups.items()}


def _commit(sink_epoch: tuple[str, int], call: Call, resolved: Call | None, rows: frozenset[str] | None) -> Commit:
    lost = call.outcome is Kind.INFO
    if resolved is not None:
        call = Call(call.said, call.at, resolved.outcome, resolved.answered, call.announced)
    return Commit(*sink_epoch, call, None if call.outcome is Kind.INFO else call.answered, lost, rows)


def _looked_up(call: Call, sent: Sequence[Call], look_ups: Sequence[Call]) -> Call | None:
    """The certain answer to the first look-up of the same driver before it sends the epoch to that sink again."""

    def about(other: Call) -> bool:
        return (other.who, other.said.sink, other.said.epoch) == (call.who, call.said.sink, call.said.epoch)

    until = min((other.at for other in sent if about(other) and other.at > call.at), default=None)
    return next(
        (
            look_up
            for look_up in look_ups
            if about(look_up)
            and look_up.outcome is not Kind.INFO
            and call.at < look_up.at
            and (until is None or look_up.at < until)
        ),
        None,
    )


def _brought(commit_entry: Entry, inputs: Sequence[Entry]) -> frozenset[str] | None:
    """What a commit brings: the rows it names, else those of the input that lie in its slice."""
    if commit_entry.rows is not None:
        return frozenset(row.identity for row in commit_entry.rows)
    if commit_entry.slice is None or not inputs:
        return None
    spans = {span.partition: span for span in commit_entry.slice}
    parts = [(entry, _part(entry.slice or (), spans)) for entry in inputs]
    if any(part is None for _, part in parts):
        return None
    return frozenset(row.identity for entry, part in parts if part for row in entry.rows or ())


def _part(inner: tuple[Range, ...], spans: Mapping[str, Range]) -> bool | None:
    """Whether a piece of the input lies in a slice; ``None`` if the slice cuts it."""
    ends = [(span, spans.get(span.partition)) for span in inner if span.start < span.end]
    if all(out is None or span.end <= out.start or out.end <= span.start for span, out in ends):
        return False
    within = all(out is not None and out.start <= span.start and span.end <= out.end for span, out in ends)
    return True if within else None


# ---- A history laid out for the rules: what was sent, what was read, what exists. Facts only, nothing is judged.
# Pure.


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
        former: rows of the source as they were of series that a full refresh has replaced.
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
    former: tuple[Entry, ...] = ()

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
    all_calls = calls(history.entries)
    by_op: dict[Op, list[Call]] = {op: [] for op in Op}
    for call in all_calls:
        by_op[call.said.op or Op.READ].append(call)
    inputs = tuple(call.said for call in by_op[Op.INPUT])
    return Case(
        header=history.header,
        entries=history.entries,
        commits=grouped(by_op[Op.COMMIT], by_op[Op.LOOK_UP], inputs),
        installs=_by_sink(by_op[Op.INSTALL]),
        reads=_reads(by_op[Op.READ]),
        computed=tuple(call for call in all_calls if call.said.op in (Op.STAGE, Op.PREPARE, Op.EXECUTE)),
        told=tuple(call for op in (Op.RECORD, Op.OFFER) for call in by_op[op] if call.outcome is Kind.OK),
        stages=_stages(by_op[Op.STAGE]),
        inputs=inputs,
        golden=_golden(by_op[Op.GOLDEN], golden),
        assertions=tuple(by_op[Op.ASSERTION]),
        restores=_restores(history.entries),
        settle=by_op[Op.SETTLE][-1] if by_op[Op.SETTLE] else None,
    )


def _by_sink(sink_calls: Iterable[Call]) -> dict[str, tuple[Call, ...]]:
    grouped: dict[str, list[Call]] = {}
    for call in sink_calls:
        grouped.setdefault(call.said.sink or "", []).append(call)
    return {sink: tuple(group) for sink, group in grouped.items()}


def _stages(stage_calls: Iterable[Call]) -> dict[str, Call]:
    """The stagings that may have left a manifest, the earliest of each."""
    calls_by_manifest: dict[str, Call] = {}
    for call in stage_calls:
        if call.said.manifest is not None and call.outcome is not Kind.FAIL:
            calls_by_manifest.setdefault(call.said.manifest, call)
    return calls_by_manifest


def _reads(read_calls: Iterable[Call]) -> dict[str, tuple[Read, ...]]:
    answered = sorted(
        (call for call in read_calls if call.outcome is Kind.READ), key=lambda call: call.answered or call.at
    )
    return {sink: tuple(_read(call) for call in group) for sink, group in _by_sink(answered).items()}


def _read(call: Call) -> Read:
    entry = call.said
    return Read(
        sink=entry.sink or "",
        who=call.who,
        began=call.at if call.announced else None,
        at=call.answered or call.at,
        rows=entry.rows,
        markers=None if entry.markers is None else {mark.epoch: mark for mark in entry.markers},
        final=entry.final,
        leaks=entry.leaks,
    )


def _golden(golden_calls: Iterable[Call], run: History | None) -> dict[str, tuple[Row, ...]]:
    rows_by_sink = {call.said.sink or "": call.said.rows or () for call in golden_calls}
    if run is None:
        return rows_by_sink
    last = {entry.sink or "": entry.rows for entry in run.entries if entry.kind is Kind.READ and entry.final}
    return {**rows_by_sink, **{sink: rows for sink, rows in last.items() if rows is not None}}


def _restores(entries: Sequence[Entry]) -> dict[str, tuple[int, ...]]:
    lines_by_sink: dict[str, list[int]] = {}
    for line, entry in enumerate(entries, FIRST_LINE):
        if entry.kind is Kind.FAULT and entry.fault == RESTORE:
            lines_by_sink.setdefault(entry.sink or "", []).append(line)
    return {sink: tuple(lines) for sink, lines in lines_by_sink.items()}
