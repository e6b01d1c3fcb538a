"""What the target table looks like, read from the catalogue; and what a table must not be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly_sinks.postgres import obstacles
from onceonly_sinks.postgres.obstacles import Part
from onceonly_sinks.postgres.server import TableName

if TYPE_CHECKING:
    from sqlalchemy import Connection

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

# A domain stands for the type below it; an array for the type of its elements.
_COLUMNS = """
SELECT a.attname,
       CASE WHEN e.typtype = 'e' THEN 'enum' ELSE e.typname END,
       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
       b.typelem <> 0 AND b.typcategory = 'A',
       a.attnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated = '' AND a.attidentity <> 'a',
       pg_catalog.format_type(a.atttypid, a.atttypmod)
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
        name: as in the catalogue.
        type: name of the base type (``int4``, ``varchar``), of the elements for an array, ``enum`` for any enum.
        modifier: type modifier; -1 for none.
        array: whether it is an array.
        required: not null.
        filled: has a default or is an identity, so that it may be left out.
        writable: not generated.
        ddl: type as SQL.
    """

    name: str
    type: str
    modifier: int
    array: bool
    required: bool
    filled: bool
    writable: bool
    ddl: str


@dataclass(frozen=True, slots=True)
class Table:
    """The target, as it is or as it will be made.

    Attributes:
        name: with its schema.
        oid: 0 while it does not exist.
        columns: in order.
        keys: column sets of its unique indexes.
        epoch_column: the column that takes the epoch's number, if any.
        stamp: oid and version of the columns; empty while it does not exist.
        parts: itself and what lies below it, where there are rules, triggers or such parts.
    """

    name: TableName
    oid: int
    columns: tuple[Column, ...]
    keys: frozenset[frozenset[str]]
    epoch_column: str | None
    stamp: tuple[object, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {column.name: column for column in self.columns}


def inspect(
    connection: Connection, name: TableName, sink: str, epoch_column: str | None, *, lock: bool = False
) -> Table | None:
    """Read the table from the catalogue; ``None`` if there is none.

    Args:
        connection: with or without an open transaction.
        name: with its schema.
        sink: sink id, for messages.
        epoch_column: ``auto``, a column's name, or ``None``.
        lock: hold off changes of the table until the transaction ends. The bytes of a binary COPY carry no types: a
            column that changed its type after it was looked at would take them for something else.

    Raises:
        DestinationError: E506 no such epoch column; E508 rows cannot be kept in it safely.
    """
    parameters = {"schema": name.schema, "name": name.name}
    found = connection.exec_driver_sql(_STAMP, parameters).one_or_none()
    if found is None:
        return None
    oid, kind, persistence = found[0], found[1], found[2]
    _usable(sink, name, kind, persistence)
    if lock:
        connection.exec_driver_sql(*locking(name))
        found = connection.exec_driver_sql(_STAMP, parameters).one()
        oid = found[0]
    parts = obstacles.parts(connection, oid) if any(found[4:]) else ()
    rows = connection.exec_driver_sql(_COLUMNS, {"oid": oid}).all()
    columns = tuple(Column(*row) for row in rows)
    keys = frozenset(frozenset(row[0]) for row in connection.exec_driver_sql(_KEYS, {"oid": oid}))
    return Table(name, oid, columns, keys, _epoch_column(sink, columns, epoch_column), tuple(found), parts)


def locking(name: TableName, *, alone: bool = False) -> tuple[str, dict[str, object]]:
    """The statement that holds off changes of the table, as the COPY itself does; ``alone``: everything."""
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
            next=f"ALTER TABLE {name.sql.replace('%%', '%')} SET LOGGED",
        )


def _epoch_column(sink: str, columns: Sequence[Column], wanted: str | None) -> str | None:
    names = {column.name: column for column in columns}
    if wanted == "auto":
        return EPOCH_COLUMN if EPOCH_COLUMN in names and names[EPOCH_COLUMN].type == "int8" else None
    if wanted is not None and (wanted not in names or names[wanted].type != "int8" or names[wanted].array):
        raise refuse(
            "E506",
            sink=sink,
            difference=f"epoch_column={wanted!r} is not a bigint column of the table",
            next=f'ALTER TABLE ... ADD COLUMN "{wanted}" bigint, or leave epoch_column= out',
        )
    return wanted


def changed(sink: str) -> OnceOnlyError:
    """The error for a table that is not what the rows were prepared for."""
    difference = "the table was changed while the epoch was computed"
    return refuse("E506", sink=sink, difference=difference, next="restart the query; it reads the table again")
