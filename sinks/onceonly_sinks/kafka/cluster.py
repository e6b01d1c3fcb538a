"""Query Kafka brokers for topics, settings and offsets.

A client that lived through a broker's restart can answer with stale leaders for ever. So a fresh client repeats a
question that fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from onceonly.errors import OnceOnlyError, refuse
from onceonly_sinks.kafka import errors
from onceonly_sinks.kafka.errors import Context, Kind
from onceonly_sinks.kafka.options import Options

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)

PartitionKey = tuple[str, int]
"""A topic's partition."""

_LONGEST_TRANSACTION = 900.0
"""Seconds: what brokers allow by default, for a role that may not ask them."""

SCAN = 10.0
"""Brokers look for expired transactions this often, seconds."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now. ``id`` changes when the topic is recreated. ``partitions`` are their numbers."""

    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """End of a partition.

    Attributes:
        high: offset after the last record, of any transaction.
        stable: offset of the first record of an undecided transaction. The high one if all are decided.
        leader_epoch: epoch of the leader that answered. -1: unknown. Under one leader a topic's log only grows.
    """

    high: int
    stable: int
    leader_epoch: int


class Cluster:
    """Asks the brokers, without producing.

    ``context`` is for messages. ``patience`` is in seconds, for one answer. Questions raise KafkaException if no answer
    comes. Most of them also raise it without the permission.
    """

    def __init__(self, options: Options, context: Context, patience: float) -> None:
        self._options = options
        self._context = context
        self._patience = patience
        self._admin: AdminClient | None = None
        self._id: str | None = None

    @property
    def sink(self) -> str:
        """Sink id, for messages."""
        return self._context.sink

    @property
    def id(self) -> str:
        """The cluster's id."""
        if self._id is None:
            self.ask(lambda admin: admin)  # whoever connects is told
        assert self._id is not None
        return self._id

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist."""
        from confluent_kafka import KafkaException, TopicCollection

        topic_names = sorted(set(names))
        if not topic_names:
            return {}

        def describe(admin: AdminClient) -> dict[str, Topic]:
            topics: dict[str, Topic] = {}
            for name, future in admin.describe_topics(
                TopicCollection(topic_names), request_timeout=self._patience
            ).items():
                try:
                    description = future.result()
                except KafkaException as error:
                    failure = errors.read(error)
                    if failure is None or failure.kind is not Kind.NO_TOPIC:
                        raise
                    continue
                topics[name] = Topic(
                    str(description.topic_id), tuple(sorted(part.id for part in description.partitions))
                )
            return topics

        return self.ask(describe)

    def high(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Offset after the last record, of any transaction."""
        return self._offsets(places, latest=True, stable=False)

    def stable(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Offset of the first record of an undecided transaction. The high one if all are decided."""
        return self._offsets(places, latest=True, stable=True)

    def low(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Offset of the oldest record that retention has left."""
        return self._offsets(places, latest=False, stable=False)

    def ends(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, End]:
        """High and stable offsets, asked for at once. Neither is older than the call."""
        partitions = list(places)

        def ask(admin: AdminClient) -> dict[PartitionKey, End]:
            highs, stables = (self._sent(admin, partitions, latest=True, stable=stable) for stable in (False, True))
            # Both questions are on their way before the first answer is waited for.
            return {
                partition: End(
                    high.result().offset,
                    stables[partition].result().offset,
                    -1 if (leader_epoch := high.result().leader_epoch) is None else leader_epoch,
                )
                for partition, high in highs.items()
            }

        return self.ask(ask) if partitions else {}

    def _offsets(self, places: Iterable[PartitionKey], *, latest: bool, stable: bool) -> dict[PartitionKey, int]:
        partitions = list(places)

        def ask(admin: AdminClient) -> dict[PartitionKey, int]:
            futures = self._sent(admin, partitions, latest=latest, stable=stable)
            return {partition: future.result().offset for partition, future in futures.items()}

        return self.ask(ask) if partitions else {}

    def _sent(
        self, admin: AdminClient, partitions: list[PartitionKey], *, latest: bool, stable: bool
    ) -> dict[PartitionKey, Any]:
        from confluent_kafka import IsolationLevel, TopicPartition

        spec: Any = _words().OffsetSpec.latest() if latest else _words().OffsetSpec.earliest()
        level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        specs: dict[TopicPartition, Any] = {TopicPartition(*partition): spec for partition in partitions}
        futures = admin.list_offsets(specs, isolation_level=level, request_timeout=self._patience)
        return {(at.topic, at.partition): future for at, future in futures.items()}

    def longest_transaction(self) -> float:
        """Seconds that any producer's transaction can stay open before the brokers end it."""
        longest = self._broker_setting("transaction.max.timeout.ms")
        return (int(longest) / 1000 if longest else _LONGEST_TRANSACTION) + SCAN

    def verifies(self) -> bool:
        """Whether leaders are known to refuse records of partitions that are not in their transaction (KIP-890)."""
        return self._broker_setting("transaction.partition.verification.enable") == "true"

    def _broker_setting(self, name: str) -> str:
        """A setting of a broker. Empty for one that it does not have, or where the role may not see it."""
        return self._permitted(lambda: self._described("BROKER").get(name, ""), "")

    def _permitted(self, ask: Callable[[], Answer], otherwise: Answer) -> Answer:
        """The answer, or ``otherwise`` for a role that may not have it."""
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            failure = errors.read(error)
            if failure is None or failure.kind is not Kind.DENIED:
                raise
            return otherwise

    def policy(self, topic: str) -> set[str]:
        """A topic's clean-up policies."""
        return set(self.settings(topic)["cleanup.policy"].split(","))

    def keeps_by_key(self, topic: str) -> bool:
        """Whether a topic is known to be compacted. False for a role that may not see its settings."""
        return "compact" in self._permitted(lambda: self.policy(topic), set[str]())

    def largest_batch(self, topic: str) -> int:
        """Bytes that a batch of a topic's records may have. 0 for a role that may not see its settings."""
        return int(self._permitted(lambda: self.settings(topic)["max.message.bytes"], "0"))

    def settings(self, topic: str) -> dict[str, str]:
        """A topic's settings, both its own and those from the brokers."""
        return self._described("TOPIC", topic)

    def _described(self, kind: str, name: str | None = None) -> dict[str, str]:
        """Settings of a topic, or of some broker."""

        def ask(admin: AdminClient) -> dict[str, str]:
            named = name or str(next(iter(admin.list_topics(timeout=self._patience).brokers)))
            resource = _words().ConfigResource(_words().ConfigResource.Type[kind], named)
            entries = admin.describe_configs([resource], request_timeout=self._patience)[resource].result()
            return {setting: str(entry.value) for setting, entry in entries.items()}

        return self.ask(ask)

    def make_marker_topic(self, name: str) -> None:
        """Create the marker topic if it is missing, or check the existing one.

        Raises E502 without the permission, and E508 if the topic cannot hold markers.
        """
        if name not in self.topics([name]):
            self._create(name)
        topic = self.topics([name])[name]
        policy = self.policy(name)
        if policy != {"compact"}:
            reason = f"its marker topic {name} has cleanup.policy={','.join(sorted(policy))}, which forgets markers"
            next_ = f"kafka-configs.sh --alter --topic {name} --add-config cleanup.policy=compact"
            raise self._unfit(reason, "the topic was made by hand or by auto.create.topics.enable", next_)
        if topic.partitions != (0,):
            reason = f"its marker topic {name} has {len(topic.partitions)} partitions; markers need one order"
            cause = "the topic was made by hand or by auto.create.topics.enable"
            raise self._unfit(
                reason,
                cause,
                "delete it if it is empty, or name another: KafkaSink(..., tuning=KafkaTuning(marker_topic=...))",
            )

    def _create(self, name: str) -> None:
        from confluent_kafka import KafkaException

        topic = _words().NewTopic(name, num_partitions=1, config={"cleanup.policy": "compact"})

        def create(admin: AdminClient) -> None:
            admin.create_topics([topic], request_timeout=self._patience)[name].result()

        try:
            self.ask(create)
        except KafkaException as error:
            failure = errors.read(error)
            if failure is not None and failure.kind is Kind.DENIED:
                command = f"kafka-topics.sh --create --topic {name} --partitions 1 --config cleanup.policy=compact"
                next_ = f"grant CREATE on topics that begin with onceonly., or make it: {command}"
                raise refuse("E502", sink=self._context.sink, reason=failure.reason, next=next_) from error
            # Two drivers that start at once both find none; the check of what is there comes after.
            if failure is None or failure.name != "TOPIC_ALREADY_EXISTS":
                raise
        self._await_topic(name)

    def _await_topic(self, name: str) -> None:
        """Wait for a new topic. The controller knows it at once, and every broker a moment later."""
        deadline = time.monotonic() + self._patience
        while name not in self.topics([name]):
            if time.monotonic() > deadline:
                raise self._unfit(f"its marker topic {name} does not appear", "brokers lag", "restart the query")
            time.sleep(_SHORTEST_PAUSE)

    def _unfit(self, reason: str, cause: str, next_: str) -> OnceOnlyError:
        return refuse("E508", sink=self._context.sink, reason=reason, cause=cause, next=next_)

    def ask(self, question: Callable[[AdminClient], Answer]) -> Answer:
        """Ask a question. One without an answer is repeated as long as ``patience`` lasts."""
        from confluent_kafka import KafkaException

        deadline, pause = time.monotonic() + self._patience, _SHORTEST_PAUSE
        while True:
            try:
                return question(self._client())
            except KafkaException as error:
                failure = errors.read(error)
                retryable = failure is not None and failure.kind is Kind.UNREACHABLE
                if not retryable or time.monotonic() + pause > deadline:
                    raise
                log.debug("%s: asking again: %s", self._context.sink, failure and failure.reason)
                self._admin = None
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _client(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            settings: dict[str, Any] = {**self._options.connection, "error_cb": self._hear}
            admin = AdminClient(settings, logger=log)
            try:
                self._id = str(admin.list_topics(timeout=min(5.0, self._patience)).cluster_id)
            finally:
                admin.poll(0)  # tells what was heard
            self._admin = admin
            self._context.heard.clear()
        return self._admin

    def _hear(self, error: KafkaError) -> None:
        """Record the client's own report why it has no connection."""
        if error.name() != "_ALL_BROKERS_DOWN":
            self._context.hear(str(error.str()))

    def close(self) -> None:
        """Close the connections."""
        self._admin = None


def _words() -> Any:
    """The client's classes for questions, which their package re-exports without types."""
    from confluent_kafka import admin

    return admin
