"""A table of a Postgres as the suite sees it: read and maintained without the sink."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import dict_row, scalar_row
from tests.sinks.flat_options import postgres_sink
from tests.sinks.memory_harness import with_column

from onceonly.protocol import Batch
from onceonly_lab.conformance import NotTested, SinkHarness, Wire
from onceonly_lab.conformance.type_table import Case, Cell, Kind
from onceonly_lab.servers.postgresproxy import COMMIT, PostgresProxy
from onceonly_lab.servers.proxy import Act
from onceonly_sinks.postgres import PostgresSink

_numbers = itertools.count(1)


_DEADLOCK = """
CREATE OR REPLACE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM pg_advisory_xact_lock(2); PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER deadlock AFTER INSERT ON {} DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION deadlock();
"""


class PostgresWire:
    """A proxy before the server that holds single statements."""

    def __init__(self, proxy: PostgresProxy, connect: Callable[[], PostgresSink]) -> None:
        self._proxy = proxy
        self.connect = connect

    def hold(self, number: int, call: Callable[[], object]) -> Callable[[], None]:
        return self._hold("", number, call)

    def hold_commit(self, call: Callable[[], object]) -> Callable[[], None]:
        return self._hold(COMMIT, 1, call)

    def _hold(self, statement: str, number: int, call: Callable[[], object]) -> Callable[[], None]:
        rule = self._proxy.rule(Act.HOLD_REQUEST, statement, times=1, skip=number - 1, call=lambda _: call())

        def lets_go() -> None:
            self._proxy.remove(rule)
            rule.release()

        return lets_go


_ANSWERS = frozenset(
    {
        "content_epoch",
        "total",
        "identity_now",
        "window_store",
        "place",
        "examine",
        "pipelines",
        "newest_markers",
    }
)


class PostgresHarness(SinkHarness):
    """One table, under a name of its own, in a shared database."""

    # At all moments it is killed by test_conformance_kills.py.
    moments = 16

    def __init__(self, dsn: str, *, sink: type[PostgresSink] = PostgresSink, **options: Any) -> None:
        self._dsn = dsn
        self._sink = sink
        self._table = f"target_{next(_numbers)}"
        self._options = options
        self.answers = _ANSWERS | (set() if options else {"read_by_epoch", "seen_ids_store"})

    def connect(self) -> PostgresSink:
        return postgres_sink(self._dsn, self._table, self._sink, **self._options)

    def another(self) -> SinkHarness:
        return type(self)(self._dsn, sink=self._sink, **self._options)

    def values(self) -> list[Any]:
        if set(self._options) - {"load"}:
            raise NotTested("The table wants other columns than the one of the type table.")
        with closing(psycopg.connect(self._dsn, row_factory=scalar_row, options="-c timezone=UTC")) as connection:
            if not self._exists(connection, self._table):
                return []
            return connection.execute(sql.SQL("SELECT value FROM {}").format(self._name)).fetchall()

    def cell(self, kind: Kind, case: Case) -> Cell:
        return kind.cell("postgres", case)

    def forbid(self) -> str:
        self._runs("ALTER TABLE {} ADD CONSTRAINT allowed CHECK (note <> 'forbidden') NOT VALID")
        return "forbidden"

    def forbid_by_rule(self) -> str:
        self._runs("ALTER TABLE {} ALTER note TYPE varchar(20)")
        return "x" * 21

    def replace(self) -> bool:
        try:
            self._runs("DROP TABLE {}")
        except psycopg.errors.LockNotAvailable:
            return False
        self._runs("CREATE TABLE {} (id bigint PRIMARY KEY, step bigint, note text, _epoch bigint)")
        return True

    def set_back(self, epoch: int) -> int:
        self._runs("DROP TABLE {}")
        return 0

    def intrude(self, table: pa.Table) -> None:
        insert = sql.SQL("INSERT INTO {} (id, step, note) VALUES (%(id)s, %(step)s, %(note)s)").format(self._name)
        with closing(psycopg.connect(self._dsn)) as connection:
            connection.cursor().executemany(insert, table.to_pylist())
            connection.commit()

    @contextmanager
    def locked(self) -> Iterator[None]:
        with closing(psycopg.connect(self._dsn)) as connection:
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(self._name))
            yield

    @contextmanager
    def deadlocked(self) -> Iterator[None]:
        """A deferred trigger has the COMMIT wait for one lock while it holds another; a session wants both, too."""
        self._runs(_DEADLOCK, autocommit=True)
        with closing(psycopg.connect(self._dsn, autocommit=False)) as other:
            other.execute("SET deadlock_timeout = '60s'")
            other.execute("SELECT pg_advisory_xact_lock(1)")
            with ThreadPoolExecutor(1) as pool:
                crossing = pool.submit(self._crosses, other)
                yield
                crossing.result(30)
        self._runs("DROP TRIGGER deadlock ON {}")

    def _crosses(self, other: psycopg.Connection[Any]) -> None:
        """Once somebody waits for the lock that this session has, want the one that somebody has."""
        with closing(psycopg.connect(self._dsn, autocommit=True)) as watch:
            for _ in range(2000):
                waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                if watch.execute(waits).fetchone() != (0,):
                    break
                time.sleep(0.005)
        other.execute("SELECT pg_advisory_xact_lock(2)")
        other.rollback()

    @property
    def _name(self) -> sql.Identifier:
        return sql.Identifier(self._table)

    def _runs(self, statement: LiteralString, *, autocommit: bool = True) -> None:
        with closing(psycopg.connect(self._dsn, autocommit=autocommit, options="-c lock_timeout=2s")) as connection:
            connection.execute(sql.SQL(statement).format(self._name))

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        parts = urlsplit(self._dsn)
        with PostgresProxy((parts.hostname or "", parts.port or 5432)) as proxy:
            address = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}"))
            yield PostgresWire(proxy, lambda: postgres_sink(address, self._table, self._sink, **self._options))

    def rows(self) -> list[dict[str, Any]]:
        with closing(psycopg.connect(self._dsn, row_factory=dict_row)) as connection:
            if not self._exists(connection, self._table):
                return []
            query = sql.SQL("SELECT id, step, note FROM {}").format(sql.Identifier(self._table))
            return connection.execute(query).fetchall()

    def maintain(self) -> None:
        with closing(psycopg.connect(self._dsn, autocommit=True)) as connection:
            connection.execute("SET lock_timeout = '20s'")
            for table in (self._table, "onceonly.head", "onceonly.epoch"):
                if self._exists(connection, table):
                    name = sql.Identifier(*table.split("."))
                    connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(name))
            connection.execute("CHECKPOINT")

    @staticmethod
    def _exists(connection: psycopg.Connection[Any], table: str) -> bool:
        cursor = psycopg.Cursor(connection, row_factory=scalar_row)
        return bool(cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone())


def _insert(cursor: psycopg.Cursor[Any], staged: Any, epoch: int, *, into: str) -> None:
    target = sql.Identifier(into)
    create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id bigint PRIMARY KEY, step bigint, note text)")
    cursor.execute(create.format(target))
    cursor.execute(sql.SQL("INSERT INTO {} SELECT * FROM {}").format(target, staged))


class AppliedHarness(PostgresHarness):
    """The rows are brought by a function of the user's."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(dsn, **options)
        self.answers = _ANSWERS

    def connect(self) -> PostgresSink:
        apply = partial(_insert, into=self._table)
        return postgres_sink(self._dsn, self._table, self._sink, apply=apply, **self._options)

    def set_back(self, epoch: int) -> int:
        raise NotTested("What a function of the user's has written, the sink does not know.")

    def forbid_by_rule(self) -> str:
        raise NotTested("The user's function decides what becomes of a row, so the table's columns give no rule.")

    def values(self) -> list[Any]:
        raise NotTested("The user's function decides what becomes of a value.")


class DeletingHarness(PostgresHarness):
    """Every row says that it stays."""

    def batch(self, table: pa.Table, **how: bool) -> Batch:
        return super().batch(with_column(table, "gone"), **how)


class NarrowHarness(PostgresHarness):
    """The table lacks a column of the rows, and any epoch may be the first to add it."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(dsn, **{"schema": "add_columns", **options})
        self._makes()

    def _makes(self) -> None:
        self._runs("CREATE TABLE {} (id bigint, step bigint, _epoch bigint)")

    def set_back(self, epoch: int) -> int:
        at = super().set_back(epoch)
        self._makes()
        return at

    def intrude(self, table: pa.Table) -> None:
        # Who adds rows by hand has added the column for them.
        self._runs("ALTER TABLE {} ADD COLUMN IF NOT EXISTS note text")
        super().intrude(table)

    def rows(self) -> list[dict[str, Any]]:
        with closing(psycopg.connect(self._dsn, row_factory=dict_row)) as connection:
            query = sql.SQL("SELECT id, step, to_jsonb(t) ->> 'note' AS note FROM {} t")
            return connection.execute(query.format(sql.Identifier(self._table))).fetchall()
