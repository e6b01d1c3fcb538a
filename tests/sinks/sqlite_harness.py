"""The tutorial's target with all that can happen to a file of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from tests.sinks.tutorial import SQLiteHarness, SQLiteSink

_TRIGGER = """CREATE TRIGGER allowed BEFORE INSERT ON orders WHEN NEW.note = 'forbidden'
BEGIN SELECT RAISE(ABORT, 'not allowed'); END"""


class WholeSQLiteHarness(SQLiteHarness):
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

    def replace(self) -> bool:
        self._path.unlink()
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
