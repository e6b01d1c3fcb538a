"""Read a table as of an epoch, by its epoch column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.protocol import EpochExpired, NotVersioned
from onceonly.protocol.capabilities import Span
from onceonly.spark.digest import quote as spark_quote
from onceonly.spark.frames import of_arrow
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.postgres import expiry, head, history
from onceonly_sinks.postgres.options import Options
from onceonly_sinks.postgres.prune import RangeReader, arrow_of, digits, ranges, spark_type
from onceonly_sinks.postgres.schema import Column, Table
from onceonly_sinks.postgres.server import Server, quote
from onceonly_sinks.postgres.transaction import raw

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Connection


_PAGE = 5000
_RESTORED = "the database was restored to an earlier state"


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects rows of a relation.

    Attributes:
        relation: quoted name.
        columns: those of the target.
        number: quoted name of the column with the epoch's number, empty to select all rows.
        first: the lowest number. Rows without one count as 0.
        standing: condition of rows that are current at that epoch, empty if all rows of these numbers are.
    """

    relation: str
    columns: Sequence[Column]
    number: str = ""
    first: int = 0
    last: int = 0
    standing: str = ""

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
        if self.standing:
            return f"{within} AND {self.standing}"
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
    """A sink's table as it stands.

    Attributes:
        table: as the catalogue shows it; ``None`` where there is none.
        here: what database and table are.
        writer: whose epochs are meant.
        options: of the sink.
    """

    table: Table | None
    here: head.TableIdentity
    writer: head.PostgresHeadScope
    options: Options


def select(connection: Connection, sink: CurrentTable, at: Receipt, since: Receipt | None) -> Selection:
    """Select the rows that exist as of epoch ``at`` and came after epoch ``since``.

    ``connection`` is a transaction of one snapshot, in which the rows are read too. ``sink`` is as of that snapshot.

    Raises:
        EpochExpired: some of them are gone.
        NotVersioned: the table does not number or keep them.
    """
    table, writer, options = sink.table, sink.writer, sink.options
    if table is None or sink.here.beside(at.identity) != at.identity:
        raise EpochExpired(
            "the table is another one than it was, or is gone", "it was dropped and made again, or moved"
        )
    found = head.read(connection, writer)
    _stands(connection, found, writer, at)
    if options.apply is not None:
        raise NotVersioned("its rows are brought by a function of your own (apply=)", _BY_YOURSELF)
    if head.shared(connection, writer, table.oid):
        raise NotVersioned("another sink writes to the table, and numbers its rows there, too", _OWN_TABLE)
    first = since.epoch + 1 if since else 0
    if options.merge.history:
        _remembered(connection, sink, table, at)
        standing = f"({quote(history.TO)} IS NULL OR {quote(history.TO)} > {at.epoch})"
        relation = history.name_of(table.name).sql
        return Selection(relation, table.columns, quote(history.FROM), first, at.epoch, standing)
    number = table.epoch_column if options.append else None
    if number is None:
        return _newest(table, options, found, at, since)
    _kept(connection, writer, at, since)
    return Selection(table.name.sql, table.columns, quote(number), first, at.epoch)


def _remembered(connection: Connection, sink: CurrentTable, table: Table, at: Receipt) -> None:
    kept = history.kept(connection, sink.writer, table)
    if kept is None or not kept[0] <= at.epoch <= kept[1]:
        said = f"tells epochs {kept[0]} to {kept[1]}" if kept is not None else "is not there yet"
        cause = "history=True was said after that epoch, or not any more; or keep_history= lets older versions go"
        raise EpochExpired(f"the history of its rows {said}", cause)


_BY_YOURSELF = "keep the epoch's number with what the function writes: it is handed to it"
_OWN_TABLE = "write to a table of its own"


def _stands(connection: Connection, found: head.Head | None, writer: head.PostgresHeadScope, at: Receipt) -> None:
    if found is None or found.epoch < at.epoch:
        raise EpochExpired(f"the table stands at epoch {found.epoch if found else 0}", _RESTORED)
    held = head.epoch_at(connection, writer, at.epoch)
    if held is not None and held[0].epoch.chain != at.chain:
        raise EpochExpired("the table holds another epoch under this number", _RESTORED)


def _kept(connection: Connection, writer: head.PostgresHeadScope, at: Receipt, since: Receipt | None) -> None:
    """Check that no rows of the selected epochs have left the table."""
    _, marker = head.newest_epoch(connection, writer)
    series = marker.epoch.series if marker else 1
    if at.epoch < series:
        raise EpochExpired(f"its rows were replaced by epoch {series}", "a full refresh computed everything anew")
    expired = expiry.expired(connection, writer)
    if expired is not None and (since is None or since.epoch < expired.epoch):
        reason = f"rows of epochs up to {expired.epoch} were removed after the time for which they are kept"
        raise EpochExpired(reason, "the sink was told to keep rows for a time")


def _newest(table: Table, options: Options, found: head.Head | None, at: Receipt, since: Receipt | None) -> Selection:
    """Select all rows, if the epoch is the newest one."""
    upsert = bool(options.merge.key)
    reason = "its rows are replaced, and only the newest are kept" if upsert else "its rows carry no number of an epoch"
    option = "give its table an epoch column: ALTER TABLE ... ADD COLUMN _epoch bigint, before the next epoch"
    if upsert:
        option = "PostgresSink(..., history=True) keeps what was replaced, from its next epoch on"
    if since is not None:
        raise NotVersioned(f"{reason}: which are of later epochs is not known", option)
    if found is None or (found.epoch, found.chain) != (at.epoch, at.chain):
        raise NotVersioned(f"{reason}; it stands at epoch {found.epoch if found else 0}", option, newest=True)
    return Selection(table.name.sql, table.columns)


def read(connection: Connection, meant: Selection) -> pa.Table:
    """Read the rows into this process, as of the transaction's snapshot."""
    import pyarrow as pa

    schema = pa.schema([pa.field(column.name, _arrow_type(column)) for column in meant.columns])
    batches: list[pa.RecordBatch] = []
    # A cursor with a name lies on the server: without one, all rows would be Python objects at once.
    with raw(connection).cursor("onceonly_read_at") as cursor:
        cursor.execute(meant.cast.encode(), {})
        while rows := cursor.fetchmany(_PAGE):
            columns = zip(*rows, strict=True)
            arrays = [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema=schema)


def frame(spark: SparkSession, connection: Connection, server: Server, meant: Selection) -> DataFrame:
    """Read the rows by Spark: each task reads a range of epochs. Rows without numbers come through the driver.

    A task begins a transaction of its own. Rows that an epoch numbers are the same in each of them. Rows of a table
    that keeps only the newest ones are of one moment alone.
    """
    if not meant.number:
        return of_arrow(spark, read(connection, meant))
    asked = spark.createDataFrame(
        ranges(meant.first, meant.last, spark.sparkContext.defaultParallelism), "first bigint, last bigint"
    )
    reader = RangeReader(server.resolved(raw(connection)), meant.ranged)
    return asked.mapInArrow(partial(reader, schema=arrow_of(spark, meant.ddl)), meant.ddl)


def _arrow_type(column: Column) -> Any:
    import pyarrow as pa

    kind = spark_type(column) or "string"
    if kind != "string" and column.type == "numeric":
        return pa.decimal128(*digits(column))
    return {
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }[kind]


# ---- Rows of a table by the epoch that brought them: read without Spark, a page at a time.


_ROWS_AT_ONCE = 1000


def of(connection: Connection, table: Table, column: str, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of these epochs, oldest first, without the column that numbers them.

    Args:
        connection: a transaction that only reads; the rows lie on the server until they are asked for.
        table: where they are.
        column: numbers its rows by epoch.
        span: first and last epoch.
    """
    names = [one.name for one in table.columns if one.name != column]
    # The driver makes floats of the numbers in JSON: a quarantine keeps decimals there.
    json = {one.name for one in table.columns if one.type in ("json", "jsonb")}
    listed = ", ".join(quote(name) + ("::text" if name in json else "") for name in names)
    epoch = quote(column)
    query = f"SELECT {epoch}, {listed} FROM {table.name.sql} WHERE {epoch} BETWEEN %(first)s AND %(last)s"
    asked = {"first": span[0], "last": span[1]}
    streamed = connection.execution_options(stream_results=True, max_row_buffer=_ROWS_AT_ONCE)
    for number, *values in streamed.exec_driver_sql(f"{query} ORDER BY {epoch}", asked):
        yield number, dict(zip(names, values, strict=True))
