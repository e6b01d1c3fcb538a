"""Delete replaced epochs in the transaction that brings new rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol.capabilities import Span
from onceonly.runtime.sink_refusals import refusal
from onceonly_sinks.postgres import head, schema, upsert
from onceonly_sinks.postgres.load import Target
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import quote
from onceonly_sinks.sql.tables import OURS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly_checkpoints.epoch import Epoch, Receipt
    from onceonly_sinks.postgres.head import TableIdentity

_MAY_DELETE = "SELECT pg_catalog.has_table_privilege(%(oid)s::oid, 'DELETE')"
# A constraint that cascades would take rows of other tables along, one that does not would stop the query in the midst.
_REFERRING = """
SELECT pg_catalog.string_agg(DISTINCT c.conrelid::pg_catalog.regclass::text, ', ')
FROM pg_catalog.pg_constraint c WHERE c.confrelid = %(oid)s::oid AND c.contype = 'f' AND c.conrelid <> c.confrelid
"""

_BELOW = "SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = %(oid)s::oid)"


def obstacle(connection: Connection, target: Target, span: Span) -> str:
    """Why rows of these epochs are not distinguishable or deletable, or empty if they are both."""
    if target.apply is not None:
        return "its rows are brought by a function of your own (apply=), and what that has written is not known"
    table = _table(connection, target)
    return next(_obstacles(connection, target, table, span), "") if table else ""


def _obstacles(connection: Connection, target: Target, table: Table, span: Span) -> Iterator[str]:
    name, column = target.name.text, table.epoch_column
    if column is None:
        yield f"rows of {name} carry no epoch (PostgresTuning(epoch_column=)), so ours cannot be separated from others"
        return
    if head.shared(connection, target.writer, table.oid):
        yield f"another sink writes to {name}, and numbers its rows there, too"
    if not connection.exec_driver_sql(_MAY_DELETE, {"oid": table.oid}).scalar_one():
        yield f"the role has no DELETE on {name}"
    if tables := connection.exec_driver_sql(_REFERRING, {"oid": table.oid}).scalar_one():
        yield f"foreign keys of {tables} refer to rows of {name}"
    if target.merge.key and _others(connection, table, column, span):
        yield f"{name} has other writers: it holds rows without an epoch of ours, which may have our keys"


def expiry_obstacle(connection: Connection, target: Target) -> OnceOnlyError | None:
    """Why rows of the target cannot be removed by age, or ``None`` if they can or if it does not exist."""
    name, sink = target.name.text, target.writer.sink
    table = schema.inspect(connection, target.name, sink, target.epoch_column)
    if target.apply is not None or target.merge.key:
        return _cannot(sink, f"rows of {name} are replaced", "give the quarantine no key= and no apply=")
    if table is None and target.epoch_column is not None:
        return None
    if table is None or table.epoch_column is None:
        remedy = f"ALTER TABLE {target.name.sql} ADD COLUMN _epoch bigint, and no epoch_column=None"
        return _cannot(sink, f"rows of {name} carry no epoch", remedy)
    if connection.exec_driver_sql(_BELOW, {"oid": table.oid}).scalar_one():
        return _cannot(sink, f"{name} has partitions", "leave keep_for= out, and drop partitions as they grow old")
    if reason := obstacle(connection, target, (1, 1)):
        return _cannot(sink, reason, f"GRANT DELETE ON {target.name.sql}, or another table that is ours alone")
    return None


def _cannot(sink: str, reason: str, remedy: str) -> OnceOnlyError:
    cause = "keep_for= removes rows by the number of their epoch, and counts what it removed"
    return refuse("E508", sink=sink, reason=reason, cause=cause, next=remedy)


def _table(connection: Connection, target: Target) -> Table | None:
    return schema.inspect(connection, target.name, target.writer.sink, target.epoch_column)


def _others(connection: Connection, table: Table, column: str, span: Span) -> bool:
    where = f"{quote(column)} BETWEEN %(first)s AND %(last)s"
    query = f"SELECT EXISTS (SELECT FROM {table.name.sql} WHERE ({where}) IS NOT TRUE)"
    return bool(connection.exec_driver_sql(query, _named(span)).scalar_one())


def clear(connection: Connection, target: Target, span: Span) -> None:
    """Delete the rows of these epochs in the open transaction.

    Raises E247: they are not distinguishable from others, or some of them stay.
    """
    if reason := obstacle(connection, target, span):
        raise refusal(target.writer.sink, target.writer.pipeline, reason)
    table = _table(connection, target)
    if table is None or table.epoch_column is None:
        return
    where = f"WHERE {quote(table.epoch_column)} BETWEEN %(first)s AND %(last)s"
    connection.exec_driver_sql(f"DELETE FROM {table.name.sql} {where}", _named(span))
    from onceonly_sinks.postgres import expiry

    expiry.clear(connection, target.writer, span)
    if target.merge.tombstones:
        upsert.clear(connection, target.writer, span)
    stays = f"SELECT EXISTS (SELECT FROM {table.name.sql} {where})"
    if connection.exec_driver_sql(stays, _named(span)).scalar_one():
        reason = f"a trigger or a policy of {target.name.text} keeps rows from being deleted"
        raise refusal(target.writer.sink, target.writer.pipeline, reason)


def _named(span: Span) -> dict[str, int]:
    return {"first": span[0], "last": span[1]}


# ---- Which epoch's rows a table holds, and the markers put there: a rewind then brings the later epochs.
#
# A table that is dropped, emptied or filled from a dump leaves its markers as they were. They say of every epoch
# that its rows are there, and the epoch column says of which they are.


_NEWEST = f"SELECT epoch, kept_upto FROM onceonly.head WHERE {OURS}"
_FORGET = (
    f"DELETE FROM onceonly.epoch WHERE {OURS}",
    f"DELETE FROM onceonly.pruned WHERE {OURS}",
    f"""
    UPDATE onceonly.head SET epoch = 0, chain = '', sealed = 0, kept_from = 0, kept_upto = 0,
                             system_id = '', timeline = 0, target_oid = 0, updated_at = clock_timestamp()
    WHERE {OURS}
    """,
)
_SET_IDENTITY = "system_id = %(system)s, timeline = %(timeline)s, target_oid = %(oid)s"
_SET_BACK = (
    f"DELETE FROM onceonly.epoch WHERE {OURS} AND epoch > %(epoch)s",
    f"UPDATE onceonly.epoch SET {_SET_IDENTITY} WHERE {OURS}",
    f"""
    UPDATE onceonly.head SET epoch = %(epoch)s, sealed = least(sealed, %(epoch)s), {_SET_IDENTITY},
           chain = (SELECT e.chain FROM onceonly.epoch e WHERE {OURS} AND e.epoch = %(epoch)s),
           updated_at = clock_timestamp()
    WHERE {OURS}
    """,
)
_MANY = 1_000_000
"""More markers than any sink keeps."""


def content(connection: Connection, target: Target, table: Table) -> int | None:
    """The epoch whose rows a table holds, by their number in each epoch up to it; ``None`` if they are of none."""
    if table.epoch_column is None or head.shared(connection, target.writer, table.oid):
        return None
    counted = schema.recount(connection, table, table.epoch_column)
    epochs = head.epochs_after(connection, target.writer, 0, _MANY)
    held = {marker.epoch.number: (marker.epoch, receipt) for marker, receipt in epochs}
    newest = max(counted)
    if newest not in held or not _agree(connection, target, counted, held, newest):
        return None
    while newest + 1 in held and not held[newest + 1][1].rows:
        newest += 1
    return newest


def _agree(
    connection: Connection, target: Target, counted: dict[int, int], held: dict[int, tuple[Epoch, Receipt]], newest: int
) -> bool:
    """Whether the rows up to an epoch are those that its markers name; what an operator took as it was is left out."""
    upto = [epoch for epoch, _ in held.values() if epoch.number <= newest]
    accepted = max((epoch.number for epoch in upto if epoch.accepts(target.writer.sink)), default=0)
    first = max(held[newest][0].series, accepted + 1)
    from onceonly_sinks.postgres import prune

    gone = prune.milestone(connection, target.writer)
    if gone and first <= gone.epoch:
        below = sum(rows for number, rows in counted.items() if gone.accepted < number <= gone.epoch)
        if below != gone.rows:
            return False
        first = gone.epoch + 1
    return all(number in held and counted.get(number, 0) == held[number][1].rows for number in range(first, newest + 1))


def stand(connection: Connection, target: Target, epoch: int, table_identity: TableIdentity) -> None:
    """Put the markers at ``epoch``, in the transaction of a fence. The fence stays.

    ``connection`` holds the head locked. With epoch 0 the table has no row, and all is forgotten about it. The markers
    name ``table_identity`` from now on.
    """
    newest, history_end = connection.exec_driver_sql(_NEWEST, target.writer.parameters).one()
    if history_end and not epoch:  # of the table that is gone; it begins anew with it
        from onceonly_sinks.postgres import history

        history.clear(connection, target.name)
    if newest > epoch:
        from onceonly_sinks.postgres import expiry

        upsert.clear(connection, target.writer, (epoch + 1, newest))
        expiry.clear(connection, target.writer, (epoch + 1, newest))
    head_values = {
        "system": table_identity.system,
        "timeline": table_identity.timeline,
        "oid": table_identity.oid,
        "epoch": epoch,
    }
    for statement in _SET_BACK if epoch else _FORGET:
        connection.exec_driver_sql(statement, {**target.writer.parameters, **head_values})


# ---- Whether the rows of the newest epoch are there, in the little time that an opening has.

_SIZE = """
SELECT pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint,
       EXISTS (SELECT FROM pg_catalog.pg_index i
               WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum AND i.indpred IS NULL AND i.indisvalid)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = %(column)s AND NOT a.attisdropped
WHERE c.oid = %(oid)s::oid AND c.relkind = 'r' AND a.atttypid = 'pg_catalog.int8'::regtype
"""
_END = 64
"""Pages at the end of a table that are looked at first: there the newest rows stand, unless room was free elsewhere."""

_SMALL = 4096
"""Pages of a table that is looked through without an index: 32 MiB, some hundredths of a second."""


def rows_gone(connection: Connection, target: Target, oid: int, newest: Receipt) -> bool:
    """Whether no row of the newest epoch is there. False if finding out would take long. For a sink that appends."""
    column = schema.EPOCH_COLUMN if target.epoch_column == "auto" else target.epoch_column
    if not column or not newest.rows:
        return False
    size_row = connection.exec_driver_sql(_SIZE, {"oid": oid, "column": column}).one_or_none()
    if size_row is None:
        return False
    pages, indexed = size_row
    name, named = target.name.sql, {"epoch": newest.epoch}
    ours = f"SELECT EXISTS (SELECT FROM {name} WHERE {quote(column)} = %(epoch)s"
    end = f"{ours} AND ctid >= '({max(pages - _END, 0)},0)'::tid)"
    if connection.exec_driver_sql(end, named).scalar_one() or (pages > _SMALL and not indexed):
        return False
    anywhere = (
        f"{ours}), count({quote(column)}), count(*) FROM (SELECT {quote(column)} FROM {name} LIMIT 1000) AS first"
    )
    there, numbered, rows = connection.exec_driver_sql(anywhere, named).one()
    return not there and bool(numbered or not rows)  # where none has a number the column was added later
