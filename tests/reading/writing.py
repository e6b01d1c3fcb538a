"""Pipelines that commit epochs with a time into real sinks, through their own ``prepare`` and ``commit``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from tests.audit.histories import epoch_after

from onceonly.machine.writer_progress import TimedMarker, WriterSet, clamped, concluded, next_reset
from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.epoch_time import EpochTime, Unit, WriterProgress
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import canonical


def rows_at(times: Iterable[int]) -> pa.Table:
    """Rows with nothing but the time they are of."""
    return pa.table({"at": pa.array(list(times), pa.int64())})


def records_at(times: Iterable[int]) -> pa.Table:
    """The same as Kafka's sink takes them."""
    return pa.table({"value": pa.array([str(time).encode() for time in times], pa.binary())})


class Writer:
    """One pipeline of a dataset, which sees of its peers what it is told to.

    Args:
        name: of the pipeline.
        sink: its own handle on the target.
        writers: what is said of the dataset's writers; ``None``: it speaks for itself alone.
        unit: what its numbers count.
        ledger: where its epochs are recorded, too.
        table: makes rows of times.
        column: where they say them, as its epochs say.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        writers: WriterSet | None = None,
        *,
        unit: Unit = "integer",
        ledger: SqlLedger | None = None,
        table=rows_at,
        column: str | None = None,
    ) -> None:
        self.name, self.sink, self.writers, self.unit = name, sink, writers, unit
        self.ledger, self.table, self.column = ledger, table, column
        self.epochs: list[Epoch] = []
        self.fence = Fence(0, "")
        self.take_over()

    def take_over(self) -> None:
        self.fence = Fence(self.fence.generation + 1, self.name * 8)
        self.sink.open(self.name)
        self.sink.install(self.fence)
        self.sink.position(None)
        if self.ledger:
            sinks = ((self.sink.id, self.sink.address),)
            self.ledger.enter(Pipeline(self.name, sinks, "q-1", "file:/ck", self.fence.generation, 1))

    @property
    def newest(self) -> TimedMarker | None:
        last = self.epochs[-1] if self.epochs else None
        return TimedMarker(self.name, last.number, last.time) if last and last.time else None

    def write(
        self, *times: int, noted: int | None, ingest: int = 0, sees: Iterable[Writer] = (), **said: int
    ) -> Receipt:
        """One epoch with a row at each time."""
        time = self.timed(times, noted, ingest, [peer.newest for peer in sees if peer.newest], **said)
        return self.commit(times, time)

    def timed(
        self, times: tuple[int, ...], noted: int | None, ingest: int, polled: list[TimedMarker], **said: int
    ) -> EpochTime:
        last = self.newest
        noted = clamped(noted, last.time.complete_until if last else None)
        high = max((*times, *((last.time.max_time or 0,) if last else ()), noted or 0))
        horizon = last.time.complete_until if last else None
        late = sum(horizon is not None and time < horizon for time in times)
        of_rows = {"earliest": min(times), "latest": max(times)} if times else {}
        turn = next_reset(self.name, last.observed) - 1 if last else 0
        time = EpochTime(
            self.unit,
            noted,
            noted,
            high,
            late_before=horizon,
            late_rows=late,
            batch_timestamp_ms=ingest,
            resets=turn,
            column=self.column,
            **of_rows,
            **said,
        )
        if self.writers is None:
            return time
        own = WriterProgress(self.name, len(self.epochs) + 1, noted, ingest, turn)
        view = concluded(own, last, polled, self.writers)
        return replace(time, dataset_complete_until=view.lower, writers=view.observed, timed_out=view.silent)

    def accept_change(self, noted: int) -> Receipt:
        """What an operator accepts after somebody else took rows away: an epoch of its own, a turn of its own."""
        last = self.newest
        assert last is not None
        turn = next_reset(self.name, last.observed)
        time = EpochTime(self.unit, noted, noted, noted, batch_timestamp_ms=last.time.batch_timestamp_ms, resets=turn)
        return self.commit((), time, adoption="accept-change: restored")

    def commit(self, times: tuple[int, ...], time: EpochTime | None, adoption: str | None = None) -> Receipt:
        previous = self.epochs[-1] if self.epochs else None
        made = epoch_after(previous, len(times), sinks=(self.sink.id,), adoption=adoption)
        epoch = chain.linked(replace(made, time=time))
        prepared = self.sink.prepare(ArrowBatch(self.table(times)), epoch.number) if times else None
        receipt = self.sink.commit(prepared, Marker(self.name, self.sink.id, self.fence, epoch))
        if self.ledger:
            self.ledger.record(EpochRecord(self.name, self.fence, epoch, (receipt,), recorded_ms=epoch.number))
        self.epochs.append(epoch)
        return receipt

    def marker_text(self) -> str:
        return canonical(self.epochs[-1].to_json())
