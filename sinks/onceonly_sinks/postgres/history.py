"""Keep replaced rows of an upsert in ``<table>_history``.

It has a row for each version of a key. A version is current from the epoch in :data:`FROM` on and before the one in
:data:`TO`. A null there means that it is current now. It is written in the transaction that changes the target, out of
the target's rows. Idea: system-versioned tables of SQL:2011, by epochs in place of the clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly_sinks.postgres import prune
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.options import HISTORY
from onceonly_sinks.postgres.schema import Table, is_there
from onceonly_sinks.postgres.server import TableName, quote
from onceonly_sinks.postgres.upsert import Merge, Waiting
from onceonly_sinks.sql.tables import OURS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly.protocol.capabilities import Span
    from onceonly_checkpoints.epoch import Epoch, Fence
    from onceonly_sinks.postgres.transaction import Transactions

FROM, TO = "_from", "_to"
"""Columns beside those of the target: the epoch that brought a version, and the one that replaced or removed it."""

_AT_ONCE = 10_000
_COLUMNS = """
SELECT a.attname FROM pg_catalog.pg_attribute a
WHERE a.attrelid = pg_catalog.to_regclass(%(name)s) AND a.attnum > 0 AND NOT a.attisdropped
"""
_BEGIN = f"UPDATE onceonly.head SET kept_from = %(first)s WHERE {OURS}"
_ENDS = f"SELECT kept_from, kept_upto FROM onceonly.head WHERE {OURS}"
_RAISE_KEPT_FROM = f"UPDATE onceonly.head SET kept_from = %(first)s WHERE {OURS} AND kept_from < %(first)s"


def name_of(table: TableName) -> TableName:
    """The table of a target's history."""
    return replace(table, name=f"{table.name}{HISTORY}")


def history_span(connection: Connection, writer: PostgresHeadScope, table: Table) -> Span | None:
    """The oldest and the newest epoch that it covers, or ``None`` if there is no history."""
    if not is_there(connection, name_of(table.name).sql):
        return None
    first, last = connection.exec_driver_sql(_ENDS, writer.parameters).one()
    return int(first), int(last)


def _columns(connection: Connection, table: Table) -> list[str]:
    rows = connection.exec_driver_sql(_COLUMNS, {"name": name_of(table.name).sql.replace("%%", "%")})
    return [str(name) for (name,) in rows]


def ready(connection: Connection, table: Table, writer: PostgresHeadScope, merge: Merge, epoch: Epoch) -> bool:
    """Create or widen the history before the epoch's rows meet the target, and return whether it did.

    It begins with the target's rows as of the epoch before: their own past is unknown. So does a history that was
    switched off for some epochs. Raises E506: the target has no epoch column, or one that the history needs for itself.
    """
    unnumbered = table.epoch_column is None
    if unnumbered or {FROM, TO} & table.by_name.keys():
        needs = "needs a bigint column with the epoch's number in the table"
        clash = f"has columns {FROM} and {TO} of its own"
        difference = f"history= {needs if unnumbered else clash}"
        next_ = f"ALTER TABLE {table.name.printed} ADD COLUMN _epoch bigint" if unnumbered else "rename them"
        cause, remedy = "the table was made before history= was given", f"{next_}; or leave history= out"
        words = {"mismatch": "cannot keep a history", "because": cause, "next": remedy}
        raise refuse("E506", sink=writer.sink, difference=difference, **words)
    name, column_names = name_of(table.name).sql, _columns(connection, table)
    if column_names:
        lacking = [column for column in table.columns if column.name not in column_names]
        if lacking:
            added = ", ".join(f"ADD COLUMN {quote(column.name)} {column.ddl}" for column in lacking)
            connection.exec_driver_sql(f"ALTER TABLE {name} {added}", {})
        _, last = connection.exec_driver_sql(_ENDS, writer.parameters).one()
        if last < epoch.number - 1:
            end_all(connection, table, epoch.number - 1)
            _begin(connection, table, writer, epoch)
        return bool(lacking)
    ours = f"{quote(FROM)} bigint NOT NULL, {quote(TO)} bigint"
    keys = ", ".join(quote(key_name) for key_name in merge.key)
    columns = ", ".join(f"{quote(column.name)} {column.ddl}" for column in table.columns)
    connection.exec_driver_sql(f"CREATE TABLE {name} ({columns}, {ours}, PRIMARY KEY ({keys}, {quote(FROM)}))", {})
    connection.exec_driver_sql(f"CREATE INDEX ON {name} ({quote(TO)}) WHERE {quote(TO)} IS NOT NULL", {})
    _begin(connection, table, writer, epoch)
    return True


def _begin(connection: Connection, table: Table, writer: PostgresHeadScope, epoch: Epoch) -> None:
    """Begin with the target's rows. If a full refresh has emptied it, nothing is known of before."""
    first = epoch.number if epoch.replaces else epoch.number - 1
    listed = ", ".join(quote(column.name) for column in table.columns)
    into = f"INSERT INTO {name_of(table.name).sql} ({listed}, {quote(FROM)})"
    connection.exec_driver_sql(f"{into} SELECT {listed}, %(first)s FROM {table.name.sql}", {"first": first})
    connection.exec_driver_sql(_BEGIN, {**writer.parameters, "first": first})


def write(connection: Connection, table: Table, waiting: Waiting, merge: Merge, epoch: int) -> None:
    """Record the target's changes, after :func:`~onceonly_sinks.postgres.upsert.apply`.

    The target decides. A version ends if its key is gone or was written by this epoch. A new one begins if this epoch
    wrote the key. A late change that changed nothing leaves no trace.
    """
    assert table.epoch_column is not None
    name, number = name_of(table.name).sql, quote(table.epoch_column)
    keys = [quote(key_name) for key_name in merge.key]
    changed = f"SELECT DISTINCT {', '.join(f's.{key}' for key in keys)} {waiting.source}"
    listed = ", ".join(quote(column.name) for column in table.columns)
    selected_columns = ", ".join(f"t.{quote(column.name)}" for column in table.columns)

    def same(alias: str) -> str:
        return " AND ".join(f"{alias}.{key} = s.{key}" for key in keys)

    older = f"SELECT FROM {table.name.sql} t WHERE {same('t')} AND t.{number} IS DISTINCT FROM %(epoch)s"
    # changed: the keys of the epoch. ended: versions that stood until now.
    statement = f"""
WITH changed AS MATERIALIZED ({changed}),
ended AS (
    UPDATE {name} h SET {quote(TO)} = %(epoch)s FROM changed s
    WHERE {same("h")} AND h.{quote(TO)} IS NULL AND h.{quote(FROM)} < %(epoch)s AND NOT EXISTS ({older})
)
INSERT INTO {name} ({listed}, {quote(FROM)})
SELECT {selected_columns}, %(epoch)s FROM changed s JOIN {table.name.sql} t ON {same("t")} WHERE t.{number} = %(epoch)s
"""
    connection.exec_driver_sql(statement, {**waiting.parameters, "epoch": epoch})


def end_all(connection: Connection, table: Table, epoch: int) -> None:
    """End every version, as a full refresh has removed all rows."""
    if is_there(connection, name_of(table.name).sql):
        ended = f"UPDATE {name_of(table.name).sql} SET {quote(TO)} = %(epoch)s WHERE {quote(TO)} IS NULL"
        connection.exec_driver_sql(ended, {"epoch": epoch})


def clear(connection: Connection, table: TableName) -> None:
    """Delete all versions, as their table is gone."""
    if is_there(connection, name_of(table).sql):
        connection.exec_driver_sql(f"DELETE FROM {name_of(table).sql}", {})


def trim(transactions: Transactions, writer: PostgresHeadScope, fence: Fence, table: TableName, first: int) -> None:
    """Delete versions that no epoch from ``first`` on can read, some each time.

    The head records the first readable epoch. In a transaction of its own, after the epoch: what readers have pinned is
    known then, also in the first epochs of a driver.
    """
    name = name_of(table).sql
    due = f"SELECT ctid FROM {name} WHERE {quote(TO)} <= %(first)s ORDER BY {quote(TO)} LIMIT {_AT_ONCE}"

    def delete(connection: Connection) -> None:
        if not is_there(connection, name):
            return
        connection.exec_driver_sql(_RAISE_KEPT_FROM, {**writer.parameters, "first": first})
        connection.exec_driver_sql(f"DELETE FROM {name} WHERE ctid = ANY (ARRAY({due}))", {"first": first})

    if first > 0:
        prune.delete_under_fence(transactions, writer, fence, "old versions of rows", delete)
