"""A lost or rolled-back checkpoint offers rows again: with ``overlap="trim"`` each is written once, by its position."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaException
from integration.servers import KafkaAddress
from integration.streams import FileStream
from integration.targets import events, ids
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.kafka_client import put

from onceonly import Recovery, Storage, exactly_once, faults
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly_checkpoints import chain
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger

pytestmark = pytest.mark.spark


def with_file(df: DataFrame) -> DataFrame:
    return df.select("*", "_metadata.file_path")


def trimming(*sinks: Any, **options: Any) -> Callable[[DataFrame, int], None]:
    return exactly_once(*sinks, recovery=Recovery(overlap="trim"), transform=lambda df: df.drop("file_path"), **options)


def run(stream: FileStream, write: Callable[[DataFrame, int], None]) -> None:
    stream.run(write, shape=with_file)


def fail(stream: FileStream, write: Callable[[DataFrame, int], None]) -> str:
    return stream.fail(write, shape=with_file)


# ---- files


@pytest.mark.postgres
@pytest.mark.parametrize("target", ["postgres", pytest.param("delta", marks=pytest.mark.slow)], indirect=True)
def test_after_a_deleted_checkpoint_only_new_files_are_written(stream, target):
    place = str(stream.root / "ledger.db")
    run(stream.receive(range(5), range(5, 10)), trimming(target.sink(), storage=Storage(ledger=place)))
    stream.lose_checkpoint()
    stream.per_trigger = 10
    run(stream.receive(range(10, 15), range(15, 20)), trimming(target.sink(), storage=Storage(ledger=place)))
    assert target.ids() == list(range(20))
    ledger = SqlLedger(place)
    epochs = [record.epoch for record in ledger.epochs("orders")]
    assert [epoch.digest.rows for epoch in epochs] == [5, 5, 10]
    assert epochs[2].written.start == epochs[1].written.end
    assert epochs[2].offered is not None
    assert epochs[2].offered.start.unset
    assert chain.first_break(epochs) is None
    [told] = events(ledger, EventKind.TRIMMED)
    assert "2 of 4 input files" in told
    ledger.close()


@pytest.mark.slow
def test_a_new_checkpoint_that_is_cut_file_by_file_is_trimmed_until_it_is_past_what_is_written(stream, sink, ledger):
    run(stream.receive(range(5), range(5, 10)), trimming(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    run(stream.receive(range(10, 15), range(15, 20)), trimming(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(20))
    assert [record.epoch.digest.rows for record in ledger.epochs("orders")] == [5, 5, 0, 0, 5, 5]
    assert len(events(ledger, EventKind.TRIMMED)) == 2


@pytest.mark.slow
def test_a_restart_in_the_middle_of_catching_up_goes_on_or_stops_but_doubles_nothing(stream, sink, ledger):
    run(stream.receive(range(5), range(5, 10), range(10, 15)), trimming(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    faults.arm(Point.RETURN_BEFORE, _dies)
    fail(stream, trimming(sink, storage=Storage(ledger=ledger)))
    faults.disarm()
    said = fail(stream, exactly_once(sink, storage=Storage(ledger=ledger), transform=lambda df: df.drop("file_path")))
    assert "[ONCE-E203]" in said
    run(stream.receive(range(15, 20)), trimming(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(20))


@pytest.mark.parametrize(
    "point",
    [
        Point.COMMIT_AFTER,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (Point.PREPARE_AFTER, Point.RETURN_BEFORE)),
    ],
    ids=str,
)
def test_a_crash_while_trimming_is_trimmed_again_or_skipped(stream, sink, ledger, point):
    run(stream.receive(range(5)), trimming(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    stream.per_trigger = 10
    faults.arm(point, _dies)
    fail(stream.receive(range(5, 10)), trimming(sink, storage=Storage(ledger=ledger)))
    faults.disarm()
    run(stream, trimming(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(10))
    assert [record.epoch.digest.rows for record in ledger.epochs("orders")] == [5, 5]
    skips = len(events(ledger, EventKind.SKIPPED))
    assert skips == (0 if point is Point.PREPARE_AFTER else 1)


@pytest.mark.slow
def test_a_checkpoint_that_was_rolled_back_and_cut_anew_is_trimmed(stream, sink, ledger):
    run(stream.receive(range(5)), trimming(sink, storage=Storage(ledger=ledger)))
    shutil.copytree(stream.checkpoint, stream.root / "copy")
    run(stream.receive(range(5, 10)), trimming(sink, storage=Storage(ledger=ledger)))
    stream.checkpoint = stream.root / "copy"
    stream.per_trigger = 5
    run(stream.receive(range(10, 15)), trimming(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(15))


@pytest.mark.slow
def test_files_that_a_checkpoint_handed_to_nobody_are_a_gap_and_nothing_is_trimmed(stream, sink, ledger):
    run(stream.receive(range(5), range(5, 10)), trimming(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    stream.receive(range(10, 15)).run(lambda df, batch_id: None)
    said = fail(stream.receive(range(15, 20)), trimming(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E2" in said
    assert ids(sink) == list(range(10))


def test_a_file_that_was_changed_since_is_not_taken_for_the_one_that_was_written(stream, sink, ledger):
    run(stream.receive(range(5)), trimming(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    os.utime(stream.inbox / "part-0000.parquet", (1_800_000_000, 1_800_000_000))
    said = fail(stream, trimming(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E220]" in said
    assert "part-0000.parquet was changed" in said
    assert ids(sink) == list(range(5))


@pytest.mark.slow
def test_file_lists_that_went_with_the_ledger_are_found_by_their_hash(stream, sink, tmp_path):
    run(stream.receive(range(5), range(5, 10)), trimming(sink, storage=Storage(ledger=tmp_path / "one.db")))
    stream.lose_checkpoint()
    run(stream.receive(range(10, 15)), trimming(sink, storage=Storage(ledger=tmp_path / "two.db")))
    assert ids(sink) == list(range(15))


@pytest.mark.slow
def test_a_ledger_without_the_file_lists_proves_nothing_of_files_that_changed(stream, sink, tmp_path):
    run(stream.receive(range(5), range(5, 10)), trimming(sink, storage=Storage(ledger=tmp_path / "one.db")))
    stream.lose_checkpoint()
    os.utime(stream.inbox / "part-0000.parquet", (1_800_000_000, 1_800_000_000))
    said = fail(stream, trimming(sink, storage=Storage(ledger=tmp_path / "two.db")))
    assert "[ONCE-E220]" in said
    assert "no file list of epoch 1" in said
    assert ids(sink) == list(range(10))


@pytest.mark.slow
def test_paths_with_blanks_and_signs_are_recognised(spark, sink, ledger, tmp_path):
    stream = FileStream(spark, tmp_path / "a dir, 50%25 #1 ü")
    run(stream.receive(range(5)), trimming(sink, storage=Storage(ledger=ledger)))
    odd = (stream.inbox / "part-0000.parquet").rename(stream.inbox / "it's 50%25 + more #1.parquet")
    assert odd.exists()
    run(stream, trimming(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    run(stream, trimming(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == sorted([*range(5), *range(5)])  # a file under two names is two files, each written once


def test_without_the_column_the_query_is_refused_on_its_first_day(stream, sink, ledger):
    said = stream.receive(range(5)).fail(
        exactly_once(sink, storage=Storage(ledger=ledger), recovery=Recovery(overlap="trim"))
    )
    assert "[ONCE-E115]" in said
    assert "file_path string" in said
    assert sink.rows() == []


@pytest.mark.slow
def test_a_column_that_is_not_the_sources_ends_the_action(stream, sink, ledger):
    run(stream.receive(range(5)), trimming(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    said = stream.fail(
        trimming(sink, storage=Storage(ledger=ledger)), shape=lambda df: df.withColumn("file_path", f.lit("file:/x"))
    )
    assert "not in this batch" in said
    assert ids(sink) == list(range(5))


@pytest.mark.slow
def test_a_plan_with_state_is_refused_on_its_first_day(stream, sink, ledger):
    def counted(df):
        return df.groupBy(f.col("_metadata.file_path").alias("file_path")).count()

    said = stream.receive(range(5)).fail(trimming(sink, storage=Storage(ledger=ledger)), shape=counted, mode="update")
    assert "[ONCE-E115]" in said
    assert "keeps state" in said
    assert sink.rows() == []


@pytest.mark.slow
def test_two_sources_are_refused_on_their_first_day(stream, spark, sink, ledger):
    other = FileStream(spark, stream.root / "other").receive(range(5, 10))
    both = stream.receive(range(5))
    said = both.fail(
        trimming(sink, storage=Storage(ledger=ledger)), shape=lambda df: with_file(df).union(with_file(other.read()))
    )
    assert "[ONCE-E115]" in said
    assert "it has 2 sources" in said
    assert sink.rows() == []


# ---- Kafka


class Topic:
    """A topic with two partitions, and a query over it that keeps the three columns until the wrapper has them."""

    def __init__(self, spark: SparkSession, kafka: KafkaAddress, root) -> None:
        self.spark, self.servers, self.checkpoint = spark, kafka.servers, root / "ck"
        self.name = kafka.topic(root.name[:40], partitions=2)

    def send(self, values: range) -> Topic:
        put(self.servers, self.name, values, lambda value: value % 2)
        return self

    def run(self, write: Callable[[DataFrame, int], None], **options: object) -> str:
        """Run until the topic is read; returns what the query died of, or nothing."""
        asked = {"kafka.bootstrap.servers": self.servers, "subscribe": self.name, "startingOffsets": "earliest"}
        rows = self.spark.readStream.format("kafka").options(**asked | options).load()
        writer = rows.writeStream.foreachBatch(write).queryName("orders").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            query.awaitTermination(120)
        except Exception as error:  # whatever class the client makes of it: the text is what users get
            return str(error)
        return ""

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)


@pytest.fixture
def topic(spark, any_kafka, tmp_path) -> Topic:
    return Topic(spark, any_kafka, tmp_path)


def by_offset(sink: Sink, **options: Any) -> Callable[[DataFrame, int], None]:
    def before(df):
        return df.select(f.col("value").cast("string").cast("bigint").alias("id"))

    return exactly_once(sink, transform=before, **options)


@pytest.mark.kafka
def test_a_new_checkpoint_over_a_topic_writes_only_offsets_that_no_epoch_holds(topic, sink, ledger):
    write = by_offset(sink, storage=Storage(ledger=ledger), recovery=Recovery(overlap="trim"))
    assert topic.send(range(10)).run(write) == ""
    topic.lose_checkpoint()
    topic.send(range(10, 16))
    said = topic.run(by_offset(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E203]" in said
    assert 'overlap="trim")), where the rows still have .selectExpr("topic", "partition", "offset"' in said
    topic.lose_checkpoint()
    assert (
        topic.run(
            by_offset(sink, storage=Storage(ledger=ledger), recovery=Recovery(overlap="trim")), maxOffsetsPerTrigger=6
        )
        == ""
    )
    assert ids(sink) == list(range(16))
    epochs = [record.epoch for record in ledger.epochs("orders")]
    assert chain.first_break(epochs) is None
    assert all(after.written.start == before.written.end for before, after in pairwise(epochs))
    assert sum(epoch.digest.rows for epoch in epochs) == 16
    assert "6 of 6 offsets" in events(ledger, EventKind.TRIMMED)[0]


@pytest.mark.slow
@pytest.mark.kafka
def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(topic, any_kafka, sink, ledger):
    from confluent_kafka.admin import AdminClient, NewTopic

    assert (
        topic.send(range(10)).run(by_offset(sink, storage=Storage(ledger=ledger), recovery=Recovery(overlap="trim")))
        == ""
    )
    admin = AdminClient({"bootstrap.servers": topic.servers, "log_level": 0})
    admin.delete_topics([topic.name])[topic.name].result(30)
    eventually(lambda: admin.create_topics([NewTopic(topic.name, 2, 1)])[topic.name].result(30))
    topic.lose_checkpoint()
    said = topic.send(range(50, 60)).run(
        by_offset(sink, storage=Storage(ledger=ledger), recovery=Recovery(overlap="trim"))
    )
    assert "[ONCE-E212]" in said
    assert ids(sink) == list(range(10))


@pytest.mark.slow
@pytest.mark.kafka
def test_a_new_checkpoint_that_starts_exactly_where_the_last_epoch_ended_goes_on_by_itself(topic, sink, ledger):
    assert topic.send(range(10)).run(by_offset(sink, storage=Storage(ledger=ledger))) == ""
    topic.lose_checkpoint()
    there = {topic.name: {"0": 5, "1": 5}}
    said = topic.send(range(10, 16)).run(
        by_offset(sink, storage=Storage(ledger=ledger)), startingOffsets=json.dumps(there)
    )
    assert said == ""
    assert ids(sink) == list(range(16))


@pytest.mark.kafka
def test_a_source_that_reads_lost_offsets_as_nothing_is_refused(topic, sink, ledger):
    said = topic.send(range(4)).run(by_offset(sink, storage=Storage(ledger=ledger)), failOnDataLoss="false")
    assert "[ONCE-E116]" in said
    assert ids(sink) == []


def eventually(act: Callable[[], object], seconds: float = 30) -> None:
    """Repeat until it does not raise: brokers forget a topic some time after they said so."""
    until = time.monotonic() + seconds
    while True:
        try:
            act()
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


def _dies() -> None:
    raise RuntimeError("the driver dies here")
