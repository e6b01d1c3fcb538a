"""``onceonly doctor --sink`` on real destinations: what does not fit has a code and a remedy that helps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from onceonly.cli.app import app
from onceonly.cli.doctor import examine
from onceonly.cli.doctor_checks import of_sink
from onceonly.doctor import UNOBSERVED, State
from onceonly.errors import DestinationError
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.health import PlaceFacts, TableFacts, judge
from onceonly_sinks.kafka import KafkaSink, KafkaTuning
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

FENCE = Fence(1, "owner")
_numbers = itertools.count(1)


def checks(address: str) -> list[dict[str, Any]]:
    """What was looked at; the exit code must agree with it."""
    result = CliRunner().invoke(app, ["doctor", "--sink", address, "--output", "json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found = json.loads(result.stdout)
    wrong = [one for one in found["checks"] if one["state"] == "problem"]
    assert (result.exit_code, found["problems"]) == (1 if wrong else 0, len(wrong))
    return [check for check in found["checks"] if check["name"] not in names_of_the_machine()]


@cache
def names_of_the_machine() -> frozenset[str]:
    """What is looked at without a destination, too."""
    return frozenset(check.name for check in examine((), None))


def states(address: str) -> dict[str, str]:
    """Code to state of what was found."""
    return {check["code"]: check["state"] for check in checks(address) if check["code"]}


def problems(address: str) -> dict[str, str]:
    """Code to remedy of what keeps a destination from fitting."""
    return {check["code"]: check["remedy"] for check in checks(address) if check["state"] == "problem"}


def said(address: str) -> str:
    """Everything that was seen."""
    return "\n".join(check["message"] for check in checks(address))


# ---- Postgres


@pytest.fixture
def clerk(dsn: str) -> Iterator[str]:
    """DSN of a role that may log in and look around, and no more."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN")
        connection.execute("CREATE TABLE orders (id bigint, word text)")
    yield dsn.replace("postgres@", "clerk@", 1)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP OWNED BY clerk CASCADE")
        connection.execute("DROP ROLE clerk")


def test_a_fresh_database_fits_and_stays_as_it_was(dsn: str) -> None:
    assert problems(f"postgres:{dsn}#orders") == {}
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('orders'), to_regnamespace('onceonly')").fetchone() == (
            None,
            None,
        )


def test_each_right_that_a_role_lacks_is_a_problem_whose_remedy_helps(dsn: str, clerk: str) -> None:
    address = f"postgres:{clerk}#orders"
    assert problems(address).keys() == {"D208", "D209"}
    sink = PostgresSink(clerk, "orders")
    sink.open("p")
    with pytest.raises(DestinationError, match="E502"):
        sink.install(FENCE)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for remedy in problems(address).values():
            connection.execute(remedy.encode())
    assert problems(address) == {}
    assert "SELECT, INSERT on public.orders" in said(address)
    sink.install(FENCE)
    sink.close()


def test_a_table_that_a_role_may_not_make_is_a_problem(clerk: str) -> None:
    assert "D210" in problems(f"postgres:{clerk}#public.bills")


def test_row_security_is_a_problem(dsn: str, clerk: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    assert "D211" in problems(f"postgres:{clerk}#orders")


def test_an_upsert_wants_a_unique_index_on_its_key(dsn: str) -> None:
    address = f"{PostgresSink(dsn, 'orders', key='id').address}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint, word text)")
    found = problems(address)
    assert found.keys() == {"D207"}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(found["D207"].encode())
    assert problems(address) == {}
    assert "a unique index is on (id)" in said(address)


def test_an_upsert_wants_the_columns_that_it_names(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, word text)")
    address = PostgresSink(dsn, "orders", key="id", sequence="moved_at").address
    assert problems(address).keys() == {"D213"}
    assert "no column moved_at" in said(address)


def test_a_trigger_is_a_hint(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint)")
        does = "BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        connection.execute(f"CREATE TRIGGER same {does}".encode())
    assert states(f"postgres:{dsn}#orders") == {"D212": "hint"}


def test_a_timeout_that_could_end_an_epoch_is_a_hint(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER DATABASE tests SET statement_timeout = '3s'")
    try:
        assert states(f"postgres:{dsn}#orders") == {"D214": "hint"}
        assert "statement_timeout is 3 s" in said(f"postgres:{dsn}#orders")
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("ALTER DATABASE tests RESET statement_timeout")


def test_a_table_that_a_crash_empties_is_a_problem(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE UNLOGGED TABLE orders (id bigint)")
    assert problems(f"postgres:{dsn}#orders").keys() == {"E508"}


def test_a_server_that_does_not_answer_is_a_problem_without_the_password(postgres: EmbeddedPostgres) -> None:
    address = "postgres:postgresql://app:geheim@127.0.0.1:1/shop#orders"
    result = CliRunner().invoke(app, ["doctor", "--sink", address])
    assert result.exit_code == 1
    assert "E501" in result.stdout
    assert "geheim" not in result.stdout + result.stderr


# ---- Delta


def test_a_place_without_a_table_fits_and_stays_empty(tmp_path: Path) -> None:
    assert problems(f"delta:{tmp_path / 'orders'}") == {}
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_forgets_its_markers_is_a_problem(tmp_path: Path) -> None:
    kept = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    write_deltalake(tmp_path / "orders", pa.table({"id": [1]}), configuration=kept)
    assert problems(f"delta:{tmp_path / 'orders'}").keys() == {"D301"}


def test_a_directory_of_other_files_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "part-0.csv").write_text("1")
    assert problems(f"delta:{tmp_path / 'orders'}").keys() == {"E508"}


def test_an_upsert_into_a_table_that_only_grows_is_a_problem(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "orders", pa.table({"id": [1]}), configuration={"delta.appendOnly": "true"})
    assert problems(DeltaSink(tmp_path / "orders").address) == {}
    assert problems(DeltaSink(tmp_path / "orders", key="id").address).keys() == {"D305"}


def test_a_table_that_only_spark_can_commit_to_is_a_hint(tmp_path: Path) -> None:
    """On facts: deltalake cannot make such a table."""
    found = judge("delta:orders", None, TableFacts(3, {}, "its features identityColumns"), UNOBSERVED, merges=False)
    assert [(one.code, one.state) for one in found if one.code] == [("D304", State.HINT)]


def test_a_place_that_cannot_be_written_is_a_problem() -> None:
    """On facts: root may write everywhere."""
    found = judge("delta:orders", PlaceFacts("/srv", writable=False), None, UNOBSERVED, merges=False)
    assert [(one.code, one.state) for one in found if one.code] == [("D303", State.PROBLEM)]


# ---- Kafka


@pytest.mark.kafka
def test_a_topic_fits_and_one_that_is_compacted_is_named(kafka: EmbeddedKafka) -> None:
    number = next(_numbers)
    kept = kafka.topic(f"fits-{number}")
    compacted = kafka.topic(f"compacted-{number}", config={"cleanup.policy": "compact"})
    assert problems(f"kafka:{kafka.servers}/{kept}") == {}
    assert f"{kept} has 1 partitions and keeps every row" in said(f"kafka:{kafka.servers}/{kept}")
    assert states(f"kafka:{kafka.servers}/{compacted}")["D106"] == "hint"


@pytest.mark.kafka
def test_a_marker_topic_that_forgets_is_a_problem(kafka: EmbeddedKafka) -> None:
    number = next(_numbers)
    topic, markers = kafka.topic(f"rows-{number}"), kafka.topic(f"markers-{number}")
    address = KafkaSink(kafka.servers, topic, tuning=KafkaTuning(marker_topic=markers)).address
    assert problems(address).keys() == {"D102"}


@pytest.mark.kafka
def test_a_transaction_that_may_last_longer_than_the_brokers_allow_is_a_problem(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(f"long-{next(_numbers)}")
    sink = KafkaSink(kafka.servers, topic, options={"kafka.transaction.timeout.ms": "3600000"})
    assert problems(sink.address).keys() == {"D107"}


@pytest.mark.kafka
def test_a_topic_that_is_not_there_is_a_problem(kafka: EmbeddedKafka) -> None:
    assert problems(f"kafka:{kafka.servers}/nobody-made-it").keys() == {"E508"}


# ---- anybody's


def test_an_address_that_is_none_is_a_problem() -> None:
    assert problems("oracle:orders").keys() == {"E110"}


def test_a_sink_that_says_nothing_of_its_destination_is_opened_and_that_is_said() -> None:
    found = list(of_sink(MemorySink("orders"), "p"))
    assert [one.state for one in found] == [State.OK, State.HINT]
    assert "MemorySink has no examine()" in found[1].message
