"""What changes under a running query: a topic that gets more partitions, and state in RocksDB that meets a replay."""

from __future__ import annotations

import json

import pytest
from integration.printed import command, obey
from integration.printed import run as run_command
from integration.processes import until
from integration.streams import settings
from integration.targets import ids
from integration.test_float_lineage import ROCKS
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from tests.kafka_client import more_partitions, put

from onceonly import EventTime, Storage, exactly_once
from onceonly_checkpoints import chain

pytestmark = pytest.mark.spark


@pytest.mark.kafka
def test_a_topic_that_gets_more_partitions_under_a_running_query_loses_no_row(spark, any_kafka, sink, ledger, tmp_path):
    topic = any_kafka.topic(f"growing-{tmp_path.name}"[:60], partitions=2)
    put(any_kafka.servers, topic, range(10), lambda value: value % 2)
    asked = {"kafka.bootstrap.servers": any_kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**asked).load()
    number = rows.select(f.col("value").cast("string").cast("bigint").alias("id"))
    writer = number.writeStream.foreachBatch(exactly_once(sink, storage=Storage(ledger=ledger))).queryName("orders")
    writer = writer.option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        until(lambda: len(sink.rows()) == 10, "the rows of two partitions are written")
        more_partitions(any_kafka.servers, topic, 4)
        put(any_kafka.servers, topic, range(10, 30), lambda value: value % 4)
        until(lambda: len(sink.rows()) >= 30, "the rows of four partitions are written")
    finally:
        query.stop()
    assert query.exception() is None
    assert ids(sink) == list(range(30))
    epochs = [record.epoch for record in ledger.epochs("orders")]
    assert chain.first_break(epochs) is None
    assert '"3":' in str(epochs[-1].written.end)


@pytest.mark.slow
@pytest.mark.kafka
def test_a_topic_that_is_retired_is_said_and_accepted_without_a_row_twice(spark, any_kafka, pg, tmp_path):
    a, b = (any_kafka.topic(f"{name}-{tmp_path.name}"[:60]) for name in ("a", "b"))
    put(any_kafka.servers, a, range(3))
    put(any_kafka.servers, b, range(3, 5))

    def run(checkpoint: str, topics: str, start: str) -> None:
        asked = {"kafka.bootstrap.servers": any_kafka.servers, "subscribe": topics, "startingOffsets": start}
        rows = spark.readStream.format("kafka").options(**asked).load()
        number = rows.select(f.col("value").cast("string").cast("bigint").alias("id"))
        writer = number.writeStream.foreachBatch(exactly_once(pg.sink())).queryName("orders")
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    run("both", f"{a},{b}", "earliest")
    put(any_kafka.servers, b, range(5, 7))
    with pytest.raises(StreamingQueryException) as stopped:
        run("one", b, json.dumps({b: {"0": 2}}))
    said = str(stopped.value)
    assert "[ONCE-E250]" in said
    assert f"no longer reads partition 0 of {a} (read up to 3)" in said
    obey(said, "--continue")
    run("one", b, json.dumps({b: {"0": 2}}))
    assert pg.ids() == list(range(7))
    audited = run_command(["onceonly", "audit", "--query", "orders", "--ledger", command(said, "--continue")[5]])
    assert "A116" in audited
    assert f'{{"{b}":{{"0":2}}}}' in audited


@pytest.mark.slow
@pytest.mark.kafka
def test_old_rows_of_a_partition_that_appears_are_late_and_counted_and_time_goes_on_over_all(
    spark, any_kafka, sink, ledger, tmp_path
):
    topic = any_kafka.topic("appearing", partitions=2)
    put(any_kafka.servers, topic, range(10), lambda value: value % 2)
    asked = {"kafka.bootstrap.servers": any_kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}

    def run() -> None:
        rows = spark.readStream.format("kafka").options(**asked).load()
        number = rows.select(f.col("value").cast("string").cast("bigint").alias("id"))
        told = exactly_once(
            sink, storage=Storage(ledger=ledger), event_time=EventTime("id", max_delay=1, unit="integer")
        )
        writer = number.writeStream.foreachBatch(told).queryName("orders").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "ck")).start().awaitTermination()

    run()
    more_partitions(any_kafka.servers, topic, 3)
    run()  # an empty partition says nothing
    put(any_kafka.servers, topic, (3, 7, 8, 12), lambda _: 2)
    run()
    first, *_, last = [record.epoch for record in ledger.epochs("orders")]
    assert '"2":' not in str(first.written.end)
    assert '"2":4' in str(last.written.end)
    assert (first.time.complete_until, first.time.max_time, first.time.late_rows) == (8, 9, 0)
    assert (last.time.late_before, last.time.late_rows, last.time.earliest, last.time.latest) == (8, 2, 3, 12)
    assert (last.time.complete_until, last.time.max_time) == (11, 12)
    assert ids(sink) == sorted([*range(10), 3, 7, 8, 12])


@pytest.mark.slow
def test_state_in_rocksdb_goes_on_after_a_replay(spark, stream, sink, ledger):
    def counted(df):
        return df.groupBy((f.col("id") % 3).alias("id")).agg(f.count("*").alias("n"))

    def run() -> None:
        stream.run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=counted, mode="update")

    with settings(spark, ROCKS):
        stream.receive(range(6))
        run()
        stream.receive(range(6, 9))
        run()
        stream.remove("commits", 1)
        before = len(sink.rows())
        stream.receive(range(9, 15))
        run()
    found = [(row["id"], row["n"]) for row in sink.rows()]
    assert sorted(found[:before]) == sorted([(0, 2), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3)])
    assert sorted(found[before:]) == [(0, 5), (1, 5), (2, 5)]
    assert list((stream.checkpoint / "state").rglob("*.zip")), "the state is not RocksDB's"
