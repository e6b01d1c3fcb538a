"""The order of each key's records in a topic: none by default, by a column or by the source where it is asked for."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from integration.jobs import Job
from integration.processes import Drivers, was_killed
from integration.servers import KafkaAddress
from integration.streams import FileStream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.sinks.kafka_harness import values as committed_values

from onceonly import Storage, exactly_once
from onceonly.errors import OnceOnlyError, refusal
from onceonly.faults import Point
from onceonly_sinks.kafka import KafkaSink

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

KEYS = 1000


def by_key(values: Iterable[str]) -> dict[int, list[int]]:
    """The numbers of each key, as they came."""
    found = defaultdict[int, list[int]](list)
    for value in values:
        found[int(value) % KEYS].append(int(value))
    return found


def swapped(values: Iterable[str]) -> list[int]:
    """The keys of which a record came after a greater one."""
    return [key for key, numbers in by_key(values).items() if any(one > next_ for one, next_ in pairwise(numbers))]


def mixed(df: DataFrame) -> DataFrame:
    records = df.selectExpr(f"CAST(pmod(id, {KEYS}) AS STRING) AS key", "id AS seq", "CAST(id AS STRING) AS value")
    return records.repartition(7)


def committed(servers: str, topic: str) -> list[str]:
    """Values that readers of committed data see, partition by partition."""
    return [value.decode() for value in committed_values(servers, topic, 3)]


@pytest.fixture
def topic(any_kafka: KafkaAddress, tmp_path: Path) -> str:
    made: str = any_kafka.topic(f"ordered-{tmp_path.name}"[:60], partitions=3)
    return made


@pytest.mark.parametrize("rows", [4_000, 200_000], ids=["in one task", "in several tasks"])
def test_records_of_a_key_follow_each_other_by_a_column_and_without_it_they_are_mixed(
    rows: int, stream: FileStream, any_kafka: KafkaAddress, topic: str, ledger: Any, tmp_path: Path
) -> None:
    stream.receive(range(rows))
    ordered = KafkaSink(any_kafka.servers, topic, order="seq")
    stream.run(exactly_once(ordered, storage=Storage(ledger=ledger), transform=mixed))
    values = committed(any_kafka.servers, topic)
    assert sorted(map(int, values)) == list(range(rows))
    assert swapped(values) == []
    if rows == 4_000:
        plain = any_kafka.topic(f"mixed-{tmp_path.name}"[:60], partitions=3)
        beside = FileStream(stream.spark, tmp_path / "beside", "mixed").receive(range(rows))
        beside.run(exactly_once(KafkaSink(any_kafka.servers, plain), storage=Storage(ledger=ledger), transform=mixed))
        assert len(swapped(committed(any_kafka.servers, plain))) > KEYS / 10


def test_staged_rows_keep_the_order_too(
    stream: FileStream, any_kafka: KafkaAddress, topic: str, ledger: Any, tmp_path: Path
) -> None:
    stream.receive(range(4_000), range(4_000, 6_000))
    ordered = KafkaSink(any_kafka.servers, topic, order="seq")
    storage = Storage(ledger=ledger, staging=tmp_path / "staging")
    stream.run(exactly_once(ordered, storage=storage, transform=mixed))
    values = committed(any_kafka.servers, topic)
    assert sorted(map(int, values)) == list(range(6_000))
    assert swapped(values) == []


# ---- by the source


@pytest.fixture
def read(spark: SparkSession, any_kafka: KafkaAddress, tmp_path: Path) -> Callable[..., DataFrame]:
    """A topic of two partitions, each read by several tasks."""
    source = any_kafka.topic(f"source-{tmp_path.name}"[:60], partitions=2)
    producer = Producer({"bootstrap.servers": any_kafka.servers})
    for number in range(6_000):
        producer.produce(source, str(number), key=str(number % KEYS), partition=number % 2)
    producer.flush()

    def stream(**options: str) -> DataFrame:
        reader = spark.readStream.format("kafka").options(
            **{"kafka.bootstrap.servers": any_kafka.servers, "subscribe": source, "startingOffsets": "earliest"},
            **{"minPartitions": "9", **options},
        )
        return reader.load().select("key", "value")

    return stream


def run(rows: DataFrame, write: Any, checkpoint: Path) -> None:
    writer = rows.writeStream.queryName("orders").foreachBatch(write).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("most", ["6000", "1300"], ids=["one epoch", "five epochs"])
def test_records_keep_the_order_of_the_topic_that_is_read_although_its_partitions_are_split(
    most: str, read: Callable[..., DataFrame], any_kafka: KafkaAddress, topic: str, ledger: Any, tmp_path: Path
) -> None:
    ordered = KafkaSink(any_kafka.servers, topic, order="source")
    write = exactly_once(
        ordered, storage=Storage(ledger=ledger), transform=lambda df: df.where(f.col("value").isNotNull())
    )
    run(read(maxOffsetsPerTrigger=most), write, tmp_path / "ck")
    values = committed(any_kafka.servers, topic)
    assert sorted(map(int, values)) == list(range(6_000))
    assert swapped(values) == []
    assert "records of one key are in the order of source" in str(write.explain())


def refused(rows: DataFrame, sink: KafkaSink, place: Path, **said: Any) -> OnceOnlyError:
    with pytest.raises(Exception, match="ONCE-E") as caught:
        run(rows, exactly_once(sink, storage=Storage(ledger=place / "ledger.db"), **said), place / "ck")
    error = refusal(caught.value)
    assert error is not None
    return error


def test_a_plan_that_moves_rows_and_a_source_without_offsets_are_refused_for_the_order_of_the_source(
    read: Callable[..., DataFrame], stream: FileStream, any_kafka: KafkaAddress, topic: str, tmp_path: Path
) -> None:
    def sink() -> KafkaSink:
        return KafkaSink(any_kafka.servers, topic, order="source")

    found = [
        refused(read().repartition(3), sink(), tmp_path / "in the stream"),
        refused(read(), sink(), tmp_path / "in transform", transform=lambda df: df.repartition(3)),
        refused(stream.receive([1]).read().selectExpr("CAST(id AS STRING) AS value"), sink(), tmp_path / "files"),
    ]
    assert [error.code for error in found] == ["E148"] * 3
    in_stream, in_transform, files = map(str, found)
    assert "its plan has a Repartition, which moves rows" in in_stream
    assert "its plan has a Repartition, which moves rows" in in_transform
    assert "FileStreamSource" in files
    assert committed(any_kafka.servers, topic) == []


def test_a_column_that_rows_do_not_have_is_refused_with_the_one_that_is_meant(
    stream: FileStream, any_kafka: KafkaAddress, topic: str, tmp_path: Path
) -> None:
    sink = KafkaSink(any_kafka.servers, topic, order="sec")
    error = refused(stream.receive([1]).read(), sink, tmp_path, transform=mixed)
    assert error.code == "E138"
    assert "the rows have no column sec for order= (did you mean seq?)" in str(error)


# ---- killed

STEPS = (Point.PREPARE_SENT, Point.COMMIT_SENT, Point.COMMIT_AFTER, Point.RECORD_BEFORE, Point.RETURN_BEFORE)


def fill(inbox: Path, files: Sequence[int], rows: int) -> None:
    inbox.mkdir(exist_ok=True)
    for number in files:
        ids = range(number * rows, (number + 1) * rows)
        hidden = inbox / f"_part-{number:04d}"
        pq.write_table(pa.table({"id": list(ids), "word": ["w"] * rows}), hidden)
        os.utime(hidden, (1_700_000_000 + number,) * 2)  # Spark takes the older file first
        hidden.rename(inbox / f"part-{number:04d}.parquet")


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.parametrize("order", ["seq", "any"])
def test_twenty_kills_swap_no_records_of_a_thousand_keys_which_without_an_order_are_mixed(
    order: str, any_kafka: KafkaAddress, topic: str, tmp_path: Path, warm_drivers: Drivers
) -> None:
    inbox, files, rows = tmp_path / "in", 20, 5_000
    job = Job(
        "orders",
        "kafka",
        f"{any_kafka.servers} {topic}",
        str(inbox),
        str(tmp_path / "ck"),
        str(tmp_path / "ledger.db"),
        order=order,
    )
    for number, point in enumerate(islice(cycle(STEPS), files if order == "seq" else 1)):
        fill(inbox, [number], rows)
        assert was_killed(warm_drivers.start(job, fault=f"{point}:killgroup")), point
    fill(inbox, range(number + 1, files), rows)
    warm_drivers.finish(job)
    values = committed(any_kafka.servers, topic)
    assert sorted(map(int, values)) == list(range(files * rows)), "each record once"
    if order == "any":
        assert len(swapped(values)) > KEYS / 10
    else:
        assert by_key(values) == {key: list(range(key, files * rows, KEYS)) for key in range(KEYS)}
