"""The state of windows in a table of its own: written as rows of any keyed table are, and asked for by what is due.

It stands beside the target, so that results and state are of one transaction. What is asked for is read under the
fence, in as many statements as it takes: whoever commits by it does so only where the head has not moved since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.protocol.optional import GONE, STATE_KEY, StateRow, StateWanted
from onceonly_sinks.postgres.schema import EPOCH_COLUMN
from onceonly_sinks.postgres.server import TableName, quote

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly.protocol import AsOf
    from onceonly_sinks.postgres.schema import Table

KEY, DELETE = STATE_KEY, GONE

BODY, CLOCK, TIME, BUCKET = "body", "wake_clock", "wake_time", "bucket"

_MOST_BYTES = 63
"""Of a name in Postgres: what is longer is cut, and two names become one."""

SUFFIX = "_state"


def beside(name: TableName) -> str:
    """Name of the table of state beside another one.

    Raises:
        ConfigurationError: E143, it would be too long for Postgres.
    """
    made = f"{name.text}{SUFFIX}"
    if len(made.rpartition(".")[2].encode()) > _MOST_BYTES:
        way = 'name it yourself: Panes(..., state=pg.table("scores_state"))'
        raise refuse("E143", problem=f"a table called {made} has a longer name than Postgres keeps", next=way)
    return made


def ready(connection: Connection, table: Table) -> None:
    """Make what a table that was just made needs, so that windows are found by what is due."""
    name = table.name.sql
    # Room on each page for the next body of a window: the row stays where it is, and its indexes are not touched.
    connection.exec_driver_sql(f"ALTER TABLE {name} SET (fillfactor = 70)", {})
    for columns, where in ((TIME, ""), (CLOCK, f" WHERE {quote(CLOCK)} IS NOT NULL"), (BUCKET, "")):
        connection.exec_driver_sql(f"CREATE INDEX ON {name} ({quote(columns)}){where}", {})


def recall(connection: Connection, table: Table | None, sink: str, wanted: StateWanted, as_of: AsOf) -> list[StateRow]:
    """Rows of state, each once.

    Args:
        connection: reads.
        table: that of state; ``None`` where it was not made yet, and no window is open.
        sink: its id, for messages.
        wanted: what is asked for.
        as_of: the state that is meant.

    Raises:
        IdentityError: E226, a row was written by the epoch itself, or a later one.
    """
    if table is None:
        return []
    found: dict[tuple[str, int, int], StateRow] = {}
    for condition, parameters in _asked(wanted):
        for row in connection.exec_driver_sql(_query(table, condition), {**parameters, "series": as_of.series}):
            one = StateRow(*row)
            found[one.key, one.start, one.stop] = one
    if ahead := next((one for one in found.values() if one.epoch >= as_of.epoch), None):
        problem = f"the window of key {ahead.key} from {ahead.start} on is of epoch {ahead.epoch}"
        raise refuse("E226", sink=sink, epoch=as_of.epoch - 1, problem=problem, pipeline=as_of.pipeline)
    return list(found.values())


def _asked(wanted: StateWanted) -> Iterator[tuple[str, dict[str, Any]]]:
    """Conditions, each of one index, with their parameters."""
    if wanted.places:
        keys, starts, stops = map(list, zip(*wanted.places, strict=True))
        lists = "unnest(%(keys)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])"
        joined = f"({', '.join(map(quote, KEY))}) IN (SELECT * FROM {lists})"
        yield joined, {"keys": keys, "starts": starts, "stops": stops}
    if wanted.keys:
        yield f"{quote(KEY[0])} = ANY (%(keys)s::text[])", {"keys": list(wanted.keys)}
    if wanted.wake_clock is not None:
        yield f"{quote(CLOCK)} <= %(clock)s", {"clock": wanted.wake_clock}
    if wanted.wake_time is not None:
        yield f"{quote(TIME)} <= %(time)s", {"time": wanted.wake_time}


def _query(table: Table, condition: str) -> str:
    columns: Sequence[str] = (*KEY, BODY, EPOCH_COLUMN)
    counts = f"{quote(EPOCH_COLUMN)} >= %(series)s"
    return f"SELECT {', '.join(map(quote, columns))} FROM {table.name.sql} WHERE {condition} AND {counts}"
