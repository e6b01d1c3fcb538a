"""What brokers and topics must be for a sink: read from the cluster, judged by pure rules."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.doctor import Check, Observed, State, spot
from onceonly.doctor.observed import spell
from onceonly.doctor.rules import enough_ms, too_short
from onceonly_sinks.kafka.cluster import SCAN
from onceonly_sinks.kafka.standing import Ground

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_TRANSACTIONS = "__transaction_state"
"""The brokers' own topic: which transactions were decided, and how."""

_ENOUGH = 2
"""Replicas that must have a confirmed row, so that no broker is the only one."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is.

    Attributes:
        name: its name.
        partitions: how many.
        replicas: the fewest that a partition has.
        settings: its own, and those it has from the brokers.
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
        """What becomes of old records."""
        return self.settings.get("cleanup.policy", "")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What a sink stands on.

    Attributes:
        servers: how the brokers are reached.
        brokers: how many.
        limit_s: after which the brokers end a transaction of this sink, seconds.
        most_s: the highest such limit that the brokers allow, seconds.
        marker: name of the marker topic.
        rows: name of the topic that rows go to; ``None`` where they name theirs.
        topics: those of the sink that exist, and the brokers' own for transactions.
    """

    servers: str
    brokers: int
    limit_s: float
    most_s: float
    marker: str
    rows: str | None
    topics: tuple[TopicFacts, ...]


def read(ground: Ground) -> ClusterFacts:
    """Ask the cluster.

    Raises:
        KafkaException: no answer, or no right to see the settings.
    """

    def ask(admin: AdminClient) -> Any:
        return admin.list_topics(timeout=ground.patience)

    seen = ground.cluster.ask(ask)
    wanted = [name for name in (ground.topic, ground.marker_topic, _TRANSACTIONS) if name in seen.topics]
    topics = tuple(_topic(ground, str(name), seen.topics[name].partitions.values()) for name in wanted)
    limit = float(ground.options.timeout)
    longest = ground.cluster.longest_transaction() - SCAN
    servers, brokers = ground.options.servers, len(seen.brokers)
    return ClusterFacts(servers, brokers, limit, longest, ground.marker_topic, ground.topic, topics)


def _topic(ground: Ground, name: str, partitions: Any) -> TopicFacts:
    replicas = [len(partition.replicas) for partition in partitions]
    return TopicFacts(name, len(replicas), min(replicas, default=0), ground.cluster.settings(name))


def judge(name: str, facts: ClusterFacts, observed: Observed) -> Iterator[Check]:
    """D101 to D107.

    Args:
        name: the sink's address.
        facts: what the sink stands on.
        observed: what past epochs took.
    """
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
            yield from _rows(name, facts.servers, topic)
        yield from _kept(name, facts, topic)


def _rows(name: str, servers: str, topic: TopicFacts) -> Iterator[Check]:
    """Whether every row stays that was written."""
    if "compact" in topic.policy.split(","):
        yield spot("D106", name, State.HINT, topic=topic.name, servers=servers)
        return
    kept = int(topic.settings.get("retention.ms", "-1")) / 1000
    how_long = "for ever" if kept < 0 else f"for {spell(kept)}"
    yield Check(name, State.OK, f"{topic.name} has {topic.partitions} partitions and keeps every row {how_long}")


def _marker(name: str, servers: str, topic: TopicFacts) -> Iterator[Check]:
    at = f"--bootstrap-server {shlex.quote(servers)}"
    if topic.policy != "compact":
        command = f"kafka-configs.sh {at} --alter --topic {topic.name} --add-config cleanup.policy=compact"
        yield spot("D102", name, topic=topic.name, found=f"cleanup.policy={topic.policy}", command=command)
    if topic.partitions != 1:
        command = f"delete it while it is empty: kafka-topics.sh {at} --delete --topic {topic.name}; or name another: "
        found = f"{topic.partitions} partitions"
        yield spot("D102", name, topic=topic.name, found=found, command=f"{command}KafkaSink(..., marker_topic=...)")
    if (topic.policy, topic.partitions) == ("compact", 1):
        yield Check(name, State.OK, f"topic {topic.name} keeps markers: it is compacted and has one partition")


def _kept(name: str, facts: ClusterFacts, topic: TopicFacts) -> Iterator[Check]:
    """Whether what was confirmed outlives a broker. A single broker is somebody's choice, and only told."""
    said: dict[str, Any] = {"topic": topic.name, "servers": facts.servers}
    if topic.replicas == 1:
        yield spot("D103", name, State.HINT if facts.brokers == 1 else State.PROBLEM, **said)
    elif topic.least < _ENOUGH:
        yield spot("D104", name, least=topic.least, replicas=topic.replicas, enough=_ENOUGH, **said)
    if topic.settings.get("unclean.leader.election.enable") == "true":
        yield spot("D105", name, **said)
