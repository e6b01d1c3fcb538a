"""Broken sinks that commit rows and marker in two transactions, one right after the other: no sleeps, no luck needed.

Each is a port that somebody would write. They are caught by killing them.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from tests.sinks.tutorial import SQLiteSink

from onceonly.protocol import Batch, ReplacesRows
from onceonly.runtime.sink_refusals import refusal
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.postgres import PostgresSink


class SQLiteRowsFirst(SQLiteSink):
    """The rows in one transaction, the marker in a second."""

    def write(self, db: Any, rows: pa.Table, epoch: int) -> None:
        super().write(db, rows, epoch)
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")


class SQLiteMarkerFirst(SQLiteSink):
    """The marker in one transaction, the rows in a second."""

    def commit(self, prepared: Any, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(None, marker)
        if prepared:
            with self._transaction() as db:
                self.write(db, prepared.table, marker.epoch.number)
        return receipt


class SQLiteImplicitDdl(SQLiteSink):
    """As on a database where DDL commits: what comes after it is committed statement by statement."""

    def write(self, db: Any, rows: pa.Table, epoch: int) -> None:
        db.execute("COMMIT")
        super().write(db, rows, epoch)
        db.execute("BEGIN IMMEDIATE")


class SQLiteDdlInTheFirstEpoch(SQLiteSink):
    """As above, where the table is made only if it is not there."""

    def write(self, db: Any, rows: pa.Table, epoch: int) -> None:
        fresh = not self.columns(db, self.table)
        super().write(db, rows, epoch)
        if fresh:
            db.execute("COMMIT")
            db.execute("BEGIN IMMEDIATE")


class SQLiteReplacing(SQLiteSink, ReplacesRows):
    """Right: old rows leave in the transaction that brings new ones. The rows say their epoch in ``step``."""

    _gone: tuple[int, int] | None = None

    def cannot_replace(self, span: tuple[int, int]) -> str:
        with self._transaction() as db:
            return self._obstacle(db)

    def _obstacle(self, db: Any) -> str:
        [(writers,)] = db.execute("SELECT count(*) FROM onceonly_head").fetchall()
        return "another pipeline writes there, too" if writers > 1 else ""

    def prepare_replacement(self, batch: Batch, epoch: int, span: tuple[int, int]) -> Any:
        return self.prepare(batch, epoch)

    def commit(self, prepared: Any, marker: Marker, ledger: object = None) -> Receipt:
        self._gone = marker.epoch.replaces
        receipt: Receipt = super().commit(prepared, marker)
        return receipt

    def write(self, db: Any, rows: pa.Table, epoch: int) -> Any:
        if self._gone:
            if reason := self._obstacle(db):
                raise refusal(self.id, self.pipeline, reason)
            first, last = self._gone
            db.execute(f"DELETE FROM {self.table} WHERE step BETWEEN {first} AND {last}")
            self.cleared(db)
        return super().write(db, rows, epoch)

    def cleared(self, db: Any) -> None:
        """Between the old rows and the new ones."""


class SQLiteDeletesFirst(SQLiteReplacing):
    """Old rows leave in one transaction, new ones come in a second."""

    def cleared(self, db: Any) -> None:
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")


class _Held:
    def __init__(self, table: pa.Table) -> None:
        self.table, self.rows = table, table.num_rows

    def abandon(self) -> None:
        pass


class _PostgresTorn(PostgresSink):
    """Rows wait in memory; the marker goes the way of the real sink, the rows go another."""

    def __init__(self, dsn: str, table: str, **options: Any) -> None:
        super().__init__(dsn, table, **options)
        self._torn_dsn, self._torn_table = dsn, sql.Identifier(table)

    def prepare(self, batch: Batch, epoch: int) -> Any:
        return _Held(pa.Table.from_batches(list(batch.arrow()), batch.schema))

    def _puts(self, table: pa.Table, *, autocommit: bool = False) -> None:
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id bigint, step bigint, note text)").format(self._torn_table)
        insert = sql.SQL("INSERT INTO {} (id, step, note) VALUES (%s, %s, %s)").format(self._torn_table)
        with closing(psycopg.connect(self._torn_dsn, autocommit=autocommit)) as connection:
            connection.execute(create)
            for row in table.to_pylist():
                connection.execute(insert, [row["id"], row["step"], row["note"]])
            connection.commit()


class PostgresRowsFirst(_PostgresTorn):
    """The rows in one transaction, the marker in a second."""

    def commit(self, prepared: Any, marker: Marker, ledger: Any = None) -> Receipt:
        self.position(None)
        if prepared:
            self._puts(prepared.table)
        return super().commit(None, marker)


class PostgresMarkerFirst(_PostgresTorn):
    """The marker in one transaction, the rows in a second."""

    def commit(self, prepared: Any, marker: Marker, ledger: Any = None) -> Receipt:
        receipt = super().commit(None, marker)
        if prepared:
            self._puts(prepared.table)
        return receipt


class PostgresImplicitDdl(_PostgresTorn):
    """As on a database where DDL commits: what comes after it is committed statement by statement."""

    def commit(self, prepared: Any, marker: Marker, ledger: Any = None) -> Receipt:
        self.position(None)
        if prepared:
            self._puts(prepared.table, autocommit=True)
        return super().commit(None, marker)


class PostgresDeletesFirst(PostgresSink):
    """Old rows leave in one transaction, new ones come in a second."""

    def __init__(self, dsn: str, table: str, **options: Any) -> None:
        super().__init__(dsn, table, **options)
        self._torn_dsn, self._torn_table = dsn, sql.Identifier(table)

    def prepare_replacement(self, batch: Batch, epoch: int, span: tuple[int, int]) -> Any:
        # The real one deletes here, in the transaction of the rows: a second one would wait for its end for ever.
        return self.prepare(batch, epoch)

    def commit(self, prepared: Any, marker: Marker, ledger: Any = None) -> Receipt:
        self.position(None)
        if marker.epoch.replaces:
            delete = sql.SQL("DELETE FROM {} WHERE step BETWEEN %s AND %s").format(self._torn_table)
            with closing(psycopg.connect(self._torn_dsn)) as connection:
                connection.execute(delete, marker.epoch.replaces)
                connection.commit()
        return super().commit(prepared, marker)


ANY_MOMENT = "a_driver_killed_while_it_commits_leaves_its_epoch_or_nothing"
FIRST_COMMIT = "a_driver_killed_in_its_first_commit_leaves_its_epoch_or_nothing"
STATEMENTS = "a_driver_killed_between_two_statements_leaves_its_epoch_or_nothing"
REPLACING = "a_driver_killed_while_it_replaces_leaves_all_old_rows_or_all_new_ones"
REPLACING_STATEMENTS = "a_driver_killed_between_two_statements_of_a_replacement_leaves_all_old_rows_or_all_new_ones"

TORN: dict[type[Any], frozenset[str]] = {
    SQLiteRowsFirst: frozenset({ANY_MOMENT, FIRST_COMMIT}),
    SQLiteMarkerFirst: frozenset({ANY_MOMENT, FIRST_COMMIT}),
    SQLiteImplicitDdl: frozenset({ANY_MOMENT, FIRST_COMMIT}),
    SQLiteDdlInTheFirstEpoch: frozenset({FIRST_COMMIT}),
    SQLiteDeletesFirst: frozenset({REPLACING}),
    PostgresRowsFirst: frozenset({ANY_MOMENT, FIRST_COMMIT, STATEMENTS}),
    PostgresMarkerFirst: frozenset({ANY_MOMENT, FIRST_COMMIT, STATEMENTS}),
    PostgresImplicitDdl: frozenset({ANY_MOMENT, FIRST_COMMIT, STATEMENTS}),
    PostgresDeletesFirst: frozenset({REPLACING, REPLACING_STATEMENTS}),
}
"""The claims that catch each of them, every time."""
