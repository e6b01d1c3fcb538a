"""Plan ``recover adopt --from-checkpoint`` from an older job's files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onceonly.cli import records
from onceonly.cli.change import Change, decided
from onceonly.cli.checkpoint import opened
from onceonly.cli.connect import Connection, connect
from onceonly.cli.output import say, talk
from onceonly.errors import mask, refuse
from onceonly.errors.options import misused
from onceonly.machine import migration
from onceonly.machine.migration import LegacyJob, Start, UnprovenStart
from onceonly.machine.source_order import describe
from onceonly.protocol import Sink, StreamSource
from onceonly.protocol.capabilities import implements
from onceonly.protocol.registry import sink_from_address
from onceonly.protocol.values import AppTransaction
from onceonly.runtime.operator import LastBatch, begun_already, take_over
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.ledger import location
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_checkpoints.spark import offsets
from onceonly_checkpoints.spark.verify import Effect, verify
from onceonly_checkpoints.storage import FileStore, LocalStorage, open_storage


@dataclass(frozen=True, slots=True)
class MigrationArguments:
    """What the user says of the older job. ``app``: its ``txnAppId``, to be compared with the checkpoint."""

    checkpoint: str | None
    app: str | None
    reason: str


def change(name: str, old: MigrationArguments, sinks: list[str] | None, ledger: str | None) -> Change:
    """Prove where a pipeline starts that takes an older job over.

    Raises E221: it cannot be proven; E107: no place for a ledger; E110: the pipeline has epochs already, or no
    checkpoint or sink was named; E601 to E603, or the sink's own.
    """
    path = _demand(name, old, sinks)
    with connect(ledger, name, sinks) as connection:
        accepted, batch, pairs = _plan(connection, path, old)
    where = _ledger_place(path, ledger, sinks or ())

    def run() -> None:
        with connect(where, name, sinks, create=True) as here:
            epoch = take_over(here.sinks, here.certain_ledger, name, batch, accepted)
        say(f"epoch {epoch.number} adopted: {name} starts at {describe(epoch.written.end)}")
        talk(f'Now start the query on the same checkpoint, with exactly_once(..., name="{name}").')

    return Change((*pairs, ("ledger", mask(where))), run)


def _demand(name: str, old: MigrationArguments, sinks: Sequence[str] | None) -> str:
    if old.checkpoint is not None and sinks:
        return old.checkpoint
    raise misused(
        "Taking an older job over needs its checkpoint and the sinks that it wrote to.",
        "a transaction's version is a batch number, which means something in its checkpoint only"
        if sinks
        else "a pipeline without an epoch is in no ledger yet",
        f"onceonly recover adopt {shlex.quote(name)} --from-checkpoint PATH --sink KIND:TARGET"
        + (f" --from-delta-txn {shlex.quote(old.app)}" if old.app else ""),
    )


def _ledger_place(path: str, ledger: str | None, sinks: Sequence[str]) -> str:
    """Where ``exactly_once`` will look for the ledger: what was named, a sink's database, or beside the checkpoint."""
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
    return str(location.default_path(Path(storage.url)))


def _plan(
    connection: Connection, path: str, old: MigrationArguments
) -> tuple[Adoption, LastBatch, tuple[tuple[str, object], ...]]:
    if newest_records := records.newest_epochs(connection, 1):
        raise begun_already(connection.pipeline, newest_records[-1].epoch.number)
    with opened(path) as storage:
        start = migration.decide(_look(connection, storage, old.app))
        if isinstance(start, UnprovenStart):
            raise refuse(
                "E221",
                pipeline=connection.pipeline,
                checkpoint=path,
                reason=start.reason,
                cause=start.cause,
                next=start.next,
            )
        batch = _last_batch(storage, start.batch)
    details = [f"batch {start.batch}", *([f"application {old.app}"] if old.app else ()), *filter(None, [old.reason])]
    accepted = decided(AdoptionKind.FROM_CHECKPOINT, ": ".join(details))
    return accepted, batch, tuple(_pairs(connection, start, batch))


def _last_batch(storage: FileStore, number: int) -> LastBatch:
    entry = offsets.offset_entry(storage, number)
    names = Lineage(offsets.query_id(storage), "", storage.url, number, entry.batch_timestamp_ms, entry.watermark_ms)
    return LastBatch(offsets.slice_of(storage, number), names)


def _look(connection: Connection, storage: FileStore, app: str | None) -> LegacyJob:
    wrong = [problem for problem in verify(storage) if problem.effect is not Effect.NOTHING]
    planned, finished = offsets.offset_ids(storage), offsets.commit_ids(storage)
    return LegacyJob(
        checkpoint=storage.url,
        problem=f"{wrong[0].path or 'its directory'}: {wrong[0].description}" if wrong else "",
        planned=planned[-1] if planned else -1,
        finished=finished[-1] if finished else -1,
        app=app or "",
        wrote=tuple((sink.id, _wrote(sink, connection.pipeline, app)) for sink in connection.sinks) if app else (),
    )


def _wrote(sink: Sink, pipeline: str, app: str) -> AppTransaction | None:
    if not isinstance(sink, StreamSource) or not implements(sink, StreamSource, "app_transaction"):
        return None
    sink.open(pipeline)
    return sink.app_transaction(app)


def _pairs(connection: Connection, start: Start, batch: LastBatch) -> Iterator[tuple[str, object]]:
    lineage = batch.lineage
    yield "pipeline", connection.pipeline
    yield "takes over", f"{lineage.checkpoint} (query id {lineage.query_id}), {AdoptionKind.FROM_CHECKPOINT}"
    yield "sinks", connection.sinks_in_words
    yield "proven by", "\n".join(start.proof)
    yield "starts at", f"{describe(batch.written.end)}, the end of batch {start.batch}"
    yield "does", "writes epoch 1, without rows, into every sink; rows that are there stay as they are"
    yield "demands", "that the old job is stopped for good: it knows no fence, and nothing else would stop it"
