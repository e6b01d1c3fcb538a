"""Two tables of one database in one transaction: whatever each of them does with its rows, and whoever holds a lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import Writer, orders, rows, run

from onceonly.errors import DestinationError, IdentityError, OnceOnlyError
from onceonly.protocol import Conflict, Estimate, OutcomeUnknown, Superseded
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.postgres import PostgresSink, PostgresTuning
from onceonly_sinks.postgres.load import PostgresPrepared

pytestmark = pytest.mark.postgres


class Pair:
    """A driver of two tables that share a transaction."""

    def __init__(self, dsn: str, generation: int = 1, first: Any = None, second: Any = None) -> None:
        with ExitStack() as stack:
            self.writers = tuple(
                stack.enter_context(Writer(dsn, table, generation, **(options or {})))
                for table, options in (("target", first), ("other", second))
            )
            self._stack = stack.pop_all()
        one, other = self.writers
        assert one.sink.can_join(other.sink)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepare(self, *tables: pa.Table) -> list[PostgresPrepared]:
        one, other = self.writers
        first = one.prepare(tables[0])
        number = other.last.number + 1 if other.last else 1
        return [first, other.sink.prepare_joined(ArrowBatch(tables[1]), number, [(one.sink, first)])]

    def commit(self, prepared: list[PostgresPrepared], ledger: Any = None) -> tuple[Receipt, ...]:
        one, other = self.writers
        mine, theirs = (writer.marker(held.rows) for writer, held in zip(self.writers, prepared, strict=True))
        receipts = one.sink.commit_joined(prepared[0], mine, [(other.sink, prepared[1], theirs)], ledger)
        one.last, other.last = mine.epoch, theirs.epoch
        return receipts

    @staticmethod
    def looks_up(writer: Writer) -> Receipt | int | None:
        """What a look-up of the next epoch finds; the generation that stands in its way."""
        try:
            return writer.sink.look_up(writer.marker(1))
        except Superseded as fenced:
            return fenced.current_fence.generation

    def write(self, *tables: pa.Table) -> tuple[Receipt, ...]:
        prepared = self.prepare(*tables)
        try:
            return self.commit(prepared)
        finally:
            for one in prepared:
                one.abandon()


WAYS = {
    "append": {},
    "upsert": {"key": "id"},
    "columns are added": {"schema": "add_columns"},
    "by executors": {"tuning": PostgresTuning(load="executors")},
}


@pytest.mark.parametrize("second", WAYS.values(), ids=[*WAYS])
@pytest.mark.parametrize("first", WAYS.values(), ids=[*WAYS])
def test_rows_meet_each_table_as_they_do_alone(dsn: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    with Pair(dsn, first=first, second=second) as pair:
        pair.write(orders(1, 2), orders(10))
        wider = orders(3).append_column("more", pa.array([7], pa.int64()))
        tables = [wider if "schema" in said else orders(3) for said in (first, second)]
        receipts = pair.write(*tables)
        assert [(receipt.epoch, receipt.rows) for receipt in receipts] == [(2, 1), (2, 1)]
    assert sorted(row[0] for row in rows(dsn, "target")) == [1, 2, 3]
    assert sorted(row[0] for row in rows(dsn, "other")) == [3, 10]


def test_both_tables_and_both_heads_are_of_one_transaction(dsn: str) -> None:
    with Pair(dsn) as pair:
        pair.write(orders(1), orders(10))
        pair.write(orders(2), orders(11))
    for epoch, ids in ((1, (1, 10)), (2, (2, 11))):
        [(mine,)] = run(dsn, "SELECT xmin::text FROM target WHERE id = %s", ids[0])
        [(theirs,)] = run(dsn, "SELECT xmin::text FROM other WHERE id = %s", ids[1])
        markers = run(dsn, "SELECT xmin::text FROM onceonly.epoch WHERE epoch = %s", epoch)
        assert markers == [(mine,), (mine,)]
        assert theirs == mine
    heads = run(dsn, "SELECT xmin::text FROM onceonly.head")
    assert heads == [(mine,), (mine,)]


def test_a_row_that_the_second_table_refuses_keeps_the_first_ones_rows_out(dsn: str) -> None:
    run(dsn, "CREATE TABLE other (id bigint CHECK (id < 100), note text)")
    with Pair(dsn) as pair:
        pair.write(orders(1), orders(10))
        with pytest.raises(DestinationError, match="ONCE-E503"):
            pair.write(orders(2), orders(100))
        assert [row[0] for row in rows(dsn, "target")] == [1]
        pair.write(orders(2), orders(11))
    assert sorted(row[0] for row in rows(dsn, "target")) == [1, 2]


def test_a_second_table_that_was_made_anew_is_refused_and_the_first_keeps_what_it_had(dsn: str) -> None:
    with Pair(dsn) as pair:
        pair.write(orders(1), orders(10))
        run(dsn, "DROP TABLE other")
        with pytest.raises(IdentityError, match="ONCE-E208"):
            pair.write(orders(2), orders(11))
        run(dsn, "CREATE TABLE other (id bigint, note text, _epoch bigint)")
        with pytest.raises(IdentityError, match="ONCE-E208"):
            pair.write(orders(2), orders(11))
    assert [row[0] for row in rows(dsn, "target")] == [1]


@pytest.mark.parametrize("first", [{}, {"key": "id"}], ids=["append", "upsert"])
def test_a_deadlock_takes_back_both(dsn: str, first: dict[str, Any]) -> None:
    run(dsn, "CREATE TABLE other (id bigint PRIMARY KEY, note text)")
    with Pair(
        dsn,
        first={**first, "tuning": PostgresTuning(lock_timeout=1.0)},
        second={"key": "id", "tuning": PostgresTuning(lock_timeout=1.0)},
    ) as pair:
        pair.write(orders(1), orders(10))
        with locked(dsn, "other"), pytest.raises(Conflict):
            pair.write(orders(2), orders(10, note="newer"))
        pair.write(orders(2), orders(10, note="newer"))
    assert [row[0] for row in rows(dsn, "target")] == [1, 2]
    assert [row[1] for row in rows(dsn, "other")] == ["newer"]


@contextmanager
def locked(dsn: str, table: str) -> Iterator[None]:
    import psycopg

    with psycopg.connect(dsn) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield
        connection.rollback()


# ---- whoever comes next


class Hanging:
    """A ledger that falls silent when both heads are locked and nothing but the COMMIT is left to do."""

    address = "nowhere"

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def record(self, record: Any, connection: Any = None) -> None:
        self.reached.set()
        self.go_on.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("first_rows", [(1000,), ()], ids=["rows for both", "none for the first"])
@pytest.mark.parametrize("table", ["target", "other"])
def test_a_driver_that_holds_both_heads_is_ended_by_whoever_wants_either(
    dsn: str, table: str, first_rows: tuple[int, ...]
) -> None:
    """The session has the name of one of its sinks only; the other one's successor finds it by the row it keeps."""
    hanging, ended = Hanging(), []
    with Pair(dsn) as zombie:
        zombie.write(orders(1), orders(10))
        prepared = zombie.prepare(orders(*first_rows), orders(1001))

        def commits() -> None:
            try:
                zombie.commit(prepared, hanging)
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=commits)
        thread.start()
        assert hanging.reached.wait(30)
        with Writer(dsn, table, generation=2) as owner:
            assert owner.last is not None
            assert owner.last.number == 1
            owner.write(orders(50))
            hanging.go_on.set()
            thread.join(60)
            assert isinstance(ended[0], OutcomeUnknown), ended
            told = [zombie.looks_up(writer) for writer in zombie.writers]
            assert told == ([2, None] if table == "target" else [None, 2])
    held = {name: sorted(row[0] for row in rows(dsn, name)) for name in ("target", "other")}
    assert held == {"target": [1], "other": [10]} | {table: [*({"target": [1], "other": [10]}[table]), 50]}


@pytest.mark.parametrize("at", [0, 1])
def test_a_session_that_a_successor_ended_is_told_as_fenced_out_whichever_sink_he_has_reached(
    dsn: str, at: int
) -> None:
    with Pair(dsn) as zombie:
        zombie.write(orders(1), orders(10))
        one, other = zombie.writers
        prepared = one.prepare(orders(2))
        with Writer(dsn, ("target", "other")[at], generation=2):
            if at:
                ours = "application_name LIKE 'onceonly:%%:1:%%'"
                run(dsn, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
            with pytest.raises(Superseded):
                other.sink.prepare_joined(ArrowBatch(orders(11)), 2, [(one.sink, prepared)])
        prepared.abandon()


APART = {
    "another database": ({}, {"dsn": "dbname=other"}),
    "another login": ({}, {"dsn": "user=somebody"}),
    "another patience": ({"tuning": PostgresTuning(commit_timeout=3.0)}, {}),
    "another wait for locks": ({}, {"tuning": PostgresTuning(lock_timeout=3.0)}),
    "a function of the user's": ({}, {"apply": lambda cursor, staged, epoch: None}),
}


@pytest.mark.parametrize("apart", APART.values(), ids=[*APART])
def test_who_shares_no_transaction(apart: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = (
        PostgresSink(**{"dsn": "dbname=orders", "table": name, **said}) for name, said in zip("ab", apart, strict=True)
    )
    assert not one.can_join(other)
    assert not other.can_join(one)
    same = PostgresSink("dbname=orders", table="c")
    assert same.can_join(PostgresSink("dbname='orders'", table="d", key="id"))


def test_what_may_lie_in_memory() -> None:
    def holds(rows: int, size: int | None, **said: Any) -> bool:
        return PostgresSink("dbname=orders", table="a", **said).fits_in_driver(Estimate(rows, size))

    assert holds(10, 1000)
    assert not holds(10, None), "nobody knows how much that is"
    assert not holds(10, 1000, tuning=PostgresTuning(driver_limit=999))
    assert not holds(10, 1000, tuning=PostgresTuning(driver_limit=999, load="driver")), "it streams, and keeps nothing"
    assert not holds(10, 1000, tuning=PostgresTuning(load="executors"))


DSNS = ("postgresql://ann:se%20cret@db:5433/orders?options=-c%20search_path%3Da", "host=db dbname=orders user='an n'")


@pytest.mark.parametrize("dsn", DSNS)
def test_another_table_of_the_same_database_shares_its_transaction(dsn: str) -> None:
    pg = PostgresSink(dsn, table="orders", key="id", tuning=PostgresTuning(lock_timeout=7.0))
    bad = pg.table("orders_bad")
    assert bad.can_join(pg)
    assert bad.id == "postgres:orders_bad"
    assert bad.ledger_url == pg.ledger_url
    assert bad.capabilities.append_only
    assert not pg.table("orders_seen", tuning=PostgresTuning(commit_timeout=3.0)).can_join(pg)


def test_a_sink_of_another_kind_is_refused(dsn: str) -> None:
    with Pair(dsn) as pair, pytest.raises((TypeError, OnceOnlyError)):
        pair.writers[0].sink.prepare_joined(ArrowBatch(orders(1)), 1, [(object(), object())])  # type: ignore[list-item]
