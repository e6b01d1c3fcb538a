"""Batch of window results, state and late rows in memory.

It is the union of the outputs' rows. Each row has the structure of one output, and null in those of the others. So an
epoch with windows is staged, counted, healed and audited as any epoch with outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.row_times import RowTimes
from onceonly.spark import digest, frames
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest, OutputDigest, column_of
from onceonly_checkpoints.epoch_windows import EpochWindows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from onceonly.spark.batch import SparkBatch


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows of one output, with their digest as its sinks hold them, and the fingerprint of their columns."""

    name: str
    sinks: tuple[str, ...]
    rows: pa.Table
    digest: Digest
    schema: str


def part(name: str, sinks: Sequence[str], rows: pa.Table, session: SparkSession | None) -> OutputRows:
    """Count the rows of one output. ``rows`` have the types that Spark gives them in Arrow.

    ``session`` counts rows of columns that only Spark can hash. It is ``None`` without Spark.
    """
    return OutputRows(name, tuple(sinks), rows, digest_of(rows, session), fingerprint(rows.schema))


def digest_of(rows: pa.Table, session: SparkSession | None = None) -> Digest:
    """The digest of rows in Arrow, equal to Spark's digest of them.

    Raises:
        TypeError: only Spark can hash such columns, and there is no session.
    """
    hashing = digest.hashing(struct_of(rows.schema))
    if hashing:
        return sum((hashing(piece) for piece in rows.to_batches()), Digest(0))
    if session is None:
        raise TypeError(f"only Spark can hash rows of {rows.schema.names}")
    from pyspark.sql import functions as f

    df = frames.of_arrow(session, rows)
    hashed = df.select(digest.row_hash(df.schema).alias("hash"))
    counted = hashed.select(f.col("hash"), f.lit(1).alias("one")).agg(*digest.sums(f.col("hash"), f.col("one")))
    return digest.from_metrics(counted.collect()[0].asDict())


def fingerprint(schema: pa.Schema) -> str:
    """Of columns, equal to that of a plan with these columns."""
    return chain.fingerprint((field.name, field.dataType.simpleString()) for field in struct_of(schema).fields)


def struct_of(schema: pa.Schema) -> Any:
    """Spark's types of Arrow columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


class WindowResultBatch(ArrowBatch):
    """Rows of all outputs, in memory, with the values that the machine records.

    ``times`` are those of the aggregated rows, and of the user's function. The session of ``live``, the batch before
    aggregation, reads staged files. It is ``None`` without Spark.
    """

    def __init__(
        self, parts: Sequence[OutputRows], times: RowTimes, panes: EpochWindows, live: SparkBatch | None = None
    ) -> None:
        super().__init__(_union({column_of(part.name): part.rows for part in parts}), partitions=1)
        self._parts = tuple(parts)
        self._times = times
        self._panes = panes
        self._live = live

    def reread(self, paths: tuple[str, ...], schema: pa.Schema) -> Batch:
        """A batch over Parquet files of ``schema``.

        Raises:
            TypeError: there is no session that could read them.
        """
        if self._live is None:
            raise TypeError("there is no session that reads staged files")
        return self._live.reread(paths, schema)

    def digest(self) -> Digest:
        """Of the rows of all outputs."""
        return sum((part.digest for part in self._parts), Digest(0))

    def outputs(self) -> tuple[OutputDigest, ...]:
        """Outputs of the epoch. Each row is in one of them."""
        whole = self._table.num_rows
        return tuple(
            OutputDigest(part.name, part.sinks, part.schema, part.digest, whole - part.rows.num_rows)
            for part in self._parts
        )

    def times(self) -> RowTimes:
        """Times of the aggregated rows, and of the user's function."""
        return self._times

    def panes(self) -> EpochWindows:
        """State of the epoch's windows."""
        return self._panes

    def rows_of(self, name: str) -> pa.Table:
        """Rows of one output."""
        return next(part.rows for part in self._parts if part.name == name)


def _union(parts: Mapping[str, pa.Table]) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema([pa.field(name, pa.struct(list(rows.schema))) for name, rows in parts.items()])
    pieces: list[pa.Table] = []
    for name, rows in parts.items():
        if count := rows.num_rows:
            arrays = [_of(rows, field) if field.name == name else pa.nulls(count, field.type) for field in schema]
            pieces.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(pieces).combine_chunks() if pieces else schema.empty_table()


def _of(rows: pa.Table, field: pa.Field[Any]) -> pa.Array[Any]:
    import pyarrow as pa

    columns = [column.combine_chunks() for column in rows.columns]
    return pa.StructArray.from_arrays(columns, fields=list(field.type))
