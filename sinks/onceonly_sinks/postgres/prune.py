"""Delete old epoch rows under our fence, and read appends back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.errors import mask
from onceonly.protocol import EPOCH, PrunedEpochs
from onceonly.spark.digest import quote as spark_quote
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.postgres import errors, head
from onceonly_sinks.postgres.head import SPELLED, PostgresHeadScope
from onceonly_sinks.postgres.schema import Column, Table
from onceonly_sinks.postgres.server import Server, quote
from onceonly_sinks.postgres.transaction import Transactions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Connection


# ---- Old epoch rows go, under our fence, and leave one row that says what they were: ``onceonly.pruned``.

log = logging.getLogger(__name__)

MARKERS = 1000
"""Epoch rows that are kept."""

FEWEST = 200
"""Fewer than these are never kept: an opening compares what a checkpoint may fall back to."""

EVERY = 256
"""Epochs between two looks."""

_AT_ONCE = 5000
_BELOW_LEDGER = 100
"""As many batches as Spark keeps in a checkpoint, unless ``minBatchesToRetain`` says otherwise."""

_LOCK_SECONDS = 2.0


def due(epoch: int) -> bool:
    """Whether to prune after this epoch."""
    return epoch % EVERY == 0


def last_to_go(newest: int, kept: int, recorded: int) -> int:
    """The newest epoch whose row may be deleted, 0 for none.

    An opening needs the newest marker, those above the ledger's head, and below it as many as an engine's checkpoint
    can fall back. So those stay. ``recorded`` is the newest epoch that the ledger is known to have, 0 for none.
    """
    return max(0, min(newest - kept, recorded - _BELOW_LEDGER))


def prune(transactions: Transactions, writer: PostgresHeadScope, fence: Fence, upto: int) -> None:
    """Delete the oldest epoch rows, a limited number at once, in a transaction of its own.

    Nothing depends on its commit: the next prune deletes the rest. A failure is logged and not raised, as the epoch
    before is already committed.
    """
    if upto < 1:
        return
    try:
        _prune(transactions, writer, fence, upto)
    except Exception as error:  # noqa: BLE001  the caller's commit has landed
        failure = errors.read(error)
        reason = failure.reason if failure else mask(f"{type(error).__name__}: {error}")
        log.warning("%s: old epoch rows are left to the next time: %s", writer.sink, reason)


def _prune(transactions: Transactions, writer: PostgresHeadScope, fence: Fence, upto: int) -> None:
    connection = transactions.begin(writer.session(fence), _LOCK_SECONDS)
    try:
        with transactions.answering(connection):
            standing = head.read(connection, writer, lock="FOR SHARE")
            if standing is None or standing.fence != fence:
                return
            rows = connection.exec_driver_sql(head.FORGET, {**writer.parameters, "upto": upto, "limit": _AT_ONCE}).all()
            if rows:
                connection.exec_driver_sql(head.REMEMBER, {**writer.parameters, **_found(rows, writer.sink)})
                connection.commit()
    finally:
        transactions.drop(connection)


def _found(rows: Sequence[Any], sink: str) -> dict[str, Any]:
    """Sum up rows of ``onceonly.epoch`` (epoch, chain, rows, marker) for a milestone."""
    markers = {epoch: Marker.from_json(json.loads(text)) for epoch, _, _, text in rows}
    accepted = max((epoch for epoch, marker in markers.items() if marker.epoch.accepts(sink)), default=0)
    # Of rows that a full refresh has replaced none is there to be counted.
    accepted = max([accepted, *(epoch - 1 for epoch, marker in markers.items() if marker.epoch.replaces)])
    newest = max(rows, key=lambda row: int(row[0]))
    after = sum(count for epoch, _, count, _ in rows if epoch > accepted)
    return {"epoch": newest[0], "chain": newest[1], "rows": after, "accepted": accepted}


def milestone(connection: Connection, writer: PostgresHeadScope) -> PrunedEpochs | None:
    """Summary of the deleted epoch rows, or ``None`` if none are."""
    if not head.exists(connection):
        return None
    row = connection.exec_driver_sql(head.MILESTONE, writer.parameters).one_or_none()
    return PrunedEpochs(*row) if row else None


# ---- The rows of an append, in the types they came in: read by tasks, a range of epochs each.

_PAGE = 5000

_SPARK: Mapping[str, str] = {
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "text": "string",
    "varchar": "string",
    "bytea": "binary",
    "bool": "boolean",
    "date": "date",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
}
"""Types of Postgres whose values come back as they went in, with Spark's names of them."""


def spark_type(column: Column) -> str | None:
    """Spark's type of a column whose values come back as they went in, or ``None`` for any other."""
    if column.array:
        return None
    if column.type == "numeric" and column.modifier > 0:
        precision, scale = digits(column)
        return f"decimal({precision},{scale})"
    return _SPARK.get(column.type)


def digits(column: Column) -> tuple[int, int]:
    """Precision and scale of a numeric column that has both."""
    return (column.modifier - 4) >> 16 & 0xFFFF, (column.modifier - 4) & 0xFFFF


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads the rows of ranges of epochs in a task. It can be pickled.

    ``server`` is as executors reach it, with its secrets. ``query`` selects the columns of the schema, for parameters
    ``first`` and ``last``.
    """

    server: Server
    query: str

    def __call__(self, ranges: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of each range, page by page. A range is a first and a last number."""
        import pyarrow as pa

        for batch in ranges:
            for first, last in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for rows in self._pages(first, last):
                    columns = zip(*rows, strict=True)
                    arrays = [pa.array(list(c), field.type) for c, field in zip(columns, schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _pages(self, first: int, last: int) -> Iterator[list[tuple[Any, ...]]]:
        # A cursor with a name lies on the server: without one, all rows come at once, into the memory of an executor.
        with self.server.connect() as connection, connection.cursor("onceonly_read_back") as cursor:
            connection.execute(f"SELECT {SPELLED}".encode())
            cursor.execute(self.query.encode(), {"first": first, "last": last})
            while rows := cursor.fetchmany(_PAGE):
                yield rows


def read_back(connection: Connection, server: Server, table: Table, spark: SparkSession) -> DataFrame | None:
    """The rows with an epoch, then their epoch, or ``None`` if a type would come back as another one.

    ``server`` is as executors reach it, with its secrets. ``table`` must have an epoch column.
    """
    assert table.epoch_column is not None
    columns = [column for column in table.columns if column.name != table.epoch_column]
    kinds = [spark_type(column) for column in columns]
    if None in kinds:
        return None
    epoch = quote(table.epoch_column)
    ends = connection.exec_driver_sql(f"SELECT min({epoch}), max({epoch}) FROM {table.name.sql}").one()
    listed = ", ".join(quote(column.name) for column in columns)
    query = f"SELECT {listed}, {epoch} FROM {table.name.sql} WHERE {epoch} BETWEEN %(first)s AND %(last)s"
    named = [*((column.name, kind) for column, kind in zip(columns, kinds, strict=True)), (EPOCH, "bigint")]
    ddl = ", ".join(f"{spark_quote(name)} {kind}" for name, kind in named)
    spans = ranges(ends[0], ends[1], spark.sparkContext.defaultParallelism)
    asked = spark.createDataFrame(spans, "first bigint, last bigint")
    return asked.mapInArrow(partial(RangeReader(server, query), schema=arrow_of(spark, ddl)), ddl)


def arrow_of(spark: SparkSession, ddl: str) -> pa.Schema:
    """The Arrow schema of columns, given as Spark's DDL."""
    from onceonly.spark.frames import arrow_schema

    return arrow_schema(spark.createDataFrame([], ddl))


def ranges(first: int | None, last: int | None, parts: int) -> Sequence[tuple[int, int]]:
    """Cut epochs into ranges of about the same length, one per task."""
    if first is None or last is None:
        return []
    step = max(1, -(-(last - first + 1) // parts))
    return [(start, min(start + step - 1, last)) for start in range(first, last + 1, step)]
