"""Keep window state in a Postgres table, and recall due windows.

The table is beside the target, so that results and state share a transaction. Its rows are written like those of any
keyed table. A recall reads under the fence, in several statements: a commit based on it needs an unmoved head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlalchemy import Connection

from onceonly.errors import refuse
from onceonly.protocol.capabilities import GONE, STATE_KEY, OpenWindow, StateRow, StateWanted
from onceonly.protocol.guard import check_recalled
from onceonly_sinks.postgres.schema import EPOCH_COLUMN
from onceonly_sinks.postgres.server import NAME_BYTES, TableName, quote

if TYPE_CHECKING:
    from onceonly.protocol.batch import AsOf
    from onceonly_sinks.postgres.schema import Table

KEY, DELETE = STATE_KEY, GONE

BODY, CLOCK, TIME, BUCKET = "body", "wake_clock", "wake_time", "bucket"

SUFFIX = "_state"


def state_table_name(name: TableName) -> TableName:
    """Name of the table of state beside another one. Raises E143: it would be too long for Postgres."""
    made = replace(name, name=f"{name.name}{SUFFIX}")
    if len(made.name.encode()) > NAME_BYTES:
        remedy = 'name it yourself: Windows(..., state_sink=pg.table("scores_state"))'
        raise refuse("E143", problem=f"a table called {made.text} has a longer name than Postgres keeps", next=remedy)
    return made


def ready(connection: Connection, table: Table) -> None:
    """Add the indexes that find due windows to a new table."""
    name = table.name.sql
    # Room on each page for the next body of a window: the row stays where it is, and its indexes are not touched.
    connection.exec_driver_sql(f"ALTER TABLE {name} SET (fillfactor = 70)", {})
    for columns, where in ((TIME, ""), (CLOCK, f" WHERE {quote(CLOCK)} IS NOT NULL"), (BUCKET, "")):
        connection.exec_driver_sql(f"CREATE INDEX ON {name} ({quote(columns)}){where}", {})


def columns() -> pa.Schema:
    """Arrow schema of a batch of state."""
    kinds: list[pa.Field[Any]] = [
        pa.field("key", pa.string()),
        *(pa.field(name, pa.int64()) for name in KEY[1:]),
        pa.field(BODY, pa.string()),
        *(pa.field(name, pa.int64()) for name in (CLOCK, TIME)),
        pa.field(BUCKET, pa.int16()),
        pa.field(DELETE, pa.bool_()),
    ]
    return pa.schema(kinds)


def recall(connection: Connection, table: Table, sink: str, request: StateWanted, as_of: AsOf) -> list[StateRow]:
    """Rows of state, each once. A table without an oid was not made yet, so no window is open.

    Raises E226: a row was written by the epoch itself, by a later one, or by none.
    """
    if not table.oid:
        return []
    connection.exec_driver_sql(_BY_INDEX, {})
    rows: dict[tuple[str, int, int], Any] = {}
    for query, parameters in _state_queries(table.name.sql, request):
        for row in connection.exec_driver_sql(query, {**parameters, "series": as_of.series}):
            rows[row[0], row[1], row[2]] = tuple(row)
    return check_recalled(sink, (StateRow(*row) for row in rows.values()), as_of)


def count(connection: Connection, table: Table, since: int) -> int:
    """Number of open windows, from rows of epoch ``since`` and later."""
    query = f"SELECT count(*) FROM {table.name.sql} t WHERE {_COUNTS}"
    return int(connection.exec_driver_sql(query, {"series": since}).scalar_one())


def open_windows(
    connection: Connection, table: Table, since: int, key: str | None, limit: int | None
) -> Iterator[OpenWindow]:
    """Open windows, in the order of their next wake-up.

    The connection's transaction only reads, and the rows stay on the server until they are fetched. ``since`` is the
    first epoch whose rows count. ``None`` for ``key`` or ``limit`` means all.
    """
    wakes = ", ".join(f"t.{quote(name)}" for name in (CLOCK, TIME))
    ours = f" AND t.{quote(KEY[0])} = %(key)s" if key is not None else ""
    order = ", ".join(f"t.{quote(name)}" for name in (TIME, *KEY))
    most = "" if limit is None else " LIMIT %(limit)s"
    query = f"SELECT {_COLUMNS}, {wakes} FROM {table.name.sql} t WHERE {_COUNTS}{ours} ORDER BY {order}{most}"
    parameters = {
        "series": since,
        **({} if key is None else {"key": key}),
        **({} if limit is None else {"limit": limit}),
    }
    streamed = connection.execution_options(stream_results=True, max_row_buffer=_PAGE)
    for *row, clock, time in streamed.exec_driver_sql(query, parameters):
        yield OpenWindow(StateRow(*row), clock, time)


_PAGE = 1000
"""Rows that are fetched at once."""

# What is asked for is little of much. By statistics from before the table grew the server would read all of it.
_BY_INDEX = "SET LOCAL enable_seqscan = off"

_COUNTS = f"(t.{quote(EPOCH_COLUMN)} >= %(series)s OR t.{quote(EPOCH_COLUMN)} IS NULL)"
_COLUMNS = ", ".join((*(f"t.{quote(name)}" for name in (*KEY, BODY)), f"coalesce(t.{quote(EPOCH_COLUMN)}, 0)"))


def _state_queries(name: str, request: StateWanted) -> Iterator[tuple[str, dict[str, Any]]]:
    """Queries, each of one index, with their parameters."""
    if request.places:
        keys, starts, stops = map(list, zip(*request.places, strict=True))
        yield _of_places(name), {"keys": keys, "starts": starts, "stops": stops}
    if request.keys:
        yield _where(name, KEY[0], "= ANY (%(keys)b::text[])"), {"keys": list(request.keys)}
    if request.wake_clock is not None:
        yield _where(name, CLOCK, "<= %(clock)s"), {"clock": request.wake_clock}
    if request.wake_time is not None:
        yield _where(name, TIME, "<= %(time)s"), {"time": request.wake_time}


def _of_places(name: str) -> str:
    """One look-up in the key's index for each place, however many rows there are: LIMIT keeps it from being a join."""
    # In binary form: as text each quote in a key is escaped by an expression, which takes longer than the look-ups.
    lists = "unnest(%(keys)b::text[], %(starts)b::bigint[], %(stops)b::bigint[])"
    same = " AND ".join(f"t.{quote(column)} = w.{quote(column)}" for column in KEY)
    windows = f"{lists} AS w({', '.join(map(quote, KEY))})"
    return f"SELECT t.* FROM {windows}, LATERAL (SELECT {_COLUMNS} FROM {name} t WHERE {same} AND {_COUNTS} LIMIT 1) t"


def _where(name: str, column: str, condition: str) -> str:
    return f"SELECT {_COLUMNS} FROM {name} t WHERE t.{quote(column)} {condition} AND {_COUNTS}"
