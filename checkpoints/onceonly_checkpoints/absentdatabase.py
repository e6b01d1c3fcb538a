"""Tells a database that a server does not have from a login that it refuses: libpq gives neither an SQLSTATE."""

from __future__ import annotations

from typing import Any

_ALWAYS_THERE = ("postgres", "template1")
_SECONDS = "5"


def absent_database(error: BaseException) -> str:
    """Ask the server of a failed connection, by the same login in another of its databases, for the one that failed.

    Args:
        error: what psycopg raised when it connected.

    Returns:
        The database's name, if the server says that it has none of this name; empty if it has, or cannot be asked.
    """
    import psycopg

    asked: Any = getattr(error, "pgconn", None)
    if asked is None:
        return ""
    tried: dict[str, Any] = {option.keyword.decode(): option.val.decode() for option in asked.info if option.val}
    wanted = tried.get("dbname") or tried.get("user", "")
    for other in _ALWAYS_THERE:
        try:
            parameters: dict[str, Any] = {**tried, "dbname": other, "connect_timeout": _SECONDS}
            with psycopg.connect(**parameters) as connection:
                query = "SELECT 1 FROM pg_catalog.pg_database WHERE datname = %s"
                return "" if connection.execute(query, [wanted]).fetchone() else wanted
        except psycopg.Error:
            continue
    return ""
