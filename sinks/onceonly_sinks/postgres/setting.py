"""Markers that outlived their table leave, so that a rewind fills the one that stands in its place from epoch 1 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_sinks.postgres import expiring, history, tombstones
from onceonly_sinks.sql.tables import OURS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly_sinks.postgres.loading import Target

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


def forget(connection: Connection, target: Target) -> None:
    """Let everything go that is told of a sink's epochs, in the transaction of a fence; the fence stays.

    Args:
        connection: the transaction, which holds the head locked.
        target: of the sink.
    """
    writer = target.writer
    newest, kept = connection.exec_driver_sql(_NEWEST, writer.parameters).one()
    if kept:  # of the table that is gone; it begins anew with it
        history.clear(connection, target.name)
    if newest:
        tombstones.clear(connection, writer, (1, newest))
        expiring.clear(connection, writer, (1, newest))
    for statement in _FORGET:
        connection.exec_driver_sql(statement, writer.parameters)
