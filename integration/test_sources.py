"""What sources can do to a replay: pass over files, clear them up, forget rows, become another one meanwhile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from integration.streams import FileStream, settings
from integration.targets import events, ids
from integration.test_overlap import Topic, by_offset, eventually, topic
from pyspark.sql import DataFrame, SparkSession

from onceonly import Recovery, Storage, exactly_once
from onceonly.spark.classic import running
from onceonly.spark.sources import items, private
from onceonly_checkpoints.ledger import EventKind

__all__ = ["topic"]

pytestmark = pytest.mark.spark

MISSING, CORRUPT = "ignoreMissingFiles", "ignoreCorruptFiles"


# ---- files that are passed over


class Told(FileStream):
    """A file stream whose source is given options."""

    options: dict[str, str]

    def read(self) -> DataFrame:
        reader = self.spark.readStream.schema("id bigint, word string").options(**self.options)
        return reader.option("maxFilesPerTrigger", self.per_trigger).parquet(str(self.inbox))


def told(spark: SparkSession, place: Any, **options: str) -> Told:
    stream = Told(spark, place)
    stream.options = options
    return stream


@pytest.mark.parametrize("name", [MISSING, pytest.param(CORRUPT, marks=pytest.mark.slow)])
def test_a_session_that_passes_over_files_is_refused_by_name(spark, stream, sink, ledger, name: str) -> None:
    stream.receive(range(5))
    with settings(spark, {f"spark.sql.files.{name}": "true"}):
        said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E126]" in said
    assert f"spark.sql.files.{name}=true" in said
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(5))


@pytest.mark.parametrize(
    "name", [MISSING.upper(), *(pytest.param(one, marks=pytest.mark.slow) for one in (MISSING, CORRUPT))]
)
def test_a_source_that_passes_over_files_is_refused_by_name(spark, tmp_path, sink, ledger, name: str) -> None:
    said = (
        told(spark, tmp_path, **{name: "True"})
        .receive(range(5))
        .fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    )
    assert "[ONCE-E126]" in said
    assert name.lower() in said.lower()
    assert sink.rows() == []


def test_a_source_that_was_told_to_stop_counts_before_the_session(spark, tmp_path, sink, ledger) -> None:
    stream = told(spark, tmp_path, **{MISSING: "false"}).receive(range(5))
    with settings(spark, {f"spark.sql.files.{MISSING}": "true"}):
        stream.run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conf", "options", "code"),
    [
        ({f"spark.sql.files.{MISSING}": "true"}, {}, "E126"),
        ({}, {"failOnDataLoss": "false"}, "E116"),
        ({}, {}, ""),
    ],
)
def test_a_delta_source_is_asked_the_same(spark, tmp_path, sink, ledger, conf, options, code: str) -> None:
    table = str(tmp_path / "table")
    spark.range(5).write.format("delta").save(table)
    said = ""
    with settings(spark, conf):
        rows = spark.readStream.format("delta").options(**options).load(table)
        writer = rows.writeStream.foreachBatch(exactly_once(sink, storage=Storage(ledger=ledger))).queryName("orders")
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        try:
            query.awaitTermination(60)
        except Exception as error:
            said = str(error)
    assert (f"[ONCE-{code}]" in said) if code else (said == "" and ids(sink) == list(range(5)))


# ---- files that are cleared up


@pytest.mark.slow
@pytest.mark.parametrize("clean", ["delete", pytest.param("archive", marks=pytest.mark.slow)])
def test_files_that_spark_clears_up_belong_to_epochs_that_are_written(spark, tmp_path, sink, ledger, clean) -> None:
    stream = told(spark, tmp_path, cleanSource=clean, sourceArchiveDir=str(tmp_path / "old"))
    with settings(spark, {"spark.sql.streaming.fileSource.cleaner.numThreads": "0"}):
        wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
        stream.receive(range(5), range(5, 10), range(10, 15)).run(wrapped)
        assert len(list(stream.inbox.glob("*.parquet"))) == 1, "the newest batch's file may still be wanted"
        stream.remove("commits", 2)
        stream.run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(15))
    assert len(events(ledger, EventKind.SKIPPED)) == 1
    assert f"cleanSource={clean}" in wrapped.explain()


@pytest.mark.slow
def test_a_rolled_back_checkpoint_whose_files_are_cleared_up_loses_and_doubles_nothing(
    spark, tmp_path, sink, ledger
) -> None:
    stream = told(spark, tmp_path, cleanSource="delete")
    with settings(spark, {"spark.sql.streaming.fileSource.cleaner.numThreads": "0"}):
        stream.receive(range(5), range(5, 10), range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
        stream.remove("commits", 1, 2)
        stream.remove("offsets", 2)
        said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert len(events(ledger, EventKind.SKIPPED)) == 1, "the batch whose file is gone is proven to be written"
    assert "[ONCE-E205]" in said, "the one that Spark cut anew is not taken for it"
    assert ids(sink) == list(range(15))


# ---- sources that forget, and one that does not


@contextmanager
def server(lines: list[str]) -> Generator[int]:
    """Says its lines to whoever connects first, and nothing to anybody after."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            said = list(lines)
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                for line in said:
                    client.sendall(f"{line}\n".encode())
                said.clear()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def from_socket(spark: SparkSession, port: int, place: Any, write: Callable[[DataFrame, int], None]) -> Any:
    rows = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
    writer = rows.selectExpr("cast(value as bigint) AS id").writeStream.foreachBatch(write).queryName("orders")
    return writer.option("checkpointLocation", str(place / "ck")).trigger(processingTime="0 seconds").start()


@pytest.mark.slow
def test_a_socket_is_refused_by_name(spark, tmp_path, sink, ledger) -> None:
    with server(["1", "2"]) as port:
        query = from_socket(spark, port, tmp_path, exactly_once(sink, storage=Storage(ledger=ledger)))
        with pytest.raises(Exception, match="ONCE-E127") as told:
            query.awaitTermination(60)
    assert 'lossy_source="socket"' in str(told.value)
    assert sink.rows() == []


def test_a_socket_is_read_where_the_user_says_so_and_the_promise_names_it(
    spark, tmp_path, sink, ledger, caplog
) -> None:
    came = threading.Event()
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger), recovery=Recovery(lossy_source="socket"))

    def write(df: DataFrame, batch_id: int) -> None:
        wrapped(df, batch_id)
        if len(ids(sink)) == 3:
            came.set()

    with server(["1", "2", "3"]) as port:
        query = from_socket(spark, port, tmp_path, write)
        assert came.wait(60)
        query.stop()
    assert ids(sink) == [1, 2, 3]
    assert "socket sources cannot give rows again" in wrapped.explain()


@pytest.mark.slow
def test_a_rate_source_gives_a_batch_that_was_cut_off_again(spark, tmp_path, sink, ledger) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    done = threading.Event()

    def cut_off(df: DataFrame) -> DataFrame:
        seen.append(sorted(tuple(row) for row in df.collect()))
        if seen[-1] and len(seen) < 8 and not any(seen[:-1]):
            raise RuntimeError("cut off")
        if sum(bool(rows) for rows in seen) > 3:
            done.set()
        return df.selectExpr("value AS id")

    def start() -> Any:
        rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        writer = rows.writeStream.foreachBatch(
            exactly_once(sink, storage=Storage(ledger=ledger), transform=cut_off)
        ).queryName("orders")
        return writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(processingTime="0 seconds").start()

    with pytest.raises(Exception, match="cut off"):
        start().awaitTermination(60)
    query = start()
    assert done.wait(60)
    query.stop()
    first, again = [rows for rows in seen if rows][:2]
    assert first == again
    assert ids(sink) == list(range(len(ids(sink))))


# ---- a topic that becomes another one between two batches


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("client", ["kept", pytest.param("closed", marks=pytest.mark.slow)])
def test_a_topic_made_anew_between_two_batches_is_noticed_by_the_next_one(topic: Topic, sink, ledger, client) -> None:
    wrapped = by_offset(sink, storage=Storage(ledger=ledger))

    def write(df: DataFrame, batch_id: int) -> None:
        wrapped(df, batch_id)
        if batch_id == 0 and client == "closed":
            close_clients(df)
        if batch_id == 0:
            admin = AdminClient({"bootstrap.servers": topic.servers, "log_level": 0})
            admin.delete_topics([topic.name])[topic.name].result(30)
            eventually(lambda: admin.create_topics([NewTopic(topic.name, 2, 1)])[topic.name].result(30))
            topic.send(range(100, 120))

    topic.send(range(4))
    asked = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, "startingOffsets": "earliest"}
    rows = topic.spark.readStream.format("kafka").options(**asked).load()
    writer = rows.writeStream.foreachBatch(write).queryName("orders").trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", str(topic.checkpoint)).start()
    try:
        with pytest.raises(Exception, match="ONCE-E212"):
            query.awaitTermination(150)
    finally:
        query.stop()
    assert ids(sink) == list(range(4))


def close_clients(df: DataFrame) -> None:
    """What the source does after an error of its brokers: it lets its client go, and makes another when it asks."""
    execution = running(df)
    for source in items(execution.sources()):
        reset = private(source, "kafkaOffsetReader").getClass().getDeclaredMethod("resetAdmin", None)
        reset.setAccessible(True)
        reset.invoke(private(source, "kafkaOffsetReader"), None)
