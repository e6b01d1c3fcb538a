"""Read the marker topic to an end offset asked for first.

The end is the high watermark: a consumer that reads committed records would call the last stable offset the end.
Reading starts a few records before it, and goes further back only if nothing of ours was found. The records below
an end are remembered, as a log that still ends there under the same leader holds the same ones.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly_sinks.kafka.cluster import Cluster, End, PartitionKey
from onceonly_sinks.kafka.markers import NOTHING, MarkerRecord, MarkerScope, is_of
from onceonly_sinks.kafka.options import Options

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
    """An end of the marker topic. Under one leader a log only grows, so below equal marks are the same records.

    ``topic`` is the topic's id, which changes if it is recreated. ``leader_epoch`` is -1 if unknown. ``offset`` is
    after the last record. Everything below it is decided.
    """

    topic: str
    leader_epoch: int
    offset: int

    def followed_by(self, end: End) -> TopicEnd | None:
        """The mark at ``end``, if only our own transaction, known to have landed after this mark, came since.

        ``None`` if another writer wrote in between, or under another leader.
        """
        # The two offsets were asked for at once; the later one is the newer.
        mark = TopicEnd(self.topic, end.leader_epoch, max(end.high, end.stable))
        return (
            mark
            if self.is_leader_known and mark == TopicEnd(self.topic, self.leader_epoch, self.offset + _OURS)
            else None
        )

    @property
    def is_leader_known(self) -> bool:
        """Whether the leader is known. Only then are equal marks the same."""
        return self.leader_epoch >= 0


class MarkerReader:
    """Reads one sink's marker topic.

    ``topic`` is its name. ``writer`` selects our records. ``patience`` is in seconds without progress. Reads raise
    KafkaException without an answer.
    """

    def __init__(self, options: Options, cluster: Cluster, topic: str, writer: MarkerScope, patience: float) -> None:
        self._options = options
        self._cluster = cluster
        self.marker_partition: PartitionKey = (topic, 0)
        self._writer = writer
        self._patience = patience
        self._cached_end: tuple[TopicEnd, MarkerRecord] | None = None

    def newest(self, topic: str, bound: float) -> MarkerRecord:
        """Our newest record, once everything written before it is decided.

        ``topic`` is the current id of the marker topic. ``bound`` is in seconds, for a transaction that is open or
        whose end is hidden. Raises ``HiddenTransaction`` if it takes longer.
        """
        end = settled(self._cluster, [self.marker_partition], bound)[self.marker_partition]
        return self.newest_at(TopicEnd(topic, end.leader_epoch, end.high))

    def visible(self) -> MarkerRecord:
        """Our newest record that readers see now, without a wait for transactions in flight."""
        return self.newest_before(self._cluster.stable([self.marker_partition])[self.marker_partition])

    def newest_at(self, mark: TopicEnd) -> MarkerRecord:
        """Our newest record below a mark. A known one is not read again."""
        if self._cached_end is not None and self._cached_end[0] == mark and mark.is_leader_known:
            return self._cached_end[1]
        entry = self.newest_before(mark.offset)
        self._cached_end = (mark, entry)
        return entry

    def landed(self, before: TopicEnd, end: End, entry: MarkerRecord) -> None:
        """Cache a record of ours that landed after ``before``, if it is certainly the newest one below ``end``."""
        mark = before.followed_by(end)
        self._cached_end = (mark, entry) if mark else None

    def unmoved(self) -> bool:
        """Whether the topic seems to have the same end as at the last look. A hint: it may have been recreated."""
        if self._cached_end is None:
            return False
        mark, end = self._cached_end[0], self._cluster.ends([self.marker_partition])[self.marker_partition]
        return mark == TopicEnd(mark.topic, end.leader_epoch, end.high) and mark.is_leader_known

    def newest_before(self, end: int) -> MarkerRecord:
        """Our newest record below an offset."""
        entries = self._back_until(end, bool)
        return entries[-1] if entries else NOTHING

    def epochs(self, end: int, after: int) -> list[MarkerRecord]:
        """Records of epochs with numbers greater than ``after``, each once, oldest first."""

        def reached(entries: list[MarkerRecord]) -> bool:
            return any(entry.epoch <= after for entry in entries)

        records: dict[int, MarkerRecord] = {}
        for entry in self._back_until(end, reached):
            if not entry.claim and entry.epoch > after:
                records[entry.epoch] = entry
        return [records[number] for number in sorted(records)]

    def _back_until(self, end: int, enough: Callable[[list[MarkerRecord]], bool]) -> list[MarkerRecord]:
        low = self._cluster.low([self.marker_partition])[self.marker_partition]
        window = _WINDOW
        while True:
            start = max(low, end - window)
            messages = scan(self._options, self.marker_partition, start, end, self._patience)
            entries = [
                MarkerRecord.parse(message.value() or b"") for message in messages if is_of(self._writer, message.key())
            ]
            if start == low or enough(entries):
                return entries
            window *= _WIDER


def scan(options: Options, partition: PartitionKey, start: int, end: int, patience: float) -> Generator[Message]:
    """Committed records of one partition from ``start`` up to ``end``, exclusive.

    Raises TimeoutError after ``patience`` seconds without progress, which is never the end.
    """
    if start >= end:
        return
    consumer = _consumer(options, partition, start)
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
    """Available records. Waits for the first record only, as ``consume`` alone would wait for a full chunk."""
    first = consumer.poll(_POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(_CHUNK, timeout=0)]


def _consumer(options: Options, partition: PartitionKey, start: int) -> Consumer:
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
    consumer.assign([TopicPartition(*partition, start)])
    return consumer


# ---- The wait for transactions whose end is hidden, and whose they are: ours or a stranger's.


# ---- Whose open transaction holds a partition back: ours, which must be waited for, or a stranger's, which need not.
#
# A transaction of ours that is decided but still hidden would be decided again by our next one; one of another
# producer cannot be touched by us. The brokers tell them apart by producer id (KIP-664), a question that librdkafka
# does not have. Kafka's own Admin client does: it is asked where Spark has it loaded, which is so in every query with
# a Kafka source.

log = logging.getLogger(__name__)

_ADMIN = "org.apache.kafka.clients.admin.Admin"
# Only plain connections are asked for: Java's client spells a login in settings of its own, which nobody gave us.
_SECURE = ("security.protocol", "sasl.mechanism", "sasl.mechanisms")
_MILLISECONDS = 10_000

Held = Callable[[Iterable[PartitionKey]], frozenset[PartitionKey] | None]
"""Which of these partitions hold an open transaction of ours; ``None`` where that cannot be told, and each may."""


def untold(_: Iterable[PartitionKey]) -> None:
    """Tell nothing: each is waited for."""


class TransactionOwner:
    """Asks the brokers which partitions an open transaction of one transactional id holds back."""

    def __init__(self, options: Options, transactional_id: str) -> None:
        self._options = options
        self._id = transactional_id

    def held(self, places: Iterable[PartitionKey]) -> frozenset[PartitionKey] | None:
        """Which of the partitions hold an open transaction of ours; ``None`` where nobody can tell."""
        partitions = frozenset(places)
        jvm = None if any(name in self._options.settings for name in _SECURE) else _loaded()
        if jvm is None:
            return None
        try:
            with _admin(jvm, self._options.servers) as admin:
                return frozenset(_held(jvm, admin, self._id, partitions))
        except Exception as error:  # noqa: BLE001  py4j raises what it likes; waiting is always right
            log.debug("the brokers do not report the writers of open transactions: %s", type(error).__name__)
            return None


def _loaded() -> Any | None:
    """The gateway of a Spark that runs here and has Kafka's client on its class path."""
    # By what is imported already: the public ``getOrCreate`` would start a Spark for a driver that has none.
    context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    jvm = getattr(context, "_jvm", None)
    if jvm is None:
        return None
    try:
        # By the loader that sees ``spark.jars``. As an attribute of ``jvm``, a class that is missing is a package, not
        # an error.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(_ADMIN, False, loader)
    except Exception:  # noqa: BLE001  ClassNotFoundException, wrapped by py4j
        return None
    return jvm


@contextmanager
def _admin(jvm: Any, servers: str) -> Generator[Any]:
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", servers)
    settings.put("client.id", "onceonly-ownership")
    settings.put("default.api.timeout.ms", str(_MILLISECONDS))
    settings.put("request.timeout.ms", str(_MILLISECONDS))
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    try:
        yield admin
    finally:
        admin.close(jvm.java.time.Duration.ZERO)  # without it, it waits for answers without end


def _held(jvm: Any, admin: Any, transactional_id: str, places: Iterable[PartitionKey]) -> Iterator[PartitionKey]:
    ids = jvm.java.util.Collections.singletonList(transactional_id)
    # The id that the brokers have for us now, after the fence: one that they gave us before cannot be decided by us.
    ours = admin.describeTransactions(ids).description(transactional_id).get().producerId()
    partitions = {pair: jvm.org.apache.kafka.common.TopicPartition(*pair) for pair in sorted(places)}
    java_partitions = jvm.java.util.ArrayList()
    for partition in partitions.values():
        java_partitions.add(partition)
    described = admin.describeProducers(java_partitions)
    for topic_partition, partition in partitions.items():
        producers = described.partitionResult(partition).get().activeProducers()
        if any(
            producer.producerId() == ours and producer.currentTransactionStartOffset().isPresent()
            for producer in producers
        ):
            yield topic_partition


# ---- The wait itself: for what is decided and not visible, or open and not known to be another's.


_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_UNUSUAL = 0.2
"""Seconds after which it is asked whose transaction it is: ends of our own show within milliseconds."""

_LONG = 1.0
"""Seconds after which the wait is told, once."""


class HiddenTransaction(Exception):
    """A transaction's end is not visible: it is still open, or its end was lost in the brokers.

    ``places``: ``{(topic, partition): (last stable offset, offset that it should have passed)}``.
    """

    def __init__(self, places: Mapping[PartitionKey, tuple[int, int]]) -> None:
        self.places = places
        (topic, partition), (stable, high) = min(places.items())
        self.topic, self.partition, self.stable = topic, partition, stable
        super().__init__(f"{topic}/{partition} is readable up to {stable}, and written up to {high}")


def settled(
    cluster: Cluster, places: Iterable[PartitionKey], bound: float, held: Held = untold
) -> dict[PartitionKey, End]:
    """Wait until all that is in these partitions now is decided and visible. Returns their ends before the wait.

    Transactions of others are not waited for: ``held`` selects the partitions with an open one of ours. Raises
    ``HiddenTransaction`` after ``bound`` seconds, KafkaException without an answer.
    """
    ends = cluster.ends(places)
    settle(cluster, {partition: end.high for partition, end in ends.items()}, bound, ends, held)
    return ends


def settle(
    cluster: Cluster,
    targets: Mapping[PartitionKey, int],
    bound: float,
    initial_ends: Mapping[PartitionKey, End] | None = None,
    held: Held = untold,
) -> dict[PartitionKey, End]:
    """Wait until every transaction that began below ``targets`` is decided and its end visible. Returns the ends then.

    ``targets`` are offsets that the last stable ones must reach. With ``initial_ends`` the first look is saved.
    Otherwise as :func:`settled`.
    """
    begun, pause, last_check, warned = time.monotonic(), _SHORTEST_PAUSE, 0.0, False
    ends, highs = cluster.ends(targets) if initial_ends is None else dict(initial_ends), dict(targets)
    while behind := {
        partition: (ends[partition].stable, high) for partition, high in highs.items() if ends[partition].stable < high
    }:
        waited = time.monotonic() - begun
        if waited >= bound:
            raise HiddenTransaction(behind)
        long = waited > _LONG and not warned
        if long or waited > max(_UNUSUAL, 2 * last_check):
            last_check, warned, ours = waited, warned or long, held(behind)
            _tell(logging.WARNING if long else logging.DEBUG, cluster.sink, behind, ours)
            if ours is not None:
                highs = {
                    partition: high for partition, high in highs.items() if partition not in behind or partition in ours
                }
            continue
        time.sleep(min(pause, bound - waited))
        pause = min(pause * 2, _LONGEST_PAUSE)
        ends |= cluster.ends(behind)
    return ends


def _tell(level: int, sink: str, behind: Iterable[PartitionKey], ours: Iterable[PartitionKey] | None) -> None:
    if ours is None:
        log.log(level, "%s: open transactions in %s, their writers are not known here: waiting", sink, sorted(behind))
    else:
        log.log(level, "%s: open transactions in %s, of ours in %s", sink, sorted(behind), sorted(ours))
