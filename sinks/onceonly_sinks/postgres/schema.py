"""Read a Postgres table's columns, keys and state from the catalogue.

Nothing here changes the database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.postgres import obstacles
from onceonly_sinks.postgres.head import Head, TableIdentity
from onceonly_sinks.postgres.obstacles import TablePart
from onceonly_sinks.postgres.server import TableName, printed, quote
from onceonly_sinks.sql import tables
from onceonly_sinks.sql.commit_outcome import check_identity

if TYPE_CHECKING:
    from sqlalchemy import Connection

# ---- Its columns and unique indexes; and what a table must not be.

EPOCH_COLUMN = "_epoch"
"""The column that tables made by the sink get, so that rows can be counted per epoch."""

# Every change of a column writes its row of the catalogue anew: the stamp says cheaply whether anything changed. So do
# triggers of the table itself, and parts attached right below it; of what lies deeper only an opening takes note.
_STAMP = """
SELECT c.oid::bigint, c.relkind, c.relpersistence,
       (SELECT string_agg(a.xmin::text, ' ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0),
       c.relhasrules,
       CASE WHEN c.relhastriggers THEN (
           SELECT string_agg(t.xmin::text, ' ' ORDER BY t.oid) FROM pg_catalog.pg_trigger t
           WHERE t.tgrelid = c.oid AND NOT t.tgisinternal) END,
       CASE WHEN c.relhassubclass THEN (
           SELECT count(*) || ' ' || sum(i.inhrelid::bigint) FROM pg_catalog.pg_inherits i
           WHERE i.inhparent = c.oid) END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
"""

# A domain stands for the type below it; an array for the type of its elements. A binary COPY is encoded for that type:
# under the domain's own name every column of one would be of a type that nobody knows.
_COLUMNS = """
SELECT a.attname,
       CASE WHEN e.typtype = 'e' THEN 'enum' ELSE e.typname END,
       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
       b.typelem <> 0 AND b.typcategory = 'A',
       a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated = '' AND a.attidentity <> 'a',
       pg_catalog.format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attcollation <> t.typcollation
           THEN ' COLLATE ' || a.attcollation::pg_catalog.regcollation::text ELSE '' END,
       ARRAY(SELECT l.enumlabel::text FROM pg_catalog.pg_enum l WHERE l.enumtypid = e.oid ORDER BY l.enumsortorder)
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
JOIN pg_catalog.pg_type e ON e.oid = CASE WHEN b.typcategory = 'A' AND b.typelem <> 0 THEN b.typelem ELSE b.oid END
WHERE a.attrelid = %(oid)s::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

# Only an immediate, unconditional index over plain columns can decide an ON CONFLICT.
_KEYS = """
SELECT array_agg(a.attname::text)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %(oid)s::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the target.

    Attributes:
        type: name of the base type (``int4``, ``varchar``), of the elements for an array, ``enum`` for any enum.
        modifier: type modifier, -1 for none.
        required: not null.
        filled: has a default or is an identity, so that it may be left out.
        writable: not generated.
        ddl: type as SQL, with its collation, so that texts are ordered alike in staging and target.
        labels: of an enum. A new label does not make another table of it.
    """

    name: str
    type: str
    modifier: int
    array: bool
    required: bool
    filled: bool
    writable: bool
    ddl: str
    labels: Sequence[str] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Table:
    """The target, as it is or as it will be made.

    Attributes:
        oid: 0 while it does not exist.
        keys: column sets of its unique indexes.
        epoch_column: the column that takes the epoch's number, if any.
        stamp: oid and version of the columns, empty while it does not exist.
        parts: the table, its partitions and children, empty if it has no rules, triggers or such parts.
    """

    name: TableName
    oid: int
    columns: tuple[Column, ...]
    keys: frozenset[frozenset[str]]
    epoch_column: str | None
    stamp: tuple[object, ...] = ()
    parts: tuple[TablePart, ...] = ()

    @property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {column.name: column for column in self.columns}


def inspect(
    connection: Connection, name: TableName, sink: str, epoch_column: str | None, *, lock: bool = False
) -> Table | None:
    """Read the table from the catalogue, or ``None`` if there is none.

    ``epoch_column`` is ``auto``, a column's name, or ``None``. ``lock`` holds off changes of the table until the
    transaction ends. The bytes of a binary COPY carry no types. A column that changed its type after this read would
    misread them. Raises E506: no such epoch column, E508: rows cannot be kept in it safely.
    """
    stamp = connection.exec_driver_sql(*stamping(name)).one_or_none()
    if stamp is None:
        return None
    oid, kind, persistence = stamp[0], stamp[1], stamp[2]
    _usable(sink, name, kind, persistence)
    if lock:
        connection.exec_driver_sql(*locking(name))
        stamp = connection.exec_driver_sql(*stamping(name)).one()
        oid = stamp[0]
    parts = obstacles.parts(connection, oid) if any(stamp[4:]) else ()
    rows = connection.exec_driver_sql(_COLUMNS, {"oid": oid}).all()
    columns = tuple(Column(*row) for row in rows)
    keys = frozenset(frozenset(row[0]) for row in connection.exec_driver_sql(_KEYS, {"oid": oid}))
    return Table(name, oid, columns, keys, _epoch_column(sink, name, columns, epoch_column), tuple(stamp), parts)


def locking(name: TableName, *, alone: bool = False) -> tuple[str, dict[str, object]]:
    """The statement that locks the table against changes, as the COPY itself does. ``alone`` locks any access out."""
    return f"LOCK TABLE {name.sql} IN {'ACCESS' if alone else 'ROW'} EXCLUSIVE MODE", {}


def stamping(name: TableName) -> tuple[str, dict[str, object]]:
    """The statement whose one row is :attr:`Table.stamp`."""
    return _STAMP, {"schema": name.schema, "name": name.name}


def _usable(sink: str, name: TableName, kind: str, persistence: str) -> None:
    if kind not in ("r", "p"):
        raise refuse(
            "E508",
            sink=sink,
            reason=f"{name.text} is not an ordinary table",
            cause="a view or a foreign table: its rows and our marker would not be one transaction",
            next="name the table behind it",
        )
    if persistence != "p":
        raise refuse(
            "E508",
            sink=sink,
            reason=f"{name.text} is unlogged or temporary",
            cause="a crash of the server empties such a table, while the marker of its epochs stays",
            next=f"ALTER TABLE {name.printed} SET LOGGED",
        )


def _epoch_column(sink: str, table: TableName, columns: Sequence[Column], epoch_column: str | None) -> str | None:
    names = {column.name: column for column in columns}
    if epoch_column == "auto":
        return EPOCH_COLUMN if EPOCH_COLUMN in names and names[EPOCH_COLUMN].type == "int8" else None
    if epoch_column is not None and (
        epoch_column not in names or names[epoch_column].type != "int8" or names[epoch_column].array
    ):
        raise refuse(
            "E506",
            sink=sink,
            mismatch="cannot number its rows by epoch",
            difference=f"epoch_column={epoch_column!r} is not a bigint column of the table",
            because="epoch_column= names another column, or the table was made without one",
            next=f"ALTER TABLE {table.printed} ADD COLUMN {printed(epoch_column)} bigint; or leave epoch_column= out",
        )
    return epoch_column


# ---- Whether it can be written, what stands in the way, what happened to it.

_OLDEST = 130000
"""Postgres 13: the oldest version whose functions are used here."""

# The schema is found out here, once: with a search path that somebody changes, the same name is another table tomorrow.
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

# target: the table that the server named, which of a partitioned one is the partition that got the row.
# found: the constraint of that name; or the unique index, since one made by CREATE UNIQUE INDEX is named in the error
# and is no constraint. A foreign key points inward by the roots: each partition has a key of its own.
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

# Whoever holds a lock on the table or on ours, the oldest transaction first; which of them is in the way,
# pg_blocking_pids could tell only while the wait lasts, and it is over.
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
    """Return the table's name with its schema, if the server can be written at all.

    Raises E507: read-only, E508: too old, or no such schema.
    """
    parameters = {"schema": name.schema, "name": name.name}
    row = connection.exec_driver_sql(_STATE, parameters).one()
    version, standby, read_only, current, visible, has_schema = row
    if standby or read_only:
        reason = "it is a standby" if standby else "transactions are read-only by default"
        raise refuse("E507", sink=sink, reason=reason)
    schema_name = name.schema or visible or current
    if version < _OLDEST or not has_schema or schema_name is None:
        reason, next_ = f"Postgres {version // 10000} is too old", "use Postgres 13 or newer"
        if version >= _OLDEST and name.schema:
            reason, next_ = f"there is no schema {name.schema}", f"CREATE SCHEMA {quote(name.schema)}, or name another"
        elif version >= _OLDEST:
            role = connection.exec_driver_sql("SELECT pg_catalog.quote_ident(current_user)").scalar_one()
            reason = f"the search path has no schema that {role} may use"
            next_ = f"GRANT USAGE ON SCHEMA public TO {role}\nor name a schema in table="
        cause = "another database than was meant, or it was not set up"
        raise refuse("E508", sink=sink, reason=reason, cause=cause, next=next_)
    return replace(name, schema=schema_name)


def is_there(connection: Connection, relation: str) -> bool:
    """Whether there is a relation of that name, as it is written in SQL."""
    there = "SELECT pg_catalog.to_regclass(%(name)s) IS NOT NULL"
    return bool(connection.exec_driver_sql(there, {"name": relation.replace("%%", "%")}).scalar_one())


def oid(connection: Connection, name: TableName) -> int:
    """The table's oid, 0 if there is none."""
    table_oid = connection.exec_driver_sql(_OID, {"schema": name.schema, "name": name.name}).scalar_one_or_none()
    return int(table_oid or 0)


def constraint(connection: Connection, table: tuple[str, str], name: str) -> tuple[str, str, bool]:
    """Columns and definition of a constraint or unique index, and whether it is a foreign key into its own table.

    Both texts are empty if there is none of that name.
    """
    schema, relation = table
    row = connection.exec_driver_sql(_CONSTRAINT, {"schema": schema, "table": relation, "name": name}).first()
    return (row[0] or "", row[1] or "", row[2]) if row else ("", "", False)


def unidentified(connection: Connection, name: TableName) -> bool:
    """Whether a table is published without a replica identity."""
    return bool(connection.exec_driver_sql(_UNIDENTIFIED, {"schema": name.schema, "name": name.name}).scalar_one())


_UNIDENTIFIED = """
SELECT EXISTS (
    SELECT 1 FROM pg_publication_tables p JOIN pg_class c ON c.relname = p.tablename
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = p.schemaname
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND c.relreplident IN ('d', 'n')
)
"""


def holders(connection: Connection, name: TableName, tag: str) -> str:
    """Describe other sessions that lock the table or our own tables, oldest first, empty if there are none.

    ``tag`` is in the names of the sink's own sessions, which are left out.
    """
    parameters = {"schema": name.schema, "name": name.name, "ours": f"onceonly:{tag}:"}
    return "; ".join(_session(*row) for row in connection.exec_driver_sql(_HOLDERS, parameters))


def _session(pid: int, user: str | None, application: str | None, seconds: float | None, query: str | None) -> str:
    called = f", application {application}" if application else ""
    since = f", in its transaction for {seconds:.0f} s" if seconds is not None else ""
    doing = f": {command}" if (command := _command(query or "")) else ""
    return f"pid {pid}, user {user or 'not known'}{called}{since}{doing}"


def _command(query: str) -> str:
    """Name a statement by SQL keywords alone: its literals may be secrets, and its names are private."""
    begins = _BEGINNING.match(query)
    return " ".join(word.upper() for word in begins.groups() if word) if begins else ""


def has_rows(connection: Connection, name: TableName) -> bool:
    """Whether the table holds any row."""
    return bool(connection.exec_driver_sql(f"SELECT EXISTS (SELECT FROM {name.sql})", {}).scalar_one())


def has_any_row(connection: Connection, name: TableName) -> bool:
    """Whether there is a table and a row in it."""
    return bool(oid(connection, name)) and has_rows(connection, name)


def rows(connection: Connection, name: TableName) -> int:
    """How many rows the table holds."""
    return int(connection.exec_driver_sql(f"SELECT count(*) FROM {name.sql}", {}).scalar_one())


def recount(connection: Connection, table: Table, column: str) -> dict[int, int]:
    """Rows by the value of the epoch column. Rows without one count under 0."""
    return tables.recount(connection.exec_driver_sql, table.name.sql, quote(column))


def disturbances(receipt: Receipt | None, now: TableIdentity) -> tuple[ExternalChange, ...]:
    """Changes by others since a receipt. Only a recount shows a TRUNCATE or DELETE: the catalogue keeps no trace."""
    if receipt is None or not receipt.identity:
        return ()
    if receipt.identity != now.identity_now(receipt.identity):
        kind = "moved" if now.follows(receipt.identity) else "recreated"
        return (ExternalChange(kind, now.identity or "dropped", fatal=True),)
    old_timeline = receipt.at("timeline")
    if old_timeline == now.timeline or not (old_timeline and now.timeline):  # 0: it was not told
        return ()
    change = f"the server's timeline went from {old_timeline} to {now.timeline}"
    detail = f"{change}: a standby was promoted or a backup recovered"
    return (ExternalChange("failed_over", detail, fatal=False),)


def replaced(head_row: Head | None, now: TableIdentity, marker: Marker) -> OnceOnlyError | None:
    """The error for a table other than the one of the last epoch, or ``None`` for an adoption."""
    old_identity = head_row.target_identity.identity if head_row else ""
    return check_identity(old_identity, now.identity_now(old_identity), marker) if old_identity else None
