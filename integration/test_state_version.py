"""The version of Spark's state is part of the epoch: another one, or one that is missing, is refused before it runs."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from integration.printed import obey
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from onceonly import Storage, exactly_once
from onceonly.spark.sources import HadoopFiles
from onceonly_checkpoints.epoch import Epoch, StateVersion
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.spark.state import read_state
from onceonly_checkpoints.storage import LocalStorage
from onceonly_sinks.delta import DeltaSink

pytestmark = pytest.mark.spark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDERS = {
    "HDFS": {},
    "RocksDB": {"providerClass": ROCKSDB, "rocksdb.changelogCheckpointing.enabled": "false"},
    "RocksDB with a changelog": {"providerClass": ROCKSDB, "rocksdb.changelogCheckpointing.enabled": "true"},
}


class Job:
    """Ids of files, each once, into a Delta table."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.source, self.table, self.checkpoint = root / "in", root / "table", root / "checkpoint"
        self.ledger = root / "ledger.db"
        self.source.mkdir()

    def send(self, *ids: int) -> Job:
        number = len(list(self.source.iterdir()))
        (self.source / f"{number}.json").write_text("".join(f'{{"id": {id_}}}\n' for id_ in ids))
        return self

    def start(self) -> str:
        """Run; returns what the query said if it was refused."""
        write = exactly_once(DeltaSink(self.table), storage=Storage(ledger=self.ledger))
        query = (
            self.spark.readStream.schema("id bigint")
            .json(str(self.source))
            .dropDuplicates(["id"])
            .writeStream.queryName("orders")
            .foreachBatch(write)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(120)
        except StreamingQueryException as refused:
            return str(refused)
        return ""

    def epochs(self) -> tuple[Epoch, ...]:
        ledger = SqlLedger(str(self.ledger))
        ledger.open()
        try:
            return tuple(record.epoch for record in ledger.epochs("orders", 1, 99))
        finally:
            ledger.close()

    def states(self) -> list[StateVersion]:
        return [epoch.lineage.state for epoch in self.epochs() if epoch.lineage and epoch.lineage.state]

    def left_by_replays(self) -> int:
        ledger = SqlLedger(str(self.ledger))
        ledger.open()
        try:
            return len(ledger.events("orders", 1000, EventKind.STATE_LEFT))
        finally:
            ledger.close()

    def ids(self) -> Counter[int]:
        return Counter(DeltaTable(str(self.table)).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture(params=PROVIDERS)
def job(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    for name, value in PROVIDERS[request.param].items():
        session.conf.set(f"spark.sql.streaming.stateStore.{name}", value)
    return Job(session, tmp_path)


def test_each_epoch_records_the_state_that_its_batch_left_and_the_next_run_begins_with_it(job: Job) -> None:
    for number in range(3):
        assert job.send(number, number + 1).start() == ""
    states = job.states()
    assert [state.version for state in states] == [1, 2, 3]
    assert all({name: stores for name, stores, _ in state.operators} == {"0": 2} for state in states)
    assert len({state.operators for state in states}) == 3
    assert not any(state.lacking for state in states)
    assert job.ids() == Counter(range(4))


def test_hadoop_s_own_listing_tells_the_same(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark.newSession(), tmp_path)
    assert job.send(1, 2, 3).start() == ""
    hadoop = HadoopFiles(spark.sparkContext, spark._jsparkSession, f"file:{job.checkpoint}")
    assert read_state(hadoop, 1) == read_state(LocalStorage(job.checkpoint), 1) == job.states()[0]


def test_a_state_that_is_missing_is_refused_until_it_is_back(job: Job) -> None:
    assert job.send(1, 2, 3).start() == ""
    kept = job.root / "kept"
    shutil.copytree(job.checkpoint / "state", kept)
    shutil.rmtree(job.checkpoint / "state" / "0" / "1")
    assert "[ONCE-E248]" in job.send(3, 4).start()
    assert job.ids() == Counter([1, 2, 3])
    shutil.copytree(kept / "0" / "1", job.checkpoint / "state" / "0" / "1")
    assert job.start() == ""
    assert job.ids() == Counter([1, 2, 3, 4])


def test_the_state_of_another_run_is_refused_until_it_is_accepted(job: Job, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Job(job.spark, tmp_path / "other")
    assert other.send(*range(100, 160)).start() == ""
    assert job.send(1, 2, 3).start() == ""
    shutil.rmtree(job.checkpoint / "state")
    shutil.copytree(other.checkpoint / "state", job.checkpoint / "state")
    said = job.send(3, 4).start()
    assert "[ONCE-E248]" in said
    obey(said, "--accept-state-loss")
    assert job.start() == ""
    assert job.ids() == Counter([1, 2, 3, 3, 4]), "accepted: the state knows nothing of 3"


def test_a_replay_with_the_state_of_another_run_is_refused(job: Job, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Job(job.spark, tmp_path / "other")
    assert other.send(*range(100, 160)).start() == ""
    assert other.send(*range(160, 190)).start() == ""
    assert job.send(1, 2, 3).start() == ""
    assert job.send(3, 4).start() == ""
    for entry in (job.checkpoint / "commits").iterdir():
        if entry.name.strip(".").startswith("1"):
            entry.unlink()
    state = job.checkpoint / "state"
    state.rename(job.root / "kept")
    shutil.copytree(other.checkpoint / "state", state)
    said = job.start()
    assert "[ONCE-E248]" in said
    assert "epoch 1 left" in said
    shutil.rmtree(state)
    (job.root / "kept").rename(state)
    assert job.send(1, 5).start() == ""
    assert job.ids() == Counter([1, 2, 3, 4, 5])


def test_a_replay_may_leave_the_same_state_in_other_files(job: Job) -> None:
    assert job.send(*range(50)).start() == ""
    for attempt in range(2):
        for entry in (job.checkpoint / "commits").iterdir():
            if entry.name.strip(".").startswith("0"):
                entry.unlink()
        for store in (job.checkpoint / "state" / "0").glob("[0-9]*"):
            for file in store.glob("1*.*"):
                file.unlink()
        assert job.start() == "", attempt
    assert job.send(7, 50).start() == ""
    assert job.ids() == Counter(range(51))


def test_a_replay_that_leaves_other_files_is_on_record_and_the_query_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark.newSession(), tmp_path)
    job.spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert job.send(*range(50)).start() == ""
    for entry in (job.checkpoint / "commits").iterdir():
        entry.unlink()
    # What Spark restores of the batch is in its offset entry. There this replay takes another codec.
    entry = job.checkpoint / "offsets" / "0"
    text = entry.read_text()
    job.spark.conf.set("spark.sql.streaming.stateStore.compression.codec", "zstd")
    codec = '"spark.sql.streaming.stateStore.compression.codec":"{}"'
    entry.write_text(text.replace(codec.format("lz4"), codec.format("zstd")))
    (job.checkpoint / "offsets" / ".0.crc").unlink()
    assert job.start() == ""
    assert job.left_by_replays() == 1
    assert job.send(7, 50).start() == ""
    assert job.ids() == Counter(range(51))
    assert job.left_by_replays() == 1
