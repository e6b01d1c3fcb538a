"""A driver of one Postgres sink, in the words of the tests."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from tests.sinks.epochs import epoch_after
from tests.sinks.flat_options import postgres_sink

from onceonly.protocol import Batch, Position
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_checkpoints.ledger import Ledger
from onceonly_sinks.postgres.load import PostgresPrepared

PIPELINE = "orders"


class Writer:
    """Opens a sink under a fence and writes epoch after epoch."""

    def __init__(self, dsn: str, table: str = "target", generation: int = 1, **options: Any) -> None:
        self.sink = postgres_sink(dsn, table, **options)
        self.fence = Fence(generation, f"owner-{generation}")
        try:
            self.last = self._opens()
        except BaseException:
            self.sink.close()
            raise

    def _opens(self) -> Epoch | None:
        self.sink.open(PIPELINE)
        self.sink.install(self.fence)
        marker = self.sink.position(None).marker
        return marker.epoch if marker else None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sink.close()

    def position(self, since: Receipt | None = None) -> Position:
        return self.sink.position(since)

    def marker(self, rows: int, adoption: str | None = None) -> Marker:
        """The marker of the epoch that comes next."""
        return Marker(PIPELINE, self.sink.id, self.fence, epoch_after(self.last, self.sink.id, rows, adoption))

    def prepare(self, batch: Batch | pa.Table) -> PostgresPrepared:
        batch = ArrowBatch(batch) if isinstance(batch, pa.Table) else batch
        return self.sink.prepare(batch, self.last.number + 1 if self.last else 1)

    def write(self, batch: Batch | pa.Table, ledger: Ledger | None = None) -> Receipt:
        """Prepare and commit the next epoch; what is refused is given up."""
        prepared = self.prepare(batch)
        try:
            return self.commit(prepared, ledger)
        finally:
            prepared.abandon()

    def commit(self, prepared: PostgresPrepared | None, ledger: Ledger | None = None) -> Receipt:
        marker = self.marker(prepared.rows if prepared else 0)
        receipt = self.sink.commit(prepared, marker, ledger)
        self.last = marker.epoch
        return receipt


def run(dsn: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement as somebody else would."""
    with closing(psycopg.connect(dsn, autocommit=True, prepare_threshold=None)) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def rows(dsn: str, table: str = "target", columns: str = "*") -> list[tuple[Any, ...]]:
    """All rows, in the order of their text."""
    with closing(psycopg.connect(dsn)) as connection:
        query = sql.SQL(f"SELECT {columns} FROM {{}} t ORDER BY t::text").format(sql.Identifier(table))  # type: ignore[arg-type]
        return connection.execute(query).fetchall()


def there(dsn: str, table: str = "target") -> bool:
    return bool(run(dsn, "SELECT to_regclass(%s) IS NOT NULL", f'"{table}"')[0][0])


def staged(dsn: str) -> list[str]:
    """Staging tables that are left."""
    found = run(dsn, "SELECT relname FROM pg_class WHERE relname LIKE 'stage\\_%' AND relkind = 'r' ORDER BY 1")
    return [name for (name,) in found]


def orders(*ids: int, note: str = "new") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array([note] * len(ids), pa.string())})
