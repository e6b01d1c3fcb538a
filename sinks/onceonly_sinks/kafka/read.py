"""Read Kafka: options of Spark's source, history, row counts, foreign changes."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from onceonly.errors import refuse
from onceonly.errors.options import checks_arguments
from onceonly.protocol.capabilities import EpochExpired, NotVersioned, Span
from onceonly.protocol.values import ExternalChange
from onceonly.spark import detect
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.kafka.cluster import PartitionKey, Topic
from onceonly_sinks.kafka.marker_reader import HiddenTransaction, scan, settle
from onceonly_sinks.kafka.markers import MarkerRecord, Written, read_offsets
from onceonly_sinks.kafka.options import PREFIX
from onceonly_sinks.kafka.producer import Destination, flat, places

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_CLASS_PATHS = ("spark.jars", "spark.driver.extraClassPath")

Builder = TypeVar("Builder")

_GLANCE = 10.0
"""Seconds that a reader without a fence waits for transactions in flight before it reads what is visible."""

READERS = "isolation.level=read_committed (Spark: kafka.isolation.level; librdkafka: its default)"


@checks_arguments
def with_kafka(builder: Builder, jars: Sequence[Path | str] = ()) -> Builder:
    """Add ``format("kafka")`` to a ``SparkSession.builder``. As a source, and as Spark's own sink.

    The package is added to the user's, never put in their place. If the jar is already on the class path, nothing is
    added. Call it before ``getOrCreate``. Pass the builder all settings of packages and jars first. ``KafkaSink`` does
    not need it.

    Spark fetches the package and its dependencies from its registry at the start. If one part is missing there, Spark
    does not start. It raises only ``JAVA_GATEWAY_EXITED``, and names the part on standard error. Then pass the jars as
    files, which are used instead of the package. ``onceonly.spark.jars.kafka_source_jars()`` fetches them.

    Raises:
        ConfigurationError: E108 PySpark is not installed. E113 it is not known.
    """
    spark = detect.installed()
    if spark is None:
        raise refuse("E108", what="with_kafka()", package="pyspark", extra="spark")
    for name, value in settings(dict(getattr(builder, "_options", {})), spark, jars).items():
        builder = builder.config(name, value)  # type: ignore[attr-defined]
    return builder


def settings(present: dict[str, Any], spark: str, jars: Sequence[Path | str] = ()) -> dict[str, str]:
    """Settings to add to the builder's ``present`` ones.

    ``spark`` is Spark's version. The package is of the same line, in the version that this distribution was tried with:
    not every patch of PySpark has one. ``jars`` are used instead of the package.
    """
    version = detect.line_of(spark)
    artifact = version.kafka_jar
    line = artifact.rpartition("_")[0]
    packages = str(present.get("spark.jars.packages") or "")
    if line in packages or any(line in str(present.get(name) or "") for name in _CLASS_PATHS):
        return {}
    if jars:
        return {"spark.jars": _joined(present.get("spark.jars"), map(str, jars))}
    return {"spark.jars.packages": _joined(packages, [f"org.apache.spark:{artifact}:{version.kafka or spark}"])}


def _joined(present: object, added: Iterable[str]) -> str:
    parts = [part.strip() for part in str(present or "").split(",") if part.strip()]
    return ",".join(dict.fromkeys([*parts, *added]))


@checks_arguments
def read_committed(reader: Any) -> Any:
    """Have Spark's Kafka source deliver committed records only. Its default delivers aborted ones, too.

    ``reader`` is ``spark.readStream.format("kafka")`` or ``spark.read.format("kafka")``, and is returned.
    """
    return reader.option(f"{PREFIX}isolation.level", "read_committed")


@checks_arguments
def reader_options(servers: str, topic: str) -> dict[str, str]:
    """Options of Spark's Kafka source that read a sink's topic: ``spark.readStream.format("kafka").options(**...)``."""
    return {f"{PREFIX}bootstrap.servers": servers, "subscribe": topic, f"{PREFIX}isolation.level": "read_committed"}


@checks_arguments
def consumer_options(servers: str, group: str) -> dict[str, str | bool]:
    """Configuration of a ``confluent_kafka.Consumer`` that reads whole epochs."""
    return {"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"}


def epochs(destination: Destination, after: int) -> list[Written]:
    """Epochs in the marker topic with visible rows, oldest first. Raises KafkaException without an answer."""
    if not destination.marked():
        return []
    end = _visible(destination, destination.cluster.high([destination.tail.marker_partition]))[
        destination.tail.marker_partition
    ]
    written = [entry.written for entry in destination.tail.epochs(end, after) if entry.written]
    if written:
        topics = destination.cluster.topics(written[-1].topics)
        _visible(destination, _state(flat(written[-1].end), topics))
    return written


def _visible(destination: Destination, targets: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
    """The offsets, or those visible after a wait, since a writer may be held up in the middle of a commit."""
    try:
        settle(destination.cluster, targets, _GLANCE)
    except HiddenTransaction as hidden:
        stable = {partition: low for partition, (low, _) in hidden.places.items()}
        return {**targets, **stable}
    return dict(targets)


def _state(offsets: Mapping[PartitionKey, int], topics: Mapping[str, Topic]) -> dict[PartitionKey, int]:
    return {partition: offset for partition, offset in offsets.items() if partition in set(places(topics))}


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
    if any(
        stable[topic_partition] < offset for topic_partition, offset in _state(flat(written[-1].end), topics).items()
    ):
        return None
    for partition in places(topics):
        ranges = ranges_of(written, partition)
        if ranges:
            end = min(highest[partition], stable[partition])
            for message in scan(destination.options, partition, ranges[0][0], end, destination.patience):
                counted[epoch_at(ranges, message.offset() or 0)] += 1
    return dict(counted)


def ranges_of(written: Sequence[Written], topic_partition: PartitionKey) -> list[tuple[int, int, int]]:
    """``(start, end, epoch)`` of the epochs that may have rows in a partition, ascending."""
    topic, partition = topic_partition
    ranges: list[tuple[int, int, int]] = []
    for epoch in written:
        start, end = epoch.start.get(topic, {}).get(partition), epoch.end.get(topic, {}).get(partition)
        if epoch.rows and start is not None and end is not None and start < end:
            ranges.append((start, end, epoch.marker.epoch.number))
    return sorted(ranges)


def epoch_at(ranges: Sequence[tuple[int, int, int]], offset: int) -> int:
    """Epoch whose range holds an offset. 0 for none."""
    at = bisect_right(ranges, offset, key=lambda epoch_range: epoch_range[0]) - 1
    return ranges[at][2] if at >= 0 and offset < ranges[at][1] else 0


def _countable(destination: Destination, written: Sequence[Written], topics: Mapping[str, Topic]) -> bool:
    if any(topics[name].id != id_ if name in topics else True for name, id_ in written[-1].topics.items()):
        return False
    if any("compact" in destination.cluster.policy(name) for name in topics):
        return False
    low = destination.cluster.low(places(topics))
    first = {partition: ranges[0][0] for partition in low if (ranges := ranges_of(written, partition))}
    return all(low[partition] <= start for partition, start in first.items())


def has_rows(destination: Destination, topics: Mapping[str, Topic]) -> bool:
    """Whether any partition holds a committed record."""
    low, stable = destination.cluster.low(places(topics)), destination.cluster.stable(places(topics))
    for partition in places(topics):
        with closing(
            scan(destination.options, partition, low[partition], stable[partition], destination.patience)
        ) as rows:
            if next(rows, None) is not None:
                return True
    return False


def disturbances(destination: Destination, since: Receipt | None) -> tuple[ExternalChange, ...]:
    """Changes by others to the topics since a receipt, by ids and offsets. Raises KafkaException without an answer."""
    if since is None:
        return ()
    ids, end = since.at("topics"), since.at("end")
    old_ids: dict[str, str] = json.loads(str(ids)) if ids else {}
    topics = destination.cluster.topics(old_ids)
    high = destination.cluster.high(places(topics))
    return judge_topics(old_ids, read_offsets(str(end or "{}")), topics, high)


def judge_topics(
    old_ids: Mapping[str, str],
    end: Mapping[str, Mapping[int, int]],
    topics: Mapping[str, Topic],
    high: Mapping[PartitionKey, int],
) -> tuple[ExternalChange, ...]:
    """Compare topics with the ids and offsets of a receipt."""
    changes: list[ExternalChange] = []
    for name, id_ in old_ids.items():
        if name not in topics:
            changes.append(ExternalChange("recreated", f"no topic {name}", fatal=True))
        elif topics[name].id != id_:
            detail = f"topic {name} created again, with id {topics[name].id}"
            changes.append(ExternalChange("recreated", detail, fatal=True))
        else:
            changes += _cut_off(name, end.get(name, {}), high)
    return tuple(changes)


def _cut_off(topic: str, end: Mapping[int, int], high: Mapping[PartitionKey, int]) -> list[ExternalChange]:
    now = {partition: high.get((topic, partition), 0) for partition in end}
    return [
        ExternalChange("restored", f"{topic}/{partition} ends at {now[partition]}, it once ended at {once}", fatal=True)
        for partition, once in end.items()
        if now[partition] < once
    ]


def newest_receipt(entry: MarkerRecord) -> Receipt | None:
    """Receipt of the epoch that a record names."""
    return entry.written.receipt if entry.written else None


# ---- Read a topic as of an epoch, by its receipt's offsets.


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
"""Columns of the rows, in their order, as Spark's Kafka source names them."""

LOCATION = COLUMNS[:4]
"""Those of them that are given by where and when a record was written."""

_AT_ONCE = 5000
_MADE_ANEW = "the topic was deleted and created again"
_RETENTION = "the topic's retention removed its oldest records (retention.ms, retention.bytes)"


def check(destination: Destination, at: Receipt, since: Receipt | None) -> Mapping[PartitionKey, tuple[int, int]]:
    """Offset range of each partition: the first, and the one after the last.

    Raises ``EpochExpired`` if records between them are gone. Raises ``NotVersioned`` if a topic keeps only the newest
    record of a key.
    """
    ids: dict[str, str] = json.loads(str(at.at("topics") or "{}"))
    topics = destination.cluster.topics(ids)
    if other := sorted(name for name, id_ in ids.items() if name not in topics or topics[name].id != id_):
        raise EpochExpired(f"{', '.join(other)} is another topic than it was, or is gone", _MADE_ANEW)
    if compacted_topics := sorted(name for name in ids if "compact" in destination.cluster.policy(name)):
        command = f"kafka-configs.sh --alter --topic {compacted_topics[0]} --add-config {_DELETE}"
        option = f"a topic that is not compacted: {command}"
        raise NotVersioned(f"{', '.join(compacted_topics)} is compacted: of a key it keeps the newest record", option)
    ends = flat(read_offsets(str(at.at("end") or "{}")))
    starts = flat(read_offsets(str(since.at("end") or "{}"))) if since else _first(destination)
    ranges = {topic_partition: (starts.get(topic_partition, 0), end) for topic_partition, end in ends.items()}
    low, high = destination.cluster.low(ranges), destination.cluster.high(ranges)
    for (topic, partition), (start, end) in ranges.items():
        oldest, newest = low[topic, partition], high[topic, partition]
        if newest < end:
            raise EpochExpired(f"{topic}/{partition} ends at offset {newest}, before {end}", _MADE_ANEW)
        if start < end and oldest > start:
            raise EpochExpired(f"{topic}/{partition} begins at offset {oldest} by now, after {start}", _RETENTION)
    return ranges


_DELETE = "cleanup.policy=delete"


def _first(destination: Destination) -> Mapping[PartitionKey, int]:
    """The offsets at which the rows of the sink's first epoch begin. Empty if its marker is forgotten."""
    written = epochs(destination, 0)
    first = dict(written[0].marker.epoch.sinks).get(destination.writer.sink) if written else None
    return flat(written[0].start) if written and first == written[0].marker.epoch.number else {}


def read(destination: Destination, at: Receipt, since: Receipt | None) -> pa.Table:
    """Read the records into this process. Raises as :func:`check`.

    Raises TimeoutError if another producer's open transaction hides the records.
    """
    import pyarrow as pa

    types: list[pa.DataType] = [pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", tz="UTC")]
    schema = pa.schema(list(zip(COLUMNS, [*types, pa.binary(), pa.binary()], strict=True)))
    batches: list[pa.RecordBatch] = []
    rows: list[tuple[Any, ...]] = []
    for row in _records(destination, check(destination, at, since)):
        rows.append(row)
        if len(rows) == _AT_ONCE:
            batches.append(_batch(rows, schema))
            rows = []
    return pa.Table.from_batches([*batches, _batch(rows, schema)], schema=schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [[row[at] for row in rows] for at in range(len(schema))]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _records(
    destination: Destination, ranges: Mapping[PartitionKey, tuple[int, int]]
) -> Iterator[tuple[str, int, int, int, bytes | None, bytes | None]]:
    for (topic, partition), (start, end) in ranges.items():
        for message in scan(destination.options, (topic, partition), start, end, destination.patience):
            yield topic, partition, message.offset() or 0, message.timestamp()[1], message.key(), message.value()


def frame(destination: Destination, spark: SparkSession, at: Receipt, since: Receipt | None) -> DataFrame:
    """Read the records through Spark's Kafka source. Raises as :func:`check`."""
    ranges = check(destination, at, since)
    partitions: dict[str, list[int]] = {}
    for topic, partition in ranges:
        partitions.setdefault(topic, []).append(partition)
    options = {
        **destination.options.for_spark,
        f"{PREFIX}isolation.level": "read_committed",
        "assign": json.dumps(partitions),
        "startingOffsets": _spelled(ranges, 0),
        "endingOffsets": _spelled(ranges, 1),
        "failOnDataLoss": "true",
    }
    rows = spark.read.format("kafka").options(**options).load()
    return rows.select(*COLUMNS)


def _spelled(ranges: Mapping[PartitionKey, tuple[int, int]], which: int) -> str:
    offsets_by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offsets in ranges.items():
        offsets_by_topic.setdefault(topic, {})[str(partition)] = offsets[which]
    return json.dumps(offsets_by_topic)


# ---- Records of a topic by the epoch that brought them: committed ones, between the offsets that the markers
# name.


def of(destination: Destination, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """The records of these epochs that retention has left, partition by partition, each as ``key`` and ``value``.

    ``None`` if a topic was recreated, as offsets of the old one say nothing of it. Raises KafkaException without an
    answer.
    """
    written = epochs(destination, span[0] - 1)
    entries = [entry for entry in written if entry.marker.epoch.number <= span[1]]
    if not entries:
        return iter(())
    topics = destination.cluster.topics(entries[-1].topics)
    if any(name not in topics or topics[name].id != id_ for name, id_ in entries[-1].topics.items()):
        return None
    ranges = {partition: ranges_of(entries, partition) for partition in places(topics)}
    return _by_epoch(destination, {partition: within for partition, within in ranges.items() if within})


def _by_epoch(
    destination: Destination, ranges: Mapping[tuple[str, int], list[tuple[int, int, int]]]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    low, stable = destination.cluster.low(ranges), destination.cluster.stable(ranges)
    for partition, within in ranges.items():
        start, end = max(low[partition], within[0][0]), min(stable[partition], within[-1][1])
        for message in scan(destination.options, partition, start, end, destination.patience):
            if epoch := epoch_at(within, message.offset() or 0):
                yield epoch, {"key": message.key(), "value": message.value()}
