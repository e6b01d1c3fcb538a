"""Recorded epochs run again are the originals: rows, clock, watermark, state. What else Spark would run is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from integration.printed import command, run
from integration.recorded import BATCHES, ROWS, Inbox, Kept, Recorded, Table, Topic, counted, replayed, same, timed
from integration.servers import KafkaAddress
from integration.streams import settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly import OnceOnlyError, Storage, exactly_once
from onceonly.replay.replay_files import replays_of
from onceonly.replay.spark_replay import Replay
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.spark import offsets
from onceonly_checkpoints.spark.offsets import REPLAY
from onceonly_checkpoints.storage import LocalStorage

pytestmark = pytest.mark.spark

_STATE = "spark.sql.streaming.stateStore"
ROCKSDB = {f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
STORES: Mapping[str, Mapping[str, str]] = {
    "HDFS": {},
    "RocksDB": ROCKSDB,
    "RocksDB, format 2": ROCKSDB | {f"{_STATE}.checkpointFormatVersion": "2"},
}


# ---- as they were


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Six epochs of a file source, run once."""
    return Kept(spark, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def orders(kept: Kept) -> Recorded:
    """The six epochs, as they were left."""
    return kept.put_back().orders


@pytest.fixture
def inbox(kept: Kept) -> Inbox:
    """Their files."""
    return kept.put_back().inbox


@pytest.mark.parametrize("kind", ["files", *(pytest.param(one, marks=pytest.mark.slow) for one in ("kafka", "delta"))])
def test_epochs_run_again_have_their_rows_their_clock_and_their_watermark(
    spark: SparkSession, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    made: Mapping[str, Callable[[], Any]] = {
        "files": lambda: Inbox(tmp_path),
        "kafka": lambda: Topic(request.getfixturevalue("any_kafka"), "replayed"),
        "delta": lambda: Table(spark, tmp_path),
    }
    place = made[kind]()
    place.put(BATCHES)
    orders = Recorded(spark, tmp_path, place.source, timed).run()
    batches = [record for record in orders.records if record.epoch.digest.rows]
    assert [record.epoch.digest.rows for record in batches] == [ROWS] * BATCHES
    assert len({record.epoch.lineage and record.epoch.lineage.watermark_ms for record in batches}) > 1
    place.put(2)  # waiting input, which must not be planned
    before = orders.files()

    found = orders.again()

    assert [record.epoch.number for record, _ in found] == [record.epoch.number for record in orders.records]
    assert same(found)
    assert orders.files() == before
    assert not list(Path(replays_of(orders.checkpoint)).glob("*"))


@pytest.mark.slow
def test_one_epoch_in_the_middle_gives_its_own_rows(orders: Recorded) -> None:
    rows: list[int] = []
    replayed(
        orders.spark, orders.job, orders.records, orders.checkpoint, epochs=range(3, 4), ledger=orders.ledger,
        each=lambda _, df: rows.extend(row.id for row in df.collect()),
    )  # fmt: skip
    assert sorted(rows) == list(range(2 * ROWS, 3 * ROWS))


@pytest.mark.slow
def test_the_writer_of_a_query_will_do_whatever_it_was_set_to(orders: Recorded, tmp_path: Path) -> None:
    def job(spark: SparkSession) -> Any:
        own = {"checkpointLocation": str(tmp_path / "another"), "path": "x"}
        return orders.job(spark).writeStream.queryName("orders").options(**own).trigger(processingTime="1 hour")

    assert same(orders.again(job=job))
    assert not (tmp_path / "another").exists()


@pytest.mark.parametrize("kind", ["files", pytest.param("kafka", marks=pytest.mark.slow)])
def test_epochs_without_state_and_clock_can_be_one_batch(
    spark: SparkSession, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "files":
        orders: Recorded = request.getfixturevalue("orders")
    else:
        topic = Topic(request.getfixturevalue("any_kafka"), "coalesced")
        topic.put(BATCHES)
        orders = Recorded(spark, tmp_path, topic.source).run()
    [(_, digest)] = orders.again(coalesce=1000)
    assert digest == reduce(add, (record.epoch.digest for record in orders.records))
    assert [digest.rows for _, digest in orders.again(coalesce=4)] == [4 * ROWS, 2 * ROWS]


def test_epochs_whose_rows_hang_on_more_than_the_input_are_not_made_one(orders: Recorded) -> None:
    shapes = {"clock": timed, "state": counted, "chance": lambda df: df.withColumn("one", f.rand())}

    def refused(shape: Callable[[DataFrame], DataFrame]) -> str:
        return orders.refused(coalesce=2, job=lambda spark: shape(orders.job(spark))).code

    assert {name: refused(shape) for name, shape in shapes.items()} == dict.fromkeys(shapes, "E110")


def test_before_is_part_of_the_query(orders: Recorded) -> None:
    seen: list[tuple[str, ...]] = []
    before = lambda df: df.withColumn("twice", f.col("id") * 2)  # noqa: E731
    replay = Replay(orders.spark, orders.job, orders.records, orders.checkpoint, orders.ledger, before)
    replay.run(range(1, 2), lambda _, rows: seen.append(tuple(rows.columns)))
    assert seen == [("id", "twice")]


# ---- state


@pytest.mark.slow
@pytest.mark.parametrize(("store", "batches"), [("RocksDB", 4), *((one, 8) for one in STORES)])
def test_epochs_with_state_begin_with_the_state_that_they_had(
    spark: SparkSession, tmp_path: Path, store: str, batches: int
) -> None:
    inbox = Inbox(tmp_path)
    inbox.put(batches)
    with settings(spark, STORES[store]):
        orders = Recorded(spark, tmp_path, inbox.source, counted).run()
        last = orders.records[-1].epoch.number
        assert sum(record.epoch.digest.rows > 0 for record in orders.records) >= batches - 1
        inbox.put(2)

        copied = orders.again(epochs=range(4, last + 1))
        assert [record.epoch.number for record, _ in copied] == list(range(4, last + 1))
        assert same(copied)

        shutil.rmtree(orders.checkpoint)
        lost = orders.refused(epochs=range(4, 5))
        assert lost.code == "E235"
        assert 'state="beginning"' in lost.remedy
        assert "orders" in run(command(str(lost), "epochs list"))
        grown = orders.again(epochs=range(4, last + 1), state="beginning")
        assert [record.epoch.number for record, _ in grown] == list(range(4, last + 1))
        assert same(grown)


# ---- what is not there any more


def test_a_file_that_is_gone_is_told_before_a_row_is_read(orders: Recorded, inbox: Inbox) -> None:
    (inbox.home / "part-0003.parquet").unlink()
    refused = orders.refused(epochs=range(4, 5))
    assert refused.code == "E230"
    assert "part-0003.parquet is gone" in refused.what
    assert '"number": 4' in run(command(str(refused), "epochs show"), "--output", "json")
    assert orders.refused(coalesce=10).code == "E230"
    assert same(orders.again(epochs=range(5, 7)))


@pytest.mark.slow
def test_records_of_a_topic_that_are_gone_are_told(
    spark: SparkSession, tmp_path: Path, any_kafka: KafkaAddress
) -> None:
    topic = Topic(any_kafka, "retained")
    topic.put(BATCHES)
    orders = Recorded(spark, tmp_path, topic.source).run()
    admin = AdminClient({"bootstrap.servers": any_kafka.servers, "log_level": 0})
    for done in admin.delete_records([TopicPartition(topic.topic, 0, 2 * ROWS)]).values():
        done.result(30)
    refused = orders.refused(epochs=range(1, 2))
    assert refused.code == "E230", refused
    assert same(orders.again(epochs=range(3, 7)))


def test_a_query_that_reads_what_is_gone_as_nothing_is_refused(orders: Recorded) -> None:
    with settings(orders.spark, {"spark.sql.files.ignoreMissingFiles": "true"}):
        assert orders.refused().code == "E126"


def test_file_lists_that_are_not_on_record_are_told(orders: Recorded) -> None:
    records = [replace(record, files=()) if record.epoch.number == 2 else record for record in orders.records]
    refused = orders.refused(records=records)
    assert refused.code == "E234"
    assert "orders" in run(command(str(refused), "epochs list"))


# ---- what Spark would run besides


def test_another_source_is_noticed(orders: Recorded) -> None:
    def wider(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("id bigint").option("recursiveFileLookup", "true")
        return reader.option("pathGlobFilter", "part-*").parquet(str(orders.home))

    refused = orders.refused(job=wider, epochs=range(2, 3))
    assert refused.code == "E236"
    assert "what its sources are" in refused.what
    assert '"number": 2' in run(command(str(refused), "epochs show"), "--output", "json")


def test_a_query_that_cannot_plan_what_is_on_record_is_told_so(orders: Recorded, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Inbox(tmp_path / "other")
    other.put(BATCHES)
    refused = orders.refused(job=other.source, epochs=range(2, 3))
    assert refused.code == "E236"
    assert "nothing (Wrong basePath" in refused.what


@dataclass
class LaysAnother:
    """A writer of Spark's that lays one more entry into the offset log before it starts: Spark runs that one alone."""

    _df: DataFrame
    _writer: Any
    _place: str = ""

    def foreachBatch(self, callback: Any) -> LaysAnother:
        return LaysAnother(self._df, self._writer.foreachBatch(callback))

    def option(self, name: str, value: str) -> LaysAnother:
        return LaysAnother(self._df, self._writer.option(name, value), value)

    def queryName(self, name: str) -> LaysAnother:
        return LaysAnother(self._df, self._writer.queryName(name), self._place)

    def trigger(self, **given: Any) -> LaysAnother:
        return LaysAnother(self._df, self._writer.trigger(**given), self._place)

    def start(self) -> Any:
        storage = LocalStorage(self._place)
        newest = max(offsets.offset_ids(storage))
        storage.create(f"offsets/{newest + 1}", storage.read(f"offsets/{newest}"))
        return self._writer.start()


def test_a_jump_to_another_batch_is_noticed(orders: Recorded) -> None:
    def job(spark: SparkSession) -> Any:
        rows = orders.job(spark)
        return LaysAnother(rows, rows.writeStream)

    refused = orders.refused(job=job, epochs=range(3, 4))
    assert refused.code == "E236"
    assert "number of the batch" in refused.what


def test_what_the_function_raises_comes_out_as_it_is(orders: Recorded) -> None:
    def each(record: EpochRecord, rows: DataFrame) -> None:
        raise KeyError(record.epoch.number)

    with pytest.raises(KeyError, match="2"):
        replayed(
            orders.spark, orders.job, orders.records, orders.checkpoint, each=each, epochs=range(2, 4),
            ledger=orders.ledger,
        )  # fmt: skip


def test_a_query_of_its_own_is_not_started_on_a_replay_checkpoint(orders: Recorded, tmp_path: Path) -> None:
    left = tmp_path / "left"
    storage = LocalStorage(left)
    storage.create(REPLAY, orders.checkpoint.encode())
    writer = orders.job(orders.spark).writeStream.foreachBatch(
        exactly_once(orders.sink, storage=Storage(ledger=orders.ledger))
    )
    writer = writer.queryName("orders").option("checkpointLocation", str(left)).trigger(availableNow=True)
    with pytest.raises(Exception, match="ONCE-E238") as refused:
        writer.start().awaitTermination()
    assert json.dumps(orders.checkpoint) in str(refused.value)
    assert orders.run().records[-1].epoch.number == BATCHES


def test_a_stream_of_spark_connect_is_refused_before_its_server_is_asked() -> None:
    for place in ("dataframe.DataFrame", "streaming.readwriter.DataStreamWriter"):
        module, _, name = place.rpartition(".")
        kind = getattr(pytest.importorskip(f"pyspark.sql.connect.{module}"), name)
        made: Any = kind.__new__(kind)  # without a session: whatever is asked of it fails
        with pytest.raises(OnceOnlyError, match="a session of Spark Connect") as stopped:
            _ = Replay(made, partial(_given, made), (), "checkpoint", "ledger.db").plan
        assert (place, stopped.value.code) == (place, "E110")
        assert "SparkSession.builder.master" in stopped.value.remedy


def _given(made: Any, _: SparkSession) -> Any:
    return made
