"""Two queries in a row: the second says what the first had noted where its own slice ends, and never more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from integration.servers import KafkaAddress
from integration.streams import FileStream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from tests.kafka_client import more_partitions
from tests.reading.writing import Writer

from onceonly import EventTime, OnceOnlyError, Storage, exactly_once
from onceonly.event_time import FromUpstream, TimeReader, Writers
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink, read_committed
from onceonly_sinks.memory import MemorySink, MemoryStore

pytestmark = pytest.mark.spark

COUNTED = EventTime("id", max_delay=10, unit="integer")


class Row:
    """A query from files into a table or a topic, and one from there into a store in memory."""

    def __init__(self, spark: SparkSession, tmp_path: Path, upstream: Any, load: Callable[[], DataFrame]) -> None:
        self.spark, self.place, self.upstream, self.load = spark, tmp_path, upstream, load
        self.first = FileStream(spark, tmp_path / "first", "first")
        self.store = MemoryStore()
        self.sink: Callable[[], Any] = partial(MemorySink, store=self.store)

    def arrive(self, *batches: Any, before: Any = None) -> Row:
        """More epochs of the first query."""
        self.first.receive(*batches)
        ledger = self.place / "first.db"
        self.first.run(
            exactly_once(self.upstream(), storage=Storage(ledger=ledger), transform=before, event_time=COUNTED)
        )
        return self

    def wrapped(self, note_time: Any, **more: Any) -> Any:
        return exactly_once(self.sink(), storage=Storage(ledger=self.place / "second.db"), event_time=note_time, **more)

    def start(self, wrapped: Any, shape: Callable[[DataFrame], DataFrame] = lambda df: df) -> StreamingQuery:
        writer = shape(self.load()).writeStream.queryName("second").foreachBatch(wrapped)
        return writer.option("checkpointLocation", str(self.place / "ck")).trigger(availableNow=True).start()

    def run(self, note_time: Any, **more: Any) -> list[Epoch]:
        self.start(self.wrapped(note_time, **more)).awaitTermination()
        return self.epochs()

    def refused(self, note_time: Any, shape: Callable[[DataFrame], DataFrame] = lambda df: df) -> str:
        query = self.start(self.wrapped(note_time), shape)
        with pytest.raises(Exception, match="ONCE-E") as found:
            query.awaitTermination()
        assert self.epochs() == []
        return str(found.value)

    def epochs(self) -> list[Epoch]:
        sink = self.sink()
        sink.open("second")
        found = [marker.epoch for marker, _ in sink.history()]
        sink.close()
        return found

    def noted(self) -> list[int | None]:
        return [epoch.time.complete_until if epoch.time else None for epoch in self.epochs()]

    def ids_until(self, number: int) -> set[int]:
        """What the first epochs of the second query brought."""
        sink = MemorySink(store=self.store)
        sink.open("second")
        return {int(row["id"]) for epoch, row in sink.read_by_epoch((1, number))}

    def events(self, kind: EventKind) -> list[str]:
        ledger = SqlLedger(str(self.place / "second.db"))
        ledger.open()
        found = [event.reason for event in ledger.events("second") if event.kind is kind]
        ledger.close()
        return found


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Row:
    path = str(tmp_path / "clicks")

    def load() -> DataFrame:
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(path)

    return Row(spark, tmp_path, lambda: DeltaSink(path), load)


def of_rows(df: DataFrame) -> DataFrame:
    """With a key, which says the partition: without one, an epoch may be in one of them by chance."""
    value = f.col("id").cast("string").cast("binary")
    return df.select("id", value.alias("key"), value.alias("value"))


class Beside:
    """One of several pipelines that a query writes to, into a store of its own.

    Args:
        name: of the pipeline.
        note_time: as it says time.
        ledger: of all of them.
    """

    def __init__(self, name: str, note_time: Any, ledger: Path) -> None:
        self.name, self.note_time, self.ledger, self.store = name, note_time, ledger, MemoryStore()

    def wrapped(self) -> Any:
        sink = MemorySink(f"memory:{self.name}", self.store)
        return exactly_once(sink, name=self.name, storage=Storage(ledger=self.ledger), event_time=self.note_time)

    def epochs(self) -> list[Epoch]:
        sink = MemorySink(f"memory:{self.name}", self.store)
        sink.open(self.name)
        return [marker.epoch for marker, _ in sink.history()]

    def noted(self) -> list[int | None]:
        return [epoch.time.complete_until if epoch.time else None for epoch in self.epochs()]


@dataclass
class Downstream:
    """A query that has read a table of two epochs, and two more at its next start, by one pipeline alone.

    Attributes:
        taken: pipelines that it wrote to.
        before: what those of the upstream's word had noted at the end of the first start.
        refused: code and message of those that it could not write to.
    """

    upstream: str
    other: str
    taken: dict[str, Beside]
    before: list[int | None]
    refused: dict[str, str]


@pytest.fixture(scope="module")
def downstream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Downstream:
    place = tmp_path_factory.mktemp("downstream")
    path, other, ledger = str(place / "clicks"), str(place / "other"), place / "second.db"
    Writer("first", DeltaSink(other)).write(9, noted=9)

    def load() -> DataFrame:
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(path)

    row = Row(spark, place, lambda: DeltaSink(path), load)
    upstream = FromUpstream(DeltaSink(path), unit="integer")
    ways = {
        "second": upstream,
        "by a column": EventTime("id", max_delay=1, unit="integer"),
        "web": Writers(FromUpstream(DeltaSink(path), unit="integer"), writers=("web", "app")),
    }
    wrong = {"E132": FromUpstream(DeltaSink(other), unit="integer"), "E134": FromUpstream(DeltaSink(path))}
    taken = {name: Beside(name, said, ledger) for name, said in ways.items()}
    beside = {code: Beside(code, said, ledger) for code, said in wrong.items()}
    refused = dict[str, str]()

    def run(*names: str) -> None:
        written = [taken[name].wrapped() for name in names]
        refusing = {code: one.wrapped() for code, one in beside.items() if code not in refused}

        def write(df: DataFrame, batch_id: int) -> None:
            for each in written:
                each(df, batch_id)
            for code in [code for code in refusing if code not in refused]:
                with pytest.raises(OnceOnlyError) as caught:
                    refusing[code](df, batch_id)
                refused[code] = str(caught.value)

        row.start(write).awaitTermination()

    row.arrive(range(20), range(20, 40))
    run(*taken)
    before = taken["second"].noted()
    row.arrive(range(40, 60), range(60, 80))
    run("second")
    assert [code for code, one in beside.items() if one.epochs()] == [], "refused, and written all the same"
    return Downstream(path, other, taken, before, refused)


def test_a_query_that_reads_a_table_notes_what_it_was_complete_through_at_each_version(downstream: Downstream) -> None:
    second = downstream.taken["second"]
    # The first snapshot is read file by file, and nobody knows of which versions they are: only its end says something.
    assert downstream.before[-1] == 29
    assert set(downstream.before[:-1]) <= {None}
    noted = second.noted()
    assert noted[: len(downstream.before)] == downstream.before
    assert noted[-2:] == [49, 69]
    sink = MemorySink("memory:second", second.store)
    sink.open("second")
    absent = {}
    for number, said in enumerate(noted, start=1):
        there = {int(row["id"]) for _, row in sink.read_by_epoch((1, number)) or ()}
        absent[number] = set(range(said or 0)) - there
    assert {number: ids for number, ids in absent.items() if ids} == {}, "what is called complete is there"
    with TimeReader("second", MemorySink("memory:second", second.store)) as reader:
        assert reader.time_window().lower == 69
    with closing(SqlLedger(str(second.ledger))) as ledger:
        ledger.open()
        assert [event for event in ledger.events("second") if event.kind is EventKind.UNPOLLED] == []


def test_a_column_of_rows_decides_over_what_the_upstream_notes(downstream: Downstream) -> None:
    noted = downstream.taken["by a column"].noted()
    assert None not in noted
    assert noted[-1] == 38


def test_one_of_several_writers_may_go_on_from_an_upstream(downstream: Downstream) -> None:
    last = downstream.taken["web"].epochs()[-1].time
    assert last is not None
    assert (last.complete_until, last.dataset_complete_until, [mark.writer for mark in last.writers]) == (
        29,
        None,
        ["app", "web"],
    )


def test_an_upstream_that_no_source_reads_or_that_counts_otherwise_is_refused_before_anything_is_written(
    downstream: Downstream,
) -> None:
    said = downstream.refused["E132"]
    assert "[ONCE-E132]" in said
    assert f'no source of pipeline "E132" reads delta:{downstream.other}' in said
    assert "FromUpstream(DeltaSink(path)) with the path of the source" in said
    assert "[ONCE-E134]" in downstream.refused["E134"]


@pytest.mark.slow
def test_a_query_that_reads_a_topic_notes_what_it_was_complete_through_at_its_offsets(
    spark: SparkSession, tmp_path: Path, any_kafka: KafkaAddress
) -> None:
    servers, topic = any_kafka.servers, any_kafka.topic("upstream", partitions=2)

    def load() -> DataFrame:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        source = read_committed(spark.readStream.format("kafka").options(**options)).option("maxOffsetsPerTrigger", 15)
        return source.load().select(f.col("value").cast("string").cast("bigint").alias("id"))

    topic_row = Row(spark, tmp_path, lambda: KafkaSink(servers, topic), load)
    topic_row.arrive(range(20), range(20, 40), range(40, 60), before=of_rows)
    topic_row.run(FromUpstream(topic_row.upstream(), pipeline="first", unit="integer"))
    noted = topic_row.noted()
    assert noted[-1] == 49
    assert len(set(noted)) > 2
    assert noted == sorted(noted, key=lambda one: -1 if one is None else one)
    for number, said in enumerate(noted, start=1):
        assert topic_row.ids_until(number) >= set(range(said or 0)), "what is called complete is there"
    assert topic_row.events(EventKind.UNPOLLED) == []


@pytest.mark.slow
def test_what_was_complete_waits_for_a_partition_that_appears_as_for_every_other(
    spark: SparkSession, tmp_path: Path, any_kafka: KafkaAddress
) -> None:
    servers, topic = any_kafka.servers, any_kafka.topic("widened", partitions=2)

    def load() -> DataFrame:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        source = read_committed(spark.readStream.format("kafka").options(**options)).option("maxOffsetsPerTrigger", 15)
        return source.load().select(f.col("value").cast("string").cast("bigint").alias("id"))

    row = Row(spark, tmp_path, lambda: KafkaSink(servers, topic), load)
    upstream = FromUpstream(row.upstream(), pipeline="first", unit="integer")
    row.arrive(range(20), range(20, 40), before=of_rows)
    row.run(upstream)
    assert row.noted()[-1] == 29
    before = len(row.epochs())
    assert '"2":' not in str(row.epochs()[-1].written.end)
    more_partitions(servers, topic, 3)
    row.arrive(range(40, 60), range(60, 80), before=of_rows)
    row.run(upstream)
    noted = row.noted()
    assert (noted[-1], row.ids_until(len(noted))) == (69, set(range(80)))
    assert noted == sorted(noted, key=lambda one: -1 if one is None else one)
    for number, said in enumerate(noted, start=1):
        assert row.ids_until(number) >= set(range(said or 0)), "what is called complete is there"
    ends = [str(epoch.written.end) for epoch in row.epochs()[before:]]
    assert '"2":0' not in ends[-1], "the new partition has rows"
    assert '"2":' in ends[-1]
    assert len(set(noted[before:])) > 1
    assert row.events(EventKind.UNPOLLED) == []


@pytest.mark.slow
@pytest.mark.postgres
def test_a_column_of_rows_decides_in_postgres_too(table: Row, request: pytest.FixtureRequest) -> None:
    table.sink = request.getfixturevalue("pg").sink
    table.arrive(range(20))
    table.run(EventTime("id", max_delay=1, unit="integer"))
    assert table.noted() == [18]


# ---- what is refused, and the way that each message names


@pytest.mark.slow
def test_an_upstream_that_no_source_reads_is_refused_and_the_one_that_is_read_is_taken(
    table: Row, tmp_path: Path
) -> None:
    table.arrive(range(20))
    other = tmp_path / "other"
    table.first.checkpoint = tmp_path / "other-ck"
    table.first.run(exactly_once(DeltaSink(other), storage=Storage(ledger=tmp_path / "other.db"), event_time=COUNTED))
    said = table.refused(FromUpstream(DeltaSink(other), unit="integer"))
    assert "[ONCE-E132]" in said
    assert f'no source of pipeline "second" reads delta:{other}' in said
    assert "FromUpstream(DeltaSink(path)) with the path of the source" in said
    table.run(FromUpstream(DeltaSink(tmp_path / "clicks"), unit="integer"))
    assert table.noted() == [9]


@pytest.mark.slow
def test_an_upstream_that_counts_otherwise_is_refused_before_anything_is_written(table: Row) -> None:
    table.arrive(range(20))
    said = table.refused(FromUpstream(table.upstream()))
    assert "[ONCE-E134]" in said
    table.run(FromUpstream(table.upstream(), unit="integer"))
    assert table.noted() == [9]


@pytest.mark.slow
def test_an_upstream_says_nothing_of_rows_that_state_holds_back(table: Row) -> None:
    table.arrive(range(20))
    upstream = FromUpstream(table.upstream(), unit="integer")
    said = table.refused(upstream, lambda df: df.dropDuplicates(["id"]))
    assert "[ONCE-E131]" in said
    assert 'event_time="watermark"' in said
