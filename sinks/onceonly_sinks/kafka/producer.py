"""Fence with a new Kafka producer and read the position.

The order is fence, wait, read. A position read before the fence is worthless. A transaction that is decided but still
hidden would be decided again by the next one of the same producer id. A state serves one epoch. The next one is
prepared in the background while the engine plans its batch. It stays valid without another read, since any other
fencing makes its transaction fail.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.admission import Target, check_loop
from onceonly.machine.source_order import kafka_identity
from onceonly_checkpoints.model import SourceIdentity
from onceonly_sinks.kafka import errors
from onceonly_sinks.kafka.cluster import Cluster, End, PartitionKey, Topic
from onceonly_sinks.kafka.errors import Context
from onceonly_sinks.kafka.marker_reader import (
    HiddenTransaction,
    MarkerReader,
    TopicEnd,
    TransactionOwner,
    settle,
    settled,
)
from onceonly_sinks.kafka.markers import MarkerRecord, MarkerScope, Offsets, as_java_spells
from onceonly_sinks.kafka.options import Options
from onceonly_sinks.kafka.transactions import NotFlushed, Transaction, Transactions

log = logging.getLogger(__name__)

_FENCE_BUDGET = 60.0
"""Seconds that fencing may take: the brokers send a lost end of a transaction again after 30."""


@dataclass(frozen=True, slots=True)
class SinkState:
    """A producer that fenced, with a transaction not begun, and the position under its fence.

    ``mark`` is the end of the marker topic. All transactions in ``topics`` were decided.
    """

    transaction: Transaction
    newest_record: MarkerRecord
    mark: TopicEnd
    topics: dict[str, Topic]


@dataclass
class Destination:
    """Clients and options of one opening of a sink.

    Attributes:
        topic: the sink's own topic. ``None``: rows name theirs.
        patience: seconds that one answer may take.
        bound: seconds to wait for a hidden end. ``None``: as long as any producer's transaction may last.
        ownership: separates our open transactions from those of others.
        shared: whether tasks may send in its transactions.
        read: sources of the query, whose topics get no row.
    """

    options: Options
    writer: MarkerScope
    topic: str | None
    marker_topic: str
    patience: float
    bound: float | None
    context: Context
    shared: bool = False
    cluster: Cluster = field(init=False)
    transactions: Transactions = field(init=False)
    tail: MarkerReader = field(init=False)
    ownership: TransactionOwner = field(init=False)
    read: tuple[SourceIdentity, ...] = ()

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.options, self.context, self.patience)
        self.transactions = Transactions(self.options, self.writer.transactional_id, self.patience, shared=self.shared)
        self.ownership = TransactionOwner(self.options, self.writer.transactional_id)
        self.tail = MarkerReader(self.options, self.cluster, self.marker_topic, self.writer, self.patience)

    def longest(self) -> float:
        """Seconds to wait for a hidden end."""
        if self.bound is None:
            self.bound = self.cluster.longest_transaction()
        return self.bound

    @cached_property
    def verified(self) -> bool:
        """As :meth:`Cluster.verifies`, asked once."""
        return self.cluster.verifies()

    @cached_property
    def largest_batch(self) -> int:
        """As :meth:`Cluster.largest_batch` of the sink's topic, asked once."""
        return self.cluster.largest_batch(self.topic or "")

    def marked(self) -> bool:
        """Whether the marker topic exists."""
        return self.marker_topic in self.cluster.topics([self.marker_topic])

    def newest(self) -> MarkerRecord:
        """Our newest record, once everything written before it is decided.

        Raises ``HiddenTransaction`` if a transaction's end stays hidden, and E508 if the marker topic is gone.
        """
        return self.tail.newest(self.look_at([self.marker_topic])[self.marker_topic].id, self.longest())

    def stand(self, worth: Callable[[], None] = lambda: None) -> SinkState:
        """Fence, wait, read.

        ``worth`` raises if fencing would be in vain. Until then no other producer is disturbed.

        Raises ``KafkaException``: no answer, or fenced out meanwhile. Raises ``HiddenTransaction``: a transaction's end
        stays hidden, and nothing may be written. Raises E508: the topic is gone.
        """
        transaction = self.transactions.take()
        try:
            worth()
            transaction.fence(_FENCE_BUDGET)
            topics = self.look_at([self.marker_topic, *([self.topic] if self.topic else [])])
            marked = topics.pop(self.marker_topic).id
            ends = settled(self.cluster, [self.tail.marker_partition, *places(topics)], self.longest(), self._held)
            end = ends[self.tail.marker_partition]
            mark = TopicEnd(marked, end.leader_epoch, end.high)
            record = self.tail.newest_at(mark)
            topics |= self._settled(record, topics)
        except BaseException:
            transaction.drop()
            raise
        return SinkState(transaction, record, mark, topics)

    def _held(self, partitions: Iterable[PartitionKey]) -> frozenset[PartitionKey] | None:
        """Partitions to wait for: the marker topic's, which is ours alone, and those that our own transactions hold."""
        ours = self.ownership.held(partitions)
        return None if ours is None else ours | ({self.tail.marker_partition} & set(partitions))

    def settle(
        self, targets: Mapping[PartitionKey, int], initial_ends: Mapping[PartitionKey, End]
    ) -> dict[PartitionKey, End]:
        """Wait until our commits below these offsets are decided and visible. Returns the ends after that.

        Raises ``HiddenTransaction`` if it takes too long.
        """
        return settle(self.cluster, targets, self.longest(), initial_ends, self._held)

    def _settled(self, record: MarkerRecord, settled_topics: Mapping[str, Topic]) -> dict[str, Topic]:
        """Further topics that the newest epoch names, once their records are decided. Deleted ones are left out."""
        names = set(record.written.topics if record.written else ()) - settled_topics.keys()
        topics = self.cluster.topics(names)
        settled(self.cluster, places(topics), self.longest(), self._held)
        return topics

    def enter(self, state: SinkState, names: Iterable[str]) -> dict[str, Topic]:
        """Add topics that get rows for the first time, after their earlier records are decided.

        Raises ``HiddenTransaction`` if a transaction's end stays hidden, E147 if the query reads one of them, E508 if
        one is missing.
        """
        topics = self.look_at(set(names) - state.topics.keys())
        for name, topic in topics.items() if self.read else ():
            target = Target(self.context.sink, name, "", feeds=self.feeds({name: topic}))
            check_loop(self.writer.pipeline, target, self.read)
        settled(self.cluster, places(topics), self.longest(), self._held)
        state.topics.update(topics)
        return topics

    def look_at(self, names: Iterable[str]) -> dict[str, Topic]:
        """Topics as they are now. Raises E508 for a missing one."""
        topic_names = set(names)
        topics = self.cluster.topics(topic_names)
        if self.marker_topic in topic_names - topics.keys():
            reason, cause = f"its marker topic {self.marker_topic} is gone", "it was deleted while the query ran"
            raise refuse("E508", sink=self.context.sink, reason=reason, cause=cause, next="restart the query")
        if missing := sorted(topic_names - topics.keys()):
            raise refuse(
                "E508",
                sink=self.context.sink,
                reason=f"there is no topic {missing[0]}",
                cause="it was never made, or deleted; the sink makes none: its partitions are yours to choose",
                next=f"kafka-topics.sh --bootstrap-server {self.options.servers} --create --topic {missing[0]} "
                "--partitions N",
            )
        return topics

    def feeds(self, topics: Mapping[str, Topic]) -> str:
        """Identity of a source that reads these topics."""
        return kafka_identity(self.cluster.id, {name: as_java_spells(topic.id) for name, topic in topics.items()})

    def identity(self, topics: Mapping[str, Topic]) -> str:
        """The target's identity: cluster and topic. If rows name their topics, cluster and marker topic."""
        if self.topic is not None:
            return f"{self.cluster.id}/{topics[self.topic].id}"
        return f"{self.cluster.id}/{self.look_at([self.marker_topic])[self.marker_topic].id}"

    def forget(self) -> None:
        """Drop clients that may have lived through the cause of a lost answer. New ones ask for the outcome."""
        self.transactions.forget()
        self.cluster.close()

    def close(self) -> None:
        """Close the connections. May repeat."""
        self.transactions.close()
        self.cluster.close()

    @contextmanager
    def refusing(self) -> Generator[None]:
        """Translate failures of the client into refusals. Only for calls that certainly did not commit."""
        try:
            yield
        except HiddenTransaction as hidden:
            raise self._hidden(hidden) from None
        except (NotFlushed, TimeoutError) as error:
            address, reason = self.context.address, str(error)
            raise refuse("E501", sink=self.context.sink, reason=reason, address=address) from error
        except Exception as error:
            failure = errors.read(error)
            if failure is None:
                raise
            raise errors.refusal(failure, self.context) from error

    def _hidden(self, error: HiddenTransaction) -> OnceOnlyError:
        return refuse(
            "E514",
            sink=self.context.sink,
            topic=error.topic,
            partition=error.partition,
            stable=error.stable,
            servers=self.options.servers,
        )


class Prewarmed:
    """The state of the next epoch, made in the background. ``make`` fences, waits and reads."""

    def __init__(self, make: Callable[[], SinkState]) -> None:
        self._made: list[SinkState] = []
        self._hidden: HiddenTransaction | None = None
        self._unwanted = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,), name="onceonly-kafka-prewarm", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], SinkState]) -> None:
        try:
            state = make()
        except HiddenTransaction as hidden:
            # It was waited for already, as long as may be.
            self._hidden = hidden
            return
        except Exception as error:  # noqa: BLE001  whoever needs the state makes it again, and is told why not
            log.debug("no state was made ready: %s", type(error).__name__)
            return
        self._made.append(state)
        if self._unwanted.is_set():
            self._drop()

    def take(self) -> SinkState | None:
        """Wait for the state. ``None`` if there is none, or it was taken.

        Raises ``HiddenTransaction`` if a transaction's end stays hidden.
        """
        self._thread.join()
        if self._hidden is not None:
            raise self._hidden
        return self._made.pop() if self._made else None

    def wait(self, seconds: float | None) -> None:
        """Wait until the background thread ends, at most so many seconds."""
        self._thread.join(seconds)

    def discard(self) -> None:
        """Drop the state, now or when it is made."""
        self._unwanted.set()
        if not self._thread.is_alive():
            self._drop()

    def _drop(self) -> None:
        while self._made:
            self._made.pop().transaction.drop()


def places(topics: Mapping[str, Topic]) -> list[PartitionKey]:
    """Every partition of the topics."""
    return [(name, partition) for name, topic in sorted(topics.items()) for partition in topic.partitions]


def nested(offsets: Mapping[PartitionKey, int]) -> Offsets:
    """Offsets in their stored form."""
    nested_offsets: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested_offsets.setdefault(topic, {})[partition] = offset
    return nested_offsets


def flat(offsets: Offsets) -> dict[PartitionKey, int]:
    """Inverse of :func:`nested`."""
    return {(topic, partition): offset for topic, parts in offsets.items() for partition, offset in parts.items()}
