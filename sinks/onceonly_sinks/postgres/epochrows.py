"""Rows of a table by the epoch that brought them: read without Spark, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.protocol.capabilities import Span
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import quote

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PAGE = 1000


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
    streamed = connection.execution_options(stream_results=True, max_row_buffer=_PAGE)
    for number, *values in streamed.exec_driver_sql(f"{query} ORDER BY {epoch}", asked):
        yield number, dict(zip(names, values, strict=True))
