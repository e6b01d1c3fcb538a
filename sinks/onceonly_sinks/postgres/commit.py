"""Fill an epoch's Postgres transaction with rows, marker and ledger record.

Features that a plain append does not use are imported where an epoch uses them, so that its query does not load them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError

from onceonly.errors import refuse
from onceonly.errors.options import unfit
from onceonly.faults import Point
from onceonly.protocol import Recorder
from onceonly.protocol.row_rules import BrokenCheck, Check
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Marker, Receipt
from onceonly_checkpoints.ledger import LedgerUnavailable
from onceonly_sinks.postgres import head, obstacles, schema, upsert
from onceonly_sinks.postgres.load import PostgresPrepared, Target
from onceonly_sinks.postgres.schema import Table
from onceonly_sinks.postgres.server import TableName
from onceonly_sinks.postgres.transaction import Transactions
from onceonly_sinks.sql.commit_outcome import check_counted

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly_sinks.postgres.apply_sql import Apply


def write_epoch(
    connection: Connection,
    transactions: Transactions,
    target: Target,
    rows: PostgresPrepared | None,
    marker: Marker,
    *,
    sinks: frozenset[str],
) -> Receipt:
    """Bring a sink's rows and marker of an epoch into the transaction, and return its receipt.

    The head's row is touched last: other drivers wait for its lock no longer than the commit itself takes. ``sinks``
    are the ids of all sinks in the transaction.

    Raises ``Superseded`` if another fence is installed. Raises ``OnceOnlyError``, ``Refused`` (which describes the row)
    or ``DBAPIError`` if the epoch does not follow the head, or a row cannot be taken.
    """
    try:
        span = marker.epoch.replaces
        if span and (rows is None or rows.cleared != span):
            from onceonly_sinks.postgres import replace_rows

            replace_rows.clear(connection, target, span)
        if span and target.merge.history and (table := target.look(connection)):
            from onceonly_sinks.postgres import history

            history.end_all(connection, table, marker.epoch.number)
        oid = _bring(connection, target, rows, marker.epoch)
        count = rows.rows if rows else 0
        if target.keep_ms:
            from onceonly_sinks.postgres import expiry

            expiry.expire(connection, target, marker.epoch, count)
        sealed = sealed_by(marker.epoch, sinks)
        keeps = target.merge.history
        where = head.advance(connection, marker, oid, count, target.visibility, sealed=sealed, keeps=keeps)
        if where is None:
            raise _why_not(connection, marker, target, oid)
    except DBAPIError as error:
        from onceonly_sinks.postgres import bad_rows

        transactions.drop(connection)
        if (refused := bad_rows.find_bad_row(transactions, target, rows, marker, error)) is not None:
            raise refused from None
        raise
    except BaseException:
        transactions.drop(connection)
        raise
    return head.receipt(marker.sink, marker.epoch.number, marker.epoch.chain, where, count)


def sealed_by(epoch: Epoch, sinks: frozenset[str]) -> int:
    """The newest epoch that all sinks hold once a transaction has committed one in some of them."""
    return epoch.number if {sink for sink, _ in epoch.sinks} <= sinks else epoch.number - 1


def _bring(connection: Connection, target: Target, rows: PostgresPrepared | None, of: Epoch) -> int:
    epoch = of.number
    if rows is None:
        return schema.oid(connection, target.name)
    if target.apply is not None:
        return _apply(connection, target, target.apply, rows, epoch)
    if not rows.rows:
        return schema.oid(connection, target.name) or target.lock_table(connection, rows.plan).oid
    # Rows that were loaded into the target itself hold it locked since; the others meet it only now.
    loaded = rows.connection is not None and rows.plan.table.oid and not rows.plan.added
    table = rows.plan.table if loaded else target.lock_table(connection, rows.plan)
    if rows.waiting is None:
        return table.oid
    _complete(target, rows, _count(connection, rows, rows.waiting), epoch)
    remembers = bool(target.merge.tombstones)
    if remembers:
        upsert.ready(connection, table, target.writer, target.merge)
        rows = replace(rows, waiting=replace(rows.waiting, tombstones=upsert.relation(target.writer)))
    assert rows.waiting is not None
    if target.merge.history:
        from onceonly_sinks.postgres import history

        if history.ready(connection, table, target.writer, target.merge, of):
            target.show(connection, table)
    changed = upsert.apply(connection, table, rows.waiting, target.merge, epoch)
    _all_stand(connection, target, table, rows, changed=changed, epoch=epoch)
    if remembers:
        upsert.remember(connection, table, rows.waiting, target.merge, of)
    if target.merge.history:
        from onceonly_sinks.postgres import history

        history.write(connection, table, rows.waiting, target.merge, epoch)
    if keep_seconds := target.merge.keeps:
        from onceonly_sinks.postgres import seen_ids

        seen_ids.forget(connection, table, of, keep_seconds, rows.rows)
    return table.oid


def _all_stand(
    connection: Connection, target: Target, table: Table, rows: PostgresPrepared, *, changed: int, epoch: int
) -> None:
    """Refuse an epoch of which a trigger kept rows back. Without triggers only an append is counted."""
    assert rows.waiting is not None
    sink, events, merge = target.writer.sink, target.events, target.merge
    if not obstacles.triggers_of(table.parts, events):
        _complete(target, rows, None if merge.key else changed, epoch)
        return
    lacking = upsert.kept_back(connection, table, rows.waiting, merge, changed=changed, rows=rows.rows)
    if lacking > 0:
        raise obstacles.kept_back(sink, table.parts, events, epoch, lacking)
    if lacking < 0:
        raise refuse("E510", sink=sink, written=changed, epoch=epoch, counted=rows.rows)


def _complete(target: Target, rows: PostgresPrepared, written: int | None, epoch: int) -> None:
    if refused := check_counted(target.writer.sink, epoch, rows.rows, written):
        raise refused


def _count(connection: Connection, rows: PostgresPrepared, waiting: upsert.Waiting) -> int | None:
    return None if rows.proven else upsert.count(connection, waiting)


def _apply(connection: Connection, target: Target, apply: Apply, rows: PostgresPrepared, epoch: int) -> int:
    from onceonly_sinks.postgres import apply_sql

    sink = target.writer.sink
    if rows.waiting is None or not rows.rows:
        return schema.oid(connection, target.name)
    _complete(target, rows, _count(connection, rows, rows.waiting), epoch)
    apply_sql.run(connection, apply, rows.waiting, epoch, sink=sink, address=target.address)
    oid = schema.oid(connection, target.name)
    if not oid:
        reason = f"after epoch {epoch} there is no table {target.name.text}"
        cause = "table= names another table than the function given as apply= writes"
        raise refuse("E508", sink=sink, reason=reason, cause=cause, next="create it, or correct table=")
    return oid


def _why_not(connection: Connection, marker: Marker, target: Target, oid: int) -> Exception:
    """Explain why the head did not move, from the row under its lock."""
    head_row = head.read(connection, target.writer, lock="FOR UPDATE")
    table_identity = head.table_identity(connection, oid, target.visibility)
    refused = head.judge(head_row, marker) or schema.replaced(head_row, table_identity, marker)
    return refused or refuse("E210", epoch=marker.epoch.number, sink=marker.sink, pipeline=marker.pipeline)


def check_table(
    transactions: Transactions, connection: Connection, name: TableName, checks: Sequence[Check], marker: Marker
) -> None:
    """Refuse an epoch after which a check of the table is not true (E531). Nothing of the transaction stays.

    Raises E110: the server does not understand the check.
    """

    def ask(expressions: Sequence[str]) -> Sequence[Any]:
        # The end of a line is that of a comment.
        listed = ", ".join(f"({expression}\n)" for expression in expressions).replace("%", "%%")
        # HAVING: one row, also of a condition without an aggregate; a set of several is not true.
        rows = connection.exec_driver_sql(f"SELECT {listed} FROM {name.sql} HAVING true").all()
        return rows[0] if len(rows) == 1 else [None] * len(expressions)

    with transactions.whole(connection):
        for check in checks:
            try:
                is_true = ask([check.sql])[0]
            except (ProgrammingError, DataError) as error:
                problem, cause = f"check_table={{{check.name!r}: {check.sql!r}}}", str(error.orig).partition("\n")[0]
                raise unfit("PostgresSink", problem, cause, "correct it") from None
            if is_true is True:
                continue
            values: tuple[object, ...] = ()
            with suppress(DBAPIError):  # a call that means something only where it is
                values = tuple(ask(check.figures)) if check.figures else ()
            raise refuse(
                "E531",
                pipeline=marker.pipeline,
                epoch=marker.epoch.number,
                check=check.name,
                over=f"table {name.text}",
                text=BrokenCheck(check, values).text,
                next="mend the table in one transaction, then restart the query",
            )


def send(
    transactions: Transactions,
    connection: Connection,
    marker: Marker,
    receipts: tuple[Receipt, ...],
    ledger: Recorder | None,
) -> None:
    """Commit the filled transaction, with the ledger's record if the transaction carries it.

    Raises ``OutcomeUnknown``: sent, and no answer came. Raises ``Refused``: the server refused. Nothing is visible.
    Raises E511: the ledger cannot record the epoch.
    """
    if ledger is not None:
        with transactions.whole(connection):
            _record(ledger, connection, marker, receipts)
    transactions.send(connection, Point.COMMIT_SENT)


def _record(ledger: Recorder, connection: Connection, marker: Marker, receipts: tuple[Receipt, ...]) -> None:
    now = time.time_ns() // 1_000_000
    entry = EpochRecord(marker.pipeline, marker.fence, marker.epoch, receipts, recorded_ms=now)
    try:
        ledger.record(entry, connection=connection)
    except LedgerUnavailable as error:
        raise refuse("E511", ledger=ledger.address, reason=str(error)) from error
