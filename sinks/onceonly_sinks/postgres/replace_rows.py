"""Rows of replaced epochs leave the table in the transaction that brings others: by the column that numbers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onceonly.protocol.capabilities import Span
from onceonly.runtime.refresh import refusal
from onceonly_sinks.postgres import expiry, head, schema, tombstones
from onceonly_sinks.postgres.load import Target
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import quote

if TYPE_CHECKING:
    from sqlalchemy import Connection

_MAY_DELETE = "SELECT pg_catalog.has_table_privilege(%(oid)s::oid, 'DELETE')"
# A constraint that cascades would take rows of other tables along, one that does not would stop the query in the midst.
_REFERRING = """
SELECT pg_catalog.string_agg(DISTINCT c.conrelid::pg_catalog.regclass::text, ', ')
FROM pg_catalog.pg_constraint c WHERE c.confrelid = %(oid)s::oid AND c.contype = 'f' AND c.conrelid <> c.confrelid
"""


def obstacle(connection: Connection, target: Target, span: Span) -> str:
    """Why rows of these epochs cannot be told from all others, or not be deleted; empty where they can."""
    if target.apply is not None:
        return "its rows are brought by a function of your own (apply=), and what that has written is not known"
    table = _table(connection, target)
    return next(_obstacles(connection, target, table, span), "") if table else ""


def _obstacles(connection: Connection, target: Target, table: Table, span: Span) -> Iterator[str]:
    name, column = target.name.text, table.epoch_column
    if column is None:
        yield f"rows of {name} carry no epoch (epoch_column=), so ours cannot be told from others"
        return
    if head.shared(connection, target.writer, table.oid):
        yield f"another sink writes to {name}, and numbers its rows there, too"
    if not connection.exec_driver_sql(_MAY_DELETE, {"oid": table.oid}).scalar_one():
        yield f"the role has no DELETE on {name}"
    if tables := connection.exec_driver_sql(_REFERRING, {"oid": table.oid}).scalar_one():
        yield f"foreign keys of {tables} refer to rows of {name}"
    if target.merge.key and _others(connection, table, column, span):
        yield f"{name} is not ours alone: rows without an epoch of ours stand there, and may have our keys"


def _table(connection: Connection, target: Target) -> Table | None:
    return schema.inspect(connection, target.name, target.writer.sink, target.epoch_column)


def _others(connection: Connection, table: Table, column: str, span: Span) -> bool:
    where = f"{quote(column)} BETWEEN %(first)s AND %(last)s"
    query = f"SELECT EXISTS (SELECT FROM {table.name.sql} WHERE ({where}) IS NOT TRUE)"
    return bool(connection.exec_driver_sql(query, _named(span)).scalar_one())


def clear(connection: Connection, target: Target, span: Span) -> None:
    """Delete the rows of these epochs in the open transaction.

    Raises:
        IdentityError: E247, they cannot be told from others, or some of them stay.
    """
    if reason := obstacle(connection, target, span):
        raise refusal(target.writer.sink, target.writer.pipeline, reason)
    table = _table(connection, target)
    if table is None or table.epoch_column is None:
        return
    where = f"WHERE {quote(table.epoch_column)} BETWEEN %(first)s AND %(last)s"
    connection.exec_driver_sql(f"DELETE FROM {table.name.sql} {where}", _named(span))
    expiry.clear(connection, target.writer, span)
    if target.merge.tombstones:
        tombstones.clear(connection, target.writer, span)
    stays = f"SELECT EXISTS (SELECT FROM {table.name.sql} {where})"
    if connection.exec_driver_sql(stays, _named(span)).scalar_one():
        reason = f"a trigger or a policy of {target.name.text} keeps rows from being deleted"
        raise refusal(target.writer.sink, target.writer.pipeline, reason)


def _named(span: Span) -> dict[str, int]:
    return {"first": span[0], "last": span[1]}
