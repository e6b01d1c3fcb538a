"""Carry out a rewind: fence, then cut back or bring level.

It can be killed at any point and repeated. The position of a sink is read from the sink, a commit requires the chain of
the epoch before, and the ledger is written last.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from onceonly import faults
from onceonly.audit.rules_records import became, unread
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.machine import coordinator
from onceonly.machine import rewind as rules
from onceonly.machine.acceptance import GAPS, Stop, applicable
from onceonly.machine.state import Job, State
from onceonly.protocol import Batch, Peek, Prepared, ReadsRows, Sink
from onceonly.protocol.capabilities import implements
from onceonly.replay.source_check import IsThere, SourceAvailability, by_lists, check_source, is_there
from onceonly.runtime import operator_epoch, runs, sink_gaps, sink_refusals, staging
from onceonly.runtime.remedies import CommandContext, filled, last, rewound
from onceonly.runtime.runner import Runner
from onceonly_checkpoints.epoch import Epoch, EpochRecord, receipts_of
from onceonly_checkpoints.ledger import Event, EventKind, Ledger
from onceonly_checkpoints.manifest import UnreadableManifest
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_checkpoints.storage import Readable

Give = Callable[[Sequence[rules.Step], Callable[[rules.Step, Batch], None]], None]
"""Passes each step's rows on, in order, from another sink or from the source: steps of one sink and one kind of origin.
The batch has their digest once they were read, which is before the call returns."""

_READ = frozenset({rules.OriginKind.SINK, rules.OriginKind.SOURCE})
"""Kinds of origins whose rows Spark reads."""


def nowhere(_: Epoch) -> None:
    """No checkpoint."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Arguments of a rewind. ``sinks`` are all, in commit order.

    ``checkpoint`` returns the query's checkpoint of an epoch, or ``None`` if it cannot be found.
    """

    name: str
    sinks: tuple[Sink, ...]
    ledger: Ledger
    where: CommandContext
    is_there: IsThere = is_there
    checkpoint: Callable[[Epoch], Readable | None] = nowhere


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """A planned rewind.

    Attributes:
        epochs: known ones by number.
        lacking: rows that the source lacks of epochs set aside, by number. They may be lost.
        unasked: parts of the source that cannot be checked, in words.
        reset_epochs: epochs that sinks are set to first, by id, because their markers are newer than their rows.
    """

    direction: rules.CutBack | rules.BringUp
    epochs: Mapping[int, Epoch]
    lacking: Mapping[int, str]
    unasked: tuple[str, ...] = ()
    reset_epochs: Mapping[str, int] = field(default_factory=dict)

    @property
    def reads(self) -> frozenset[rules.OriginKind]:
        """Kinds of origins from which Spark reads rows."""
        steps = self.direction.steps if isinstance(self.direction, rules.BringUp) else ()
        return frozenset(step.origin.kind for step in steps) & _READ


def plan(of: Pipeline, request: rules.RewindRequest, *, code: bool = False) -> RewindPlan:
    """Plan a rewind. Fences no driver out and changes nothing.

    ``code`` is whether the query's code is available. Raises E110: no such sink, or its markers outlived its target.
    E230: the source lacks rows. E231: a sink is at another epoch. E232: no place has rows of an epoch. Also errors of a
    sink that does not answer.
    """
    sights: dict[str, Peek] = {}
    for sink in of.sinks:
        sink.open(of.name)
        with sink_refusals.naming(sink):
            sights[sink.id] = sink.look()
    marker_epochs = {sink: sight.epoch for sink, sight in sights.items()}
    anew = sink_gaps.stale_sinks(of.sinks, marker_epochs, receipts_of(of.ledger.head(of.name)))
    holds = {sink.id: sink_refusals.content(sink) for sink in of.sinks}
    # A target that was restored with its rows, as from a dump, replaces the old one at the epoch of these rows.
    restored_epochs = {
        sink_id: at
        for sink_id, at in holds.items()
        if at is not None and (at < marker_epochs[sink_id] or sink_id in anew)
    }
    sink_epochs = marker_epochs | restored_epochs
    records = of.ledger.epochs(of.name, request.to or 1)
    epochs = {record.epoch.number: record.epoch for record in records}
    for marker, _ in sink_refusals.histories(of.sinks, max(request.to - 1, 0)):
        epochs.setdefault(marker.epoch.number, marker.epoch)
    behind = [epoch for number, epoch in epochs.items() if number > min(sink_epochs.values())]
    source = _source(of, request, epochs, records, code=code)
    facts = rules.RewindFacts(
        request,
        sink_epochs,
        epochs,
        staged={epoch.number for epoch in behind if epoch.manifest and _is_staged(epoch.manifest)},
        readable=[
            sink.id
            for sink in of.sinks
            if implements(sink, ReadsRows, "read_with_spark") and sink.recount() is not None
        ],
        code=code,
        gone=source.gone,
        # A sink that is set to another epoch first has no marker of that epoch yet.
        chains={
            sink_id: peek.marker.epoch.chain
            for sink_id, peek in sights.items()
            if peek.marker and sink_id not in restored_epochs
        },
        outlived={sink: now for sink, now in anew.items() if sink not in restored_epochs},
    )
    decision = rules.decide(facts)
    if not isinstance(decision, rules.CutBack | rules.BringUp):
        raise _hindered(of, request, decision, facts)
    return RewindPlan(decision, epochs, source.gone, source.unasked, restored_epochs)


def plan_unseen(of: Pipeline, request: rules.RewindRequest, records: Sequence[EpochRecord]) -> RewindPlan:
    """Plan a cut of the checkpoint alone, if sinks cannot be found from here.

    All sinks are at the newest of ``records``, the ledger's. Raises E230: the source lacks rows.
    """
    epochs = {record.epoch.number: record.epoch for record in records}
    source = _source(of, request, epochs, records, code=False)
    facts = rules.RewindFacts(request, {}, epochs, gone=source.gone)
    decision = rules.decide(facts)
    if isinstance(decision, rules.CutBack):
        return RewindPlan(decision, epochs, source.gone, source.unasked)
    if isinstance(decision, rules.BringUp):
        raise TypeError(f"{decision} cuts nothing back")
    raise _hindered(of, request, decision, facts)


def _is_staged(reference: str) -> bool:
    try:
        staging.fetch(reference, None)
    except UnreadableManifest:
        return False
    return True


def _source(
    of: Pipeline,
    request: rules.RewindRequest,
    epochs: Mapping[int, Epoch],
    records: Sequence[EpochRecord],
    *,
    code: bool,
) -> SourceAvailability:
    """Check whether the source still has the rows that a rewind reads from it."""
    if base := None if request.sinks else epochs.get(request.to):
        return check_source(base, epochs, records, of.checkpoint(base), of.is_there)
    return by_lists(records, request.to, of.is_there) if code or not request.sinks else SourceAvailability({})


def _hindered(
    of: Pipeline, request: rules.RewindRequest, hindrance: rules.Hindered, facts: rules.RewindFacts
) -> OnceOnlyError:
    """Error of a rewind that cannot be carried out, with the command that can."""
    audit = f"see the epochs of the sinks: onceonly audit {of.where.query}"
    match hindrance:
        case rules.UnknownTarget():
            return misused(hindrance.problem, hindrance.cause, audit)
        case rules.UnexpectedPosition():
            position_details = {"sink": hindrance.sink, "stands": hindrance.sink_epoch, "cause": hindrance.cause}
            remedy = rewound(of.where, hindrance.instead)
            return refuse("E231", pipeline=of.name, to=request.to, next=remedy, **position_details)
        case rules.StaleMarkers():
            [sink] = [candidate for candidate in of.sinks if candidate.id == hindrance.sink]
            return sink_gaps.refused(sink, of.where, hindrance.sink_epoch, hindrance.now)
        case rules.SourceRowsMissing():
            gone = {"first": hindrance.first, "last": hindrance.last, "reason": hindrance.reason}
            remedy = f"{rewound(of.where, request)} --accept-loss {hindrance.first}..{hindrance.last}"
            return refuse(
                "E230", pipeline=of.name, next=f"or accept that exactly these rows are lost: {remedy}", **gone
            )
        case rules.RowsUnavailable():
            remedy = filled(of.where) if hindrance.unknown else ""
            if hindrance.unread:
                command = f"{rewound(of.where, request)} --with MODULE:FUNCTION"
                remedy += f"if the source still holds them, read them by the query's own code: {command}\nor "
            remedy += "restore a newer backup of the sink"
            if given_up := _given_up(of, facts.sink_epochs, facts.newest):
                remedy += f"\nor give the rows up: {of.where.adopt(given_up)}"
            details = {
                "sink": hindrance.sink,
                "epoch": hindrance.epoch,
                "reason": hindrance.reason,
                "because": _alone(facts, hindrance),
            }
            return refuse("E232", pipeline=of.name, **details, next=remedy)


def _alone(facts: rules.RewindFacts, hindrance: rules.RowsUnavailable) -> str | None:
    """Reason why no other sink has the rows, if only this one ever got them: ids, bad rows, an output of its own."""
    epoch = facts.epochs.get(hindrance.epoch)
    output = epoch.output(hindrance.sink) if epoch else None
    if output is None or len(output.sinks) > 1:
        return None
    hint = "staged bytes are kept for one epoch by default (storage=Storage(keep_epochs=N))"
    return f'no other sink got this part of the epoch (output "{output.name}"); and {hint}'


def undone(of: Pipeline, planned: RewindPlan) -> tuple[str, ...]:
    """Epochs of a cut back that Spark does not read again, each with the way to restore it."""
    numbers = planned.direction.removed_epochs if isinstance(planned.direction, rules.CutBack) else ()
    return tuple(
        f"{became(epoch)}: {_once_more(of, epoch)}" for epoch in unread(planned.epochs[number] for number in numbers)
    )


def _once_more(of: Pipeline, epoch: Epoch) -> str:
    if epoch.replays:
        arguments = f"{shlex.quote(epoch.replays.pipeline)} --over {shlex.quote(of.name)}{of.where.ledger}"
        return "before the query starts, publish it again: onceonly replay publish " + arguments
    if epoch.replaces:
        refreshed = f"onceonly recover refresh {shlex.quote(of.name)}{of.where.ledger} --how replace"
        return (
            f"rows of epochs {epoch.replaces[0]}..{epoch.replaces[1]} are current again; refresh once more: {refreshed}"
        )
    return "decide it again once the query has continued"


def instead(of: Pipeline, planned: RewindPlan) -> str:
    """Command in place of a cut back that is impossible, on its own line."""
    at = planned.direction.to if isinstance(planned.direction, rules.CutBack) else 0
    given_up = _given_up(of, {sink.id: at for sink in of.sinks}, max((*planned.epochs, at)))
    if given_up is None:
        return "\nor start the query: its message prints how you give the rows up"
    return f"\nor give the rows up: {of.where.adopt(given_up)}"


def _given_up(of: Pipeline, sink_epochs: Mapping[str, int], newest: int) -> Adoption | None:
    """Return the acceptance in place of a rewind: that of the newest refusal, or else of the epochs that sinks lack.

    The newest refusal is E209 for a table that was restored to an older state. For a ledger that was restored with the
    sinks, it names the gap up to the checkpoint.
    """
    refused = last(of.ledger, of.name)
    if refused and refused.code == "E209":
        return applicable(AdoptionKind.ACCEPT_CHANGE, refused)
    lacking = tuple(sink for sink, epoch in sink_epochs.items() if epoch < newest)
    behind = Stop("E207", lacking, min(sink_epochs.values()) + 1, newest) if lacking else None
    if behind is None and refused and refused.code in GAPS:
        behind = refused
    return applicable(AdoptionKind.ACCEPT_LOSS, behind)


# ---- Execution.


@dataclass(frozen=True, slots=True)
class Rewound:
    """Result of a rewind: our generation, and actions as sentences. Every older driver is fenced out."""

    generation: int
    messages: tuple[str, ...]


def cut_back(of: Pipeline, planned: RewindPlan) -> Rewound:
    """Fence every driver out of every sink, and set later records aside (E110: a sink went on since the plan)."""
    decision = planned.direction
    if not isinstance(decision, rules.CutBack):
        raise TypeError(f"{decision} cuts nothing back")
    state = _open(of, tuple(sink.id for sink in of.sinks), planned.reset_epochs)
    current = state.opening.last.number if state.opening.last else 0
    if current != decision.to or any(reading.position.epoch != decision.to for reading in state.opening.readings):
        raise operator_epoch.went_on(of.name, current, decision.to)
    given_up = {number: reason for number, reason in sorted(planned.lacking.items()) if number > decision.to}
    for sink in of.sinks:
        _remember(of, sink, decision.to)
    faults.fire(faults.Point.RECORD_BEFORE)
    count = len(of.ledger.supersede(of.name, decision.to + 1, rules.why(decision.to, given_up)))
    faults.fire(faults.Point.RECORD_AFTER)
    summary = f"every sink is at epoch {decision.to}; {count} epoch{'' if count == 1 else 's'} after it taken back"
    summary += ", to be read from the source again"
    if gone := unread(planned.epochs[number] for number in decision.removed_epochs):
        summary += f", but for {', '.join(map(became, gone))}"
    if given_up:
        lost = "; ".join(f"epoch {number}: {reason}" for number, reason in given_up.items())
        summary += f"; the source lacks and it is accepted: {lost}"
    generation = state.opening.fence.generation
    of.ledger.note(Event(of.name, EventKind.REWOUND, summary, decision.to, generation))
    return Rewound(generation, (summary,))


def bring_up(of: Pipeline, planned: RewindPlan, request: rules.RewindRequest, give: Give) -> Rewound:
    """Fence every driver out, and give the requested sinks the epochs that they lack.

    Steps are skipped that a sink turns out to hold under the fence. ``give`` reads rows that are not staged. Raises
    E233: rows of an epoch differ from those committed. E301: an answer was lost. E401: a newer driver opened the
    pipeline. Also errors of the opening and the sinks.
    """
    decision = planned.direction
    if not isinstance(decision, rules.BringUp):
        raise TypeError(f"{decision} brings nothing up")
    # Other sinks may lack recorded epochs, and are cut back together with these afterwards.
    all_behind = decision.newest < max(planned.epochs, default=0)
    moves = {*request.sinks, *planned.reset_epochs}
    rewound_ = tuple(sink.id for sink in of.sinks if all_behind or sink.id in moves)
    state = _open(of, rewound_, planned.reset_epochs)
    sink_gaps.demand([sink for sink in of.sinks if sink.id in request.sinks], of.where, state.opening.readings)
    sink_epochs = {reading.sink: reading.position.epoch for reading in state.opening.readings}
    summaries: list[str] = []
    for sink in (candidate for candidate in of.sinks if candidate.id in moves - {*request.sinks}):
        _remember(of, sink, sink_epochs[sink.id])
    for sink in (candidate for candidate in of.sinks if candidate.id in request.sinks):
        steps = [step for step in decision.steps if step.sink == sink.id and step.epoch.number > sink_epochs[sink.id]]
        for kind, those in groupby(steps, key=lambda step: step.origin.kind):
            take = partial(_bring, of, state, sink)
            if kind in _READ:
                give(tuple(those), take)
            else:
                for step in those:
                    take(step, _staged(step) if kind is rules.OriginKind.STAGED else None)
        _remember(of, sink, request.to)
        origins = ", ".join(dict.fromkeys(step.origin.text for step in steps))
        what = f"{sink.id} brought from epoch {sink_epochs[sink.id]} to {decision.newest}"
        summaries.append(f"{what}, rows from: {origins}" if steps else f"{sink.id} is at epoch {decision.newest}")
        generation = state.opening.fence.generation
        of.ledger.note(Event(of.name, EventKind.ROLLED_FORWARD, summaries[-1], decision.newest, generation))
    return Rewound(state.opening.fence.generation, tuple(summaries))


def _open(of: Pipeline, rewound_: tuple[str, ...], restored_epochs: Mapping[str, int]) -> State:
    ids = tuple(sink.id for sink in of.sinks)
    state = coordinator.start(Job(of.name, ids, runs.owner("onceonly"), None, rewound=rewound_))
    return Runner(of.sinks, of.ledger, sink_epochs=restored_epochs).run(state)


def _bring(of: Pipeline, state: State, sink: Sink, step: rules.Step, batch: Batch | None) -> None:
    prepared = _prepared(of, sink, step, batch) if batch else None
    faults.fire(faults.Point.COMMIT_BEFORE)
    operator_epoch.committed(state, sink, of.sinks, of.ledger, step.epoch, rows=prepared)
    faults.fire(faults.Point.COMMIT_AFTER)


def _prepared(of: Pipeline, sink: Sink, step: rules.Step, batch: Batch) -> Prepared:
    epoch = step.epoch
    faults.fire(faults.Point.PREPARE_BEFORE)
    with sink_refusals.naming(sink):
        if epoch.replaces:
            prepared = sink_refusals.able(sink).prepare_replacement(batch, epoch.number, epoch.replaces)
        else:
            prepared = sink.prepare(batch, epoch.number)
    digest, expected = batch.digest(), epoch.digest_in(sink.id)
    if digest != expected or prepared.rows != expected.rows:
        prepared.abandon()
        raise _otherwise(of, step, digest.text, expected.text)
    faults.fire(faults.Point.PREPARE_AFTER)
    return prepared


def _otherwise(of: Pipeline, step: rules.Step, actual: str, recorded: str) -> OnceOnlyError:
    head = of.ledger.head(of.name)
    number = step.epoch.number
    details = {"first": number, "last": head.epoch.number if head else number, "found": actual, "recorded": recorded}
    where = {"sink": step.sink, "origin": step.origin.text, "ledger": shlex.quote(of.ledger.address)}
    return refuse("E233", pipeline=of.name, epoch=number, **where, **details)


def _staged(step: rules.Step) -> Batch:
    epoch = step.epoch
    output = epoch.output(step.sink)
    return staging.fetch(epoch.manifest or "", None).output(output.name if output else None)


def _remember(of: Pipeline, sink: Sink, to: int) -> None:
    """Replace recorded receipts by those that the sink returns now, after it was restored or created anew.

    Receipts are replaced oldest first, and those up to ``to`` only if the last of them differs. So a killed call starts
    over.
    """
    faults.fire(faults.Point.RECORD_BEFORE)
    with sink_refusals.naming(sink):
        receipts = {marker.epoch.number: receipt for marker, receipt in sink.history(max(to - 1, 0))}
        if to in receipts and any(receipts[to] not in record.receipts for record in of.ledger.epochs(of.name, to, to)):
            receipts = {marker.epoch.number: receipt for marker, receipt in sink.history()}
    for record in of.ledger.epochs(of.name, min(receipts, default=to)):
        receipt = receipts.get(record.epoch.number)
        if receipt and receipt.chain == record.epoch.chain and receipt not in record.receipts:
            others = tuple(other for other in record.receipts if other.sink != sink.id)
            of.ledger.record(replace(record, receipts=(*others, receipt)))
    faults.fire(faults.Point.RECORD_AFTER)
