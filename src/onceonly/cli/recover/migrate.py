"""Plan ``queries adopt --from-checkpoint`` from an older job's files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onceonly.cli import epochs, options
from onceonly.cli.checkpoint import opened
from onceonly.cli.connect import Connection
from onceonly.cli.output import say, talk
from onceonly.errors import refuse
from onceonly.machine import migration
from onceonly.machine.migration import LegacyJob, Start, UnprovenStart
from onceonly.machine.source_order import describe
from onceonly.protocol import AppTransaction, KeepsTransactions, Sink
from onceonly.protocol.registry import sink_from_address
from onceonly.runtime.operator import LastBatch, begun_already, take_over
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.ledger import location
from onceonly_checkpoints.model import AdoptionKind
from onceonly_checkpoints.spark import offsets
from onceonly_checkpoints.spark.verify import Effect, verify
from onceonly_checkpoints.storage import FileStore, LocalStorage, open_storage


@dataclass(frozen=True, slots=True)
class MigrationArguments:
    """What the user says of the older job.

    Attributes:
        checkpoint: its place.
        app: its ``txnAppId``, to be compared with the checkpoint.
        reason: for the record.
    """

    checkpoint: str | None
    app: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class MigrationPlan(options.ChangePlan):
    """A take-over before it happens.

    Attributes:
        batch: the older job's last batch.
    """

    batch: LastBatch


def demand(name: str, old: MigrationArguments, sinks: Sequence[str] | None) -> str:
    """The older job's checkpoint.

    Raises:
        ConfigurationError: E110, it was not named, or no sinks were.
    """
    if old.checkpoint is not None and sinks:
        return old.checkpoint
    raise refuse(
        "E110",
        problem="Taking an older job over needs its checkpoint and the sinks that it wrote to.",
        cause="a transaction's version is a batch number, which means something in its checkpoint only"
        if sinks
        else "a pipeline that has no epoch yet stands in no ledger",
        next=f"onceonly queries adopt {shlex.quote(name)} --from-checkpoint PATH --sink KIND:TARGET"
        + (f" --from-delta-txn {shlex.quote(old.app)}" if old.app else ""),
    )


def ledger_place(path: str, ledger: str | None, sinks: Sequence[str]) -> str:
    """Where ``exactly_once`` will look for the ledger: what was named, a sink's database, or beside the checkpoint.

    Raises:
        ConfigurationError: E107, there is no such place.
    """
    if ledger is not None:
        return ledger
    for address in sinks:
        sink = sink_from_address(address)
        sink.close()
        if sink.capabilities.carries_ledger and sink.ledger_url:
            return sink.ledger_url
    storage = open_storage(path)
    if not isinstance(storage, LocalStorage):
        raise refuse("E107", checkpoint=path)
    return str(location.beside(Path(storage.url)))


def plan(place: Connection, path: str, old: MigrationArguments) -> MigrationPlan:
    """Prove where a pipeline starts that takes an older job over.

    Args:
        place: the pipeline's name and sinks; its ledger may not be there yet.
        path: the older job's checkpoint.
        old: what else is said of it.

    Raises:
        OnceOnlyError: E221 it cannot be proven; E110 the pipeline has epochs already; E601 to E603, or the sink's own.
    """
    _demand_new(place)
    with opened(path) as storage:
        start = migration.decide(_look(place, storage, old.app))
        if isinstance(start, UnprovenStart):
            raise refuse(
                "E221",
                pipeline=place.pipeline,
                checkpoint=path,
                reason=start.reason,
                cause=start.cause,
                next=start.next,
            )
        batch = _last_batch(storage, start.batch)
    said = [f"batch {start.batch}", *([f"application {old.app}"] if old.app else ()), *filter(None, [old.reason])]
    accepted = options.decided(AdoptionKind.FROM_CHECKPOINT, ": ".join(said))
    return MigrationPlan(accepted, tuple(_pairs(place, start, batch)), batch)


def _last_batch(storage: FileStore, number: int) -> LastBatch:
    entry = offsets.offset_entry(storage, number)
    names = Lineage(offsets.query_id(storage), "", storage.url, number, entry.batch_timestamp_ms, entry.watermark_ms)
    return LastBatch(offsets.slice_of(storage, number), names)


def _demand_new(place: Connection) -> None:
    if found := epochs.newest_epochs(place, 1):
        raise begun_already(place.pipeline, found[-1].epoch.number)


def _look(place: Connection, storage: FileStore, app: str | None) -> LegacyJob:
    wrong = [problem for problem in verify(storage) if problem.effect is not Effect.NOTHING]
    planned, finished = offsets.offset_ids(storage), offsets.commit_ids(storage)
    return LegacyJob(
        checkpoint=storage.url,
        problem=f"{wrong[0].path or 'its directory'}: {wrong[0].found}" if wrong else "",
        planned=planned[-1] if planned else -1,
        finished=finished[-1] if finished else -1,
        app=app or "",
        wrote=tuple((sink.id, _wrote(sink, place.pipeline, app)) for sink in place.sinks) if app else (),
    )


def _wrote(sink: Sink, pipeline: str, app: str) -> AppTransaction | None:
    if not isinstance(sink, KeepsTransactions):
        return None
    sink.open(pipeline)
    return sink.transaction(app)


def _pairs(place: Connection, start: Start, batch: LastBatch) -> Iterator[tuple[str, object]]:
    lineage = batch.lineage
    yield "pipeline", place.pipeline
    yield "takes over", f"{lineage.checkpoint} (query id {lineage.query_id}), {AdoptionKind.FROM_CHECKPOINT}"
    yield "sinks", place.sinks_in_words
    yield "proven by", "\n".join(start.proof)
    yield "starts at", f"{describe(batch.written.end)}, the end of batch {start.batch}"
    yield "does", "writes epoch 1, without rows, into every sink; rows that are there stay as they are"
    yield "demands", "that the old job is stopped for good: it knows no fence, and nothing else would stop it"


def carry_out(place: Connection, plan: MigrationPlan) -> None:
    """Take the job over.

    Raises:
        OnceOnlyError: what opening the pipeline raises.
    """
    epoch = take_over(place.sinks, place.certain_ledger, place.pipeline, plan.batch, plan.accepted)
    say(f"epoch {epoch.number} adopted: {place.pipeline} starts at {describe(epoch.written.end)}")
    talk(f'Now start the query on the same checkpoint, with exactly_once(..., name="{place.pipeline}").')
