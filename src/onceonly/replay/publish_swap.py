"""Publish a rerun: fence all drivers, swap rows in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.machine import admission
from onceonly.machine.facts import Refusal
from onceonly.machine.publish import PublishFacts, decide
from onceonly.protocol import Batch, Legible, Placed, Sink
from onceonly.runtime import ledger_sync, operator_epoch, refresh, seals
from onceonly.runtime.events import EventLog
from onceonly.runtime.unreadable_markers import naming
from onceonly_checkpoints.epoch import Epoch, EpochRecord, ReplayedEpochs
from onceonly_checkpoints.ledger import Event, EventKind, Ledger


@dataclass(frozen=True, slots=True)
class Publication:
    """A rerun to be published. ``source``, its target, is open. ``sink``, that of the pipeline, is not fenced yet."""

    pipeline: str
    sink: Sink
    name: str
    source: Sink
    ledger: Ledger


def plan(of: Publication) -> Epoch:
    """Return the epoch that would publish the rerun. Fences no driver out and changes nothing.

    Raises:
        OnceOnlyError: E240 the pipeline has gone on. E241 it is published. E242 its rows cannot be swapped. Also errors
            of a sink that does not answer.
    """
    of.sink.open(of.pipeline)
    with naming(of.sink):
        marker = of.sink.look().marker
    return _decided(of, marker.epoch if marker else None)


def _decided(of: Publication, last: Epoch | None) -> Epoch:
    held = tuple((marker.epoch, marker.epoch.replays) for marker, _ in of.source.history())
    facts = PublishFacts(
        of.pipeline,
        of.sink.id,
        last,
        {record.epoch.number: record.epoch for record in of.ledger.epochs(of.pipeline)},
        of.name,
        tuple((epoch, ran) for epoch, ran in held if ran is not None),
        _unfit(of, last, held),
        of.ledger.address,
        of.source.address,
        ledger_sync.cut(of.ledger, of.pipeline, of.ledger.head(of.pipeline)),
    )
    found = decide(facts)
    if isinstance(found, Refusal):
        raise refuse(found.code, **dict(found.details))
    return found


def _unfit(of: Publication, last: Epoch | None, held: tuple[tuple[Epoch, ReplayedEpochs | None], ...]) -> str:
    if any(ran is None or ran.pipeline != of.pipeline for _, ran in held):
        return f"{of.name} is no rerun of {of.pipeline}"
    if isinstance(of.sink, Placed) and isinstance(of.source, Placed) and of.sink.place() == of.source.place():
        return f"{of.source.id} and {of.sink.id} are one target"
    for sink in (of.sink, of.source):
        if not isinstance(sink, Legible) or sink.recount() is None:
            return f"{sink.id} does not tell its rows by their epoch: it has a key, or it is no table"
    if found := refresh.unable((of.sink,), (1, last.number) if last else None):
        return f"{found[0].id}: {found[1]}"
    return ""


def publish(of: Publication, planned: Epoch, batch: Batch) -> Epoch:
    """Commit the planned epoch with the rerun's rows to sink and ledger.

    Raises:
        OnceOnlyError: E110 the pipeline went on since the plan. E242 the rows differ from those that the rerun
            committed. E301, E401, and errors of the opening and the sink.
    """
    admission.check_names(of.pipeline, of.sink.id, of.sink.capabilities.names, batch.schema.names)
    state = operator_epoch.opened((of.sink,), of.ledger, of.pipeline)
    epoch = _decided(of, state.opening.last)
    if epoch.chain != planned.chain:
        raise operator_epoch.went_on(of.pipeline, epoch.number - 1, planned.number - 1)
    faults.fire(Point.PREPARE_BEFORE)
    with naming(of.sink):
        prepared = refresh.able(of.sink).prepare_replacing(batch, epoch.number, (1, epoch.number - 1))
    found = batch.digest()
    if found != epoch.digest or prepared.rows != epoch.digest.rows:
        prepared.abandon()
        raise unfit(
            of, f"its rows came out otherwise than they were committed there: {found.text}, {epoch.digest.text}"
        )
    faults.fire(Point.PREPARE_AFTER)
    back = operator_epoch.put_back(state, epoch, state.opening.last)
    EventLog((of.sink,), of.ledger).note(of.pipeline, back, state.opening.fence.generation)
    faults.fire(Point.COMMIT_BEFORE)
    receipt = operator_epoch.committed(state, of.sink, (of.sink,), of.ledger, epoch, rows=prepared)
    faults.fire(Point.COMMIT_AFTER)
    of.ledger.record(EpochRecord(of.pipeline, state.opening.fence, epoch, (receipt,)))
    faults.fire(Point.RECORD_AFTER)
    seals.tell((of.sink,), of.pipeline, epoch, of.ledger)
    what = f"{of.name} is published: rows of epochs 1..{epoch.number - 1} left, and {epoch.digest.rows} came"
    of.ledger.note(Event(of.pipeline, EventKind.REPLACED, what, epoch.number, state.opening.fence.generation))
    return epoch


def unfit(of: Publication, reason: str) -> OnceOnlyError:
    """Error for rows that cannot be swapped."""
    said = {"name": of.name, "sink": of.sink.id, "into": of.source.address, "ledger": of.ledger.address}
    return refuse("E242", pipeline=of.pipeline, reason=reason, **said)
