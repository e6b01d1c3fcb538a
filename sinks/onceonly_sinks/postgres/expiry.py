"""Delete rows that are older than their retention, oldest epoch first.

They leave in the epochs' transactions. Time is that of the epochs, as for tombstones: a replay removes nothing that its
first attempt did not. Table ``onceonly.retention`` has the planning time of the epochs that still have rows. Table
``onceonly.expired`` sums up the deleted rows, so that an audit can distinguish expired rows from missing ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.protocol.values import ExpiredRows
from onceonly_checkpoints.ledger.sql import SCHEMA_LOCK
from onceonly_sinks.postgres import head, schema
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.server import quote
from onceonly_sinks.sql.tables import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from onceonly.protocol.capabilities import Span
    from onceonly_checkpoints.epoch import Epoch
    from onceonly_sinks.postgres.load import Target
    from onceonly_sinks.postgres.schema import Table

AT_ONCE = 10_000
"""How many rows go in one epoch at most: those that are due are many after a long stop."""

_TABLES_EXIST = """
SELECT pg_catalog.to_regclass('onceonly.retention') IS NOT NULL
   AND pg_catalog.to_regclass('onceonly.expired') IS NOT NULL
"""
_DDL = (
    """
    CREATE TABLE IF NOT EXISTS onceonly.retention (
        pipeline text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL, planned_ms bigint NOT NULL,
        PRIMARY KEY (pipeline, sink, epoch)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS onceonly.expired (
        pipeline text NOT NULL, sink text NOT NULL,
        epoch bigint NOT NULL, rows bigint NOT NULL, total bigint NOT NULL, before_ms bigint NOT NULL,
        PRIMARY KEY (pipeline, sink)
    )
    """,
)
# An epoch is no older than the one before it, whatever the clock did in between: so the oldest goes first.
_NOTE = f"""
INSERT INTO onceonly.retention (pipeline, sink, epoch, planned_ms)
SELECT %(pipeline)s, %(sink)s, %(epoch)s, greatest(%(clock)s, (
    SELECT planned_ms FROM onceonly.retention WHERE {OURS} AND epoch < %(epoch)s ORDER BY epoch DESC LIMIT 1))
ON CONFLICT (pipeline, sink, epoch) DO UPDATE SET planned_ms = excluded.planned_ms
"""
_OLDEST = f"SELECT planned_ms FROM onceonly.retention WHERE {OURS} ORDER BY epoch LIMIT 1"
_DUE = f"SELECT max(epoch) FROM onceonly.retention WHERE {OURS} AND planned_ms < %(before)s"
_DONE = f"DELETE FROM onceonly.retention WHERE {OURS} AND epoch <= %(upto)s"
_TELL = """
INSERT INTO onceonly.expired AS e (pipeline, sink, epoch, rows, total, before_ms)
VALUES (%(pipeline)s, %(sink)s, %(upto)s, %(rows)s, %(total)s, %(before)s)
ON CONFLICT (pipeline, sink) DO UPDATE
SET epoch = excluded.epoch, rows = CASE WHEN e.epoch = excluded.epoch THEN e.rows ELSE 0 END + excluded.rows,
    total = e.total + excluded.total, before_ms = greatest(e.before_ms, excluded.before_ms)
"""
_READ_EXPIRED = f"SELECT epoch, rows, total, before_ms FROM onceonly.expired WHERE {OURS}"
# Not for a table of somebody else's: only its owner may.
_WANTS_INDEX = """
SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND i.indisvalid AND a.attname = %(column)s)
FROM pg_catalog.pg_class c WHERE c.oid = %(oid)s::oid
"""


def tables_exist(connection: Connection) -> bool:
    """Whether our tables are there."""
    return bool(connection.exec_driver_sql(_TABLES_EXIST, {}).scalar_one())


def create(connection: Connection) -> None:
    """Create our missing tables, after those of every sink (:func:`~onceonly_sinks.postgres.head.create`)."""
    if tables_exist(connection):
        return
    connection.exec_driver_sql(head.LOCK_DDL, {"key": SCHEMA_LOCK})
    for statement in _DDL:
        connection.exec_driver_sql(statement, {})


def expire(connection: Connection, target: Target, epoch: Epoch, rows: int) -> None:
    """Note an epoch's planning time, and delete rows that are too old by it, in the epoch's transaction.

    ``rows`` is the epoch's number of rows.
    """
    if epoch.lineage is None:
        return
    clock = epoch.lineage.batch_timestamp_ms
    named = {**target.writer.parameters, "epoch": epoch.number, "clock": clock, "before": clock - target.keep_ms}
    if rows:
        connection.exec_driver_sql(_NOTE, named)
    oldest = connection.exec_driver_sql(_OLDEST, named).scalar_one_or_none()
    if oldest is None or oldest >= named["before"]:
        return
    due = int(connection.exec_driver_sql(_DUE, named).scalar_one())
    table = schema.inspect(connection, target.name, target.writer.sink, target.epoch_column)
    went = _remove(connection, table, due) if table else {}
    total = sum(went.values())
    upto = due if total < AT_ONCE else max(went)
    connection.exec_driver_sql(_TELL, {**named, "upto": upto, "rows": went.get(upto, 0), "total": total})
    connection.exec_driver_sql(_DONE, {**named, "upto": upto if total < AT_ONCE else upto - 1})


def _remove(connection: Connection, table: Table, due: int) -> Mapping[int, int]:
    """Delete the oldest rows of epochs up to ``due``, and return how many left by epoch."""
    assert table.epoch_column is not None
    column, name = quote(table.epoch_column), table.name.sql
    if connection.exec_driver_sql(_WANTS_INDEX, {"oid": table.oid, "column": table.epoch_column}).scalar_one():
        connection.exec_driver_sql(f"CREATE INDEX ON {name} ({column})", {})
    oldest = f"SELECT ctid FROM {name} WHERE {column} BETWEEN 1 AND %(due)s ORDER BY {column} LIMIT {AT_ONCE}"
    gone = f"DELETE FROM {name} WHERE ctid = ANY (ARRAY({oldest})) RETURNING {column} AS epoch"
    counted = f"WITH gone AS ({gone}) SELECT epoch, count(*) FROM gone GROUP BY epoch"
    return {int(epoch): int(rows) for epoch, rows in connection.exec_driver_sql(counted, {"due": due})}


def expired(connection: Connection, writer: PostgresHeadScope) -> ExpiredRows | None:
    """Summary of the deleted rows, or ``None`` if there are none."""
    if not tables_exist(connection):
        return None
    row = connection.exec_driver_sql(_READ_EXPIRED, writer.parameters).one_or_none()
    return ExpiredRows(*row) if row else None


def clear(connection: Connection, writer: PostgresHeadScope, span: Span) -> None:
    """Forget the records of epochs whose rows leave: their replacement is kept from its beginning."""
    if not tables_exist(connection):
        return
    named = {**writer.parameters, "first": span[0], "last": span[1]}
    for table in ("retention", "expired"):
        where = f"{OURS} AND epoch BETWEEN %(first)s AND %(last)s"
        connection.exec_driver_sql(f"DELETE FROM onceonly.{table} WHERE {where}", named)
