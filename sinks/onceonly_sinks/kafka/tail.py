"""Reads the marker topic: the newest record, or all of the last epochs, each time to an end that was asked for first.

The end is the high watermark; a consumer that reads committed records would call the last stable offset the end.
Reading starts a few records before it and goes further back only where nothing of ours was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from onceonly_sinks.kafka.cluster import Cluster, Place
from onceonly_sinks.kafka.options import Options
from onceonly_sinks.kafka.records import NOTHING, Entry, Writer, is_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_WINDOW = 16
_WIDER = 8
_CHUNK = 10_000
_POLL_SECONDS = 0.2
GROUP = "onceonly"
"""Consumer group that the reader names; it commits no offsets."""


class Tail:
    """Reader of one sink's marker topic.

    Args:
        options: where the brokers are.
        cluster: for offsets.
        topic: the marker topic.
        writer: whose records are meant.
        patience: seconds that reading may stand still.
    """

    def __init__(self, options: Options, cluster: Cluster, topic: str, writer: Writer, patience: float) -> None:
        self._options = options
        self._cluster = cluster
        self.place: Place = (topic, 0)
        self._writer = writer
        self._patience = patience

    def newest(self, bound: float) -> Entry:
        """The newest record of ours, once all that was written before it is decided.

        Raises:
            Hidden: a transaction is open, or its end hidden, for longer than ``bound`` seconds.
            KafkaException: no answer.
        """
        end = self._cluster.high([self.place])
        self._cluster.settle(end, bound)
        return self.newest_before(end[self.place])

    def visible(self) -> Entry:
        """The newest record of ours that readers see now; a transaction in flight is not waited for.

        Raises:
            KafkaException: no answer.
        """
        return self.newest_before(self._cluster.stable([self.place])[self.place])

    def newest_before(self, end: int) -> Entry:
        """The newest record of ours below an offset."""
        entries = self._back_until(end, bool)
        return entries[-1] if entries else NOTHING

    def epochs(self, end: int, after: int) -> list[Entry]:
        """Records of epochs with numbers greater than ``after``, each once, oldest first."""

        def reached(entries: list[Entry]) -> bool:
            return any(entry.epoch <= after for entry in entries)

        found: dict[int, Entry] = {}
        for entry in self._back_until(end, reached):
            if not entry.claim and entry.epoch > after:
                found[entry.epoch] = entry
        return [found[number] for number in sorted(found)]

    def _back_until(self, end: int, enough: Callable[[list[Entry]], bool]) -> list[Entry]:
        low = self._cluster.low([self.place])[self.place]
        window = _WINDOW
        while True:
            start = max(low, end - window)
            messages = scan(self._options, self.place, start, end, self._patience)
            entries = [
                Entry.parse(message.value() or b"") for message in messages if is_of(self._writer, message.key())
            ]
            if start == low or enough(entries):
                return entries
            window *= _WIDER


def scan(options: Options, place: Place, start: int, end: int, patience: float) -> Generator[Message]:
    """Committed records of one partition from ``start`` up to ``end``, exclusive.

    Raises:
        TimeoutError: reading stood still for ``patience`` seconds; that is never the end.
        KafkaException: no answer.
    """
    if start >= end:
        return
    consumer = _consumer(options, place, start)
    try:
        yield from _until(consumer, end, patience)
    finally:
        consumer.close()


def _until(consumer: Consumer, end: int, patience: float) -> Generator[Message]:
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + patience
    while True:
        for message in _next(consumer):
            deadline = time.monotonic() + patience
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            # The last records below the end may be marks of transactions, which are skipped silently.
            if offset is not None and offset >= end:
                return
            if error is None:
                yield message
                if offset == end - 1:
                    return
        if time.monotonic() > deadline:
            raise TimeoutError(f"records up to {end} did not come")


def _next(consumer: Consumer) -> list[Message]:
    """What is there; waits for the first record only, where ``consume`` alone would wait for a full chunk."""
    first = consumer.poll(_POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(_CHUNK, timeout=0)]


def _consumer(options: Options, place: Place, start: int) -> Consumer:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **options.connection,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(*place, start)])
    return consumer
