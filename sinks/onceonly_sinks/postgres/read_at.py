"""Read a table as of an epoch, by its epoch column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceonly.protocol.capabilities import CHANGED, EPOCH, SIGN, EpochExpired, NotVersioned, Span, refuse_own
from onceonly.spark.digest import quote as spark_quote
from onceonly.spark.frames import arrow_schema, of_arrow
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.postgres import expiry, head, history
from onceonly_sinks.postgres.head import SPELLED
from onceonly_sinks.postgres.options import Options
from onceonly_sinks.postgres.schema import Column, Table
from onceonly_sinks.postgres.server import Server, quote
from onceonly_sinks.postgres.transaction import raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Connection

_PAGE = 5000
_CHANGE_COLUMNS = ((CHANGED, "int8"), (SIGN, "int2"))
_RESTORED = "the database was restored to an earlier state"


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects rows of a relation.

    Attributes:
        relation: quoted name.
        number: quoted name of the column with the epoch's number, empty to select all rows.
        first: the lowest number. Rows without one count as 0.
        is_current: condition of rows that are current at that epoch, empty if all rows of these numbers are.
    """

    relation: str
    columns: Sequence[Column]
    number: str = ""
    first: int = 0
    last: int = 0
    is_current: str = ""

    @property
    def sql(self) -> str:
        """The statement without placeholders, for other clients."""
        where = f" WHERE {self._where}" if self.number else ""
        return f"SELECT {', '.join(quote(column.name) for column in self.columns)} FROM {self.relation}{where}".replace(
            "%%", "%"
        )

    @property
    def _where(self) -> str:
        if self.first:
            within = f"{self.number} BETWEEN {self.first} AND {self.last}"
        else:
            within = f"{self.number} <= {self.last}"
        if self.is_current:
            return f"{within} AND {self.is_current}"
        return within if self.first else f"({within} OR {self.number} IS NULL)"

    @property
    def cast(self) -> str:
        """The same, with all types cast to text that would not come back unchanged."""
        listed = ", ".join(
            quote(column.name) if spark_type(column) else f"{quote(column.name)}::text" for column in self.columns
        )
        where = f" WHERE {self._where}" if self.number else ""
        return f"SELECT {listed} FROM {self.relation}{where}"

    @property
    def ranged(self) -> str:
        """The same for numbers from ``first`` to ``last``, which are parameters."""
        within = f"{self.number} BETWEEN %(first)s AND %(last)s"
        return f"{self.cast} AND ({within} OR (%(first)s <= 0 AND {self.number} IS NULL))"

    @property
    def ddl(self) -> str:
        """The columns in Spark's DDL."""
        return ", ".join(f"{spark_quote(column.name)} {spark_type(column) or 'string'}" for column in self.columns)


@dataclass(frozen=True, slots=True)
class CurrentTable:
    """A sink's current table. ``table`` is ``None`` if there is none."""

    table: Table | None
    table_identity: head.TableIdentity
    writer: head.PostgresHeadScope
    options: Options


def select(connection: Connection, sink: CurrentTable, at: Receipt, since: Receipt | None) -> Selection:
    """Select the rows that exist as of epoch ``at`` and came after epoch ``since``.

    ``connection`` is a transaction of one snapshot, in which the rows are read too. ``sink`` is as of that snapshot.
    Raises ``EpochExpired``: some of them are gone. Raises ``NotVersioned``: the table does not number or keep them.
    """
    table, head_row = _checked(connection, sink, at)
    writer, options = sink.writer, sink.options
    first = since.epoch + 1 if since else 0
    if options.merge.history:
        _remembered(connection, sink, table, at)
        condition = f"({quote(history.TO)} IS NULL OR {quote(history.TO)} > {at.epoch})"
        relation = history.name_of(table.name).sql
        return Selection(relation, table.columns, quote(history.FROM), first, at.epoch, condition)
    number = table.epoch_column if options.append else None
    if number is None:
        return _newest(table, options, head_row, at, since)
    _check_not_removed(connection, writer, at, since)
    return Selection(table.name.sql, table.columns, quote(number), first, at.epoch)


def _checked(connection: Connection, sink: CurrentTable, at: Receipt) -> tuple[Table, head.Head | None]:
    """Return the table that holds an epoch and those before it, and its head. Raises as :func:`select`."""
    table, writer, options = sink.table, sink.writer, sink.options
    if table is None or sink.table_identity.identity_now(at.identity) != at.identity:
        raise EpochExpired(
            "the table is another one than it was, or is gone", "it was dropped and made again, or moved"
        )
    head_row = head.read(connection, writer)
    if head_row is None or head_row.epoch < at.epoch:
        raise EpochExpired(f"the table is at epoch {head_row.epoch if head_row else 0}", _RESTORED)
    held = head.epoch_at(connection, writer, at.epoch)
    if held is not None and held[0].epoch.chain != at.chain:
        raise EpochExpired("the table holds another epoch under this number", _RESTORED)
    if options.apply is not None:
        raise NotVersioned("its rows are brought by a function of your own (apply=)", _BY_YOURSELF)
    if head.shared(connection, writer, table.oid):
        raise NotVersioned("another sink writes to the table, and numbers its rows there, too", _OWN_TABLE)
    return table, head_row


def read_changes(connection: Connection, sink: CurrentTable, at: Receipt, since: Receipt | None) -> pa.Table:
    """Read the versions that began and ended in later epochs, as of the transaction's snapshot.

    Rows from before the sink's first epoch have the number before it. Raises as :func:`select`.
    """
    table, _ = _checked(connection, sink, at)
    if since is not None:
        _checked(connection, sink, since)
    if not sink.options.merge.history:
        raise NotVersioned(_REPLACED, _KEEP)
    _, marker = head.newest_epoch(connection, sink.writer)
    before = dict(marker.epoch.sinks).get(sink.writer.sink, 1) - 1 if marker else 0
    after, span = since.epoch if since else before, history.history_span(connection, sink.writer, table)
    if span is None or not span[0] <= after <= at.epoch <= span[1]:
        raise _not_remembered(span)
    columns = [column for column in table.columns if column.name != table.epoch_column]
    refuse_own(column.name for column in columns)
    listed, name = ", ".join(quote(column.name) for column in columns), history.name_of(table.name).sql
    versions = (
        f"SELECT {listed}, {number} AS {CHANGED}, {sign}::int2 AS {SIGN} FROM {name} "
        f"WHERE {number} BETWEEN {after + 1 if since else before} AND {at.epoch}"
        for number, sign in ((quote(history.TO), -1), (quote(history.FROM), 1))
    )
    ours = [Column(column, kind, -1, False, True, False, True, kind) for column, kind in _CHANGE_COLUMNS]
    relation = f"({' UNION ALL '.join(versions)} ORDER BY {CHANGED}, {SIGN}) AS changes"
    return read(connection, Selection(relation, [*columns, *ours]))


def _remembered(connection: Connection, sink: CurrentTable, table: Table, at: Receipt) -> None:
    span = history.history_span(connection, sink.writer, table)
    if span is None or not span[0] <= at.epoch <= span[1]:
        raise _not_remembered(span)


def _not_remembered(span: Span | None) -> EpochExpired:
    reason = f"covers epochs {span[0]} to {span[1]}" if span is not None else "is not there yet"
    cause = "Keep(history=) was set after that epoch, or removed, or deletes older versions"
    return EpochExpired(f"the history of its rows {reason}", cause)


_BY_YOURSELF = "let the function write the epoch's number, which it gets, with its rows"
_OWN_TABLE = "write to a table of its own"
_REPLACED = "its rows are replaced, and only the newest are kept"
_KEEP = "PostgresSink(..., keep=Keep(history='all')) keeps what was replaced, from its next epoch on"


def _check_not_removed(
    connection: Connection, writer: head.PostgresHeadScope, at: Receipt, since: Receipt | None
) -> None:
    """Check that no rows of the selected epochs have left the table."""
    _, marker = head.newest_epoch(connection, writer)
    series = marker.epoch.series if marker else 1
    if at.epoch < series:
        raise EpochExpired(f"its rows were replaced by epoch {series}", "a full refresh replaced all rows")
    expired = expiry.expired(connection, writer)
    if expired is not None and (since is None or since.epoch < expired.epoch):
        reason = f"rows of epochs up to {expired.epoch} were removed after the time for which they are kept"
        raise EpochExpired(reason, "keep_for= removes older rows")


def _newest(
    table: Table, options: Options, head_row: head.Head | None, at: Receipt, since: Receipt | None
) -> Selection:
    upsert = bool(options.merge.key)
    reason = _REPLACED if upsert else "its rows carry no number of an epoch"
    option = "give its table an epoch column: ALTER TABLE ... ADD COLUMN _epoch bigint, before the next epoch"
    if upsert:
        option = _KEEP
    if since is not None:
        raise NotVersioned(f"{reason}: which are of later epochs is not known", option)
    if head_row is None or (head_row.epoch, head_row.chain) != (at.epoch, at.chain):
        raise NotVersioned(f"{reason}; it is at epoch {head_row.epoch if head_row else 0}", option, newest=True)
    return Selection(table.name.sql, table.columns)


def read(connection: Connection, selection: Selection) -> pa.Table:
    """Read the rows into this process, as of the transaction's snapshot."""
    schema = pa.schema([pa.field(column.name, _arrow_type(column)) for column in selection.columns])
    # A cursor with a name lies on the server: without one, all rows would be Python objects at once.
    with raw(connection).cursor("onceonly_read_at") as cursor:
        cursor.execute(selection.cast.encode(), {})
        return pa.Table.from_batches(list(_pages(cursor, schema)), schema=schema)


def _pages(cursor: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while rows := cursor.fetchmany(_PAGE):
        columns = zip(*rows, strict=True)
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def frame(spark: SparkSession, connection: Connection, server: Server, selection: Selection) -> DataFrame:
    """Read the rows by Spark: each task reads a range of epochs. Rows without numbers come through the driver.

    A task begins a transaction of its own. Rows that an epoch numbers are the same in each of them. Rows of a table
    that keeps only the newest ones are of one moment alone.
    """
    if not selection.number:
        return of_arrow(spark, read(connection, selection))
    reader = RangeReader(server.resolved(raw(connection)), selection.ranged)
    return reader.frame(spark, (selection.first, selection.last), selection.ddl)


def _arrow_type(column: Column) -> Any:
    if spark_type(column) is None:
        return pa.string()
    return pa.decimal128(*digits(column)) if column.type == "numeric" else _TYPES[column.type][1]


# ---- Rows of a table by the epoch that brought them: read without Spark, a page at a time.


_ROWS_AT_ONCE = 1000


def of(connection: Connection, table: Table, column: str, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of these epochs, oldest first, without the column that numbers them.

    ``connection`` only reads, and the rows stay on the server until they are fetched.
    """
    names = [table_column.name for table_column in table.columns if table_column.name != column]
    # The driver makes floats of the numbers in JSON: a quarantine keeps decimals there.
    json = {table_column.name for table_column in table.columns if table_column.type in ("json", "jsonb")}
    listed = ", ".join(quote(name) + ("::text" if name in json else "") for name in names)
    epoch = quote(column)
    query = f"SELECT {epoch}, {listed} FROM {table.name.sql} WHERE {epoch} BETWEEN %(first)s AND %(last)s"
    parameters = {"first": span[0], "last": span[1]}
    streamed = connection.execution_options(stream_results=True, max_row_buffer=_ROWS_AT_ONCE)
    for number, *values in streamed.exec_driver_sql(f"{query} ORDER BY {epoch}", parameters):
        yield number, dict(zip(names, values, strict=True))


# ---- The rows of an append, in the types they came in: read by tasks, a range of epochs each.

_TYPES: Mapping[str, tuple[str, Any]] = {
    "int2": ("smallint", pa.int16()),
    "int4": ("int", pa.int32()),
    "int8": ("bigint", pa.int64()),
    "float4": ("float", pa.float32()),
    "float8": ("double", pa.float64()),
    "text": ("string", pa.string()),
    "varchar": ("string", pa.string()),
    "bytea": ("binary", pa.binary()),
    "bool": ("boolean", pa.bool_()),
    "date": ("date", pa.date32()),
    "timestamptz": ("timestamp", pa.timestamp("us", tz="UTC")),
    "timestamp": ("timestamp_ntz", pa.timestamp("us")),
}
"""Types of Postgres whose values come back as they went in, with Spark's names of them and Arrow's types."""


def spark_type(column: Column) -> str | None:
    """Spark's type of a column whose values come back as they went in, or ``None`` for any other."""
    if column.array:
        return None
    if column.type == "numeric" and column.modifier > 0:
        precision, scale = digits(column)
        return f"decimal({precision},{scale})"
    return _TYPES[column.type][0] if column.type in _TYPES else None


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
        for batch in ranges:
            for first, last in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                # A cursor with a name lies on the server: without one, all rows come into the executor at once.
                with self.server.connect() as connection, connection.cursor("onceonly_read_back") as cursor:
                    connection.execute(f"SELECT {SPELLED}".encode())
                    cursor.execute(self.query.encode(), {"first": first, "last": last})
                    yield from _pages(cursor, schema)

    def frame(self, spark: SparkSession, span: tuple[int | None, int | None], ddl: str) -> DataFrame:
        """The rows of a span of epochs, a range of them by each task. ``ddl`` has the columns in Spark's DDL."""
        spans = ranges(*span, spark.sparkContext.defaultParallelism)
        span_frame = spark.createDataFrame(spans, "first bigint, last bigint")
        return span_frame.mapInArrow(partial(self, schema=arrow_schema(spark.createDataFrame([], ddl))), ddl)


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
    return RangeReader(server, query).frame(spark, (ends[0], ends[1]), ddl)


def ranges(first: int | None, last: int | None, parts: int) -> Sequence[tuple[int, int]]:
    """Cut epochs into ranges of about the same length, one per task."""
    if first is None or last is None:
        return []
    step = max(1, -(-(last - first + 1) // parts))
    return [(start, min(start + step - 1, last)) for start in range(first, last + 1, step)]
