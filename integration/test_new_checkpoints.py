"""A Kafka source under a new checkpoint, a Delta table, the command line: what is printed leads out."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from integration.printed import obey, run
from integration.servers import KafkaAddress
from integration.streams import FileStream
from integration.targets import DeltaTarget
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.kafka_client import put

from onceonly import Storage, exactly_once
from onceonly.api import run_state
from onceonly_sinks.delta import DeltaSink

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Job:
    """A query from a topic into a table; each start is a run until the topic is read."""

    def __init__(self, spark: SparkSession, kafka: KafkaAddress, root: Path) -> None:
        self.spark, self.servers, self.root = spark, kafka.servers, root
        self.topic = kafka.topic(f"arrivals_{root.name}", partitions=1)
        self.checkpoint, self.table, self.ledger = root / "checkpoint", root / "table", root / "ledger.db"
        self.stateful = False

    def send(self, ids: range) -> Job:
        put(self.servers, self.topic, ids)
        return self

    def start(self, starting: str = "earliest") -> str:
        """Run; returns what the query said if it was refused."""
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic, "startingOffsets": starting}
        rows = self.spark.readStream.format("kafka").options(**options).load()
        sink = DeltaSink(self.table)
        query = (
            self.shaped(rows.select(f.col("value").cast("string").cast("int").alias("id")))
            .writeStream.queryName("orders")
            .outputMode("update" if self.stateful else "append")
            .foreachBatch(exactly_once(sink, storage=Storage(ledger=self.ledger)))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(120)
        except StreamingQueryException as refused:
            return str(refused)
        return ""

    def shaped(self, rows: DataFrame) -> DataFrame:
        return rows.groupBy("id").count().select("id") if self.stateful else rows

    def lose_checkpoint(self) -> Job:
        shutil.rmtree(self.checkpoint)
        return self

    def lose_ledger(self) -> Job:
        """Once the run has let it go: SQLite, closing, would take the log of a file that came in its place along."""
        for watch in run_state._watches:
            watch.join(60)
        self.ledger.unlink()
        return self

    def ids(self) -> Counter[int]:
        return Counter(DeltaTable(str(self.table)).to_pyarrow_table()["id"].to_pylist())


class Distinct(Job):
    """Each id once, by Spark's own state."""

    def shaped(self, rows: DataFrame) -> DataFrame:
        return rows.dropDuplicates(["id"])


@pytest.fixture
def job(spark: SparkSession, any_kafka: KafkaAddress, tmp_path: Path) -> Job:
    return Job(spark, any_kafka, tmp_path)


@pytest.mark.slow
def test_from_the_beginning_rows_come_again_only_after_they_were_accepted(job: Job) -> None:
    assert job.send(range(10)).start() == ""
    said = job.lose_checkpoint().send(range(10, 15)).start()
    assert "[ONCE-E203]" in said
    obey(said, "--accept-duplicates 1..1")
    assert job.start() == ""
    assert job.ids() == Counter([*range(10), *range(15)])
    assert job.send(range(15, 20)).start() == ""
    assert job.ids() == Counter([*range(10), *range(20)])


@pytest.mark.slow
def test_from_the_end_rows_are_missing_only_after_that_was_accepted(job: Job) -> None:
    assert job.send(range(10)).start() == ""
    later = f'{{"{job.topic}":{{"0":12}}}}'
    said = job.lose_checkpoint().send(range(10, 15)).start(later)
    assert "[ONCE-E204]" in said
    obey(said, "--accept-loss 2..2")
    assert job.start(later) == ""
    assert job.ids() == Counter([*range(10), *range(12, 15)])
    assert job.send(range(15, 20)).start(later) == ""
    assert job.ids() == Counter([*range(10), *range(12, 20)])


@pytest.mark.slow
def test_lost_state_is_one_decision_and_rows_that_come_again_another(job: Job) -> None:
    job.stateful = True
    assert job.send(range(10)).start() == ""
    said = job.lose_checkpoint().send(range(10, 15)).start()
    assert "[ONCE-E206]" in said
    obey(said, "--accept-state-loss")
    said = job.start()
    assert "[ONCE-E203]" in said
    obey(said, "--accept-duplicates 1..")
    assert job.start() == ""
    assert job.ids() == Counter([*range(10), *range(15)])


def test_a_query_resumes_from_its_sink_alone(job: Job) -> None:
    assert job.send(range(10)).start() == ""
    assert job.send(range(10, 16)).start() == ""
    job.lose_checkpoint().lose_ledger()
    where = ["--query", "orders", "--sink", f"delta:{job.table}", "--ledger", str(job.ledger)]
    run(["onceonly", "recover", "rebuild-ledger", *where], "--yes")
    run(["onceonly", "recover", "rebuild-checkpoint", str(job.checkpoint), *where], "--yes")
    assert job.send(range(16, 20)).start() == ""
    assert job.ids() == Counter(range(20))


@pytest.mark.slow
def test_state_that_no_epoch_holds_is_named_before_a_checkpoint_is_rebuilt_and_taken_from_a_backup(
    spark: SparkSession, any_kafka: KafkaAddress, tmp_path: Path
) -> None:
    job = Distinct(spark, any_kafka, tmp_path)
    assert job.send(range(10)).start() == ""
    backup = shutil.copytree(job.checkpoint / "state", job.root / "backup")
    job.lose_checkpoint().lose_ledger()
    rebuild = ["onceonly", "recover", "rebuild-checkpoint", str(job.checkpoint), "--query", "orders"]
    rebuild += ["--sink", f"delta:{job.table}", "--ledger", str(job.ledger)]
    assert "restore  state, from a backup: version 1; operator 0" in run(rebuild, code=4)
    assert not job.checkpoint.exists()
    shutil.copytree(backup, job.checkpoint / "state")
    assert "restore" not in run(rebuild, "--yes")
    assert job.send(range(5, 15)).start() == ""
    assert job.ids() == Counter(range(15))


def test_a_query_over_files_resumes_from_its_sink_alone(
    spark: SparkSession, delta: DeltaTarget, tmp_path: Path
) -> None:
    stream = FileStream(spark, tmp_path)
    stream.receive(range(3), range(3, 6)).run(exactly_once(delta.sink()))
    stream.lose_checkpoint()
    for watch in run_state._watches:
        watch.join(60)
    Path(f"{stream.checkpoint}.onceonly.db").unlink()
    rebuild = ["onceonly", "recover", "rebuild-checkpoint", str(stream.checkpoint), "--query", "orders"]
    run([*rebuild, "--sink", f"delta:{delta.path}"], "--yes")
    stream.receive(range(6, 9)).run(exactly_once(delta.sink()))
    assert delta.ids() == [*range(9)]
