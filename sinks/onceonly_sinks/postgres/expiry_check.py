"""Check at opening that a table's rows can be deleted by age."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly_sinks.postgres import replace_rows, schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly_sinks.postgres.load import Target

_BELOW = "SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = %(oid)s::oid)"


def refused(connection: Connection, target: Target) -> OnceOnlyError | None:
    """Why rows of the target cannot be removed by age, or ``None`` if they can or if it does not exist."""
    name, sink = target.name.text, target.writer.sink
    table = schema.inspect(connection, target.name, sink, target.epoch_column)
    if target.apply is not None or target.merge.key:
        return _cannot(sink, f"rows of {name} are replaced", "give the quarantine no key= and no apply=")
    if table is None and target.epoch_column is not None:
        return None
    if table is None or table.epoch_column is None:
        way = f"ALTER TABLE {target.name.sql} ADD COLUMN _epoch bigint, and no epoch_column=None"
        return _cannot(sink, f"rows of {name} carry no epoch", way)
    if connection.exec_driver_sql(_BELOW, {"oid": table.oid}).scalar_one():
        return _cannot(sink, f"{name} has partitions", "leave keep= out, and drop partitions as they grow old")
    if reason := replace_rows.obstacle(connection, target, (1, 1)):
        return _cannot(sink, reason, f"GRANT DELETE ON {target.name.sql}, or another table that is ours alone")
    return None


def _cannot(sink: str, reason: str, way: str) -> OnceOnlyError:
    cause = "keep= removes rows by the number of their epoch, and counts what it removed"
    return refuse("E508", sink=sink, reason=reason, cause=cause, next=way)
