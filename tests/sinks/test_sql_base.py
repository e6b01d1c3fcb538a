"""The base of SQL sinks: another driver passes the whole suite on it; what an answer to a COMMIT means."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.epochs import epoch_after
from tests.sinks.postgres_harness import PostgresHarness
from tests.sinks.psycopg_sink import PsycopgHarness, PsycopgSink
from tests.sinks.variants import asked_for_what_it_changes

from onceonly import faults
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_lab.conformance import SinkConformance
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.sql import Database, Failure, SqlSink, Tables
from onceonly_sinks.sql.commit_outcome import check_counted, check_identity, landed, sending, settling
from onceonly_sinks.sql.tables import rendered


@pytest.mark.postgres
@asked_for_what_it_changes
class TestAnotherDriver(SinkConformance):
    @pytest.fixture
    def harness(self, postgres: EmbeddedPostgres) -> PostgresHarness:
        return PsycopgHarness(postgres.database("sql_base"))


class Unlocked(PsycopgSink):
    """Reads the head without a lock; its COMMIT waits where a test says."""

    lock = ""
    waits: Callable[[], object] = staticmethod(lambda: None)

    def connect(self) -> Any:
        return _Waiting(super().connect(), type(self).waits)


class _Waiting:
    def __init__(self, connection: psycopg.Connection[Any], waits: Callable[[], object]) -> None:
        self._connection = connection
        self._waits = waits

    def cursor(self) -> Any:
        return _WaitingCursor(self._connection.cursor(), self._waits)

    def close(self) -> None:
        self._connection.close()


class _WaitingCursor:
    def __init__(self, cursor: psycopg.Cursor[Any], waits: Callable[[], object]) -> None:
        self._cursor = cursor
        self._waits = waits

    def execute(self, sql: Any, parameters: Any) -> None:
        if sql == "COMMIT":
            self._waits()
        self._cursor.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@pytest.mark.postgres
def test_a_commit_that_lands_while_it_is_looked_up_is_found_by_a_driver_that_takes_no_lock(
    postgres: EmbeddedPostgres,
) -> None:
    dsn, fence = postgres.database("sql_base"), Fence(1, "owner")

    class Late(Unlocked):
        arrived, released = threading.Event(), threading.Event()
        waits = staticmethod(lambda: (Late.arrived.set(), Late.released.wait(20)))

    sink, late = Unlocked(dsn, "looked_up"), Late(dsn, "looked_up")
    for one in (sink, late):
        one.open("orders")
    sink.install(fence)
    epoch = Marker("orders", sink.id, fence, epoch_after(None, sink.id, 1))
    with ThreadPoolExecutor(2) as pool:
        landing = pool.submit(late.commit, late.prepare(ArrowBatch(pa.table({"id": [1]})), 1), epoch)
        assert Late.arrived.wait(20)
        looking = pool.submit(sink.look_up, epoch)
        wait([looking], 1)  # it has read what it reads without the lock, and waits for the head
        Late.released.set()
        assert looking.result(20) == landing.result(20)


@pytest.mark.postgres
def test_two_first_installs_at_once_give_a_database_one_identity(postgres: EmbeddedPostgres) -> None:
    class Unguarded(Unlocked):
        """Makes the tables without a lock."""

        create = SqlSink.create

    dsn = postgres.database("sql_base")
    one, other = (Unguarded(dsn, "twice", id) for id in ("one", "other"))
    for sink in (one, other):
        sink.open("orders")
    one.install(Fence(1, "owner"))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM onceonly_identity")

    with psycopg.connect(dsn, autocommit=True) as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("BEGIN")
        one.create(Database(connection, "pyformat"))
        installing = pool.submit(other.install, Fence(1, "owner"))
        wait([installing], 1)  # it waits for what the first one has not committed, or has overlooked it
        connection.execute("COMMIT")
        installing.result(20)
        found = connection.execute("SELECT count(*) FROM onceonly_identity").fetchall()
    assert found == [(1,)]


def test_parameters_are_written_as_the_driver_wants_them() -> None:
    sql = "SELECT '5 %%' WHERE a = %(a)s AND b = %(b)s AND c = %(a)s"
    assert rendered(sql, "pyformat") == (sql, ("a", "b"))
    assert rendered(sql, "named") == ("SELECT '5 %' WHERE a = :a AND b = :b AND c = :a", ("a", "b"))
    assert rendered(sql, "dollar")[0] == "SELECT '5 %' WHERE a = $a AND b = $b AND c = $a"


class Broke(Exception):
    pass


def answered(over: bool) -> Any:
    return lambda error: Failure("broke", over) if isinstance(error, Broke) else None


def refused(failure: Failure) -> Exception:
    return ValueError(failure.reason)


def test_a_commit_that_the_database_refused_is_certain() -> None:
    with pytest.raises(ValueError, match="broke"), sending("s", None, answered(True), refused):
        raise Broke


@pytest.mark.parametrize("error", [Broke, OSError], ids=["the driver's", "anybody's"])
def test_any_other_failure_of_a_commit_is_unknown(error: type[Exception]) -> None:
    with pytest.raises(OutcomeUnknown), sending("s", None, answered(False), refused):
        raise error


def test_an_answer_that_is_lost_at_the_fault_point_is_unknown() -> None:
    def lose() -> None:
        raise OSError("the answer is lost")

    faults.arm(Point.COMMIT_SENT, lose)
    try:
        with pytest.raises(OutcomeUnknown), sending("s", Point.COMMIT_SENT, answered(True), refused):
            pass
    finally:
        faults.disarm()


def test_what_was_read_counts_only_once_the_transaction_that_read_it_is_safe() -> None:
    found: list[Receipt | None] = [None]
    with pytest.raises(OutcomeUnknown), settling("s", answered(True), found):
        raise ValueError("refused")
    with pytest.raises(ValueError, match="our own"), settling("s", answered(True), []):
        raise ValueError("our own")
    with pytest.raises(Superseded), settling("s", answered(True), found):
        raise Superseded("s", Fence(2, "b"))


def test_an_epoch_of_another_fence_has_not_landed() -> None:
    epoch = epoch_after(None, "s", 1)
    ours, theirs = (Marker("p", "s", Fence(1, owner), epoch) for owner in ("a", "b"))
    receipt = Receipt("s", 1, epoch.chain, "", (), 1)
    assert landed((ours, receipt), ours) == receipt
    assert landed((theirs, receipt), ours) is None
    assert landed(None, ours) is None


def test_an_epoch_that_lacks_rows_or_meets_another_target_is_refused() -> None:
    marker = Marker("p", "s", Fence(1, "a"), epoch_after(None, "s", 3))
    assert check_counted("s", 1, 3, None) is check_counted("s", 1, 3, 3) is None
    assert getattr(check_counted("s", 1, 3, 2), "code", "") == "E510"
    assert check_identity("", "b", marker) is check_identity("a", "a", marker) is None
    assert getattr(check_identity("a", "b", marker), "code", "") == "E208"
    adopted = Marker("p", "s", Fence(1, "a"), epoch_after(None, "s", 3, adoption="accept-change"))
    assert check_identity("a", "b", adopted) is None


def test_the_tables_may_be_called_otherwise() -> None:
    tables = Tables("ops.head", "ops.epoch")
    texts = [*tables.ddl, tables.sql_install, *tables.sql_advance, tables.sql_newest, tables.sql_touch]
    assert all("ops." in text and "onceonly" not in text for text in texts)
