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
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.machine import coordinator
from onceonly.machine.acceptance import GAPS, Stop, applicable
from onceonly.machine.rewind import (
    BringUp,
    CutBack,
    Hindered,
    OriginKind,
    RewindFacts,
    RewindRequest,
    RowsUnavailable,
    SourceRowsMissing,
    StaleMarkers,
    Step,
    UnexpectedPosition,
    UnknownTarget,
    decide,
    why,
)
from onceonly.machine.state import State
from onceonly.machine.undone_epochs import became, unread
from onceonly.protocol import Batch, Legible, OutcomeUnknown, Peek, Prepared, Sink, Superseded
from onceonly.replay.source_check import IsThere, SourceAvailability, beyond, by_lists, is_there
from onceonly.runtime import operator_epoch, refresh, runs, staging, stale_markers
from onceonly.runtime.remedies import CommandContext, content, filled, last, rewound
from onceonly.runtime.runner import Runner
from onceonly.runtime.unreadable_markers import histories, naming
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Marker, receipts_of
from onceonly_checkpoints.ledger import Event, EventKind, Ledger
from onceonly_checkpoints.manifest import UnreadableManifest
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_checkpoints.storage import Readable

Give = Callable[[Sequence[Step], Callable[[Step, Batch], None]], None]
"""Passes each step's rows on, in order, from another sink or from the source: steps of one sink and one kind of origin.
The batch has their digest once they were read, which is before the call returns."""


_READ = frozenset({OriginKind.SINK, OriginKind.SOURCE})
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
        standing: epochs that sinks are set to first, by id, because their markers are newer than their rows.
    """

    way: CutBack | BringUp
    epochs: Mapping[int, Epoch]
    lacking: Mapping[int, str]
    unasked: tuple[str, ...] = ()
    standing: Mapping[str, int] = field(default_factory=dict)

    @property
    def reads(self) -> frozenset[OriginKind]:
        """Kinds of origins from which Spark reads rows."""
        steps = self.way.steps if isinstance(self.way, BringUp) else ()
        return frozenset(step.origin.kind for step in steps) & _READ


def plan(of: Pipeline, asked: RewindRequest, *, code: bool = False) -> RewindPlan:
    """Plan a rewind. Fences no driver out and changes nothing.

    ``code`` is whether the query's code is available.

    Raises:
        OnceOnlyError: E110 no such sink, or its markers outlived its target. E230 the source lacks rows. E231 a sink is
            at another epoch. E232 no place has rows of an epoch. Also errors of a sink that does not answer.
    """
    for sink in of.sinks:
        sink.open(of.name)
    sights = {sink.id: _sight(sink) for sink in of.sinks}
    told = {sink: sight.epoch for sink, sight in sights.items()}
    anew = stale_markers.stale_sinks(of.sinks, told, receipts_of(of.ledger.head(of.name)))
    holds = {one.id: content(one) for one in of.sinks}
    # A target that was restored with its rows, as from a dump, replaces the old one at the epoch of these rows.
    standing = {one: at for one, at in holds.items() if at is not None and (at < told[one] or one in anew)}
    stands = told | standing
    records = of.ledger.epochs(of.name, asked.to or 1)
    epochs = {record.epoch.number: record.epoch for record in records}
    for marker, _ in histories(of.sinks, max(asked.to - 1, 0)):
        epochs.setdefault(marker.epoch.number, marker.epoch)
    behind = [epoch for number, epoch in epochs.items() if number > min(stands.values())]
    source = _source(of, asked, epochs, records, code=code)
    facts = RewindFacts(
        asked,
        stands,
        epochs,
        staged={epoch.number for epoch in behind if epoch.manifest and _is_staged(epoch.manifest)},
        readable=[sink.id for sink in of.sinks if isinstance(sink, Legible) and sink.recount() is not None],
        code=code,
        gone=source.gone,
        # A sink that is set to another epoch first has no marker of that epoch yet.
        chains={one: seen.marker.epoch.chain for one, seen in sights.items() if seen.marker and one not in standing},
        outlived={sink: now for sink, now in anew.items() if sink not in standing},
    )
    found = decide(facts)
    if not isinstance(found, CutBack | BringUp):
        raise _hindered(of, asked, found, facts)
    return RewindPlan(found, epochs, source.gone, source.unasked, standing)


def plan_unseen(of: Pipeline, asked: RewindRequest, records: Sequence[EpochRecord]) -> RewindPlan:
    """Plan a cut of the checkpoint alone, if sinks cannot be found from here.

    All sinks are at the newest of ``records``, the ledger's.

    Raises:
        OnceOnlyError: E230 the source lacks rows.
    """
    epochs = {record.epoch.number: record.epoch for record in records}
    source = _source(of, asked, epochs, records, code=False)
    facts = RewindFacts(asked, {}, epochs, gone=source.gone)
    found = decide(facts)
    if isinstance(found, CutBack):
        return RewindPlan(found, epochs, source.gone, source.unasked)
    if isinstance(found, BringUp):
        raise TypeError(f"{found} cuts nothing back")
    raise _hindered(of, asked, found, facts)


def _sight(sink: Sink) -> Peek:
    with naming(sink):
        return sink.look()


def _is_staged(reference: str) -> bool:
    try:
        staging.fetch(reference, None)
    except UnreadableManifest:
        return False
    return True


def _source(
    of: Pipeline, asked: RewindRequest, epochs: Mapping[int, Epoch], records: Sequence[EpochRecord], *, code: bool
) -> SourceAvailability:
    """Check whether the source still has the rows that a rewind reads from it."""
    if stood := None if asked.sinks else epochs.get(asked.to):
        return beyond(stood, epochs, records, of.checkpoint(stood), of.is_there)
    return by_lists(records, asked.to, of.is_there) if code or not asked.sinks else SourceAvailability({})


def _hindered(of: Pipeline, asked: RewindRequest, found: Hindered, facts: RewindFacts) -> OnceOnlyError:
    """Error of a rewind that cannot be carried out, with the command that can."""
    audit = f"see where the sinks stand: onceonly audit {of.where.query}"
    match found:
        case UnknownTarget():
            return refuse("E110", problem=found.problem, cause=found.cause, next=audit)
        case UnexpectedPosition():
            stood = {"sink": found.sink, "stands": found.stands, "cause": found.cause}
            way = rewound(of.where, found.instead)
            return refuse("E231", pipeline=of.name, to=asked.to, next=way, **stood)
        case StaleMarkers():
            [sink] = [one for one in of.sinks if one.id == found.sink]
            return stale_markers.refused(sink, of.where, found.stands, found.now)
        case SourceRowsMissing():
            gone = {"first": found.first, "last": found.last, "reason": found.reason}
            way = f"{rewound(of.where, asked)} --accept-loss {found.first}..{found.last}"
            return refuse("E230", pipeline=of.name, next=f"or accept that just these rows are lost: {way}", **gone)
        case RowsUnavailable():
            way = filled(of.where) if found.unknown else ""
            if found.unread:
                again = f"{rewound(of.where, asked)} --with MODULE:FUNCTION"
                way += f"if the source still holds them, read them by the query's own code: {again}\nor "
            way += "restore a newer backup of the sink"
            if given_up := _given_up(of, facts.stands, facts.newest):
                way += f"\nor give the rows up: {of.where.adopt(given_up)}"
            said = {"sink": found.sink, "epoch": found.epoch, "reason": found.reason, "because": _alone(facts, found)}
            return refuse("E232", pipeline=of.name, **said, next=way)


def _alone(facts: RewindFacts, found: RowsUnavailable) -> str | None:
    """Reason why no other sink has the rows, if only this one ever got them: ids, bad rows, an output of its own."""
    epoch = facts.epochs.get(found.epoch)
    output = epoch.output(found.sink) if epoch else None
    if output is None or len(output.sinks) > 1:
        return None
    kept = "staged bytes are kept for one epoch, if not told otherwise (staging=Staging(..., keep=N))"
    return f'no other sink got this part of the epoch (output "{output.name}"); and {kept}'


def undone(of: Pipeline, planned: RewindPlan) -> tuple[str, ...]:
    """Epochs of a cut back that Spark does not read again, each with the way to restore it."""
    beyond_ = planned.way.beyond if isinstance(planned.way, CutBack) else ()
    return tuple(
        f"{became(epoch)}: {_once_more(of, epoch)}" for epoch in unread(planned.epochs[number] for number in beyond_)
    )


def _once_more(of: Pipeline, epoch: Epoch) -> str:
    if epoch.replays:
        said = f"{shlex.quote(epoch.replays.pipeline)} --over {shlex.quote(of.name)}{of.where.ledger}"
        return "before the query starts, publish it again: onceonly epochs publish " + said
    if epoch.replaces:
        refreshed = f"onceonly queries refresh {shlex.quote(of.name)}{of.where.ledger} --how replace"
        return f"rows of epochs {epoch.replaces[0]}..{epoch.replaces[1]} stand again; refresh anew: {refreshed}"
    return "decide it anew once the query has gone on"


def instead(of: Pipeline, planned: RewindPlan) -> str:
    """Command in place of a cut back that is impossible, on its own line."""
    at = planned.way.to if isinstance(planned.way, CutBack) else 0
    given_up = _given_up(of, {sink.id: at for sink in of.sinks}, max((*planned.epochs, at)))
    if given_up is None:
        return "\nor start the query: its message prints how the rows are given up"
    return f"\nor give the rows up: {of.where.adopt(given_up)}"


def _given_up(of: Pipeline, stands: Mapping[str, int], newest: int) -> Adoption | None:
    """Return the acceptance in place of a rewind: that of the newest refusal, or else of the epochs that sinks lack.

    The newest refusal is E209 for a table that was restored to an older state. For a ledger that was restored with the
    sinks, it names the gap up to the checkpoint.
    """
    refused = last(of.ledger, of.name)
    if refused and refused.code == "E209":
        return applicable(AdoptionKind.ACCEPT_CHANGE, refused)
    behind = _as_behind(stands, newest)
    if behind is None and refused and refused.code in GAPS:
        behind = refused
    return applicable(AdoptionKind.ACCEPT_LOSS, behind)


def _as_behind(stands: Mapping[str, int], newest: int) -> Stop | None:
    """Return the stop of the query's next start, or ``None`` if no sink is behind."""
    lacking = tuple(sink for sink, epoch in stands.items() if epoch < newest)
    return Stop("E207", lacking, min(stands.values()) + 1, newest) if lacking else None


# ---- Execution.


@dataclass(frozen=True, slots=True)
class Rewound:
    """Result of a rewind: our generation, and actions as sentences. Every older driver is fenced out."""

    generation: int
    said: tuple[str, ...]


def cut_back(of: Pipeline, planned: RewindPlan) -> Rewound:
    """Fence every driver out of every sink, and set the ledger's records beyond an epoch aside.

    Raises:
        OnceOnlyError: E110, a sink went on since the plan. Also errors of the opening.
    """
    way = planned.way
    if not isinstance(way, CutBack):
        raise TypeError(f"{way} cuts nothing back")
    state = _open(of, tuple(sink.id for sink in of.sinks), planned.standing)
    stands = state.opening.last.number if state.opening.last else 0
    if stands != way.to or any(reading.position.epoch != way.to for reading in state.opening.readings):
        raise operator_epoch.went_on(of.name, stands, way.to)
    given_up = {number: reason for number, reason in sorted(planned.lacking.items()) if number > way.to}
    for sink in of.sinks:
        _remember(of, sink, way.to)
    faults.fire(Point.RECORD_BEFORE)
    count = len(of.ledger.supersede(of.name, way.to + 1, why(way.to, given_up)))
    faults.fire(Point.RECORD_AFTER)
    said = f"every sink stands at epoch {way.to}; {count} epoch{'' if count == 1 else 's'} beyond it set aside"
    said += ", to be read from the source again"
    if gone := unread(planned.epochs[number] for number in way.beyond):
        said += f", but for {', '.join(map(became, gone))}"
    if given_up:
        lost = "; ".join(f"epoch {number}: {reason}" for number, reason in given_up.items())
        said += f"; the source lacks and it is accepted: {lost}"
    generation = state.opening.fence.generation
    of.ledger.note(Event(of.name, EventKind.REWOUND, said, way.to, generation))
    return Rewound(generation, (said,))


def bring_up(of: Pipeline, planned: RewindPlan, asked: RewindRequest, give: Give) -> Rewound:
    """Fence every driver out, and give the requested sinks the epochs that they lack.

    Steps are skipped that a sink turns out to hold under the fence. ``give`` reads rows that are not staged.

    Raises:
        OnceOnlyError: E233 rows of an epoch differ from those committed. E301 an answer was lost. E401 a newer driver
            opened the pipeline. Also errors of the opening and the sinks.
    """
    way = planned.way
    if not isinstance(way, BringUp):
        raise TypeError(f"{way} brings nothing up")
    # Other sinks may lack recorded epochs, and are cut back together with these afterwards.
    all_behind = way.newest < max(planned.epochs, default=0)
    moves = {*asked.sinks, *planned.standing}
    rewound_ = tuple(sink.id for sink in of.sinks if all_behind or sink.id in moves)
    state = _open(of, rewound_, planned.standing)
    stale_markers.demand([sink for sink in of.sinks if sink.id in asked.sinks], of.where, state.opening.readings)
    stands = {reading.sink: reading.position.epoch for reading in state.opening.readings}
    said: list[str] = []
    for sink in (one for one in of.sinks if one.id in moves - {*asked.sinks}):
        _remember(of, sink, stands[sink.id])
    for sink in (one for one in of.sinks if one.id in asked.sinks):
        steps = [step for step in way.steps if step.sink == sink.id and step.epoch.number > stands[sink.id]]
        for kind, those in groupby(steps, key=lambda step: step.origin.kind):
            take = partial(_bring, of, state, sink)
            if kind in _READ:
                give(tuple(those), take)
            else:
                for step in those:
                    take(step, _staged(step) if kind is OriginKind.STAGED else None)
        _remember(of, sink, asked.to)
        origins = ", ".join(dict.fromkeys(step.origin.text for step in steps))
        what = f"{sink.id} brought from epoch {stands[sink.id]} to {way.newest}"
        said.append(f"{what}, rows from: {origins}" if steps else f"{sink.id} stands at epoch {way.newest}")
        generation = state.opening.fence.generation
        of.ledger.note(Event(of.name, EventKind.BROUGHT_UP, said[-1], way.newest, generation))
    return Rewound(state.opening.fence.generation, tuple(said))


def _open(of: Pipeline, rewound_: tuple[str, ...], standing: Mapping[str, int]) -> State:
    ids = tuple(sink.id for sink in of.sinks)
    state = coordinator.start(of.name, ids, runs.owner("onceonly"), None, rewound=rewound_)
    return Runner(of.sinks, of.ledger, standing=standing).run(state)


def _bring(of: Pipeline, state: State, sink: Sink, step: Step, batch: Batch | None) -> None:
    """Commit an epoch to one sink with its original marker, except for the fence."""
    epoch, fence = step.epoch, state.opening.fence
    prepared = _prepared(of, sink, step, batch) if batch else None
    marker = Marker(of.name, sink.id, fence, epoch)
    faults.fire(Point.COMMIT_BEFORE)
    try:
        with naming(sink):
            sink.commit(prepared, marker)
    except Superseded as fenced:
        theirs, by = fenced.found.generation, fenced.found.who or "a newer driver"
        raise refuse("E401", sink=sink.id, theirs=theirs, ours=fence.generation, by=by) from fenced
    except OutcomeUnknown as lost:
        said = {"sink": sink.id, "reason": lost.reason, "ledger": shlex.quote(of.ledger.address)}
        raise refuse("E301", epoch=epoch.number, pipeline=of.name, **said) from lost
    except BaseException:
        if prepared:
            prepared.abandon()
        raise
    faults.fire(Point.COMMIT_AFTER)


def _prepared(of: Pipeline, sink: Sink, step: Step, batch: Batch) -> Prepared:
    epoch = step.epoch
    faults.fire(Point.PREPARE_BEFORE)
    with naming(sink):
        if epoch.replaces:
            prepared = refresh.able(sink).prepare_replacing(batch, epoch.number, epoch.replaces)
        else:
            prepared = sink.prepare(batch, epoch.number)
    found, wanted = batch.digest(), epoch.digest_in(sink.id)
    if found != wanted or prepared.rows != wanted.rows:
        prepared.abandon()
        raise _otherwise(of, step, found.text, wanted.text)
    faults.fire(Point.PREPARE_AFTER)
    return prepared


def _otherwise(of: Pipeline, step: Step, found: str, recorded: str) -> OnceOnlyError:
    head = of.ledger.head(of.name)
    number = step.epoch.number
    said = {"first": number, "last": head.epoch.number if head else number, "found": found, "recorded": recorded}
    where = {"sink": step.sink, "origin": step.origin.text, "ledger": shlex.quote(of.ledger.address)}
    return refuse("E233", pipeline=of.name, epoch=number, **where, **said)


def _staged(step: Step) -> Batch:
    epoch = step.epoch
    output = epoch.output(step.sink)
    return staging.fetch(epoch.manifest or "", None).output(output.name if output else None)


def _remember(of: Pipeline, sink: Sink, to: int) -> None:
    """Replace recorded receipts by those that the sink returns now, after it was restored or created anew.

    Receipts are replaced oldest first, and those up to ``to`` only if the last of them differs. So a killed call starts
    over.
    """
    faults.fire(Point.RECORD_BEFORE)
    with naming(sink):
        told = {marker.epoch.number: receipt for marker, receipt in sink.history(max(to - 1, 0))}
        if to in told and any(told[to] not in record.receipts for record in of.ledger.epochs(of.name, to, to)):
            told = {marker.epoch.number: receipt for marker, receipt in sink.history()}
    for record in of.ledger.epochs(of.name, min(told, default=to)):
        receipt = told.get(record.epoch.number)
        if receipt and receipt.chain == record.epoch.chain and receipt not in record.receipts:
            others = tuple(one for one in record.receipts if one.sink != sink.id)
            of.ledger.record(replace(record, receipts=(*others, receipt)))
    faults.fire(Point.RECORD_AFTER)
