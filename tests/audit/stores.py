"""A pipeline that really wrote into a real destination through its own ``prepare`` and ``commit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from tests.audit.histories import PIPELINE, epoch_after

from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Marker
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger

ROWS = (4, 0, 7, 5)


def table(number: int, rows: int) -> pa.Table:
    ids = range(number * 1000, number * 1000 + rows)
    return pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array([f"e{number}"] * rows, pa.string())})


class Stored:
    """One pipeline in a store that outlives the sink object, with a SQLite ledger unless another one is given."""

    def __init__(self, sink: Sink, folder: Path, ledger: SqlLedger | None = None) -> None:
        self.sink = sink
        self.path = folder / "ledger.db"
        self.ledger = ledger or SqlLedger(str(self.path))
        self.ledger.open()
        self.line: list[Epoch] = []
        self.open(1)

    def open(self, generation: int) -> None:
        self.fence = Fence(generation, "a" * 32)
        self.sink.open(PIPELINE)
        self.sink.install(self.fence)
        self.sink.position(None)
        sinks = ((self.sink.id, self.sink.address),)
        self.ledger.enter(Pipeline(PIPELINE, sinks, "q-1", "file:/ck", generation, 1))

    def write(self, rows: int) -> Epoch:
        previous = self.line[-1] if self.line else None
        epoch = epoch_after(previous, rows, sinks=(self.sink.id,))
        prepared = self.sink.prepare(ArrowBatch(table(epoch.number, rows)), epoch.number)
        receipt = self.sink.commit(prepared, Marker(PIPELINE, self.sink.id, self.fence, epoch))
        self.ledger.record(EpochRecord(PIPELINE, self.fence, epoch, (receipt,)))
        self.line.append(epoch)
        return epoch

    def write_all(self, counts: Sequence[int] = ROWS) -> Stored:
        for count in counts:
            self.write(count)
        return self
