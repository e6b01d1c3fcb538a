"""The tutorial's target with all that can happen to a file of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
from tests.sinks.tutorial import SQLiteHarness, SQLiteSink

from onceonly.protocol import HasConstraints
from onceonly.protocol.row_rules import Condition, Rule

_TRIGGER = """CREATE TRIGGER allowed BEFORE INSERT ON orders WHEN NEW.note = 'forbidden'
BEGIN SELECT RAISE(ABORT, 'not allowed'); END"""


def in_sqlite(conditions: Sequence[Condition], rows: pa.Table) -> list[list[bool] | None]:
    """Evaluate conditions that mean the same in SQLite as in Spark."""
    names = ", ".join(rows.column_names)
    values = ", ".join(f":{name}" for name in rows.column_names)
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE TABLE rows ({names})")
        db.executemany(f"INSERT INTO rows VALUES ({values})", rows.to_pylist())
        queries = (f"SELECT coalesce({condition.sql}, false) FROM rows" for condition in conditions)
        return [[bool(met) for (met,) in db.execute(query)] for query in queries]


class RuledSQLiteSink(SQLiteSink, HasConstraints):
    """Knows what the trigger refuses."""

    more: Sequence[Any] = ()
    """Further rules."""

    def row_rules(self, columns: pa.Schema) -> Sequence[Rule | Condition]:
        return (Condition("allowed", "note <> 'forbidden'"), *self.more)


class WholeSQLiteHarness(SQLiteHarness):
    answers = frozenset({"identity_now", "place", "pipelines"})
    moments = 40  # the page itself has it killed at all of them

    def __init__(self, sink: type[Any] = SQLiteSink) -> None:
        super().__init__()
        self._sink = sink

    def connect(self) -> Any:
        return self._sink(self._path, "orders")

    def another(self) -> WholeSQLiteHarness:
        return WholeSQLiteHarness(self._sink)

    def forbid(self) -> str:
        with closing(sqlite3.connect(self._path)) as db:
            db.execute(_TRIGGER)
        return "forbidden"

    def evaluate(self, conditions: Sequence[Condition], rows: pa.Table) -> list[list[bool] | None]:
        return in_sqlite(conditions, rows)

    def replace(self) -> bool:
        self._path.unlink()
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
