"""Feeds record batches to the producer: one call per row, with as little Python around it as can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onceonly_sinks.kafka.columns import Columns
from onceonly_sinks.kafka.transactions import NotFlushed

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer

_POLL = 0.05


class Feeder:
    """Puts rows into the producer's queue, and waits where it is full.

    Args:
        producer: inside a transaction.
        columns: how rows become records.
        patience: seconds that the queue may stay full.
    """

    def __init__(self, producer: Producer, columns: Columns, patience: float) -> None:
        self._producer = producer
        self._columns = columns
        self._patience = patience

    def feed(self, batch: pa.RecordBatch) -> int:
        """Queue every row of a batch; return how many there are.

        Raises:
            KafkaException: a row was refused, or the producer was fenced out.
            NotFlushed: the queue stays full.
            DestinationError: E517, a row that Kafka cannot hold.
        """
        self._all(self._columns.arguments(batch))
        self._producer.poll(0)
        return int(batch.num_rows)

    def _all(self, arguments: Sequence[Sequence[Any]]) -> None:
        """Produce by columns of arguments, all of one length."""
        produce: Callable[..., None] = self._producer.produce
        for record in zip(*arguments, strict=True):
            try:
                produce(*record)
            except BufferError:
                self._wait(produce, record)

    def _wait(self, produce: Callable[..., None], record: Sequence[Any]) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            self._producer.poll(_POLL)
            try:
                return produce(*record)
            except BufferError:
                if time.monotonic() > deadline:
                    raise NotFlushed(f"the queue stayed full for {self._patience:g} s") from None
