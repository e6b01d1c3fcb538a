"""Check topics and limits of transactions before an epoch is refused."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.doctor import Check, Observed, State, spot
from onceonly.doctor.rules import enough_ms, too_short
from onceonly.protocol.health import spell
from onceonly_sinks.kafka.cluster import SCAN
from onceonly_sinks.kafka.producer import Destination

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_TRANSACTIONS = "__transaction_state"
"""The brokers' own topic: which transactions were decided, and how."""

_HEADROOM = 2

_ENOUGH = 2
"""Replicas that must have a confirmed row, so that no broker is the only one."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Settings and replicas of a topic.

    ``replicas`` is the fewest that a partition has. ``settings`` are its own, and those from the brokers.
    """

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]

    @property
    def least(self) -> int:
        """Replicas without which a write is refused."""
        return int(self.settings.get("min.insync.replicas", "1"))

    @property
    def policy(self) -> str:
        """The clean-up policy for old records."""
        return self.settings.get("cleanup.policy", "")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Brokers, limits and topics of a sink.

    Attributes:
        limit_s: seconds after which the brokers end a transaction of this sink.
        most_s: the highest such limit that the brokers allow, in seconds.
        rows: name of the topic for rows. ``None`` if rows name theirs.
        topics: existing topics of the sink, and the brokers' own for transactions.
    """

    servers: str
    brokers: int
    limit_s: float
    most_s: float
    marker: str
    rows: str | None
    topics: tuple[TopicFacts, ...]


def read(destination: Destination) -> ClusterFacts:
    """Ask the cluster. Raises KafkaException if no answer comes, or if the settings may not be seen."""

    def ask(admin: AdminClient) -> Any:
        return admin.list_topics(timeout=destination.patience)

    metadata = destination.cluster.ask(ask)
    topic_names = [
        name for name in (destination.topic, destination.marker_topic, _TRANSACTIONS) if name in metadata.topics
    ]
    topics = tuple(_topic(destination, str(name), metadata.topics[name].partitions.values()) for name in topic_names)
    limit = float(destination.options.timeout)
    longest = destination.cluster.longest_transaction() - SCAN
    servers, brokers = destination.options.servers, len(metadata.brokers)
    return ClusterFacts(servers, brokers, limit, longest, destination.marker_topic, destination.topic, topics)


def _topic(destination: Destination, name: str, partitions: Any) -> TopicFacts:
    replicas = [len(partition.replicas) for partition in partitions]
    return TopicFacts(name, len(replicas), min(replicas, default=0), destination.cluster.settings(name))


def judge(name: str, facts: ClusterFacts, observed: Observed) -> Iterator[Check]:
    """Run the checks D101 to D108. ``observed`` holds durations of past epochs."""
    if state := too_short(facts.limit_s, observed):
        yield spot(
            "D101",
            name,
            state,
            longest=spell(observed.longest_open_s),
            limit=spell(facts.limit_s),
            enough_ms=enough_ms(observed),
            most_ms=int(facts.most_s * 1000),
        )
    if facts.limit_s > facts.most_s:
        yield spot("D107", name, limit=spell(facts.limit_s), most=spell(facts.most_s), most_ms=int(facts.most_s * 1000))
    else:
        yield Check(name, State.OK, f"an epoch may keep its transaction open for {spell(facts.limit_s)}")
    if facts.rows is None:
        yield Check(name, State.HINT, "rows name their topics; which ones is known when they come")
    if facts.marker not in [topic.name for topic in facts.topics]:
        yield Check(name, State.OK, f"topic {facts.marker} for markers is made with the first fence")
    for topic in facts.topics:
        if topic.name == facts.marker:
            yield from _marker(name, facts.servers, topic)
        elif topic.name == facts.rows:
            yield from _rows(name, facts.servers, topic, observed)
        yield from _check_durability(name, facts, topic)


def _rows(name: str, servers: str, topic: TopicFacts, observed: Observed) -> Iterator[Check]:
    """Check that every written row stays for as long as readers need it."""
    if "compact" in topic.policy.split(","):
        yield spot("D106", name, State.HINT, topic=topic.name, servers=servers)
        return
    retention_s = int(topic.settings.get("retention.ms", "-1")) / 1000
    how_long = "for ever" if retention_s < 0 else f"for {spell(retention_s)}"
    if 0 <= retention_s <= observed.longest_pin_s * _HEADROOM:
        state = State.PROBLEM if observed.longest_pin_s >= retention_s else State.HINT
        enough, pinned = int(observed.longest_pin_s * 3000), spell(observed.longest_pin_s)
        yield spot(
            "D108",
            name,
            state,
            topic=topic.name,
            servers=servers,
            kept=spell(retention_s),
            pinned=pinned,
            enough_ms=enough,
        )
    yield Check(name, State.OK, f"{topic.name} has {topic.partitions} partitions and keeps every row {how_long}")


def _marker(name: str, servers: str, topic: TopicFacts) -> Iterator[Check]:
    at = f"--bootstrap-server {shlex.quote(servers)}"
    if topic.policy != "compact":
        command = f"kafka-configs.sh {at} --alter --topic {topic.name} --add-config cleanup.policy=compact"
        yield spot("D102", name, topic=topic.name, found=f"cleanup.policy={topic.policy}", command=command)
    if topic.partitions != 1:
        command = f"delete it while it is empty: kafka-topics.sh {at} --delete --topic {topic.name}; or name another: "
        actual = f"{topic.partitions} partitions"
        yield spot(
            "D102",
            name,
            topic=topic.name,
            found=actual,
            command=f"{command}KafkaSink(..., tuning=KafkaTuning(marker_topic=...))",
        )
    if (topic.policy, topic.partitions) == ("compact", 1):
        yield Check(name, State.OK, f"topic {topic.name} keeps markers: it is compacted and has one partition")


def _check_durability(name: str, facts: ClusterFacts, topic: TopicFacts) -> Iterator[Check]:
    """Check that confirmed rows outlive a broker. A single broker is the operator's choice, and only reported."""
    details: dict[str, Any] = {"topic": topic.name, "servers": facts.servers}
    if topic.replicas == 1:
        yield spot("D103", name, State.HINT if facts.brokers == 1 else State.PROBLEM, **details)
    elif topic.least < _ENOUGH:
        yield spot("D104", name, least=topic.least, replicas=topic.replicas, enough=_ENOUGH, **details)
    if topic.settings.get("unclean.leader.election.enable") == "true":
        yield spot("D105", name, **details)
