"""What the engine may be or do differently: its modes, its version, its log's version, its number of partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pyspark
import pytest
from integration.streams import settings
from integration.targets import ids
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from onceonly import Storage, exactly_once
from onceonly.protocol import Estimate
from onceonly.spark import input
from onceonly.spark.batch import SparkBatch
from onceonly.spark.classic import unsupported_mode
from onceonly.spark.detect import engine_for
from onceonly.spark.sources import HadoopFiles, class_in

pytestmark = pytest.mark.spark

ALLOWLIST = "spark.sql.streaming.realTimeMode.allowlistCheck"
OFFSET_FORMAT = "spark.sql.streaming.offsetLog.formatVersion"
PARTITIONS = "spark.sql.shuffle.partitions"


# ---- modes


@pytest.mark.slow
@pytest.mark.kafka
def test_spark_itself_refuses_the_modes_that_cut_a_repeated_batch_anew(spark, any_kafka, sink, ledger, tmp_path):
    asked = {"kafka.bootstrap.servers": any_kafka.servers, "subscribe": any_kafka.topic("modes")}
    rows = spark.readStream.format("kafka").options(**asked).load()

    def writer(place: str, mode: str = "append"):
        made = (
            rows.writeStream.outputMode(mode)
            .foreachBatch(exactly_once(sink, storage=Storage(ledger=ledger)))
            .queryName("orders")
        )
        return made.option("checkpointLocation", str(tmp_path / place))

    with pytest.raises(PySparkException, match="not supported with continuous trigger"):
        writer("continuous").trigger(continuous="1 second").start()
    with pytest.raises(PySparkException, match="does not support async progress tracking"):
        writer("async").option("asyncProgressTrackingEnabled", "true").trigger(processingTime="1 second").start()
    with settings(spark, {ALLOWLIST: "false"}):
        query = writer("real-time", "update").trigger(realTime="5 seconds").start()
        with pytest.raises(PySparkException, match="SINK_NOT_SUPPORTED"):
            query.awaitTermination(60)


TRIGGERS = "org.apache.spark.sql.execution.streaming."
ASYNC = "org.apache.spark.sql.execution.streaming.runtime.AsyncProgressTrackingMicroBatchExecution"


def test_our_own_refusal_knows_those_modes_by_the_names_of_sparks_classes(spark):
    def name(java_class: str) -> str:
        return str(class_in(spark.sparkContext, "java.lang.Class").forName(java_class).getSimpleName())

    micro = ("ProcessingTimeTrigger", "MicroBatchExecution")
    assert unsupported_mode(*micro) is None
    for trigger in ("ContinuousTrigger", "RealTimeTrigger"):
        mode = unsupported_mode(name(TRIGGERS + trigger), micro[1])
        assert mode == f"trigger {trigger}"
    assert unsupported_mode(micro[0], name(ASYNC)) == "async progress tracking"


# ---- versions


@pytest.mark.slow
def test_another_minor_version_of_pyspark_is_refused(stream, sink, ledger, monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "4.9.0")
    said = stream.receive(range(5)).fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E113]" in said
    assert "4.9.0" in said
    assert ids(sink) == []


@pytest.mark.slow
def test_a_query_whose_offset_log_is_to_go_from_version_1_to_2_stays_exactly_once(spark, stream, sink, ledger):
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.remove("commits", 1)
    with settings(spark, {OFFSET_FORMAT: "2"}):
        stream.receive(range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.receive(range(15, 20)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(20))
    versions = [stream.log_entry("offsets", number).read_text().partition("\n")[0] for number in range(4)]
    assert versions == ["v1", "v1", "v1", "v1"], "Spark keeps the version of a checkpoint"


@pytest.mark.slow
def test_an_offset_log_whose_entries_are_of_both_versions_is_read_as_one(stream, sink, ledger):
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    entry = stream.log_entry("offsets", 1).read_text().split("\n")
    stream.edit("offsets", 1, "\n".join(["v2", entry[1], *(f"{at}:{line}" for at, line in enumerate(entry[2:]))]))
    stream.remove("commits", 1)
    stream.receive(range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(15))


# ---- partitions


def test_the_digest_does_not_see_how_many_partitions_a_shuffle_has(spark):
    rows = spark.range(5000).selectExpr("id % 97 AS key", "id", "concat('word ', id % 13) AS word")
    grouped = rows.groupBy("key", "word").agg(f.sum("id").alias("total"), f.max("id").alias("newest"))
    digests = set()
    for partitions in ("1", "7"):
        with settings(spark, {PARTITIONS: partitions}):
            digests.add(SparkBatch(grouped.repartition("key"), Estimate(None, None)).execute())
    assert len(digests) == 1
    assert digests.pop().rows == rows.select("key", "word").distinct().count()


@pytest.mark.slow
def test_a_stateful_replay_under_another_number_of_shuffle_partitions_is_still_a_proven_skip(
    spark, stream, sink, ledger
):
    def counted(df):
        return df.groupBy((f.col("id") % 7).alias("id")).count()

    with settings(spark, {PARTITIONS: "2"}):
        stream.receive(range(20)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=counted, mode="update")
    stream.remove("commits", 0)
    with settings(spark, {PARTITIONS: "5"}):
        stream.run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=counted, mode="update")
    [record] = ledger.epochs("orders")
    assert record.epoch.digest.rows == 7
    assert ids(sink) == list(range(7))


# ---- a checkpoint that is not on this machine's disk


@pytest.fixture
def elsewhere(spark, tmp_path) -> Iterator[str]:
    """On one of Hadoop's own file systems, which no Python driver reads: its files lie where a mount table says."""
    (tmp_path / "far").mkdir()
    table = f"table{abs(hash(tmp_path)):x}"  # Hadoop keeps a file system it has opened, with its table
    with settings(spark, {f"fs.viewfs.mounttable.{table}.link./far": (tmp_path / "far").as_uri()}):
        yield f"viewfs://{table}/far/ck"


def test_a_checkpoint_that_only_hadoop_can_read_serves_as_one_on_disk(stream, elsewhere, sink, ledger):
    seen = []

    def write(df, batch_id):
        run = engine_for(df).discover(df)
        asked, read = input.see(batch_id, run), input.see_on_disk(run.files, batch_id, run)
        seen.append((asked == read, len(read.files), run.files.url))
        wrapped(df, batch_id)

    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
    stream.checkpoint = elsewhere
    stream.receive(range(5), range(5, 10)).run(write)
    assert seen == [(True, 1, elsewhere)] * 2
    assert ids(sink) == list(range(10))


def test_what_hadoop_does_not_find_is_missing_as_it_is_on_disk(spark, elsewhere):
    files = HadoopFiles(spark.sparkContext, spark._jsparkSession, elsewhere)
    assert (files.names("offsets"), files.exists("offsets/0")) == ((), False)
    with pytest.raises(FileNotFoundError):
        files.read("offsets/0")
