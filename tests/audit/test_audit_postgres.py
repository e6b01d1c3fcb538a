"""Audits of a real Postgres table after real sabotage, with SQL, behind the sink's back."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.audit.histories import PIPELINE
from tests.audit.stores import Stored

from onceonly.audit import Verdict, audit
from onceonly.cli.doctor_checks import destination
from onceonly.doctor import State
from onceonly.protocol.registry import sink_from_address
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    # Not below pytest's own folder: another run as root closes that one to the server's user.
    with (
        tempfile.TemporaryDirectory(prefix="onceonly-audit-", ignore_cleanup_errors=True) as folder,
        EmbeddedPostgres(Path(folder) / "data") as server,
    ):
        yield server


@pytest.fixture
def dsn(server: EmbeddedPostgres) -> str:
    return server.database(f"audit_{next(_numbers)}")


@pytest.fixture
def stored(dsn: str, tmp_path: Path) -> Iterator[Stored]:
    stored = Stored(PostgresSink(dsn, "orders"), tmp_path).write_all()
    yield stored
    stored.sink.close()
    stored.ledger.close()


def sql(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def found(stored: Stored, *, alone: bool = False) -> tuple[Verdict, list[tuple[str, int | None]]]:
    """Audit through the address, as the command line does; the sink of the writer is not used."""
    reader = sink_from_address(stored.sink.address)
    try:
        result = audit(None if alone else stored.ledger, PIPELINE, [reader])
    finally:
        reader.close()
    return result.verdict, [(finding.code, finding.epoch) for finding in result.findings]


def test_a_true_table_is_exactly_once(stored: Stored) -> None:
    assert found(stored) == (Verdict.EXACTLY_ONCE, [])


def test_deleted_rows_of_one_epoch_are_a_gap(stored: Stored, dsn: str) -> None:
    sql(dsn, "DELETE FROM orders WHERE _epoch = 3 AND id < 3003")
    assert found(stored) == (Verdict.GAPS, [("A121", 3)])


def test_doubled_rows_of_one_epoch_are_duplicates(stored: Stored, dsn: str) -> None:
    sql(dsn, "INSERT INTO orders SELECT * FROM orders WHERE _epoch = 4")
    assert found(stored) == (Verdict.DUPLICATES, [("A122", 4)])


def test_a_dropped_epoch_row_is_a_gap_that_the_ledger_can_fill(stored: Stored, dsn: str) -> None:
    sql(dsn, "DELETE FROM onceonly.epoch WHERE epoch = 3")
    assert found(stored) == (Verdict.GAPS, [("A111", 3)])


def test_a_dropped_epoch_row_leaves_rows_that_nothing_names(stored: Stored, dsn: str) -> None:
    sql(dsn, "DELETE FROM onceonly.epoch WHERE epoch = 3")
    verdict, codes = found(stored, alone=True)
    assert verdict == Verdict.GAPS
    assert codes == [("A111", 3), ("A123", 3), ("A131", None)]


def test_the_newest_epoch_row_dropped_is_a_sink_set_back(stored: Stored, dsn: str) -> None:
    sql(dsn, "DELETE FROM onceonly.epoch WHERE epoch = 4")
    verdict, codes = found(stored)
    assert verdict == Verdict.GAPS
    assert ("A132", 4) in codes
    assert ("A123", 4) in codes


def test_rows_of_an_epoch_that_never_was_are_duplicates(stored: Stored, dsn: str) -> None:
    sql(dsn, "INSERT INTO orders (id, note, _epoch) VALUES (1, 'x', 77)")
    assert found(stored) == (Verdict.DUPLICATES, [("A123", 77)])


def test_rows_of_others_without_a_number_are_told_and_not_judged(stored: Stored, dsn: str) -> None:
    sql(dsn, "INSERT INTO orders (id, note) VALUES (1, 'x')")
    assert found(stored) == (Verdict.EXACTLY_ONCE, [("A128", None)])


def test_a_truncated_table_has_lost_every_epoch_with_rows(stored: Stored, dsn: str) -> None:
    sql(dsn, "TRUNCATE orders")
    # A126: no row of the newest epoch is there, by which the next start stops.
    assert found(stored) == (Verdict.GAPS, [("A121", 1), ("A121", 3), ("A121", 4), ("A126", None)])


def test_a_dropped_table_has_lost_every_epoch_with_rows(stored: Stored, dsn: str) -> None:
    sql(dsn, "DROP TABLE orders")
    assert found(stored) == (Verdict.GAPS, [("A121", 1), ("A121", 3), ("A121", 4), ("A126", None)])


def test_a_table_made_anew_with_the_same_rows_is_in_doubt(stored: Stored, dsn: str) -> None:
    sql(dsn, "CREATE TABLE copy AS TABLE orders; DROP TABLE orders; ALTER TABLE copy RENAME TO orders")
    assert found(stored) == (Verdict.IN_DOUBT, [("A126", None)])


@pytest.mark.parametrize("made", ["", "CREATE TABLE latest (id bigint PRIMARY KEY, note text)"], ids=["ours", "bare"])
def test_an_upsert_is_not_counted_and_rows_that_must_stand_are(dsn: str, tmp_path: Path, made: str) -> None:
    sql(dsn, made or "SELECT")
    stored = Stored(PostgresSink(dsn, "latest", key="id"), tmp_path).write_all()
    assert found(stored) == (Verdict.NOT_COUNTED, [("A119", None)])
    sql(dsn, "TRUNCATE latest")
    assert found(stored) == (Verdict.GAPS, [("A154", None), ("A119", None)])
    stored.sink.close()


def test_a_table_without_an_epoch_column_is_counted_in_sum(dsn: str, tmp_path: Path) -> None:
    sql(dsn, "CREATE TABLE bare (id bigint, note text)")
    stored = Stored(PostgresSink(dsn, "bare"), tmp_path).write_all()
    assert found(stored) == (Verdict.EXACTLY_ONCE, [])
    sql(dsn, "INSERT INTO bare VALUES (1, 'of others')")
    assert found(stored) == (Verdict.NOT_COUNTED, [("A119", None)])
    sql(dsn, "DELETE FROM bare WHERE id < 4000")
    assert found(stored) == (Verdict.GAPS, [("A154", None), ("A119", None)])
    stored.sink.close()


def test_a_server_that_is_gone_cannot_be_told(server: EmbeddedPostgres, tmp_path: Path) -> None:
    dsn = server.database("gone")
    stored = Stored(PostgresSink(dsn, "orders"), tmp_path).write_all((1,))
    stored.sink.close()
    sql(server.dsn, "DROP DATABASE gone WITH (FORCE)")
    verdict, codes = found(stored)
    assert verdict == Verdict.CANNOT_TELL
    assert codes[0] == ("A101", None)


def test_an_audit_writes_nothing(stored: Stored, dsn: str) -> None:
    def footprint() -> list[tuple[object, ...]]:
        with psycopg.connect(dsn) as connection:
            tables = connection.execute(
                "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables ORDER BY 1"
            ).fetchall()
            return [*connection.execute("SELECT * FROM onceonly.head").fetchall(), *tables]

    before = footprint()
    found(stored)
    assert footprint() == before


def test_the_doctor_knows_a_healthy_server(stored: Stored, dsn: str) -> None:
    assert {check.state for check in destination(stored.sink.address)} == {State.OK}
    assert {check.state for check in destination(dsn)} == {State.OK}


@pytest.mark.parametrize("setting", ["synchronous_commit"])
def test_the_doctor_finds_a_setting_that_loses_commits(dsn: str, setting: str) -> None:
    name = dsn.rsplit("/", 1)[1].partition("?")[0]
    sql(dsn, f'ALTER DATABASE "{name}" SET {setting} = off')
    problems = [check for check in destination(dsn) if check.state is State.PROBLEM]
    assert len(problems) == 1
    assert setting in problems[0].message
