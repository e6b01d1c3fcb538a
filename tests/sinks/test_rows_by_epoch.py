"""Rows come back by the epoch that brought them, without Spark: those that stand, or none where nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from tests.core.several import Pipeline, rows
from tests.sinks.kafka_harness import PARTITIONS, as_records
from tests.sinks.postgres_writer import Writer, run
from tests.sinks.test_kafka_refused_rows import delete

from onceonly.errors import DestinationError
from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.capabilities import Span
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import PostgresSink

Make = Callable[[], Sink]


class One(Pipeline):
    """A pipeline into one sink."""

    def __init__(self, root: Path, make: Make, shape: Callable[[pa.Table], pa.Table] = lambda table: table) -> None:
        super().__init__(root, ())
        self.make, self.shape = make, shape

    def sinks(self) -> list[Any]:
        return [self.make()]

    def written(self, *numbers: int) -> One:
        driver = self.driver()
        for number in numbers:
            driver.writes(number, table=self.shape(rows(number)))
        driver.sinks[0].close()
        return self

    def read(self, span: Span) -> list[tuple[int, int]] | None:
        """Epoch and id of each row."""
        sink = self.make()
        sink.open("orders")
        assert isinstance(sink, ReadsRows)
        found = sink.read_by_epoch(span)
        ids = None if found is None else sorted((epoch, _id(row)) for epoch, row in found)
        sink.close()
        return ids


def _id(row: Any) -> int:
    return int(json.loads(row["value"])["id"] if "value" in row else row["id"])


def brought(*epochs: int) -> list[tuple[int, int]]:
    return [(epoch, one) for epoch in epochs for one in range(10 * (epoch - 1), 10 * epoch)]


@pytest.fixture(params=["memory", "delta", "delta numbered", "postgres", "kafka"])
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[One]:
    made = _one(request, tmp_path)
    yield made
    made.ledger.close()


def _one(request: pytest.FixtureRequest, tmp_path: Path) -> One:
    if request.param == "memory":
        store = MemoryStore()
        return One(tmp_path, lambda: MemorySink("memory:a", store))
    if request.param.startswith("delta"):
        column = "_epoch" if "numbered" in request.param else None
        return One(tmp_path, lambda: DeltaSink(tmp_path / "rows", tuning=DeltaTuning(epoch_column=column)))
    if request.param == "postgres":
        dsn = request.getfixturevalue("dsn")
        return One(tmp_path, lambda: PostgresSink(dsn, "target"))
    kafka: EmbeddedKafka = request.getfixturevalue("kafka")
    topic = kafka.topic("by-epoch", PARTITIONS)
    return One(tmp_path, lambda: KafkaSink(kafka.servers, topic, id=f"kafka:{topic}"), as_records)


@pytest.mark.postgres
@pytest.mark.kafka
def test_each_row_comes_back_with_its_epoch_and_no_other(one: One) -> None:
    assert one.read((1, 9)) == []
    one.written(1, 2, 3)
    assert one.read((1, 3)) == brought(1, 2, 3)
    assert one.read((2, 2)) == brought(2)
    assert one.read((3, 99)) == brought(3)
    assert one.read((4, 99)) == []


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_rows_that_replace_one_another_come_back_with_the_epoch_that_wrote_them_last(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    store = MemoryStore()
    dsn = request.getfixturevalue("dsn") if kind == "postgres" else ""

    def make() -> Any:
        return PostgresSink(dsn, "target", key="id") if dsn else MemorySink("memory:a", store, key="id")

    one = One(tmp_path, make, lambda table: table.slice(0, 2))
    one.written(1, 2)
    assert one.read((1, 2)) is None
    sink = make()
    sink.open("orders")
    assert isinstance(sink, ReadsRows)
    for span, wanted in (((1, 2), [(1, 0), (1, 1), (2, 10), (2, 11)]), ((2, 9), [(2, 10), (2, 11)]), ((3, 9), [])):
        assert sorted((epoch, row["id"]) for epoch, row in sink.read_current(span) or ()) == wanted
    sink.close()
    driver = one.driver()
    driver.writes(3, table=rows(1).slice(1, 2))
    for each in driver.sinks:
        each.close()
    sink = make()
    sink.open("orders")
    found = sorted((epoch, row["id"]) for epoch, row in sink.read_current((1, 9)) or ())
    assert found == [(1, 0), (2, 10), (2, 11), (3, 1), (3, 2)]
    sink.close()
    one.ledger.close()


def test_rows_of_several_epochs_in_one_file_are_told_apart_by_their_column_alone(tmp_path: Path) -> None:
    for column, told in ((None, None), ("_epoch", brought(2))):
        root = tmp_path / str(column)
        one = One(root, lambda: DeltaSink(root / "rows", tuning=DeltaTuning(epoch_column=column))).written(1, 2, 3)  # noqa: B023
        table = DeltaTable(root / "rows")
        table.optimize.compact()
        assert len(table.file_uris()) == 1
        assert one.read((2, 2)) == told
        one.ledger.close()


def test_rows_that_others_deleted_do_not_come_back(tmp_path: Path) -> None:
    one = One(tmp_path, lambda: DeltaSink(tmp_path / "rows", external_changes="deletes")).written(1, 2)
    DeltaTable(tmp_path / "rows").delete("id = 12")
    assert one.read((1, 2)) == [pair for pair in brought(1, 2) if pair[1] != 12]
    one.ledger.close()


def test_a_table_that_deltalake_does_not_read_says_how_it_is_read(tmp_path: Path) -> None:
    one = One(tmp_path, lambda: DeltaSink(tmp_path / "rows")).written(1)
    _demand_of_readers(tmp_path / "rows", "deletionVectors")
    with pytest.raises(DestinationError, match="ONCE-E508") as refused:
        one.read((1, 1))
    assert "spark.read.format" in str(refused.value)
    one.ledger.close()


def _demand_of_readers(path: Path, feature: str) -> None:
    """A version that only readers of a feature may read, as Spark's Delta writes it."""
    log = path / "_delta_log"
    newest = max(int(file.stem) for file in log.glob("*.json"))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    (log / f"{newest + 1:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")


@pytest.mark.postgres
def test_a_table_without_a_column_of_epochs_or_with_two_writers_tells_no_rows(dsn: str, tmp_path: Path) -> None:
    run(dsn, "CREATE TABLE target (id bigint, text text)")
    bare = One(tmp_path / "bare", lambda: PostgresSink(dsn, "target")).written(1)
    assert bare.read((1, 1)) is None
    run(dsn, "ALTER TABLE target ADD COLUMN _epoch bigint")
    bare.written(2)
    assert bare.read((1, 2)) == brought(2)
    with Writer(dsn, id="postgres:again") as other:
        other.write(rows(7))
    assert bare.read((1, 2)) is None
    bare.ledger.close()


@pytest.mark.kafka
def test_records_of_a_transaction_that_was_given_up_are_not_read(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topic = kafka.topic("given-up", 1)
    one = One(tmp_path, lambda: KafkaSink(kafka.servers, topic, id=f"kafka:{topic}"), as_records).written(1)
    stranger = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "stranger"})
    stranger.init_transactions(10)
    stranger.begin_transaction()
    stranger.produce(topic, json.dumps({"id": 77}))
    stranger.flush(10)
    stranger.abort_transaction(10)
    one.written(2)
    assert one.read((1, 2)) == brought(1, 2)
    one.ledger.close()


@pytest.mark.slow
@pytest.mark.kafka
def test_a_topic_that_was_made_anew_tells_no_rows(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topic = kafka.topic("anew", 1)
    one = One(tmp_path, lambda: KafkaSink(kafka.servers, topic, id=f"kafka:{topic}"), as_records).written(1)
    delete(kafka.servers, topic)
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    while topic not in admin.list_topics(timeout=10).topics:  # the brokers may still be at deleting it
        kafka.topic(topic)
    assert one.read((1, 1)) is None
    one.ledger.close()
