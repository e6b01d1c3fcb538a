"""Looks at the database and the table without changing them: can it be written, what is it, what happened to it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Disturbance
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.postgres.head import Head, Place
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import TableName, quote

if TYPE_CHECKING:
    from sqlalchemy import Connection

_OLDEST = 130000
"""Postgres 13: the oldest version whose functions are used here."""

_STATE = """
SELECT current_setting('server_version_num')::int, pg_catalog.pg_is_in_recovery(),
       current_setting('transaction_read_only')::bool, current_schema(),
       (SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname = %(name)s AND pg_catalog.pg_table_is_visible(c.oid)),
       %(schema)s::text IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s)
"""

_OID = """
SELECT c.oid::bigint FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
"""


_CONSTRAINT = """
WITH target AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
), found AS (
    SELECT k.conrelid AS relation, k.conkey AS keys, pg_catalog.pg_get_constraintdef(k.oid) AS definition,
           coalesce(coalesce(pg_catalog.pg_partition_root(k.conrelid), k.conrelid)
                    = coalesce(pg_catalog.pg_partition_root(k.confrelid), k.confrelid), false) AS inward
    FROM pg_catalog.pg_constraint k JOIN target ON k.conrelid = target.oid WHERE k.conname = %(name)s
    UNION ALL
    SELECT i.indrelid, i.indkey::int2[], pg_catalog.pg_get_indexdef(i.indexrelid), false
    FROM pg_catalog.pg_index i JOIN target ON i.indrelid = target.oid
    JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid WHERE x.relname = %(name)s
)
SELECT (SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = f.relation AND a.attnum = ANY (f.keys)), f.definition, f.inward
FROM found f LIMIT 1
"""


_HOLDERS = """
SELECT DISTINCT ON (a.xact_start, a.pid) a.pid, a.usename, a.application_name,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8, a.query
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
JOIN pg_catalog.pg_class c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE l.granted AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND a.pid <> pg_catalog.pg_backend_pid() AND NOT starts_with(coalesce(a.application_name, ''), %(ours)s)
  AND ((n.nspname = 'onceonly' AND c.relname IN ('head', 'epoch'))
       OR ((%(schema)s::text IS NULL OR n.nspname = %(schema)s) AND c.relname = %(name)s))
ORDER BY a.xact_start, a.pid LIMIT 3
"""

_COMMANDS = (
    "ABORT|ALTER|ANALYZE|BEGIN|CALL|CHECKPOINT|CLOSE|CLUSTER|COMMENT|COMMIT|COPY|CREATE|DEALLOCATE|DECLARE|DELETE|DISCARD"
    "|DO|DROP|END|EXECUTE|EXPLAIN|FETCH|GRANT|INSERT|LISTEN|LOCK|MERGE|MOVE|NOTIFY|PREPARE|REFRESH|REINDEX|RELEASE|RESET"
    "|REVOKE|ROLLBACK|SAVEPOINT|SELECT|SET|SHOW|START|TABLE|TRUNCATE|UNLISTEN|UPDATE|VACUUM|VALUES|WITH"
)
_OBJECTS = "DATABASE|FUNCTION|INDEX|POLICY|ROLE|SCHEMA|SEQUENCE|TABLE|TRIGGER|TYPE|USER|VIEW"
_BLANK = r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_BEGINNING = re.compile(rf"{_BLANK}({_COMMANDS})\b(?:\s+({_OBJECTS})\b)?", re.DOTALL | re.IGNORECASE)


def check(connection: Connection, sink: str, name: TableName) -> TableName:
    """The table's name with its schema, where the server can be written at all.

    Raises:
        DestinationError: E507 read-only; E508 too old, or no such schema.
    """
    parameters = {"schema": name.schema, "name": name.name}
    row = connection.exec_driver_sql(_STATE, parameters).one()
    version, standby, read_only, current, visible, known = row
    if standby or read_only:
        reason = "it is a standby" if standby else "transactions are read-only by default"
        raise refuse("E507", sink=sink, reason=reason)
    found = name.schema or visible or current
    if version < _OLDEST or not known or found is None:
        old = f"Postgres {version // 10000} is too old" if version < _OLDEST else ""
        raise refuse(
            "E508",
            sink=sink,
            reason=old or f"there is no schema {name.schema or 'on the search path'}",
            cause="another database than was meant, or it was not set up",
            next="use Postgres 13 or newer"
            if old
            else f"CREATE SCHEMA {quote(name.schema or 'name')}, or name another",
        )
    return replace(name, schema=found)


def oid(connection: Connection, name: TableName) -> int:
    """The table's oid; 0 if there is none."""
    found = connection.exec_driver_sql(_OID, {"schema": name.schema, "name": name.name}).scalar_one_or_none()
    return int(found or 0)


def constraint(connection: Connection, table: tuple[str, str], name: str) -> tuple[str, str, bool]:
    """Columns and definition of a constraint, or of a unique index of that name; empty where there is none.

    Returns:
        Both, and whether it is a foreign key that points into its own table.
    """
    schema, relation = table
    found = connection.exec_driver_sql(_CONSTRAINT, {"schema": schema, "table": relation, "name": name}).first()
    return (found[0] or "", found[1] or "", found[2]) if found else ("", "", False)


def holders(connection: Connection, name: TableName, tag: str) -> str:
    """Other sessions that hold locks on a table or on our own, the oldest first; empty where there are none.

    Args:
        connection: reading.
        name: the table.
        tag: in the names of the sink's own sessions, which are left out.
    """
    parameters = {"schema": name.schema, "name": name.name, "ours": f"onceonly:{tag}:"}
    return "; ".join(_session(*row) for row in connection.exec_driver_sql(_HOLDERS, parameters))


def _session(pid: int, user: str | None, application: str | None, seconds: float | None, query: str | None) -> str:
    called = f", application {application}" if application else ""
    since = f", in its transaction for {seconds:.0f} s" if seconds is not None else ""
    doing = f": {command}" if (command := _command(query or "")) else ""
    return f"pid {pid}, user {user or 'not known'}{called}{since}{doing}"


def _command(query: str) -> str:
    """What a statement is, by words of SQL alone: its literals may be secrets, and its names are not ours to tell."""
    begins = _BEGINNING.match(query)
    return " ".join(word.upper() for word in begins.groups() if word) if begins else ""


def has_rows(connection: Connection, name: TableName) -> bool:
    """Whether the table holds any row."""
    return bool(connection.exec_driver_sql(f"SELECT EXISTS (SELECT FROM {name.sql})", {}).scalar_one())


def has_any_row(connection: Connection, name: TableName) -> bool:
    """Whether there is a table and a row in it."""
    return bool(oid(connection, name)) and has_rows(connection, name)


def recount(connection: Connection, table: Table, column: str) -> dict[int, int]:
    """Rows by the value of the epoch column; those without one under 0."""
    name = quote(column)
    query = f"SELECT coalesce({name}, 0), count(*) FROM {table.name.sql} GROUP BY 1 ORDER BY 1"
    return {int(epoch): int(rows) for epoch, rows in connection.exec_driver_sql(query, {})}


def disturbances(known: Receipt | None, now: Place) -> tuple[Disturbance, ...]:
    """What others did since a receipt. A TRUNCATE or DELETE leaves no trace in the catalogue: only a recount tells."""
    if known is None or not known.identity:
        return ()
    if known.identity != now.beside(known.identity):
        kind = "moved" if now.follows(known.identity) else "recreated"
        return (Disturbance(kind, now.identity or "dropped", fatal=True),)
    was = known.at("timeline")
    if was == now.timeline or not (was and now.timeline):  # 0: it was not told
        return ()
    detail = f"the server's timeline went from {was} to {now.timeline}: a standby was promoted or a backup recovered"
    return (Disturbance("failed_over", detail, fatal=False),)


def replaced(found: Head | None, now: Place, marker: Marker) -> OnceOnlyError | None:
    """The error for a table that is not the one the last epoch went to; an adoption accepts what it finds."""
    was = found.place.identity if found else ""
    if not was or was == now.beside(was) or marker.epoch.adoption is not None:
        return None
    return refuse("E208", sink=marker.sink, was=was, now=now.identity or "nothing there", pipeline=marker.pipeline)
