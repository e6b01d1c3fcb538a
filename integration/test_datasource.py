"""``writeStream.format("onceonly")`` on a classic session: what it writes, what a replay does, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from integration.datasources import SourceStream
from integration.servers import KafkaAddress
from integration.targets import DeltaTarget, PostgresTarget, events
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.kafka_client import visible

from onceonly import exactly_once, reading
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink

pytestmark = [pytest.mark.spark]

source = pytest.mark.source


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> SourceStream:
    return SourceStream(spark, tmp_path)


def with_value(df):
    return df.select("id", "word", f.col("id").cast("string").alias("key"), f.to_json(f.struct("id")).alias("value"))


# ---- what it writes


@source
@pytest.mark.postgres
@pytest.mark.kafka
def test_several_sinks_hold_the_same_rows_of_one_epoch(
    stream: SourceStream, pg: PostgresTarget, delta: DeltaTarget, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("datasource")
    kafka = KafkaSink(any_kafka.servers, topic)
    stream.receive(range(10), range(10, 25), [])
    stream.run_to(pg.sink(), kafka, delta.sink(), shape=with_value)
    stream.receive(range(25, 30))
    stream.run_to(pg.sink(), kafka, delta.sink(), shape=with_value)
    assert pg.ids() == delta.ids() == [*range(30)]
    assert sorted(json.loads(value)["id"] for value in visible(any_kafka.servers, topic)) == [*range(30)]
    with stream_ledger(pg.dsn) as ledger:
        records = ledger.epochs("orders")
        assert [record.epoch.digest.rows for record in records] == [10, 15, 0, 5]
        assert all(len(record.receipts) == 3 for record in records)
    left = [path for path in stream.tasks.rglob("*") if path.is_file()]
    assert left == [], "what tasks wrote is swept"


@pytest.mark.postgres
def test_two_tables_of_one_postgres_commit_together_and_a_batch_that_comes_again_is_a_proven_skip(
    stream: SourceStream, pg: PostgresTarget
) -> None:
    stream.receive(range(10), range(10, 25)).run_to(pg.sink(), pg.sink().table("copy"))
    stream.remove("commits", 1)
    stream.receive(range(25, 30)).run_to(pg.sink(), pg.sink().table("copy"))
    assert pg.ids() == [row[0] for row in pg.says("select id from copy order by id")] == [*range(30)]
    wrote = "select o.xmin::text, c.xmin::text, l.xmin::text from orders o join copy c using (id) "
    together = pg.says(f"{wrote} join onceonly.ledger_epochs l on l.epoch = o._epoch")
    assert len(together) == 30
    assert all(len({*one}) == 1 for one in together), "rows of both, and the ledger's record"
    with stream_ledger(pg.dsn) as ledger:
        assert [record.epoch.lineage.batch_id for record in ledger.epochs("orders")] == [0, 1, 2]
        assert len(events(ledger, EventKind.SKIPPED)) == 1


def stream_ledger(place: str) -> closing[SqlLedger]:
    ledger = SqlLedger(place)
    ledger.open()
    return closing(ledger)


def every_type(df):
    return df.select(
        "id",
        f.when(f.col("id") % 3 == 0, None).otherwise(f.col("word")).alias("word"),
        (f.col("id") % 2 == 0).alias("flag"),
        f.col("id").cast("tinyint").alias("tiny"),
        f.col("id").cast("int").alias("whole"),
        (f.col("id") * -0.0).alias("ratio"),
        f.col("id").cast("float").alias("short_ratio"),
        f.col("id").cast("decimal(20,4)").alias("price"),
        f.col("id").cast("decimal(9,2)").alias("small_price"),
        f.timestamp_micros(f.col("id") * 1_000_003).alias("seen"),
        f.timestamp_micros(f.col("id") * 1_000_003).cast("timestamp_ntz").alias("clock"),
        f.date_from_unix_date(f.col("id").cast("int")).alias("day"),
        f.col("word").cast("binary").alias("raw"),
    )


@source
def test_the_digest_is_that_of_foreach_batch_over_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    one, other = SourceStream(spark, tmp_path / "one"), SourceStream(spark, tmp_path / "other")
    here, there = DeltaTarget(str(tmp_path / "here")), DeltaTarget(str(tmp_path / "there"))
    for stream in (one, other):
        stream.receive(range(40), range(40, 100))
    one.run_to(here.sink(), shape=every_type)
    other.run(exactly_once(there.sink()), shape=every_type)
    epochs = []
    for stream in (one, other):
        with stream_ledger(str(stream.checkpoint.with_name("ck.onceonly.db"))) as ledger:
            epochs.append([(record.epoch.digest, record.epoch.schema) for record in ledger.epochs("orders")])
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 2
    in_order = [("id", "ascending")]
    assert here.table.to_pyarrow_table().sort_by(in_order) == there.table.to_pyarrow_table().sort_by(in_order)


@source
@pytest.mark.postgres
def test_rows_with_a_key_replace_each_other(stream: SourceStream, pg: PostgresTarget) -> None:
    def tens(df):
        return df.select((f.col("id") % 10).alias("id"), "word")

    stream.receive(range(10), range(10, 20)).run_to(pg.sink(), shape=tens, key="id")
    assert pg.says("select id, word from orders order by id") == [(at, f"w{at + 10}") for at in range(10)]


@source
def test_changes_of_its_table_are_read(stream: SourceStream, delta: DeltaTarget) -> None:
    def fives(df):
        return df.select((f.col("id") % 5).alias("id"), "word")

    stream.receive(range(5)).run_to(delta.sink(), shape=fives, key="id")
    delta.table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    stream.receive(range(5, 7)).run_to(delta.sink(), shape=fives, key="id")
    place = str(stream.checkpoint.with_name("ck.onceonly.db"))
    changed = reading.changes("orders", delta.sink(key="id"), after=1, ledger=place).to_pylist()
    assert sorted((row["id"], row["word"], row["_epoch"], row["_sign"]) for row in changed) == [
        (0, "w0", 2, -1),
        (0, "w5", 2, 1),
        (1, "w1", 2, -1),
        (1, "w6", 2, 1),
    ]


@source
def test_state_that_is_said_to_be_deterministic_is_written_and_compared(
    stream: SourceStream, delta: DeltaTarget
) -> None:
    def unique(df):
        return df.dropDuplicates(["id"])

    said = {"shape": unique, "deterministic": "true"}
    stream.receive(range(10), range(5, 15)).run_to(delta.sink(), **said)
    stream.remove("commits", 1)
    stream.receive(range(10, 20)).run_to(delta.sink(), **said)
    assert delta.ids() == [*range(20)]
    with stream_ledger(str(stream.checkpoint.with_name("ck.onceonly.db"))) as ledger:
        assert len(events(ledger, EventKind.SKIPPED)) == 1
        assert [record.epoch.digest.rows for record in ledger.epochs("orders")] == [10, 5, 5]
        states = [record.epoch.lineage.state for record in ledger.epochs("orders") if record.epoch.lineage]
        assert [state.version for state in states[1:] if state] == [2, 3]


@source
def test_the_state_of_another_run_is_refused_until_its_own_is_back(
    spark: SparkSession, stream: SourceStream, delta: DeltaTarget, tmp_path: Path
) -> None:
    """Tasks compute rows before the sink looks at the state, so of one that is missing Spark itself says so."""
    said = {"shape": lambda df: df.dropDuplicates(["id"]), "deterministic": "true"}
    other = SourceStream(spark, tmp_path / "other", "others")
    other.receive(range(100, 160)).run_to(DeltaSink(tmp_path / "other" / "table"), **said)
    stream.receive(range(10)).run_to(delta.sink(), **said)
    state, kept = stream.checkpoint / "state", stream.root / "kept"
    shutil.copytree(state, kept)
    stream.receive(range(5, 15))
    shutil.rmtree(state / "0" / "0")
    assert "CANNOT_LOAD_STATE_STORE" in stream.fail_to(delta.sink(), **said)
    shutil.rmtree(state)
    shutil.copytree(other.checkpoint / "state", state)
    assert "[ONCE-E248]" in stream.fail_to(delta.sink(), **said)
    assert delta.ids() == [*range(10)]
    shutil.rmtree(state)
    kept.rename(state)
    stream.run_to(delta.sink(), **said)
    assert delta.ids() == [*range(15)]


@source
def test_a_replay_that_gives_other_rows_is_told_and_changes_nothing(stream: SourceStream, delta: DeltaTarget) -> None:
    def random(df):
        return df.withColumn("luck", f.rand())

    stream.receive(range(10)).run_to(delta.sink(), shape=random)
    before = delta.table.to_pyarrow_table()
    stream.remove("commits", 0)
    stream.run_to(delta.sink(), shape=random)
    assert delta.table.to_pyarrow_table() == before
    with stream_ledger(str(stream.checkpoint.with_name("ck.onceonly.db"))) as ledger:
        assert any("[ONCE-W720]" in event.reason for event in ledger.events("orders"))
        promise = next(event.reason for event in ledger.events("orders") if event.kind is EventKind.PROMISED)
        assert "does not see the plan" in promise


@source
@pytest.mark.kafka
def test_queries_side_by_side_share_spark_s_processes_and_none_takes_the_other_for_a_newer_driver(
    spark: SparkSession, tmp_path: Path, delta: DeltaTarget, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("side-by-side")
    streams = [SourceStream(spark, tmp_path / name, name=name) for name in ("orders", "returns")]
    for stream in streams:
        stream.receive(*[range(at * 10, at * 10 + 10) for at in range(8)])
    kafka = KafkaSink(any_kafka.servers, topic)
    queries = [streams[0].start_to(delta.sink()), streams[1].start_to(kafka, shape=with_value)]
    for query in queries:
        query.awaitTermination(240)
        assert query.exception() is None, query.exception()
    assert delta.ids() == [*range(80)]
    assert sorted(json.loads(value)["id"] for value in visible(any_kafka.servers, topic)) == [*range(80)]


# ---- what ends it


@source
@pytest.mark.postgres
def test_an_abort_deletes_nothing_and_the_next_start_writes_each_row_once(
    stream: SourceStream, pg: PostgresTarget
) -> None:
    pg.says("create table orders (id text, word text)")
    stream.receive(range(10))
    said = stream.fail_to(pg.sink())
    assert "[ONCE-E506]" in said
    assert list(stream.tasks.rglob("*.parquet")) != []
    pg.says("drop table orders")
    stream.run_to(pg.sink())
    assert pg.ids() == [*range(10)]


@source
@pytest.mark.postgres
def test_a_query_that_is_stopped_in_its_commit_has_written_that_epoch_once(
    stream: SourceStream, pg: PostgresTarget
) -> None:
    stream.receive(range(10)).run_to(pg.sink())
    stream.receive(range(10, 20))
    with psycopg.connect(pg.dsn) as holder:
        holder.execute("lock table orders in access exclusive mode")
        query = stream.start_to(pg.sink())
        wait_for((stream.checkpoint / "offsets" / "1").exists, "the batch begins")
        wait_for(lambda: waits_for_a_lock(pg), "the commit waits")
        stopping = threading.Thread(target=query.stop)
        stopping.start()
        time.sleep(0.5)
        assert stopping.is_alive(), "stop() waits for the commit"
    stopping.join(60)
    # Spark notes the batch or not, by whether its thread hears of the end before. Not noted, it is offered once more.
    if (stream.checkpoint / "commits" / "1").exists():
        stream.remove("commits", 1)
    stream.receive(range(20, 30)).run_to(pg.sink())
    assert pg.ids() == [*range(30)]


def waits_for_a_lock(pg: PostgresTarget) -> bool:
    return pg.says("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") != [(0,)]


def wait_for(holds, what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


@source
def test_an_opening_sweeps_what_older_runs_left(stream: SourceStream, delta: DeltaTarget) -> None:
    stream.receive(range(10)).run_to(delta.sink())
    [dead] = stream.tasks.iterdir()
    strangers = [stream.tasks / "0000-young", stream.tasks / "0000-old"]
    for run in (dead, *strangers):
        (run / "7").mkdir(parents=True)
        (run / "7" / "0-1.parquet").write_bytes(b"half a file")
    yesterday = time.time() - 25 * 3600
    for path in (strangers[1] / "7" / "0-1.parquet", strangers[1] / "7", strangers[1]):
        os.utime(path, (yesterday, yesterday))
    stream.receive(range(10, 20)).run_to(delta.sink())
    left = {run.name for run in stream.tasks.iterdir()}
    assert dead.name not in left, "the ledger knows that this run is older"
    assert "0000-old" not in left
    assert "0000-young" in left
    assert delta.ids() == [*range(20)]


# ---- what it refuses


def nested(df):
    return df.select("id", f.array("word").alias("words"))


@source
@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ({"mode": "complete", "shape": lambda df: df.groupBy("word").count()}, "E150", "whole table"),
        ({"shape": lambda df: df.select("id", "word", "id")}, "E138", "two columns are called id"),
        ({"shape": nested}, "E150", "column words is of type array<string>"),
        ({"shape": lambda df: df.groupBy("word").count(), "mode": "update"}, "", "does not support Update mode"),
        ({"shape": lambda df: df.dropDuplicates(["id"])}, "E109", "deterministic"),
        ({"dterministic": "true"}, "E110", "did you mean deterministic?"),
        ({"to": "postgres:postgresql://me:geheim@localhost/db#orders"}, "E110", "dsn_env"),
        ({"to": "delta"}, "E110", "not the address of a sink"),
    ],
    ids=["complete", "twice", "nested", "update", "state", "unknown option", "password", "no address"],
)
def test_what_it_cannot_do_is_refused_before_anything_is_written(
    stream: SourceStream, delta: DeltaTarget, said, code, words
) -> None:
    stream.receive(range(10))
    seen = stream.fail_to(delta.sink(), **said)
    assert words in seen, seen[:3000]
    assert not code or f"[ONCE-{code}]" in seen
    assert "geheim" not in seen
    assert not Path(delta.path).exists()
    assert not stream.checkpoint.with_name("ck.onceonly.db").exists()


@source
def test_two_spellings_of_one_table_are_refused(stream: SourceStream, delta: DeltaTarget) -> None:
    other = Path(delta.path).with_name("link")
    other.symlink_to(delta.path)
    seen = stream.receive(range(3)).fail_to(delta.sink(), DeltaSink(other), deterministic="true")
    assert "[ONCE-E139]" in seen, seen[:3000]
    assert not Path(delta.path).exists()


@source
def test_a_query_of_files_changes_its_way_in_and_back_and_a_replay_is_skipped(
    stream: SourceStream, delta: DeltaTarget
) -> None:
    stream.receive(range(10)).run(exactly_once(delta.sink()))
    stream.receive(range(10, 20)).run_to(delta.sink())
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run_to(delta.sink())
    stream.receive(range(30, 40)).run(exactly_once(delta.sink()))
    assert delta.ids() == [*range(40)]
    with stream_ledger(str(stream.checkpoint.with_name("ck.onceonly.db"))) as ledger:
        [known] = {source.identity for record in ledger.epochs("orders") for source in record.epoch.sources}
        assert known is not None
        assert str(stream.inbox) in known, "which directory it is was said before, and stays the measure"
        assert len(events(ledger, EventKind.SKIPPED)) == 1


@source
def test_a_batch_write_is_refused(spark: SparkSession, delta: DeltaTarget) -> None:
    with pytest.raises(Exception, match="ONCE-E110"):
        spark.range(3).write.format("onceonly").mode("append").option("to", delta.sink().address).save()
    assert not Path(delta.path).exists()


@source
def test_a_table_that_only_spark_can_write_is_refused_by_name(
    spark: SparkSession, stream: SourceStream, delta: DeltaTarget
) -> None:
    spark.sql(
        f"create table delta.`{delta.path}` (id bigint generated always as identity, word string) using delta"
    ).collect()
    stream.receive(range(10))
    seen = stream.fail_to(delta.sink(), shape=lambda df: df.select("word"))
    assert "[ONCE-E150]" in seen
    assert "delta:table can only be written by Spark" in seen
    assert delta.table.to_pyarrow_table().num_rows == 0
