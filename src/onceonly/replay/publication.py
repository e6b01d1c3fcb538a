"""Replace a pipeline's rows by those of a rerun, in one transaction."""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import checks_arguments
from onceonly.machine import admission
from onceonly.machine.facts import Refusal
from onceonly.machine.publish import PublishFacts, decide
from onceonly.protocol import Batch, Inspectable, ReadsRows, Sink
from onceonly.protocol.capabilities import implements
from onceonly.reading.points import opened
from onceonly.replay.read_back import all_of
from onceonly.runtime import ledger_sync, operator_epoch, sink_refusals
from onceonly.runtime.events import EventLog
from onceonly_checkpoints.epoch import Epoch, EpochRecord, ReplayedEpochs
from onceonly_checkpoints.ledger import Event, EventKind, Ledger, LedgerPlace

if TYPE_CHECKING:
    from onceonly.protocol import SparkSession


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

    Raises E240: the pipeline has gone on. E241: it is published. E242: its rows cannot be swapped. Also errors of a
    sink that does not answer.
    """
    of.sink.open(of.pipeline)
    with sink_refusals.naming(of.sink):
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
    decision = decide(facts)
    if isinstance(decision, Refusal):
        raise refuse(decision.code, **dict(decision.details))
    return decision


def _unfit(of: Publication, last: Epoch | None, held: tuple[tuple[Epoch, ReplayedEpochs | None], ...]) -> str:
    if any(ran is None or ran.pipeline != of.pipeline for _, ran in held):
        return f"{of.name} is no backfill of {of.pipeline}"
    if isinstance(of.sink, Inspectable) and isinstance(of.source, Inspectable) and of.sink.place() == of.source.place():
        return f"{of.source.id} and {of.sink.id} are one target"
    for sink in (of.sink, of.source):
        if not implements(sink, ReadsRows, "read_with_spark") or sink.recount() is None:
            return f"{sink.id} does not know the epoch of its rows: it has a key, or it is no table"
    if obstacle := sink_refusals.unable((of.sink,), (1, last.number) if last else None):
        return f"{obstacle[0].id}: {obstacle[1]}"
    return ""


def swap(of: Publication, planned: Epoch, batch: Batch | None) -> Epoch:
    """Commit the planned epoch with the rerun's rows to sink and ledger. ``None``: they could not be read as written.

    Raises E110: the pipeline went on since the plan. E242: the rows differ from those that the rerun committed. E301,
    E401, and errors of the opening and the sink.
    """
    if batch is None:
        raise unfit(of, f"{of.source.id} gives back other columns or types than were written")
    admission.check_names(of.pipeline, of.sink.id, of.sink.capabilities.names, batch.schema.names)
    state = operator_epoch.opened((of.sink,), of.ledger, of.pipeline)
    epoch = _decided(of, state.opening.last)
    if epoch.chain != planned.chain:
        raise operator_epoch.went_on(of.pipeline, epoch.number - 1, planned.number - 1)
    faults.fire(faults.Point.PREPARE_BEFORE)
    with sink_refusals.naming(of.sink):
        prepared = sink_refusals.able(of.sink).prepare_replacement(batch, epoch.number, (1, epoch.number - 1))
    digest = batch.digest()
    if digest != epoch.digest or prepared.rows != epoch.digest.rows:
        prepared.abandon()
        raise unfit(of, f"its rows differ from those that were committed there: {digest.text}, {epoch.digest.text}")
    faults.fire(faults.Point.PREPARE_AFTER)
    back = operator_epoch.put_back(state, epoch, state.opening.last)
    EventLog((of.sink,), of.ledger).note(of.pipeline, back, state.opening.fence.generation)
    faults.fire(faults.Point.COMMIT_BEFORE)
    receipt = operator_epoch.committed(state, of.sink, (of.sink,), of.ledger, epoch, rows=prepared)
    faults.fire(faults.Point.COMMIT_AFTER)
    of.ledger.record(EpochRecord(of.pipeline, state.opening.fence, epoch, (receipt,)))
    faults.fire(faults.Point.RECORD_AFTER)
    ledger_sync.seal((of.sink,), of.pipeline, epoch, of.ledger)
    what = f"{of.name} replaces the old rows: rows of epochs 1..{epoch.number - 1} left, and {epoch.digest.rows} came"
    of.ledger.note(Event(of.pipeline, EventKind.REPLACED, what, epoch.number, state.opening.fence.generation))
    return epoch


def unfit(of: Publication, reason: str) -> OnceOnlyError:
    """Error for rows that cannot be swapped."""
    details = {"name": of.name, "sink": of.sink.id, "into": of.source.address, "ledger": of.ledger.address}
    return refuse("E242", pipeline=of.pipeline, reason=reason, **details)


@checks_arguments
def publish(name: str, *, source: Sink, over: str, sink: Sink, ledger: LedgerPlace, spark: SparkSession) -> Epoch:
    """Swap a pipeline's rows for those of a rerun, in one epoch.

    Readers see all old rows or all new ones. Every driver of the pipeline is fenced out. Its next start continues at
    its position in the source. After a crash, the same call completes the swap, or reports that it is done.

    ``name`` and ``source`` are the rerun and its target, ``over`` and ``sink`` the pipeline and its sink. Neither sink
    is open yet. The ledger has both pipelines.

    Raises:
        IdentityError: E240 the pipeline has gone on since the rerun. E241 the rerun is published. E242 rows of either
            cannot be swapped.
        OnceOnlyError: E301 the answer was lost. E401 another driver opened the pipeline. Also errors of the sinks.
    """
    with opened(ledger) as open_ledger, closing(copy.copy(source)) as rerun, closing(copy.copy(sink)) as own:
        rerun.open(name)
        of = Publication(over, own, name, rerun, open_ledger)
        return carry_out(of, plan(of), spark)


def carry_out(of: Publication, planned: Epoch, spark: SparkSession) -> Epoch:
    """Publish as planned. Raises as :func:`publish`."""
    return swap(of, planned, all_of(of.source, planned, spark))
