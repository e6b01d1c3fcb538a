"""Run ``%(name)s`` statements on any DB-API connection and paramstyle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

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
    names = tuple(dict.fromkeys(found[1] for found in _PARAMETER.finditer(sql) if found[1]))
    if paramstyle == "pyformat":
        return sql, names
    return _PARAMETER.sub(lambda found: _PREFIX[paramstyle] + found[1] if found[1] else "%", sql), names


def quote(name: str) -> str:
    """A name as SQL, for a statement with parameters."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'
