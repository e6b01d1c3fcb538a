"""Reads the marker topic: the newest record, or all of the last epochs, each time to an end that was asked for first.

The end is the high watermark; a consumer that reads committed records would call the last stable offset the end.
Reading starts a few records before it and goes further back only where nothing of ours was found. What was found
below an end is remembered: a log that ends there still, under the same leader, holds the same records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly_sinks.kafka.cluster import Cluster, End, Place
from onceonly_sinks.kafka.markers import NOTHING, MarkerRecord, MarkerScope, is_of
from onceonly_sinks.kafka.options import Options
from onceonly_sinks.kafka.settling import settled

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_WINDOW = 16
_WIDER = 8
_CHUNK = 10_000
_POLL_SECONDS = 0.2
GROUP = "onceonly"
"""Consumer group that the reader names; it commits no offsets."""


_OURS = 2
"""A transaction adds to the marker topic its one record and the mark of its end."""


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """An end of the marker topic. Under one leader a log only grows, so below equal marks lie the same records.

    Attributes:
        topic: id of the topic. It is another one if it is made anew.
        leader_epoch: which leader; -1: not known.
        offset: after the last record; all below it is decided.
    """

    topic: str
    leader_epoch: int
    offset: int

    def followed_by(self, end: End) -> TopicEnd | None:
        """The mark at ``end``, if a transaction of ours, known to have landed after this mark, is all that came since.

        Whoever else wrote in between, or another leader, leaves no such mark.
        """
        # The two offsets were asked for at once; the later one is the newer.
        mark = TopicEnd(self.topic, end.leader_epoch, max(end.high, end.stable))
        return mark if self.known and mark == TopicEnd(self.topic, self.leader_epoch, self.offset + _OURS) else None

    @property
    def known(self) -> bool:
        """Whether the leader is known: only then are equal marks the same."""
        return self.leader_epoch >= 0


class MarkerReader:
    """Reader of one sink's marker topic.

    Args:
        options: where the brokers are.
        cluster: for offsets.
        topic: the marker topic.
        writer: whose records are meant.
        patience: seconds that reading may stand still.
    """

    def __init__(self, options: Options, cluster: Cluster, topic: str, writer: MarkerScope, patience: float) -> None:
        self._options = options
        self._cluster = cluster
        self.place: Place = (topic, 0)
        self._writer = writer
        self._patience = patience
        self._known: tuple[TopicEnd, MarkerRecord] | None = None

    def newest(self, topic: str, bound: float) -> MarkerRecord:
        """The newest record of ours, once all that was written before it is decided.

        Args:
            topic: id of the marker topic, as it is now.
            bound: seconds to wait for a transaction that is open, or whose end is hidden.

        Raises:
            Hidden: it took longer.
            KafkaException: no answer.
        """
        end = settled(self._cluster, [self.place], bound)[self.place]
        return self.newest_at(TopicEnd(topic, end.leader_epoch, end.high))

    def visible(self) -> MarkerRecord:
        """The newest record of ours that readers see now; a transaction in flight is not waited for.

        Raises:
            KafkaException: no answer.
        """
        return self.newest_before(self._cluster.stable([self.place])[self.place])

    def newest_at(self, mark: TopicEnd) -> MarkerRecord:
        """The newest record of ours below a mark; not read again where it is known."""
        if self._known is not None and self._known[0] == mark and mark.known:
            return self._known[1]
        entry = self.newest_before(mark.offset)
        self._known = (mark, entry)
        return entry

    def landed(self, before: TopicEnd, end: End, entry: MarkerRecord) -> None:
        """Remember a record of ours that landed after ``before``, if it is the newest one below ``end`` for certain."""
        mark = before.followed_by(end)
        self._known = (mark, entry) if mark else None

    def unmoved(self) -> bool:
        """Whether the topic seems to end where it did at the last look. A hint: it may have been made anew."""
        if self._known is None:
            return False
        mark, end = self._known[0], self._cluster.ends([self.place])[self.place]
        return mark == TopicEnd(mark.topic, end.leader_epoch, end.high) and mark.known

    def newest_before(self, end: int) -> MarkerRecord:
        """The newest record of ours below an offset."""
        entries = self._back_until(end, bool)
        return entries[-1] if entries else NOTHING

    def epochs(self, end: int, after: int) -> list[MarkerRecord]:
        """Records of epochs with numbers greater than ``after``, each once, oldest first."""

        def reached(entries: list[MarkerRecord]) -> bool:
            return any(entry.epoch <= after for entry in entries)

        found: dict[int, MarkerRecord] = {}
        for entry in self._back_until(end, reached):
            if not entry.claim and entry.epoch > after:
                found[entry.epoch] = entry
        return [found[number] for number in sorted(found)]

    def _back_until(self, end: int, enough: Callable[[list[MarkerRecord]], bool]) -> list[MarkerRecord]:
        low = self._cluster.low([self.place])[self.place]
        window = _WINDOW
        while True:
            start = max(low, end - window)
            messages = scan(self._options, self.place, start, end, self._patience)
            entries = [
                MarkerRecord.parse(message.value() or b"") for message in messages if is_of(self._writer, message.key())
            ]
            if start == low or enough(entries):
                return entries
            window *= _WIDER


def scan(options: Options, place: Place, start: int, end: int, patience: float) -> Generator[Message]:
    """Committed records of one partition from ``start`` up to ``end``, exclusive.

    Raises:
        TimeoutError: reading stood still for ``patience`` seconds. That is never the end.
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
