"""A pipeline that really wrote: a memory sink and a SQLite ledger, filled through their own commit paths."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from tests.audit.histories import FENCE, ROWS, epoch_after

from onceonly.protocol.batch import ArrowRows
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Intent, Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import InputFile, Slice
from onceonly_sinks.memory import MemorySink, MemoryStore


def table(rows: int) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64())})


class World:
    """One pipeline with one sink and a ledger."""

    def __init__(self, folder: Path, name: str = "orders", *, key: Sequence[str] = (), ledger: str = "ledger.db"):
        self.name = name
        self.path = folder / ledger
        # Below the folder: a command that is obeyed writes there.
        self.checkpoint = (folder / f"checkpoint-{name}").as_uri()
        self.ledger = SqlLedger(str(self.path))
        self.ledger.open()
        self.store = MemoryStore(name)
        self.sink = MemorySink(store=self.store, key=key)
        self.sink.open(name)
        self.line: list[Epoch] = []
        self.fence = Fence(0, "")
        self.take_over(FENCE)

    def take_over(self, fence: Fence) -> None:
        self.sink.install(fence)
        self.fence = fence
        sinks = ((self.sink.id, self.sink.address),)
        self.ledger.enter(Pipeline(self.name, sinks, "q-1", self.checkpoint, fence.generation, 1_700_000_000_000))
        self.ledger.note(Event(self.name, EventKind.OPENED, "first start", 0, fence.generation))

    def next_epoch(self, rows: int, **changed: object) -> Epoch:
        previous = self.line[-1] if self.line else None
        number = previous.number + 1 if previous else 1
        if "adoption" not in changed:
            changed.setdefault("lineage", Lineage("q-1", "r-1", self.checkpoint, number - 1, 1000 * number, 0))
        return epoch_after(previous, rows, sinks=(self.sink.id,), **changed)  # type: ignore[arg-type]

    def intend(self, number: int, slice: Slice, *, ago_s: float = 0) -> None:
        self.ledger.intend(
            Intent(self.name, number, self.fence, slice, time.time_ns() // 1_000_000 - int(ago_s * 1000))
        )

    def commit(self, epoch: Epoch) -> Receipt:
        """Write into the sink alone, as a driver that dies before it records."""
        marker = Marker(self.name, self.sink.id, self.fence, epoch)
        prepared = ArrowRows(table(epoch.digest.rows)) if epoch.digest.rows else None
        receipt = self.sink.commit(prepared, marker)
        self.line.append(epoch)
        return receipt

    def write(self, rows: int, **changed: object) -> Epoch:
        epoch = self.next_epoch(rows, **changed)
        self.intend(epoch.number, epoch.written)
        receipt = self.commit(epoch)
        files = (InputFile(f"file:/in/{epoch.number}.csv", 1, epoch.number - 1),)
        phases = (("prepare", 0.2), ("commit", 0.01))
        self.ledger.record(EpochRecord(self.name, self.fence, epoch, (receipt,), files, phases))
        return epoch

    def write_all(self, counts: Sequence[int] = ROWS) -> World:
        for count in counts:
            self.write(count)
        return self

    def keep_rows(self, number: int, rows: int) -> None:
        """Sabotage: somebody deletes or doubles rows of an epoch behind everybody's back."""
        self._edit(number, rows=table(rows))

    def forget_marker(self, number: int) -> None:
        """Sabotage: the entry of an epoch loses its marker, its rows stay."""
        self._edit(number, marker=None)

    def _edit(self, number: int, **changed: object) -> None:
        log = self.store._log
        place = next(index for index, entry in enumerate(log) if entry.epoch == number)
        log[place] = replace(log[place], **changed)  # type: ignore[arg-type]

    def delete_ledger(self) -> None:
        self.ledger.close()
        for file in self.path.parent.glob(f"{self.path.name}*"):
            file.unlink()
