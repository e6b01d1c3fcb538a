"""Where the demo writes to: how each sink is addressed, and how its rows are read back without Spark."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from onceonly.lab.demo import flights

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.protocol import Sink

KINDS = ("delta", "postgres")
"""The sinks of the demo, in the order of its report."""


@dataclass(frozen=True, slots=True)
class Target:
    """One sink of one run.

    Attributes:
        kind: one of :data:`KINDS`.
        address: Delta: the table's folder; Postgres: the DSN.
        table: Postgres: the table's name. Delta: unused.
        ledger: of the wrapped job: URL or path. Empty for the plain one.
    """

    kind: str
    address: str
    table: str = ""
    ledger: str = ""

    @property
    def query(self) -> str:
        """Name of the query that writes here, and so of the pipeline."""
        return f"flights-{self.kind}"

    def sink(self) -> Sink:
        """The sink of the wrapped job."""
        (found,) = entry_points(group="onceonly.sinks", name=self.kind)
        made = found.load()
        sink: Sink = made(self.address, table=self.table) if self.table else made(self.address)
        return sink

    def read(self) -> pa.Table:
        """All rows, in the columns of the input."""
        return _read_delta(self.address) if self.kind == "delta" else _read_postgres(self.address, self.table)


def _read_delta(path: str) -> pa.Table:
    from deltalake import DeltaTable

    table: pa.Table = DeltaTable(path).to_pyarrow_table(columns=flights.arrow_schema().names)
    return table


def _read_postgres(dsn: str, table: str) -> pa.Table:
    import psycopg
    from psycopg import sql
    from pyarrow import csv

    schema = flights.arrow_schema()
    # Arrow's CSV reader wants ISO 8601 with a Z, which is not how Postgres prints a timestamptz.
    iso = sql.SQL("""to_char({}::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""")
    plain = sql.SQL("{}")
    columns = [(iso if field.name == "time_hour" else plain).format(sql.Identifier(field.name)) for field in schema]
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)")
    content = io.BytesIO()
    with (
        psycopg.connect(dsn, options="-c TimeZone=UTC") as connection,
        connection.cursor() as cursor,
        cursor.copy(query.format(sql.SQL(", ").join(columns), sql.Identifier(table))) as copy,
    ):
        for block in copy:
            content.write(block)
    content.seek(0)
    return csv.read_csv(
        content,
        read_options=csv.ReadOptions(column_names=schema.names),
        convert_options=csv.ConvertOptions(
            column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
