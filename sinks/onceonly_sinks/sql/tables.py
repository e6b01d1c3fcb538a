"""SQL of the ``head`` and ``epoch`` tables of every SQL sink.

``head`` holds the fence and the newest epoch, ``epoch`` a row for each epoch. They are in the target's database.
``head`` has one row per (pipeline, sink). Every change of it is conditional on the fence and the chain that were read.
Each method of :class:`Tables` runs one statement in the caller's transaction, but :meth:`Tables.advance`, which runs
two. :mod:`onceonly.protocol.guard` judges a head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

from onceonly.protocol import Peek, Superseded
from onceonly.protocol.guard import joins
from onceonly_checkpoints.epoch import Fence, Marker

# ---- Run ``%(name)s`` statements on any DB-API connection and paramstyle.

Paramstyle: TypeAlias = Literal["pyformat", "named", "dollar"]
"""How a driver wants parameters: ``%(name)s`` (psycopg, MySQL), ``:name`` (sqlite3, Oracle), ``$name`` (DuckDB)."""

_PREFIX: Mapping[str, str] = {"named": ":", "dollar": "$"}
_PARAMETER = re.compile(r"%\((\w+)\)s|%%")


class Cursor(Protocol):
    """A statement's result: a DB-API cursor, or SQLAlchemy's result."""

    @property
    def rowcount(self) -> Any:
        """Number of changed rows, -1 if the driver does not count."""
        ...

    def fetchone(self) -> Any:
        """The next row, or ``None``."""
        ...

    def fetchall(self) -> Sequence[Any]:
        """The rows that are left."""
        ...


Execute: TypeAlias = Callable[[str, Mapping[str, Any]], Cursor]
"""Runs one statement, with parameters as ``%(name)s``, in the caller's transaction."""


class Database:
    """A DB-API connection that takes ``%(name)s``.

    All statements run on one cursor. DuckDB's cursors are connections of their own, so only that makes them one
    transaction. So an answer holds until the next statement. The connection must be in autocommit mode. BEGIN and
    COMMIT are statements here, and nothing begins by itself.
    """

    def __init__(self, connection: Any, paramstyle: Paramstyle) -> None:
        self.connection = connection
        self._paramstyle: Paramstyle = paramstyle

    @cached_property
    def _cursor(self) -> Any:
        return self.connection.cursor()

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Cursor:
        """Run one statement, in which ``%`` is written ``%%``."""
        text, names = rendered(sql, self._paramstyle)
        # DuckDB refuses a parameter that the statement does not name.
        self._cursor.execute(text, {name: (parameters or {})[name] for name in names})
        answer: Cursor = self._cursor
        return answer

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """Run one statement for each row. Return how many rows all of them changed, -1 if the driver does not count."""
        text, _ = rendered(sql, self._paramstyle)
        self._cursor.executemany(text, list(rows))
        counted = self._cursor.rowcount
        return counted if isinstance(counted, int) else -1

    def close(self) -> None:
        """Close cursor and connection. A cursor that is a connection of its own would stay open."""
        try:
            if close := getattr(self.__dict__.get("_cursor"), "close", None):
                close()
        finally:
            self.connection.close()


def rendered(sql: str, paramstyle: Paramstyle) -> tuple[str, tuple[str, ...]]:
    """A statement in the driver's paramstyle, with the names of its parameters."""
    names = tuple(dict.fromkeys(match[1] for match in _PARAMETER.finditer(sql) if match[1]))
    if paramstyle == "pyformat":
        return sql, names
    return _PARAMETER.sub(lambda match: _PREFIX[paramstyle] + match[1] if match[1] else "%", sql), names


def quote(name: str) -> str:
    """A name as SQL, for a statement with parameters."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


# ---- SQL of the ``head`` and ``epoch`` tables of every SQL sink.


OURS = "pipeline = %(pipeline)s AND sink = %(sink)s"
"""The condition that keeps one (pipeline, sink)."""

_EMPTY: Mapping[str, str] = {"text": "''", "bigint": "0"}


@dataclass(frozen=True, slots=True)
class HeadScope:
    """Pipeline and sink id whose rows are meant."""

    pipeline: str
    sink: str

    @property
    def parameters(self) -> dict[str, Any]:
        """For the statements here."""
        return {"pipeline": self.pipeline, "sink": self.sink}


@dataclass(frozen=True, slots=True)
class Head:
    """The head row: the newest fence and epoch.

    ``target_identity`` is the target's identity when that epoch went to it, as values of :attr:`Tables.target_columns`.
    """

    fence: Fence
    epoch: int
    chain: str
    target_identity: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the epoch table, with its counted rows.

    ``target_identity`` is the target's identity then, as values of :attr:`Tables.target_columns`.
    """

    number: int
    chain: str
    marker: Marker
    rows: int
    target_identity: tuple[Any, ...]


@dataclass(frozen=True)
class Tables:
    """Names and columns of the two tables, and the statements on them.

    Attributes:
        head: the head table, as it is written in SQL.
        target_columns: columns that identify and locate the target, with their types: ``text`` or ``bigint``.
        target: the one of them that names the table.
        now: the current time, in SQL.
        moment: type of a point in time, with its default.
        storage: SQL after the head's columns: each epoch updates the row.
    """

    head: str = "onceonly_head"
    epoch: str = "onceonly_epoch"
    target_columns: Mapping[str, str] = field(default_factory=lambda: {"identity": "text", "target": "text"})
    target: str = "target"
    now: str = "CURRENT_TIMESTAMP"
    moment: str = "timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP"
    storage: str = ""

    # ---- statements

    @cached_property
    def ddl(self) -> tuple[str, str]:
        """Creates both tables if they are missing."""
        identity_columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in self.target_columns.items())
        return (
            f"""
    CREATE TABLE IF NOT EXISTS {self.head} (
        pipeline text NOT NULL, sink text NOT NULL,
        generation bigint NOT NULL, owner text NOT NULL,
        epoch bigint NOT NULL, chain text NOT NULL,
        {identity_columns},
        updated_at {self.moment},
        PRIMARY KEY (pipeline, sink)
    ){self.storage}
    """,
            f"""
    CREATE TABLE IF NOT EXISTS {self.epoch} (
        pipeline text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL,
        generation bigint NOT NULL, owner text NOT NULL,
        chain text NOT NULL, rows bigint NOT NULL, marker text NOT NULL,
        {identity_columns},
        committed_at {self.moment},
        PRIMARY KEY (pipeline, sink, epoch)
    )
    """,
        )

    @cached_property
    def _places(self) -> str:
        return ", ".join(self.target_columns)

    @cached_property
    def sql_install(self) -> str:
        """Makes a fence the newest if it is strictly greater.

        Our own newest epoch row replaces a deleted head: the marker is the truth, the head points at it. ``newest`` is
        that row. It is joined from the left, so that a sink without epochs gets its head too.
        """
        # No row is changed where a fence stands that is as high: the count of rows is the answer, and the row's lock,
        # taken before the condition is looked at, orders whoever comes at once.
        identity_values = ", ".join(f"coalesce(n.{name}, {_EMPTY[kind]})" for name, kind in self.target_columns.items())
        return f"""
WITH newest AS (SELECT * FROM {self.epoch} WHERE {OURS} ORDER BY epoch DESC LIMIT 1)
INSERT INTO {self.head} AS h (pipeline, sink, generation, owner, epoch, chain, {self._places})
SELECT %(pipeline)s, %(sink)s, %(generation)s, %(owner)s, coalesce(n.epoch, 0), coalesce(n.chain, ''),
       {identity_values}
FROM (SELECT 1) one LEFT JOIN newest n ON true
WHERE n.generation IS NULL OR n.generation < %(generation)s
ON CONFLICT (pipeline, sink) DO UPDATE
SET generation = excluded.generation, owner = excluded.owner, updated_at = {self.now}
WHERE h.generation < excluded.generation
"""

    @cached_property
    def sql_advance(self) -> tuple[str, str]:
        """Moves the head and writes the epoch row. Returns a row if the head was as last known.

        The guard's rules once more, as a condition: a read may be older than the head that is moved.
        """
        # RETURNING, since some drivers count no rows. The key of the second table is a net of its own: an epoch that
        # got past the head twice fails there.
        assignments = ", ".join(f"{name} = %({name})s" for name in self.target_columns)
        placeholders = ", ".join(f"%({name})s" for name in self.target_columns)
        return (
            f"""
UPDATE {self.head} SET epoch = %(epoch)s, chain = %(chain)s, {assignments}, updated_at = {self.now}
WHERE {OURS} AND generation = %(generation)s AND owner = %(owner)s
  AND ((epoch = %(before_epoch)s AND chain = %(before_chain)s) OR (%(joins)s AND epoch <= %(before_epoch)s))
RETURNING epoch
""",
            f"""
INSERT INTO {self.epoch} (pipeline, sink, epoch, generation, owner, chain, rows, marker, {self._places})
VALUES (%(pipeline)s, %(sink)s, %(epoch)s, %(generation)s, %(owner)s, %(chain)s, %(rows)s, %(marker)s, {placeholders})
""",
        )

    @cached_property
    def sql_touch(self) -> str:
        """Writes the head unchanged."""
        return f"UPDATE {self.head} SET updated_at = {self.now} WHERE {OURS}"

    @cached_property
    def _sql_rows(self) -> str:
        return f"SELECT epoch, chain, rows, marker, {self._places} FROM {self.epoch} WHERE {OURS}"

    @cached_property
    def sql_newest(self) -> str:
        """Number and marker of the newest epoch. If the head row is gone, our newest epoch row replaces it.

        ``newest`` holds the head's epoch, then that of the epoch rows. One statement reads both in one snapshot.
        """
        return f"""
WITH newest AS (SELECT epoch FROM {self.head} WHERE {OURS}
                UNION ALL SELECT max(epoch) FROM {self.epoch} WHERE {OURS})
SELECT n.epoch, (SELECT e.marker FROM {self.epoch} e WHERE {OURS} AND e.epoch = n.epoch)
FROM newest n WHERE n.epoch > 0 LIMIT 1
"""

    # ---- reading

    def read(self, execute: Execute, writer: HeadScope, lock: str = "") -> Head | None:
        """The head row. ``lock``, as ``FOR UPDATE``, waits until every transaction that changed it has ended."""
        query = f"SELECT generation, owner, epoch, chain, {self._places} FROM {self.head} WHERE {OURS} {lock}"
        row = execute(query.rstrip(), writer.parameters).fetchone()
        return Head(Fence(row[0], row[1]), row[2], row[3], tuple(row[4:])) if row else None

    def newest_fence(self, execute: Execute, writer: HeadScope) -> Fence | None:
        """The installed fence. Without a head row, that of the newest epoch."""
        head = self.read(execute, writer)
        if head is not None:
            return head.fence
        query = f"SELECT generation, owner FROM {self.epoch} WHERE {OURS} ORDER BY epoch DESC LIMIT 1"
        row = execute(query, writer.parameters).fetchone()
        return Fence(row[0], row[1]) if row else None

    def newest_epoch(self, execute: Execute, writer: HeadScope) -> tuple[int, Marker | None]:
        """Number of the newest epoch, 0 for none. Its marker, if that is still there."""
        row = execute(self.sql_newest, writer.parameters).fetchone()
        return (row[0], _marker(row[1]) if row[1] else None) if row else (0, None)

    def epoch_at(self, execute: Execute, writer: HeadScope, number: int) -> Row | None:
        """One epoch, or ``None`` if it is not there."""
        row = execute(f"{self._sql_rows} AND epoch = %(epoch)s", {**writer.parameters, "epoch": number}).fetchone()
        return _row(row) if row else None

    def epochs_after(self, execute: Execute, writer: HeadScope, after: int, limit: int) -> list[Row]:
        """The next epochs, oldest first."""
        query = f"{self._sql_rows} AND epoch > %(after)s ORDER BY epoch LIMIT %(limit)s"
        return [_row(row) for row in execute(query, {**writer.parameters, "after": after, "limit": limit}).fetchall()]

    def shared(self, execute: Execute, writer: HeadScope, target: object) -> bool:
        """Whether another sink writes to the same table. Epoch numbers in it are then not ours alone."""
        query = f"SELECT count(*) FROM {self.head} WHERE {self.target} = %(target)s AND NOT ({OURS})"
        return bool(execute(query, {**writer.parameters, "target": target}).fetchone()[0])

    def writers(self, execute: Execute, target: object) -> list[str]:
        """Pipelines with an epoch in a table."""
        query = f"SELECT DISTINCT pipeline FROM {self.head} WHERE {self.target} = %(target)s AND epoch > 0 ORDER BY 1"
        return [row[0] for row in execute(query, {"target": target}).fetchall()]

    # ---- writing

    def install(self, execute: Execute, writer: HeadScope, fence: Fence) -> None:
        """Make ``fence`` the newest if it is greater or already installed. Otherwise raise :class:`Superseded`."""
        if execute(self.sql_install, {**writer.parameters, **fence.to_json()}).rowcount == 1:
            return
        installed_fence = self.newest_fence(execute, writer)
        if installed_fence is not None and installed_fence != fence:
            raise Superseded(writer.sink, installed_fence)

    def advance(
        self, execute: Execute, writer: HeadScope, marker: Marker, rows: int, identity_values: Mapping[str, Any]
    ) -> bool:
        """Move the head and write the epoch row. Return whether the epoch followed the head."""
        move, write = self.sql_advance
        parameters = {**advancing(writer, marker, rows), **identity_values}
        if not execute(move, parameters).fetchall():
            return False
        execute(write, parameters)
        return True

    def touch(self, execute: Execute, writer: HeadScope) -> None:
        """Write the head unchanged: the rows that we have read are then as safe as this commit."""
        execute(self.sql_touch, writer.parameters)


def advancing(writer: HeadScope, marker: Marker, rows: int) -> dict[str, Any]:
    """Parameters of the statements that move the head."""
    epoch = marker.epoch
    return {
        **writer.parameters,
        **marker.fence.to_json(),
        "epoch": epoch.number,
        "chain": epoch.chain,
        "before_epoch": epoch.number - 1,
        "before_chain": epoch.previous_chain,
        "joins": joins(marker),
        "rows": rows,
        "marker": marker.text,
    }


def peek_target(newest: Callable[[], tuple[int, Marker | None]], any_row: Callable[[], bool]) -> Peek:
    """The sight of a sink. ``any_row``, whether the target holds a row, is called only if there is no epoch."""
    number, marker = newest()
    rows = not number and any_row()
    if rows:  # an epoch that was committed between the two statements would make its rows a stranger's
        number, marker = newest()
    return Peek(marker, number, strangers=rows and not number)


def recount(execute: Execute, table: str, column: str) -> dict[int, int]:
    """Rows by the value of the epoch column, with 0 for none. Both names are as they are written in SQL."""
    query = f"SELECT coalesce({column}, 0), count(*) FROM {table} GROUP BY 1 ORDER BY 1"
    return {int(epoch): int(rows) for epoch, rows in execute(query, {}).fetchall()}


def _row(record: Any) -> Row:
    return Row(record[0], record[1], _marker(record[3]), record[2], tuple(record[4:]))


def _marker(text: str) -> Marker:
    return Marker.from_json(json.loads(text))
