"""The base of SQL sinks over psycopg: a driver and a server that are not those of the tutorial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from tests.sinks.postgres_harness import PostgresHarness

from onceonly_lab.conformance import NotTested
from onceonly_sinks.sql import Database, Failure, SqlSink


class PsycopgSink(SqlSink):
    """The base over psycopg, with what a server wants: a lock that is taken by a read, types, and an oid."""

    kind = "psycopg"
    paramstyle = "pyformat"
    lock = "FOR UPDATE"
    errors = (psycopg.Error,)

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.where, autocommit=True, options="-c lock_timeout=2s")

    def columns(self, db: Database, table: str) -> Sequence[str]:
        query = """SELECT attname FROM pg_catalog.pg_attribute
                   WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
        return [name for (name,) in db.execute(query, {"table": table}).fetchall()]

    def create(self, db: Database) -> None:
        db.execute("SELECT pg_advisory_xact_lock(1)")  # CREATE TABLE IF NOT EXISTS fails where two run it at once
        super().create(db)

    def identity(self, db: Database) -> str:
        oid = db.execute("SELECT to_regclass(%(table)s)::oid", {"table": self.table}).fetchone()[0]
        return f"{super().identity(db)}/{oid}" if oid else ""

    def type_of(self, field: Any) -> str:
        return {"int64": "bigint", "string": "text"}[str(field.type)]

    def read(self, error: Exception) -> Failure | None:
        if not isinstance(error, psycopg.Error):
            return None
        state, severity = error.sqlstate or "", error.diag.severity_nonlocalized
        over = severity == "ERROR" and not state.startswith(("08", "40003"))
        return Failure(state or type(error).__name__, over, conflicts=state in ("40001", "40P01"), quotes=True)


class PsycopgHarness(PostgresHarness):
    def __init__(self, dsn: str, *, sink: Any = PsycopgSink, **options: Any) -> None:
        super().__init__(dsn, sink=sink, **options)
        self.answers = frozenset({"identity_now", "place", "pipelines"})

    def values(self) -> list[Any]:
        raise NotTested("The driver knows the types of a few columns.")
