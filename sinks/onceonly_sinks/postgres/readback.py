"""Brings the rows of an append back into Spark, in the types they came in: read by tasks, a range of epochs each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.digest import quote as spark_quote
from onceonly.protocol import EPOCH
from onceonly_sinks.postgres.schema import Column, Table
from onceonly_sinks.postgres.server import Server, quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Connection

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
    """Spark's type of a column whose values come back as they went in; ``None`` for any other."""
    if column.array:
        return None
    if column.type == "numeric" and column.modifier > 0:
        precision, scale = (column.modifier - 4) >> 16 & 0xFFFF, (column.modifier - 4) & 0xFFFF
        return f"decimal({precision},{scale})"
    return _SPARK.get(column.type)


@dataclass(frozen=True, slots=True)
class _Reader:
    """What a task reads; picklable."""

    server: Server
    query: str

    def __call__(self, ranges: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in ranges:
            for first, last in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for rows in self._pages(first, last):
                    columns = zip(*rows, strict=True)
                    arrays = [pa.array(list(c), field.type) for c, field in zip(columns, schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _pages(self, first: int, last: int) -> Iterator[list[tuple[Any, ...]]]:
        with self.server.connect() as connection, connection.cursor("onceonly_read_back") as cursor:
            cursor.execute(self.query.encode(), {"first": first, "last": last})
            while rows := cursor.fetchmany(_PAGE):
                yield rows


def read_back(connection: Connection, server: Server, table: Table, spark: SparkSession) -> DataFrame | None:
    """The rows with an epoch, then their epoch; ``None`` where a type would come back as another one.

    Args:
        connection: to ask for the epochs that there are.
        server: as executors reach it, with its secrets.
        table: with an epoch column.
        spark: what reads.
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
    ranges = _ranges(ends[0], ends[1], spark.sparkContext.defaultParallelism)
    asked = spark.createDataFrame(ranges, "first bigint, last bigint")
    return asked.mapInArrow(partial(_Reader(server, query), schema=_arrow(spark, ddl)), ddl)


def _arrow(spark: SparkSession, ddl: str) -> pa.Schema:
    from onceonly.frames import arrow_schema

    return arrow_schema(spark.createDataFrame([], ddl))


def _ranges(first: int | None, last: int | None, parts: int) -> Sequence[tuple[int, int]]:
    """Cut epochs into ranges of about the same length, one per task."""
    if first is None or last is None:
        return []
    step = max(1, -(-(last - first + 1) // parts))
    return [(start, min(start + step - 1, last)) for start in range(first, last + 1, step)]
