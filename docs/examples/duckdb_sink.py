"""A sink of one's own: appends to a table of a DuckDB file, and a replay doubles nothing there either.

python docs/examples/duckdb_sink.py
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from local import forget_last_commit, read, receive, run, session, work_folder
from pyspark.sql import SparkSession

from onceonly import exactly_once
from onceonly_sinks.sql import Database, Failure, SqlSink, Tables, quote

PATIENCE = 30.0
WRITERS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


def opened(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a file once no other process has it open: DuckDB lets one in at a time, and says no to the others."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return duckdb.connect(str(path))
        except (duckdb.IOException, duckdb.OperationalError):
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


class Connection:
    """A connection that is its only cursor: DuckDB's own cursors are connections of their own."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self.writer = WRITERS[path.resolve()]
        self.writes = False
        self.db = opened(path)
        self.rowcount = -1
        self._rows: list[tuple[Any, ...]] = []

    def cursor(self) -> Connection:
        """Itself: all statements are in one transaction."""
        return self

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Connection:
        """Run one statement; the one that begins waits for its turn."""
        if sql == DuckDBSink.begin:
            self._begin()
        self.db.execute(sql, parameters)
        self.rowcount, self._rows = self.db.rowcount, self.db.fetchall()
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or ``None``."""
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that are left."""
        rows, self._rows = self._rows, []
        return rows

    def _begin(self) -> None:
        """Wait until nobody else writes: DuckDB would not wait, but refuse the second one of two changes."""
        if not self.writer.acquire(timeout=PATIENCE):
            raise duckdb.OperationalError("another writer did not come to an end")
        self.writes = True

    def close(self) -> None:
        """End the transaction, and let the next one in."""
        self.db.close()
        if self.writes:
            self.writes = False
            self.writer.release()


class DuckDBSink(SqlSink):
    """Appends to one table of a DuckDB file. It is open only during a transaction: others can read."""

    kind = "duckdb"
    paramstyle = "dollar"
    tables = Tables(now="now()")  # where a row is updated DuckDB takes CURRENT_TIMESTAMP for a column
    errors = (duckdb.Error,)
    cause = "DuckDB says so: the file, its disk, or a constraint of the table"

    def connect(self) -> Connection:
        """Open the file; it is closed behind each transaction."""
        return Connection(Path(self.where))

    def columns(self, db: Database, table: str) -> Sequence[str]:
        """Ask the catalogue."""
        sql = "SELECT column_name FROM duckdb_columns() WHERE table_name = %(table)s"
        return [name for (name,) in db.execute(sql, {"table": table}).fetchall()]

    def type_of(self, field: pa.Field[Any]) -> str:
        """DuckDB's own type for an Arrow type."""
        return str(duckdb.from_arrow(pa.schema([field]).empty_table()).types[0])

    def write(self, db: Database, rows: pa.Table, epoch: int) -> int:
        """Insert the rows as Arrow, all at once; DuckDB counts them."""
        self.fit(db, rows.schema)
        sql = f"INSERT INTO {quote(self.table)} BY NAME SELECT *, %(epoch)s AS {quote(self.epoch_column)} FROM incoming"
        db.connection.db.register("incoming", rows)
        return int(db.execute(sql, {"epoch": epoch}).rowcount)

    def read(self, error: Exception) -> Failure | None:
        """A conflict or a row that is refused ends the transaction; anything else is looked up."""
        if isinstance(error, duckdb.TransactionException):
            conflict = "conflict" in str(error).lower()  # another writer was first, and ours was taken back
            return Failure(type(error).__name__, transaction_is_over=conflict, conflicts=conflict)
        if isinstance(error, (duckdb.DataError, duckdb.IntegrityError)):
            return Failure(type(error).__name__, transaction_is_over=True, quotes=True)
        return Failure(type(error).__name__) if isinstance(error, duckdb.Error) else None


def main(spark: SparkSession, work: Path) -> None:
    """Write two files, lose Spark's note of the second batch, which is offered again and skipped; write a third."""
    inbox, file, checkpoint = work / "in", work / "shop.duckdb", work / "checkpoint"
    receive(inbox, "1", {"id": 1, "item": "pen"}, {"id": 2, "item": "ink"})
    receive(inbox, "2", {"id": 3, "item": "pad"})
    run(read(spark, inbox), exactly_once(DuckDBSink(file, "orders")), checkpoint)

    forget_last_commit(checkpoint)
    receive(inbox, "3", {"id": 4, "item": "cap"})
    run(read(spark, inbox), exactly_once(DuckDBSink(file, "orders")), checkpoint)

    with opened(file) as db:
        found = db.execute("SELECT id, item FROM orders ORDER BY id").fetchall()
    assert found == [(1, "pen"), (2, "ink"), (3, "pad"), (4, "cap")]


if __name__ == "__main__":
    main(session(), work_folder())
