"""The reading half: history, recount, what others did; and settings with which readers see whole epochs only."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from onceonly.protocol import Disturbance
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.kafka.cluster import Place, Topic
from onceonly_sinks.kafka.options import PREFIX
from onceonly_sinks.kafka.records import Entry, Written, read_offsets
from onceonly_sinks.kafka.settling import Hidden, settle
from onceonly_sinks.kafka.standing import Ground, flat, places
from onceonly_sinks.kafka.tail import scan

_GLANCE = 10.0
"""Seconds that a reader without a fence waits for transactions in flight before it reads what is visible."""

READERS = "isolation.level=read_committed (Spark: kafka.isolation.level; librdkafka: its default)"


def read_committed(reader: Any) -> Any:
    """Have Spark's Kafka source deliver committed records only; its own default delivers aborted ones, too.

    Args:
        reader: ``spark.readStream.format("kafka")`` or ``spark.read.format("kafka")``.

    Returns:
        The same reader.
    """
    return reader.option(f"{PREFIX}isolation.level", "read_committed")


def reader_options(servers: str, topic: str) -> dict[str, str]:
    """Options of Spark's Kafka source that read a sink's topic: ``spark.readStream.format("kafka").options(**...)``."""
    return {
        f"{PREFIX}bootstrap.servers": servers,
        "subscribe": topic,
        f"{PREFIX}isolation.level": "read_committed",
    }


def consumer_options(servers: str, group: str) -> dict[str, str | bool]:
    """Configuration of a ``confluent_kafka.Consumer`` that reads whole epochs."""
    return {"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"}


def epochs(ground: Ground, after: int) -> list[Written]:
    """Epochs that the marker topic remembers, oldest first; the rows of each are visible.

    Raises:
        KafkaException: no answer.
    """
    if not ground.marked():
        return []
    end = _visible(ground, ground.cluster.high([ground.tail.place]))[ground.tail.place]
    found = [entry.written for entry in ground.tail.epochs(end, after) if entry.written]
    if found:
        known = ground.cluster.topics(found[-1].topics)
        _visible(ground, _standing(flat(found[-1].end), known))
    return found


def _visible(ground: Ground, targets: Mapping[Place, int]) -> dict[Place, int]:
    """The offsets, or what is visible below them after a while: a writer may be held up in the middle of a commit."""
    try:
        settle(ground.cluster, targets, _GLANCE)
    except Hidden as hidden:
        stable = {place: low for place, (low, _) in hidden.places.items()}
        return {**targets, **stable}
    return dict(targets)


def _standing(offsets: Mapping[Place, int], topics: Mapping[str, Topic]) -> dict[Place, int]:
    return {place: offset for place, offset in offsets.items() if place in set(places(topics))}


def recount(ground: Ground) -> dict[int, int] | None:
    """Committed records between the offsets of each epoch; those between epochs under 0.

    ``None`` where retention or compaction has removed rows of a remembered epoch, a topic was made anew, or somebody's
    open transaction hides the newest rows: what is missing then cannot be told from what was lost. Another writer's
    records that came between the first and the last record of an epoch count as the epoch's.

    Raises:
        KafkaException: no answer.
    """
    written = epochs(ground, 0)
    if not written:
        return {}
    topics = ground.cluster.topics(written[-1].topics)
    if not _countable(ground, written, topics):
        return None
    counted: Counter[int] = Counter()
    highest = ground.cluster.high(places(topics))
    stable = ground.cluster.stable(places(topics))
    if any(stable[place] < offset for place, offset in _standing(flat(written[-1].end), topics).items()):
        return None
    for place in places(topics):
        ranges = ranges_of(written, place)
        if ranges:
            end = min(highest[place], stable[place])
            for message in scan(ground.options, place, ranges[0][0], end, ground.patience):
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
    """Epoch whose range holds an offset; 0 for none."""
    at = bisect_right(ranges, offset, key=lambda found: found[0]) - 1
    return ranges[at][2] if at >= 0 and offset < ranges[at][1] else 0


def _countable(ground: Ground, written: Sequence[Written], topics: Mapping[str, Topic]) -> bool:
    if any(topics[name].id != id_ if name in topics else True for name, id_ in written[-1].topics.items()):
        return False
    if any("compact" in ground.cluster.policy(name) for name in topics):
        return False
    low = ground.cluster.low(places(topics))
    first = {place: ranges[0][0] for place in low if (ranges := ranges_of(written, place))}
    return all(low[place] <= start for place, start in first.items())


def has_rows(ground: Ground, topics: Mapping[str, Topic]) -> bool:
    """Whether any partition holds a committed record."""
    low, stable = ground.cluster.low(places(topics)), ground.cluster.stable(places(topics))
    for place in places(topics):
        with closing(scan(ground.options, place, low[place], stable[place], ground.patience)) as rows:
            if next(rows, None) is not None:
                return True
    return False


def disturbances(ground: Ground, since: Receipt | None) -> tuple[Disturbance, ...]:
    """What others did to the topics since a receipt, as far as ids and offsets show it.

    Raises:
        KafkaException: no answer.
    """
    if since is None:
        return ()
    ids, end = since.at("topics"), since.at("end")
    was: dict[str, str] = _json(ids)
    topics = ground.cluster.topics(was)
    high = ground.cluster.high(places(topics))
    return judge_topics(was, read_offsets(str(end or "{}")), topics, high)


def judge_topics(
    was: Mapping[str, str], end: Mapping[str, Mapping[int, int]], topics: Mapping[str, Topic], high: Mapping[Place, int]
) -> tuple[Disturbance, ...]:
    """Compare topics with what a receipt says of them."""
    found: list[Disturbance] = []
    for name, id_ in was.items():
        if name not in topics:
            found.append(Disturbance("recreated", f"no topic {name}", fatal=True))
        elif topics[name].id != id_:
            detail = f"topic {name} made anew, with id {topics[name].id}"
            found.append(Disturbance("recreated", detail, fatal=True))
        else:
            found += _cut_off(name, end.get(name, {}), high)
    return tuple(found)


def _cut_off(topic: str, end: Mapping[int, int], high: Mapping[Place, int]) -> list[Disturbance]:
    now = {partition: high.get((topic, partition), 0) for partition in end}
    return [
        Disturbance("restored", f"{topic}/{partition} ends at {now[partition]}, it once ended at {once}", fatal=True)
        for partition, once in end.items()
        if now[partition] < once
    ]


def _json(text: object) -> dict[str, str]:
    return dict(json.loads(str(text))) if text else {}


def newest_receipt(entry: Entry) -> Receipt | None:
    """Receipt of the epoch that a record names."""
    return entry.written.receipt if entry.written else None
