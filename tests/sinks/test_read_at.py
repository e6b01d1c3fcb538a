"""Real destinations read as of one epoch: its rows each time, an error once they are not all there, never fewer."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from deltalake import DeltaTable, write_deltalake
from tests.core.several import Pipeline, rows
from tests.sinks.kafka_harness import PARTITIONS, as_records
from tests.sinks.postgres_writer import run
from tests.sinks.test_rows_by_epoch import One
from typer.testing import CliRunner

from onceonly import OnceOnlyError
from onceonly.cli.app import app
from onceonly.reading import read_at, read_point
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.postgres import PostgresSink

KINDS = ["delta", "delta numbered", "delta upsert", "postgres", "kafka"]


@pytest.fixture(params=KINDS)
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[One]:
    made = _one(request, tmp_path)
    yield made
    made.ledger.close()


def _one(request: pytest.FixtureRequest, root: Path) -> One:
    match request.param.split():
        case ["delta", *said]:
            options: dict[str, Any] = {
                "numbered": {"tuning": DeltaTuning(epoch_column="_epoch")},
                "upsert": {"key": "id"},
            }.get("".join(said), {})
            return One(root, lambda: DeltaSink(root / "rows", **options))
        case ["postgres"]:
            dsn = request.getfixturevalue("dsn")
            return One(root, lambda: PostgresSink(dsn, "target"))
        case _:
            kafka: EmbeddedKafka = request.getfixturevalue("kafka")
            topic = kafka.topic(f"as-of-{uuid.uuid4().hex[:8]}", PARTITIONS)
            return One(root, lambda: KafkaSink(kafka.servers, topic, id=f"kafka:{topic}"), as_records)


def ids(table: pa.Table) -> list[int]:
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(json.loads(row["value"])["id"] if "value" in row else row["id"] for row in found)


def read(one: One, at: Any = "latest", **more: Any) -> list[int]:
    return ids(read_at("orders", at, one.make(), ledger=one.ledger, **more))


def refused(code: str, one: One, at: Any, **more: Any) -> OnceOnlyError:
    with pytest.raises(OnceOnlyError) as found:
        read(one, at, **more)
    assert found.value.code == code, found.value
    return found.value


def obeyed(error: OnceOnlyError) -> str:
    """What the printed command says."""
    (command,) = [part for part in error.remedy.split(": ") if part.startswith("onceonly ")]
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.postgres
@pytest.mark.kafka
def test_the_same_rows_come_each_time_while_epochs_go_on(one: One) -> None:
    driver = one.driver()
    for epoch in range(1, 6):
        driver.writes(epoch, table=one.shape(rows(epoch)))
        for earlier in range(1, epoch + 1):
            assert read(one, earlier) == list(range(10 * earlier))
    driver.sinks[0].close()


@pytest.mark.postgres
@pytest.mark.kafka
def test_later_rows_alone_are_read_since_a_point(one: One) -> None:
    one.written(1, 2, 3)
    if "key" in getattr(one.make(), "address", ""):
        refused("E244", one, 3, since=1)
    else:
        assert read(one, 3, since=1) == list(range(10, 30))
        assert read(one, 2, since=read_point("orders", 1, ledger=one.ledger)) == list(range(10, 20))
        assert read(one, 2, since=2) == []


# ---- Delta.


def aged(root: Path) -> One:
    """Four epochs, with the files of the first three put into one and the old ones removed after the third."""
    one = One(root, lambda: DeltaSink(root / "rows")).written(1, 2, 3)
    DeltaTable(root / "rows").optimize.compact()
    driver = one.driver()
    driver.writes(4)
    driver.sinks[0].close()
    DeltaTable(root / "rows").vacuum(0, enforce_retention_duration=False, dry_run=False)
    return one


def test_files_that_vacuum_took_are_an_error_that_names_the_oldest_epoch_left(tmp_path: Path) -> None:
    one = aged(tmp_path)
    error = refused("E243", one, 2)
    assert "data files of version" in str(error)
    assert "read as of epoch 4" in error.remedy
    assert "epoch 4" in obeyed(error)
    assert read(one, 4) == list(range(40))
    one.ledger.close()


def test_a_version_that_the_log_has_lost_is_an_error(tmp_path: Path) -> None:
    one = One(tmp_path, lambda: DeltaSink(tmp_path / "rows")).written(1, 2, 3)
    table = DeltaTable(tmp_path / "rows")
    table.create_checkpoint()
    for path in (tmp_path / "rows" / "_delta_log").glob("*.json"):
        if int(path.stem) < table.version():
            path.unlink()
    error = refused("E243", one, 1)
    assert "no longer holds version" in str(error)
    assert "epoch 3" in obeyed(error)
    assert read(one, 3) == list(range(30))
    one.ledger.close()


def test_a_table_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    one = One(tmp_path, lambda: DeltaSink(tmp_path / "rows")).written(1)
    write_deltalake(tmp_path / "new", rows(1))
    (tmp_path / "rows").rename(tmp_path / "old")
    (tmp_path / "new").rename(tmp_path / "rows")
    assert "another one than it was" in str(refused("E243", one, 1))
    one.ledger.close()


def test_rows_that_others_added_stand_in_the_version_and_are_of_no_epoch(tmp_path: Path) -> None:
    one = One(tmp_path, lambda: DeltaSink(tmp_path / "rows")).written(1)
    write_deltalake(tmp_path / "rows", pa.table({"id": [999], "text": ["theirs"]}), mode="append")
    driver = one.driver()
    driver.writes(2)
    driver.sinks[0].close()
    assert read(one, 1) == list(range(10))
    assert read(one, 2) == [*range(20), 999]
    assert read(one, 2, since=1) == list(range(10, 20))
    one.ledger.close()


def test_which_rows_are_later_is_not_known_of_files_that_were_put_together(tmp_path: Path) -> None:
    one = One(tmp_path, lambda: DeltaSink(tmp_path / "rows")).written(1, 2)
    DeltaTable(tmp_path / "rows").optimize.compact()
    driver = one.driver()
    driver.writes(3)
    driver.sinks[0].close()
    error = refused("E244", one, 3, since=1)
    assert "epoch_column" in error.remedy
    assert "epoch 3" in obeyed(error)
    one.ledger.close()


# ---- Postgres.


@pytest.fixture
def table(dsn: str, tmp_path: Path) -> Iterator[Callable[..., One]]:
    made: list[One] = []

    def make(**options: Any) -> One:
        made.append(One(tmp_path / str(len(made)), lambda: PostgresSink(dsn, "target", **options)))
        return made[-1]

    yield make
    for one in made:
        one.ledger.close()


@pytest.mark.postgres
def test_an_upsert_of_postgres_is_read_at_its_newest_epoch_alone(table: Callable[..., One]) -> None:
    one = table(key="id").written(1, 2)
    assert read(one) == list(range(20))
    error = refused("E244", one, 1)
    assert "Keep(history='all')" in error.remedy
    assert "epoch 2" in obeyed(error)


@pytest.mark.postgres
def test_rows_that_stood_before_the_first_epoch_belong_to_each(dsn: str, table: Callable[..., One]) -> None:
    run(dsn, "CREATE TABLE target (id bigint, text text, _epoch bigint)")
    one = table().written(1, 2)
    run(dsn, "INSERT INTO target VALUES (500, 'before', NULL)")
    assert read(one, 1) == [*range(10), 500]
    assert read(one, 2, since=1) == list(range(10, 20))


@pytest.mark.postgres
def test_a_database_that_was_restored_is_not_read_past_where_it_stands(dsn: str, table: Callable[..., One]) -> None:
    one = table().written(1, 2, 3)
    run(dsn, "DELETE FROM target WHERE _epoch > 1")
    run(dsn, "DELETE FROM onceonly.epoch WHERE epoch > 1")
    run(dsn, "UPDATE onceonly.head h SET epoch = 1, chain = e.chain FROM onceonly.epoch e")
    assert "is at epoch 1" in str(refused("E243", one, 2))
    assert read(one, 1) == list(range(10))


@pytest.mark.postgres
def test_a_table_of_two_sinks_does_not_tell_whose_epochs_its_numbers_are(dsn: str, table: Callable[..., One]) -> None:
    one = table().written(1)
    run(
        dsn,
        "INSERT INTO onceonly.head SELECT pipeline, 'another', generation, owner, epoch, chain, system_id, timeline,"
        " target_oid FROM onceonly.head",
    )
    assert "another sink writes to the table" in str(refused("E244", one, 1))


@pytest.mark.postgres
def test_the_printed_statement_reads_the_rows_of_the_epoch(dsn: str, table: Callable[..., One]) -> None:
    one = table().written(1, 2, 3)
    statement = read_point("orders", 2, ledger=one.ledger).sql(one.make())
    assert sorted(row[0] for row in run(dsn, statement)) == list(range(20))
    shown = CliRunner().invoke(
        app, ["epochs", "show", "2", "--query", "orders", "--sql", "--ledger", one.ledger.address]
    )
    assert f"{statement};" in shown.output


@pytest.mark.postgres
def test_the_command_says_the_point_as_json(dsn: str, table: Callable[..., One]) -> None:
    one = table().written(1)
    command = ["epochs", "show", "--query", "orders", "--sql", "--ledger", one.ledger.address, "--output", "json"]
    said = json.loads(CliRunner().invoke(app, command).output)
    point = read_point("orders", ledger=one.ledger)
    assert (said["epoch"], said["chain"]) == (1, point.chain)
    assert [sink["sql"] for sink in said["sinks"]] == [point.sql(one.make())]


@pytest.mark.postgres
def test_values_of_every_type_come_back(dsn: str, table: Callable[..., One]) -> None:
    one = table()
    batch = pa.table(
        {
            "id": [1],
            "amount": pa.array([None], pa.decimal128(10, 2)),
            "at": pa.array([0], pa.timestamp("us", tz="UTC")),
            "span": pa.array([timedelta(days=1)], pa.duration("us")),
        }
    )
    driver = one.driver()
    driver.writes(1, table=batch)
    driver.sinks[0].close()
    found = read_at("orders", 1, one.make(), ledger=one.ledger)
    assert found.select(["id", "amount", "at"]).equals(batch.select(["id", "amount", "at"]))
    assert found.column("span").to_pylist() == ["24:00:00"]


# ---- Kafka.


@pytest.fixture
def topic(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[tuple[One, str]]:
    name = kafka.topic(f"as-of-{uuid.uuid4().hex[:8]}", 1)
    one = One(tmp_path, lambda: KafkaSink(kafka.servers, name, id=f"kafka:{name}"), as_records)
    yield one.written(1, 2, 3), name
    one.ledger.close()


@pytest.mark.kafka
def test_records_that_retention_took_are_an_error(kafka: EmbeddedKafka, topic: tuple[One, str]) -> None:
    one, name = topic
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    for done in admin.delete_records([TopicPartition(name, 0, 5)]).values():
        done.result()
    assert "begins at offset 5 by now" in str(refused("E243", one, 2))
    assert read(one, 3, since=1) == list(range(10, 30))


@pytest.mark.kafka
def test_a_compacted_topic_does_not_tell_what_was_there(kafka: EmbeddedKafka, topic: tuple[One, str]) -> None:
    one, name = topic
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()
    assert "is compacted" in str(refused("E244", one, 2))


def test_a_pipeline_is_a_read_of_all_its_sinks(tmp_path: Path) -> None:
    class Two(Pipeline):
        def sinks(self) -> list[Any]:
            return [DeltaSink(tmp_path / "a"), DeltaSink(tmp_path / "b", key="id")]

    pipeline = Two(tmp_path / "p", ())
    driver = pipeline.driver()
    driver.writes(1, 2)
    for sink in driver.sinks:
        sink.close()
    assert {sink: len(table) for sink, table in read_at("orders", 1, ledger=pipeline.ledger).items()} == {
        "delta:a": 10,
        "delta:b": 10,
    }
    pipeline.ledger.close()
