"""What each line of Spark must do: append, upsert, keep state, stage for several sinks, replay, heal, trim,
leave out what was seen before, say up to when all is there, run recorded epochs again.

`make line` runs it on each line, `make lines` on the main one, too. Here the same is proven at length in files of their
own, so that most of it is `slow`: what has no such mark is proven nowhere else. What needs jars is refused by name on a
line that has none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.delta_by_spark import operations
from integration.processes import Drivers
from integration.recorded import BATCHES, Recorded, counted, same, timed
from integration.recorded import Inbox as Files
from integration.servers import KafkaAddress, PostgresAddress
from integration.stage import Inbox, Scene
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget, events, ids
from integration.test_kills import live_through
from integration.test_overlap import Topic, by_offset
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly import Dedupe, EventTime, ExactlyOnce, Output, Quality, Recovery, Storage, exactly_once
from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly.spark import detect
from onceonly.spark.detect import engine_for
from onceonly.spark.jars import kafka_source_jars
from onceonly.spark.versions import LINES
from onceonly.windows import Aggregate, Count, Last, Max, Mean, Sliding, Sum, Windows
from onceonly.windows.rules.values import Value
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink, DeltaTuning, with_delta
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = pytest.mark.spark

LINE = detect.line()


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("word").count()


def test_this_line_is_one_that_is_known() -> None:
    assert LINES[LINE.minor] is LINE


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 0])
def test_rows_are_appended_once_through_the_driver_and_by_executors(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, ledger: SqlLedger, limit: int | None
) -> None:
    postgres = PostgresTuning() if limit is None else PostgresTuning(driver_limit=limit)
    delta_tuning = DeltaTuning() if limit is None else DeltaTuning(driver_limit=limit)
    stream.receive(range(10), range(10, 20))
    stream.run(exactly_once(pg.sink(tuning=postgres), storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    stream.name = "history"
    stream.run(exactly_once(delta.sink(tuning=delta_tuning), storage=Storage(ledger=ledger)))
    assert pg.ids() == delta.ids() == list(range(20))


@pytest.mark.slow
def test_one_epoch_goes_to_several_sinks_and_a_replay_to_none(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, ledger: SqlLedger
) -> None:
    stream.receive(range(10), range(10, 20)).run(exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=ledger)))
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=ledger)))
    assert pg.ids() == delta.ids() == list(range(30))
    assert len(events(ledger, EventKind.SKIPPED)) == 1


@pytest.mark.slow
def test_a_sink_gets_an_output_and_a_replay_gives_it_to_none(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, ledger: SqlLedger
) -> None:
    def wrapped() -> ExactlyOnce:
        even = Output(delta.sink(), name="even", where="id % 2 = 0", select=["id", "upper(word) AS loud"])
        return exactly_once(pg.sink(), even, storage=Storage(ledger=ledger))

    stream.receive(range(10), range(10, 20)).run(wrapped())
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(wrapped())
    assert pg.ids() == list(range(30))
    assert delta.ids() == list(range(0, 30, 2))
    assert len(events(ledger, EventKind.SKIPPED)) == 1


@pytest.mark.slow
def test_a_bad_row_is_set_aside_and_a_replay_does_not_bring_it_again(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, ledger: SqlLedger
) -> None:
    def wrapped() -> ExactlyOnce:
        quality = Quality(expect={"no seven": "id % 10 <> 7", "a word": "word LIKE 'w%'"}, quarantine=delta.sink())
        return exactly_once(pg.sink(), storage=Storage(ledger=ledger), quality=quality)

    stream.receive(range(10), range(10, 20)).run(wrapped())
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(wrapped())
    assert pg.ids() == [number for number in range(30) if number % 10 != 7]
    rows = delta.table.to_pyarrow_table(columns=["row"])["row"].to_pylist()
    assert sorted(json.loads(row)["id"] for row in rows) == [7, 17, 27]
    assert len(events(ledger, EventKind.SKIPPED)) == 1


@pytest.mark.slow
def test_state_goes_on_over_a_replay(stream: FileStream, pg: PostgresTarget, ledger: SqlLedger) -> None:
    for _ in range(3):
        stream.receive(range(5))
        stream.run(exactly_once(pg.sink(key="word"), storage=Storage(ledger=ledger)), shape=counts, mode="update")
        stream.remove("commits", stream.newest("commits"))
    stream.run(exactly_once(pg.sink(key="word"), storage=Storage(ledger=ledger)), shape=counts, mode="update")
    found = dict(pg.says("select word, count from orders"))
    assert found == Counter({f"w{number}": 3 for number in range(5)})
    assert len(events(ledger, EventKind.SKIPPED)) == 3


@pytest.mark.slow
def test_keys_are_merged_into_delta(stream: FileStream, delta: DeltaTarget, ledger: SqlLedger) -> None:
    for shape in (lambda df: df, lambda df: df.withColumn("word", f.lit("new"))):
        stream.receive(range(5)).run(exactly_once(delta.sink(key="id"), storage=Storage(ledger=ledger)), shape=shape)
    assert sorted(delta.rows("id", "word")) == [(number, "new") for number in range(5)]


@pytest.mark.slow
def test_a_lost_checkpoint_is_trimmed(stream: FileStream, pg: PostgresTarget, ledger: SqlLedger) -> None:
    def shape(df: DataFrame) -> DataFrame:
        return df.selectExpr("*", "_metadata.file_path as file_path")

    def write() -> object:
        return exactly_once(
            pg.sink(),
            storage=Storage(ledger=ledger),
            recovery=Recovery(overlap="trim"),
            transform=lambda df: df.drop("file_path"),
        )

    stream.receive(range(10), range(10, 20)).run(write(), shape=shape)
    stream.lose_checkpoint()
    stream.receive(range(20, 30)).run(write(), shape=shape)
    assert pg.ids() == list(range(30))


@pytest.fixture(params=["few", "many"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Options with which the driver counts in Arrow, and with which Spark does in the action that stages the rows."""
    return {} if request.param == "few" else {"staging": tmp_path / "staging"}


@pytest.mark.slow
@pytest.mark.postgres
def test_a_row_that_is_repeated_is_left_out_and_a_replay_brings_none(
    stream: FileStream, pg: PostgresTarget, ledger: SqlLedger, way: dict[str, Any]
) -> None:
    def wrapped() -> ExactlyOnce:
        kept = PostgresSink(pg.dsn, table="orders_seen")
        return exactly_once(
            pg.sink(), dedupe=Dedupe(key="id", within="7 days", store=kept), storage=Storage(ledger=ledger, **way)
        )

    stream.receive([*range(10), *range(5)], range(5, 20)).run(wrapped())
    stream.remove("commits", 1)
    stream.receive([3, *range(20, 30), 29]).run(wrapped())
    assert pg.ids() == list(range(30))
    epochs = [record.epoch for record in ledger.epochs("orders")]
    assert [epoch.repeated and epoch.repeated.rows for epoch in epochs] == [5, 5, 2]
    assert len(events(ledger, EventKind.SKIPPED)) == 1


@pytest.mark.slow
@pytest.mark.postgres
def test_an_epoch_says_up_to_what_time_all_is_there_and_a_replay_says_it_again(
    stream: FileStream, pg: PostgresTarget, ledger: SqlLedger, way: dict[str, Any]
) -> None:
    def wrapped() -> ExactlyOnce:
        time = EventTime("at", max_delay="2 seconds")
        return exactly_once(pg.sink(), event_time=time, transform=dated, storage=Storage(ledger=ledger, **way))

    def dated(df: DataFrame) -> DataFrame:
        return df.withColumn("at", f.expr("timestamp_seconds(id)"))

    stream.receive(range(10), [6, 7, *range(10, 20)]).run(wrapped())
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(wrapped())
    times = [record.epoch.time for record in ledger.epochs("orders")]
    assert [time and (time.complete_until, time.late_rows, time.earliest, time.latest) for time in times] == [
        (7_000, 0, 0, 9_000),
        (17_000, 1, 6_000, 19_000),
        (27_000, 0, 20_000, 29_000),
    ]
    assert len(events(ledger, EventKind.SKIPPED)) == 1
    at = f"select count(*) from orders where at < {_LOWER}"
    assert pg.says(at) == [(29,)], "rows and what they are complete through are one snapshot"


class Most(Aggregate):
    """The greatest value, which only Spark computes: so all partial results are Spark's."""

    kind = "bigint"

    def partial(self) -> Column:
        return f.to_json(f.struct(f.max("id").alias("most")))

    def merge(self, partial: Any, other: Any) -> Any:
        return max(partial, other, key=lambda found: found["most"])

    def value(self, partial: Any) -> Any:
        return partial["most"]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("most", [Max("id"), Most()], ids=["few rows", "by Spark"])
def test_windows_are_written_once_with_their_state_and_a_replay_writes_none_again(
    stream: FileStream, pg: PostgresTarget, ledger: SqlLedger, way: dict[str, Any], most: Value
) -> None:
    values = {"rows": Count(), "total": Sum("id"), "mean": Mean("id"), "most": most, "said": Last("word", by="id")}
    panes = Windows(key="part", aggregates=values, time="at", window=Sliding("20 seconds", "10 seconds"))

    def wrapped() -> ExactlyOnce:
        time = EventTime("at", max_delay="0s")
        return exactly_once(
            pg.sink(), event_time=time, windows=panes, transform=parted, storage=Storage(ledger=ledger, **way)
        )

    def parted(df: DataFrame) -> DataFrame:
        return df.selectExpr("*", "id % 2 AS part", "timestamp_seconds(id) AS at")

    stream.receive(range(10), range(10, 30)).run(wrapped())
    stream.remove("commits", 1)
    stream.receive([40, 5]).run(wrapped())
    columns = "_epoch, part, extract(epoch from window_start)::int, rows, total, mean, most, said"
    assert pg.says(f"select {columns} from orders order by _epoch, window_start, part") == [
        (2, 0, -10, 5, 20, 4.0, 8, "w8"),
        (2, 1, -10, 5, 25, 5.0, 9, "w9"),
        (2, 0, 0, 10, 90, 9.0, 18, "w18"),
        (2, 1, 0, 10, 100, 10.0, 19, "w19"),
        (3, 0, 10, 10, 190, 19.0, 28, "w28"),
        (3, 1, 10, 10, 200, 20.0, 29, "w29"),
        (3, 0, 20, 5, 120, 24.0, 28, "w28"),
        (3, 1, 20, 5, 125, 25.0, 29, "w29"),
    ]
    assert [pane and pane.dropped for pane in _panes(ledger)] == [0, 0, 2]
    assert len(events(ledger, EventKind.SKIPPED)) == 1


def _panes(ledger: SqlLedger) -> list[EpochWindows | None]:
    return [record.epoch.windows for record in ledger.epochs("orders")]


_LOWER = "onceonly.at((select lower from onceonly.time_window where target = 'orders'::regclass))"


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    """Drivers of this line's Spark, each with a JVM of its own, which dies with it."""
    made = Drivers(tmp_path, {})
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.postgres
def test_no_kill_of_a_driver_and_its_jvm_loses_or_doubles_a_row(
    any_postgres: PostgresAddress, drivers: Drivers, tmp_path: Path
) -> None:
    """With rows prepared and not committed; committed and not recorded; recorded, and Spark not told."""
    inbox = Inbox(tmp_path / "in")
    places = {"delta": str(tmp_path / "delta"), "postgres": any_postgres.database("killed_on_a_line")}
    scenes = tuple(Scene(tmp_path, kind, place, inbox) for kind, place in places.items())
    live_through((Point.PREPARE_SENT, Point.COMMIT_SENT, Point.RETURN_BEFORE), scenes, drivers)


needs_delta = pytest.mark.skipif(LINE.delta is None, reason=f"no jar of Delta is built for Spark {LINE.minor}")
needs_kafka = pytest.mark.skipif(LINE.kafka is None, reason=f"no jars of a Kafka source for Spark {LINE.minor}")


@pytest.mark.slow
@needs_delta
def test_spark_itself_commits_to_delta_and_a_replay_is_skipped(
    stream: FileStream, tmp_path: Path, ledger: SqlLedger
) -> None:
    table = tmp_path / "by-spark"
    stream.receive(range(10)).run(
        exactly_once(DeltaSink(str(table), tuning=DeltaTuning(committer="spark")), storage=Storage(ledger=ledger))
    )
    stream.remove("commits", 0)
    stream.receive(range(10, 20)).run(
        exactly_once(DeltaSink(str(table), tuning=DeltaTuning(committer="spark")), storage=Storage(ledger=ledger))
    )
    assert DeltaTarget(str(table)).ids() == list(range(20))
    assert operations(table).count("Apache-Spark") == 2, "each epoch; what opens a run is deltalake's"
    assert len(events(ledger, EventKind.SKIPPED)) == 1


@pytest.mark.slow
@needs_delta
def test_delta_serves_as_a_source(spark: SparkSession, tmp_path: Path, sink: MemorySink, ledger: SqlLedger) -> None:
    table = str(tmp_path / "source")
    spark.range(5).write.format("delta").save(table)
    for _ in range(2):
        rows = spark.readStream.format("delta").load(table)
        writer = rows.writeStream.foreachBatch(exactly_once(sink, storage=Storage(ledger=ledger))).queryName("orders")
        writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start().awaitTermination()
        spark.range(5, 10).write.format("delta").mode("append").save(table)
    assert ids(sink) == list(range(10))


@pytest.mark.slow
@needs_kafka
@pytest.mark.kafka
def test_a_topic_is_read_and_its_brokers_say_who_they_are(
    spark: SparkSession, any_kafka: KafkaAddress, tmp_path: Path, sink: MemorySink, ledger: SqlLedger
) -> None:
    topic = Topic(spark, any_kafka, tmp_path)
    known: list[str | None] = []
    wrapped = by_offset(sink, storage=Storage(ledger=ledger), recovery=Recovery(overlap="trim"))

    def write(df: DataFrame, batch_id: int) -> None:
        [source] = engine_for(df).discover(df).plan.sources
        assert source.brokers is not None
        known.append(source.brokers.identity([topic.name]))
        wrapped(df, batch_id)

    assert topic.send(range(10)).run(write) == ""
    topic.lose_checkpoint()
    assert topic.send(range(10, 16)).run(write) == ""
    assert ids(sink) == list(range(16))
    assert None not in known
    assert len(set(known)) == 1
    assert "10 of 16 offsets" in events(ledger, EventKind.TRIMMED)[0]


@pytest.mark.slow
@needs_kafka
@pytest.mark.kafka
def test_a_topic_that_may_lose_offsets_is_refused(
    spark: SparkSession, any_kafka: KafkaAddress, tmp_path: Path, sink: MemorySink, ledger: SqlLedger
) -> None:
    topic = Topic(spark, any_kafka, tmp_path).send(range(3))
    assert "[ONCE-E116]" in topic.run(by_offset(sink, storage=Storage(ledger=ledger)), failOnDataLoss="false")
    assert ids(sink) == []


@pytest.mark.slow
@pytest.mark.parametrize("shape", [timed, counted])
def test_recorded_epochs_run_again_have_their_rows_their_clock_and_their_state(
    spark: SparkSession, tmp_path: Path, shape: Callable[[DataFrame], DataFrame]
) -> None:
    files = Files(tmp_path)
    files.put(BATCHES)
    orders = Recorded(spark, tmp_path, files.source, shape).run()
    assert sum(record.epoch.digest.rows > 0 for record in orders.records) > 1
    files.put(2)  # waiting input, which must not be planned
    found = orders.again()
    assert [record.epoch.number for record, _ in found] == [record.epoch.number for record in orders.records]
    assert same(found)


@pytest.mark.skipif(LINE.kafka is not None, reason="the jars are there")
def test_jars_of_a_kafka_source_are_refused_by_name_where_none_are_known() -> None:
    with pytest.raises(ConfigurationError, match="No jars of Spark's Kafka source are known for PySpark"):
        kafka_source_jars()


def test_a_builder_gets_the_jars_of_delta_or_a_refusal_by_name_where_there_are_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    if LINE.delta is not None:
        told = with_delta(SparkSession.Builder())._options  # type: ignore[attr-defined]
        assert "DeltaSparkSessionExtension" in told["spark.sql.extensions"]
        return
    with pytest.raises(ConfigurationError) as caught:
        with_delta(SparkSession.builder)
    assert caught.value.code == "E111"
    by_spark = FileStream(spark, tmp_path).receive(range(3))
    said = by_spark.fail(exactly_once(DeltaSink(str(tmp_path / "table"), tuning=DeltaTuning(committer="spark"))))
    assert "[ONCE-E" in said
    assert "with_delta" in said
