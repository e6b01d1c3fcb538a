"""Read a topic as of an epoch, by its receipt's offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.protocol import EpochExpired, NotVersioned
from onceonly.protocol.capabilities import Span
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.kafka.cluster import Place
from onceonly_sinks.kafka.marker_reader import scan
from onceonly_sinks.kafka.markers import read_offsets
from onceonly_sinks.kafka.options import PREFIX
from onceonly_sinks.kafka.producer import Destination, flat, places
from onceonly_sinks.kafka.read import epoch_at, epochs, ranges_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
"""Columns of the rows, in their order, as Spark's Kafka source names them."""

LOCATION = COLUMNS[:4]
"""Those of them that are given by where and when a record was written."""

_AT_ONCE = 5000
_MADE_ANEW = "somebody deleted the topic and made it again"
_RETENTION = "the topic's retention removed its oldest records (retention.ms, retention.bytes)"


def check(destination: Destination, at: Receipt, since: Receipt | None) -> Mapping[Place, tuple[int, int]]:
    """Offset range of each partition: the first, and the one after the last.

    Raises ``EpochExpired`` if records between them are gone. Raises ``NotVersioned`` if a topic keeps only the newest
    record of a key.
    """
    ids: dict[str, str] = json.loads(str(at.at("topics") or "{}"))
    topics = destination.cluster.topics(ids)
    if other := sorted(name for name, id_ in ids.items() if name not in topics or topics[name].id != id_):
        raise EpochExpired(f"{', '.join(other)} is another topic than it was, or is gone", _MADE_ANEW)
    if kept := sorted(name for name in ids if "compact" in destination.cluster.policy(name)):
        option = f"a topic that is not compacted: kafka-configs.sh --alter --topic {kept[0]} --add-config {_DELETE}"
        raise NotVersioned(f"{', '.join(kept)} is compacted: of a key it keeps the newest record", option)
    ends = flat(read_offsets(str(at.at("end") or "{}")))
    starts = flat(read_offsets(str(since.at("end") or "{}"))) if since else _first(destination)
    meant = {place: (starts.get(place, 0), end) for place, end in ends.items()}
    low, high = destination.cluster.low(meant), destination.cluster.high(meant)
    for (topic, partition), (start, end) in meant.items():
        oldest, newest = low[topic, partition], high[topic, partition]
        if newest < end:
            raise EpochExpired(f"{topic}/{partition} ends at offset {newest}, before {end}", _MADE_ANEW)
        if start < end and oldest > start:
            raise EpochExpired(f"{topic}/{partition} begins at offset {oldest} by now, after {start}", _RETENTION)
    return meant


_DELETE = "cleanup.policy=delete"


def _first(destination: Destination) -> Mapping[Place, int]:
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
    destination: Destination, meant: Mapping[Place, tuple[int, int]]
) -> Iterator[tuple[str, int, int, int, bytes | None, bytes | None]]:
    for (topic, partition), (start, end) in meant.items():
        for one in scan(destination.options, (topic, partition), start, end, destination.patience):
            yield topic, partition, one.offset() or 0, one.timestamp()[1], one.key(), one.value()


def frame(destination: Destination, spark: SparkSession, at: Receipt, since: Receipt | None) -> DataFrame:
    """Read the records through Spark's Kafka source. Raises as :func:`check`."""
    meant = check(destination, at, since)
    partitions: dict[str, list[int]] = {}
    for topic, partition in meant:
        partitions.setdefault(topic, []).append(partition)
    options = {
        **destination.options.for_spark,
        f"{PREFIX}isolation.level": "read_committed",
        "assign": json.dumps(partitions),
        "startingOffsets": _spelled(meant, 0),
        "endingOffsets": _spelled(meant, 1),
        "failOnDataLoss": "true",
    }
    rows = spark.read.format("kafka").options(**options).load()
    return rows.select(*COLUMNS)


def _spelled(meant: Mapping[Place, tuple[int, int]], which: int) -> str:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offsets in meant.items():
        found.setdefault(topic, {})[str(partition)] = offsets[which]
    return json.dumps(found)


# ---- Records of a topic by the epoch that brought them: committed ones, between the offsets that the markers
# name.


def of(destination: Destination, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
    """The records of these epochs that retention has left, partition by partition, each as ``key`` and ``value``.

    ``None`` where a topic was made anew: offsets of the old one say nothing of it.

    Raises:
        KafkaException: no answer.
    """
    written = epochs(destination, span[0] - 1)
    meant = [one for one in written if one.marker.epoch.number <= span[1]]
    if not meant:
        return iter(())
    topics = destination.cluster.topics(meant[-1].topics)
    if any(name not in topics or topics[name].id != id_ for name, id_ in meant[-1].topics.items()):
        return None
    ranges = {partition: ranges_of(meant, partition) for partition in places(topics)}
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
