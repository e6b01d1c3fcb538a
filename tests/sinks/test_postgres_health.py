"""What the doctor finds in a real Postgres: settings of server, database and role, and a missing index."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from onceonly.cli.doctor_checks import destination
from onceonly.doctor import UNOBSERVED, Check, Observed
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres


def found(address: str, observed: Observed = UNOBSERVED) -> list[Check]:
    return [check for check in destination(address, "orders", observed) if check.code]


def says(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def set_for_database(dsn: str) -> Iterator[str]:
    """An address of a database whose settings are its defaults again afterwards."""
    yield dsn
    says(dsn, "ALTER DATABASE tests RESET ALL")


def test_a_server_that_is_fit_has_nothing_found(dsn: str) -> None:
    assert found(PostgresSink(dsn, "target", key="id").address, Observed(9, 3600.0)) == []


def test_a_synchronous_commit_that_is_off_for_the_database_alone_is_found(set_for_database: str) -> None:
    says(set_for_database, "ALTER DATABASE tests SET synchronous_commit = off")
    [check] = found(PostgresSink(set_for_database, "target").address)
    assert check.code == "D203"
    assert [check.code for check in found(set_for_database)] == ["D203"]


def test_a_setting_that_comes_with_the_address_counts(dsn: str) -> None:
    with_options = f"{dsn}?options=-c%20synchronous_commit%3Doff"
    assert [check.code for check in found(PostgresSink(with_options, "target").address)] == ["D203"]


def test_a_statement_timeout_below_what_epochs_took_is_found(set_for_database: str) -> None:
    says(set_for_database, "ALTER DATABASE tests SET statement_timeout = '20s'")
    address = PostgresSink(set_for_database, "target").address
    assert found(address, Observed(9, 2.0)) == []
    [check] = found(address, Observed(9, 25.0))
    assert check.code == "D206"
    assert "statement_timeout is 20 s" in check.message


@pytest.mark.parametrize(
    ("index", "codes"),
    [
        ("", ["D207"]),
        ("CREATE INDEX ON target (id, word)", ["D207"]),
        ("CREATE UNIQUE INDEX ON target (id)", ["D207"]),
        ("CREATE UNIQUE INDEX ON target (word, id)", []),
    ],
    ids=["none", "not unique", "of fewer columns", "in another order"],
)
def test_a_table_without_the_index_that_its_upsert_needs_is_found(dsn: str, index: str, codes: list[str]) -> None:
    says(dsn, f"CREATE TABLE target (id bigint, word text); {index}")
    checks = found(PostgresSink(dsn, "target", key=["id", "word"]).address)
    assert [check.code for check in checks] == codes
    for check in checks:
        says(dsn, check.remedy.replace("CONCURRENTLY ", ""))
    assert found(PostgresSink(dsn, "target", key=["id", "word"]).address) == []
