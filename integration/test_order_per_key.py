"""The order of each key's records in a topic: none by default, by a column or by the source where it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from integration.jobs import Job
from integration.processes import Drivers, until, was_killed
from integration.servers import KafkaAddress
from integration.streams import FileStream
from integration.targets import PostgresTarget
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.core.stories import epochs
from tests.kafka_client import put
from tests.sinks.kafka_harness import values as committed_values

from onceonly import Output, Storage, exactly_once
from onceonly.errors import OnceOnlyError, refusal
from onceonly.faults import Point
from onceonly.machine.rewind import Origin, OriginKind, Step
from onceonly.replay import read_back
from onceonly.spark import batch as trimming
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.postgres import PostgresTuning

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


BROKEN: dict[str, Callable[[DataFrame], DataFrame]] = {
    "each task sorts its own rows": lambda rows: rows.sortWithinPartitions("seq"),
    "the rows of a key come together, and the newest come first": lambda rows: rows.repartition(
        3, "key"
    ).sortWithinPartitions(f.desc("seq")),
    "rows are sorted, and then spread": lambda rows: rows.coalesce(1).sortWithinPartitions("seq").repartition(7),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_order_is_noticed(
    name: str,
    stream: FileStream,
    any_kafka: KafkaAddress,
    topic: str,
    ledger: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trimming, "ordered", lambda rows, *_, **__: BROKEN[name](rows))
    stream.receive(range(4_000))
    ordered = KafkaSink(any_kafka.servers, topic, order="seq")
    stream.run(exactly_once(ordered, storage=Storage(ledger=ledger), transform=mixed))
    assert len(swapped(committed(any_kafka.servers, topic))) > KEYS / 10


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


def test_an_output_may_make_its_key_of_another_column_than_the_rows_have_as_theirs(
    stream: FileStream, any_kafka: KafkaAddress, topic: str, ledger: Any
) -> None:
    """Two hundred thousand rows are more than one task sorts."""
    ordered = Output(
        KafkaSink(any_kafka.servers, topic, order="seq"), name="events", select=["customer AS key", "value"]
    )

    def shaped(df: DataFrame) -> DataFrame:
        return mixed(df).withColumnRenamed("key", "customer").withColumn("key", f.col("value"))

    stream.receive(range(200_000)).run(exactly_once(ordered, storage=Storage(ledger=ledger), transform=shaped))
    values = committed(any_kafka.servers, topic)
    assert sorted(map(int, values)) == list(range(200_000))
    assert swapped(values) == []


@pytest.mark.postgres
@pytest.mark.parametrize("load", ["driver", "executors"])
def test_an_identity_column_counts_appended_rows_in_their_order(
    load: Any, stream: FileStream, pg: PostgresTarget, ledger: Any
) -> None:
    pg.says("create table orders (n bigint generated always as identity, key text, seq bigint, value text)")
    sink = pg.sink(order="seq", tuning=PostgresTuning(load=load))
    stream.receive(range(4_000), range(4_000, 6_000))
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger), transform=mixed))
    assert pg.says("select seq from orders order by n") == [(number,) for number in range(6_000)]


# ---- by the source


@pytest.fixture
def read(spark: SparkSession, any_kafka: KafkaAddress, tmp_path: Path) -> Callable[..., DataFrame]:
    """A topic of two partitions, each read by several tasks."""
    source = any_kafka.topic(f"source-{tmp_path.name}"[:60], partitions=2)
    put(any_kafka.servers, source, range(6_000), lambda number: number % 2, lambda number: str(number % KEYS))

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


def halves(df: DataFrame) -> DataFrame:
    """The rows again, those of one half behind those of the other."""
    odd = f.expr("pmod(CAST(CAST(value AS STRING) AS INT) div 1000, 2) = 1")
    return df.where(odd).unionByName(df.where(~odd))


TRANSFORMS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "a shuffle": (lambda df: df.repartition(3), "its plan has a Repartition, which moves rows"),
    "a union": (halves, "its plan has a Union, which moves rows"),
    "a checkpoint": (
        lambda df: df.repartition(3).localCheckpoint(),
        "transform= reads other rows than those of the batch",
    ),
}


@pytest.mark.parametrize("how", TRANSFORMS)
def test_rows_that_are_moved_are_refused_for_the_order_of_the_source(
    how: str, read: Callable[..., DataFrame], any_kafka: KafkaAddress, topic: str, tmp_path: Path
) -> None:
    transform, problem = TRANSFORMS[how]
    sink = KafkaSink(any_kafka.servers, topic, order="source")
    error = refused(read(), sink, tmp_path, transform=transform)
    assert (error.code, problem in str(error)) == ("E148", True), str(error)
    assert committed(any_kafka.servers, topic) == []


def test_the_stream_is_looked_at_as_well_and_before_the_start(
    read: Callable[..., DataFrame], stream: FileStream, any_kafka: KafkaAddress, topic: str, tmp_path: Path
) -> None:
    def sink() -> KafkaSink:
        return KafkaSink(any_kafka.servers, topic, order="source")

    assert "refused" not in exactly_once(sink()).explain(read())
    assert "its plan has a Union" in exactly_once(sink()).explain(halves(read()))
    in_stream = refused(read().repartition(3), sink(), tmp_path / "moved")
    files = refused(stream.receive([1]).read().selectExpr("word AS value"), sink(), tmp_path / "files")
    assert (in_stream.code, files.code) == ("E148", "E148")
    assert "FileStreamSource" in str(files)


def test_a_column_that_rows_do_not_have_is_refused_with_the_one_that_is_meant(
    stream: FileStream, any_kafka: KafkaAddress, topic: str, tmp_path: Path
) -> None:
    sink = KafkaSink(any_kafka.servers, topic, order="sec")
    error = refused(stream.receive([1]).read(), sink, tmp_path, transform=mixed)
    assert error.code == "E138"
    assert "the rows have no column sec for order= (did you mean seq?)" in str(error)
    by_map = KafkaSink(any_kafka.servers, topic, order="tags")
    error = refused(
        stream.read(), by_map, tmp_path, transform=lambda df: mixed(df).selectExpr("*", "map(1, 2) AS tags")
    )
    assert error.code == "E138"
    assert "column tags for order= is of type map<int,int>" in str(error)


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


# ---- written again by a command


@pytest.mark.parametrize(
    ("order", "kind", "known"),
    [
        ("source", OriginKind.SOURCE, True),
        ("source", OriginKind.SINK, False),
        ("at", OriginKind.SINK, True),
        ("gone", OriginKind.SINK, False),
    ],
)
def test_rows_of_another_sink_are_in_no_order_of_the_source_whatever_a_column_is_called(
    order: str, kind: OriginKind, known: bool, spark: SparkSession, any_kafka: KafkaAddress
) -> None:
    rows = spark.createDataFrame([(2, 1), (1, 2)], "source int, at int")
    (epoch,) = epochs(10)
    step, sink = Step("kafka:orders", epoch, Origin(kind)), KafkaSink(any_kafka.servers, "orders", order=order)
    if known:
        assert read_back.ordered_for(rows, step, sink).count() == 2
        return
    with pytest.raises(OnceOnlyError, match=f"in the order of {order}, which they do not have there") as refused:
        read_back.ordered_for(rows, step, sink)
    assert refused.value.code == "E232"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("origin", ["source", "sink:postgres:orders"])
def test_a_rewind_writes_the_records_of_a_topic_in_their_order(
    origin: str, stream: FileStream, any_kafka: KafkaAddress, topic: str, pg: PostgresTarget, tmp_path: Path
) -> None:
    """The topic was made anew; the rows come from the files through the query's code, or from a table."""
    ledger = tmp_path / "ledger.db"

    def write() -> Any:
        sinks = pg.sink(), KafkaSink(any_kafka.servers, topic, order="seq")
        return exactly_once(*sinks, storage=Storage(ledger=ledger), transform=mixed)

    stream.receive(range(20_000), range(20_000, 40_000)).run(write())
    made_anew(any_kafka.servers, topic)
    assert "ONCE-E208" in stream.receive([40_000]).fail(write())
    (tmp_path / "ordered_job.py").write_text(_JOB.format(inbox=str(stream.inbox)))
    code = ["--with", "ordered_job:stream", "--transform", "ordered_job:mixed"] if origin == "source" else []
    command = ["recover", "rewind", "orders", "--to", "0", "--sink", f"kafka:{topic}", "--from", origin, *code]
    told = onceonly(*command, "--ledger", str(ledger), "--yes", path=tmp_path)
    values = committed(any_kafka.servers, topic)
    assert sorted(map(int, values)) == list(range(40_000)), told
    assert swapped(values) == []


_JOB = """
def stream(spark):
    files = spark.readStream.schema("id bigint, word string").option("maxFilesPerTrigger", 1)
    return files.parquet({inbox!r})


def mixed(df):
    columns = "CAST(pmod(id, 1000) AS STRING) AS key", "id AS seq", "CAST(id AS STRING) AS value"
    return df.selectExpr(*columns).repartition(7)
"""


def made_anew(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    markers = [name for name in admin.list_topics(timeout=10).topics if name.startswith("onceonly.orders")]
    for name in (topic, *markers):
        admin.delete_topics([name])[name].result(30)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    until(lambda: topic in admin.list_topics(timeout=10).topics, "the topic is there")


def onceonly(*arguments: str, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-m", "onceonly", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
