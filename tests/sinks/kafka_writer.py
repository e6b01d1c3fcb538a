"""A driver of one Kafka sink, in the words of the tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.sinks.epochs import epoch_after
from tests.sinks.flat_options import kafka_sink

from onceonly.protocol import Batch, Position
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_sinks.kafka.commit import KafkaPrepared

PIPELINE = "orders"


class Writer:
    """Opens a sink under a fence and writes epoch after epoch."""

    def __init__(self, servers: str, topic: str | None, generation: int = 1, **options: Any) -> None:
        self.sink = kafka_sink(servers, topic, **options)
        self.fence = Fence(generation, f"owner-{generation}")
        try:
            self.last = self._opens()
        except BaseException:
            self.sink.close()
            raise

    def _opens(self) -> Epoch | None:
        self.sink.open(PIPELINE)
        self.sink.install(self.fence)
        marker = self.sink.position(None).marker
        return marker.epoch if marker else None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sink.close()

    def position(self, since: Receipt | None = None) -> Position:
        return self.sink.position(since)

    def marker(self, rows: int) -> Marker:
        """The marker of the epoch that comes next."""
        return Marker(PIPELINE, self.sink.id, self.fence, epoch_after(self.last, self.sink.id, rows))

    def prepare(self, rows: Batch | pa.Table) -> KafkaPrepared:
        batch = ArrowBatch(rows) if isinstance(rows, pa.Table) else rows
        return self.sink.prepare(batch, self.last.number + 1 if self.last else 1)

    def commit(self, prepared: KafkaPrepared | None) -> Receipt:
        marker = self.marker(prepared.rows if prepared else 0)
        receipt = self.sink.commit(prepared, marker)
        self.last = marker.epoch
        return receipt

    def write(self, rows: Batch | pa.Table) -> Receipt:
        """Prepare and commit the next epoch; what is refused is given up."""
        prepared = self.prepare(rows)
        try:
            return self.commit(prepared)
        finally:
            prepared.abandon()

    def looks_up(self, rows: int) -> Receipt | None:
        """Look the next epoch up; where it landed, the one after it comes next."""
        marker = self.marker(rows)
        receipt = self.sink.look_up(marker)
        self.last = marker.epoch if receipt else self.last
        return receipt


def values(*texts: str) -> pa.Table:
    return pa.table({"value": pa.array(texts, pa.string())})
