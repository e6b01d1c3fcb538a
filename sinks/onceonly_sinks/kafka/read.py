"""Read a Kafka sink's history, row counts and changes by others.

Also builds settings for readers, and checks brokers and topics.
"""

from __future__ import annotations

import json
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.doctor import Check, Observed, State, spot
from onceonly.doctor.rules import enough_ms, too_short
from onceonly.errors.arguments import checks_arguments
from onceonly.protocol import ExternalChange
from onceonly.protocol.health import spell
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.kafka.cluster import SCAN, Place, Topic
from onceonly_sinks.kafka.marker_reader import HiddenTransaction, scan, settle
from onceonly_sinks.kafka.markers import MarkerRecord, Written, read_offsets
from onceonly_sinks.kafka.options import PREFIX
from onceonly_sinks.kafka.producer import Destination, flat, places

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


# ---- What brokers and topics must be for a sink: read from the cluster, judged by pure rules.

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
        brokers: number of brokers.
        limit_s: seconds after which the brokers end a transaction of this sink.
        most_s: the highest such limit that the brokers allow, in seconds.
        marker: name of the marker topic.
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

    seen = destination.cluster.ask(ask)
    wanted = [name for name in (destination.topic, destination.marker_topic, _TRANSACTIONS) if name in seen.topics]
    topics = tuple(_topic(destination, str(name), seen.topics[name].partitions.values()) for name in wanted)
    limit = float(destination.options.timeout)
    longest = destination.cluster.longest_transaction() - SCAN
    servers, brokers = destination.options.servers, len(seen.brokers)
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
        yield from _kept(name, facts, topic)


def _rows(name: str, servers: str, topic: TopicFacts, observed: Observed) -> Iterator[Check]:
    """Check that every written row stays for as long as readers need it."""
    if "compact" in topic.policy.split(","):
        yield spot("D106", name, State.HINT, topic=topic.name, servers=servers)
        return
    kept = int(topic.settings.get("retention.ms", "-1")) / 1000
    how_long = "for ever" if kept < 0 else f"for {spell(kept)}"
    if 0 <= kept <= observed.longest_pin_s * _HEADROOM:
        state = State.PROBLEM if observed.longest_pin_s >= kept else State.HINT
        enough, pinned = int(observed.longest_pin_s * 3000), spell(observed.longest_pin_s)
        yield spot(
            "D108", name, state, topic=topic.name, servers=servers, kept=spell(kept), pinned=pinned, enough_ms=enough
        )
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
    """Check that confirmed rows outlive a broker. A single broker is the operator's choice, and only reported."""
    said: dict[str, Any] = {"topic": topic.name, "servers": facts.servers}
    if topic.replicas == 1:
        yield spot("D103", name, State.HINT if facts.brokers == 1 else State.PROBLEM, **said)
    elif topic.least < _ENOUGH:
        yield spot("D104", name, least=topic.least, replicas=topic.replicas, enough=_ENOUGH, **said)
    if topic.settings.get("unclean.leader.election.enable") == "true":
        yield spot("D105", name, **said)


# ---- History, recount, what others did; and settings with which readers see whole epochs only.

_GLANCE = 10.0
"""Seconds that a reader without a fence waits for transactions in flight before it reads what is visible."""

READERS = "isolation.level=read_committed (Spark: kafka.isolation.level; librdkafka: its default)"


@checks_arguments
def read_committed(reader: Any) -> Any:
    """Have Spark's Kafka source deliver committed records only. Its default delivers aborted ones, too.

    ``reader`` is ``spark.readStream.format("kafka")`` or ``spark.read.format("kafka")``, and is returned.
    """
    return reader.option(f"{PREFIX}isolation.level", "read_committed")


@checks_arguments
def reader_options(servers: str, topic: str) -> dict[str, str]:
    """Options of Spark's Kafka source that read a sink's topic: ``spark.readStream.format("kafka").options(**...)``."""
    return {
        f"{PREFIX}bootstrap.servers": servers,
        "subscribe": topic,
        f"{PREFIX}isolation.level": "read_committed",
    }


@checks_arguments
def consumer_options(servers: str, group: str) -> dict[str, str | bool]:
    """Configuration of a ``confluent_kafka.Consumer`` that reads whole epochs."""
    return {"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"}


def epochs(destination: Destination, after: int) -> list[Written]:
    """Epochs in the marker topic with visible rows, oldest first. Raises KafkaException without an answer."""
    if not destination.marked():
        return []
    end = _visible(destination, destination.cluster.high([destination.tail.place]))[destination.tail.place]
    found = [entry.written for entry in destination.tail.epochs(end, after) if entry.written]
    if found:
        known = destination.cluster.topics(found[-1].topics)
        _visible(destination, _state(flat(found[-1].end), known))
    return found


def _visible(destination: Destination, targets: Mapping[Place, int]) -> dict[Place, int]:
    """The offsets, or those visible after a wait, since a writer may be held up in the middle of a commit."""
    try:
        settle(destination.cluster, targets, _GLANCE)
    except HiddenTransaction as hidden:
        stable = {place: low for place, (low, _) in hidden.places.items()}
        return {**targets, **stable}
    return dict(targets)


def _state(offsets: Mapping[Place, int], topics: Mapping[str, Topic]) -> dict[Place, int]:
    return {place: offset for place, offset in offsets.items() if place in set(places(topics))}


def recount(destination: Destination) -> dict[int, int] | None:
    """Committed records between the offsets of each epoch. Those between epochs count under 0.

    ``None`` if retention or compaction has removed rows of a remembered epoch, or if a topic was recreated. Also
    ``None`` if another producer's open transaction hides the newest rows, as hidden rows look like lost ones. Records
    of another writer between the first and the last record of an epoch count as the epoch's. Raises KafkaException
    without an answer.
    """
    written = epochs(destination, 0)
    if not written:
        return {}
    topics = destination.cluster.topics(written[-1].topics)
    if not _countable(destination, written, topics):
        return None
    counted: Counter[int] = Counter()
    highest = destination.cluster.high(places(topics))
    stable = destination.cluster.stable(places(topics))
    if any(stable[place] < offset for place, offset in _state(flat(written[-1].end), topics).items()):
        return None
    for place in places(topics):
        ranges = ranges_of(written, place)
        if ranges:
            end = min(highest[place], stable[place])
            for message in scan(destination.options, place, ranges[0][0], end, destination.patience):
                counted[epoch_at(ranges, message.offset() or 0)] += 1
    return dict(counted)


def ranges_of(written: Sequence[Written], place: Place) -> list[tuple[int, int, int]]:
    """``(start, end, epoch)`` of the epochs that may have rows in a partition, ascending."""
    topic, partition = place
    found: list[tuple[int, int, int]] = []
    for epoch in written:
        start, end = epoch.start.get(topic, {}).get(partition), epoch.end.get(topic, {}).get(partition)
        if epoch.rows and start is not None and end is not None and start < end:
            found.append((start, end, epoch.marker.epoch.number))
    return sorted(found)


def epoch_at(ranges: Sequence[tuple[int, int, int]], offset: int) -> int:
    """Epoch whose range holds an offset. 0 for none."""
    at = bisect_right(ranges, offset, key=lambda found: found[0]) - 1
    return ranges[at][2] if at >= 0 and offset < ranges[at][1] else 0


def _countable(destination: Destination, written: Sequence[Written], topics: Mapping[str, Topic]) -> bool:
    if any(topics[name].id != id_ if name in topics else True for name, id_ in written[-1].topics.items()):
        return False
    if any("compact" in destination.cluster.policy(name) for name in topics):
        return False
    low = destination.cluster.low(places(topics))
    first = {place: ranges[0][0] for place in low if (ranges := ranges_of(written, place))}
    return all(low[place] <= start for place, start in first.items())


def has_rows(destination: Destination, topics: Mapping[str, Topic]) -> bool:
    """Whether any partition holds a committed record."""
    low, stable = destination.cluster.low(places(topics)), destination.cluster.stable(places(topics))
    for place in places(topics):
        with closing(scan(destination.options, place, low[place], stable[place], destination.patience)) as rows:
            if next(rows, None) is not None:
                return True
    return False


def disturbances(destination: Destination, since: Receipt | None) -> tuple[ExternalChange, ...]:
    """Changes by others to the topics since a receipt, by ids and offsets. Raises KafkaException without an answer."""
    if since is None:
        return ()
    ids, end = since.at("topics"), since.at("end")
    was: dict[str, str] = _json(ids)
    topics = destination.cluster.topics(was)
    high = destination.cluster.high(places(topics))
    return judge_topics(was, read_offsets(str(end or "{}")), topics, high)


def judge_topics(
    was: Mapping[str, str], end: Mapping[str, Mapping[int, int]], topics: Mapping[str, Topic], high: Mapping[Place, int]
) -> tuple[ExternalChange, ...]:
    """Compare topics with the ids and offsets of a receipt."""
    found: list[ExternalChange] = []
    for name, id_ in was.items():
        if name not in topics:
            found.append(ExternalChange("recreated", f"no topic {name}", fatal=True))
        elif topics[name].id != id_:
            detail = f"topic {name} made anew, with id {topics[name].id}"
            found.append(ExternalChange("recreated", detail, fatal=True))
        else:
            found += _cut_off(name, end.get(name, {}), high)
    return tuple(found)


def _cut_off(topic: str, end: Mapping[int, int], high: Mapping[Place, int]) -> list[ExternalChange]:
    now = {partition: high.get((topic, partition), 0) for partition in end}
    return [
        ExternalChange("restored", f"{topic}/{partition} ends at {now[partition]}, it once ended at {once}", fatal=True)
        for partition, once in end.items()
        if now[partition] < once
    ]


def _json(text: object) -> dict[str, str]:
    return dict(json.loads(str(text))) if text else {}


def newest_receipt(entry: MarkerRecord) -> Receipt | None:
    """Receipt of the epoch that a record names."""
    return entry.written.receipt if entry.written else None
