"""Keys that were removed, remembered for a time: an older change that comes late must not bring a row back.

Of a removed row nothing is left that a late change could be compared with. So the change that removed it stays for a
while, in a table of ours, in the epoch's transaction; Cassandra and Kafka's compaction call that a tombstone. What is
remembered ends by the clock of the epochs: a replay forgets what its first attempt forgot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.protocol.change_order import replaces
from onceonly_sinks.postgres import upsert
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.server import quote

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly.protocol.capabilities import Span
    from onceonly_checkpoints.epoch import Epoch
    from onceonly_sinks.postgres.schema import Table
    from onceonly_sinks.postgres.upsert import Merge, Waiting

EPOCH, AT = "onceonly epoch", "onceonly at"
"""Columns beside those of key and sequence."""

_AT_ONCE = 10_000
"""How many go in one epoch at most: those that are due are many after a long stop."""


def relation(writer: PostgresHeadScope) -> str:
    """Quoted name of the table of a sink's tombstones."""
    return f"onceonly.{quote(f'tombstones_{writer.tag}')}"


def _there(connection: Connection, name: str) -> bool:
    return (
        connection.exec_driver_sql("SELECT pg_catalog.to_regclass(%(name)s)", {"name": name}).scalar_one() is not None
    )


def ready(connection: Connection, table: Table, writer: PostgresHeadScope, merge: Merge) -> None:
    """Make the table of tombstones in the open transaction, where it is not there."""
    name = relation(writer)
    if _there(connection, name):
        return
    sequence = merge.sequence or ""
    columns = ", ".join(f"{quote(one)} {table.by_name[one].ddl} NOT NULL" for one in (*merge.key, sequence))
    ours = f"{quote(EPOCH)} bigint NOT NULL, {quote(AT)} timestamptz NOT NULL"
    keys = ", ".join(quote(one) for one in merge.key)
    connection.exec_driver_sql(f"CREATE TABLE {name} ({columns}, {ours}, PRIMARY KEY ({keys}))", {})
    connection.exec_driver_sql(f"CREATE INDEX ON {name} ({quote(AT)})", {})


def remember(connection: Connection, table: Table, waiting: Waiting, merge: Merge, epoch: Epoch) -> None:
    """Keep what the rows removed, drop what they brought again, and forget what is old; after :func:`upsert.apply`.

    Args:
        connection: the epoch's transaction.
        table: the target, with the rows applied.
        waiting: the rows, beside the tombstones that they met.
        merge: how they were applied.
        epoch: whose number and time are kept with them.
    """
    name, delete, sequence = waiting.tombstones, quote(merge.delete or ""), quote(merge.sequence or "")
    keys = [quote(one) for one in merge.key]
    newest = upsert.newest(waiting, merge)
    clock = epoch.lineage.batch_timestamp_ms / 1000 if epoch.lineage else 0
    parameters = {**waiting.parameters, "epoch": epoch.number, "clock": clock, "seconds": merge.tombstones}

    def same(one: str) -> str:
        return " AND ".join(f"{one}.{key} = s.{key}" for key in keys)

    late = f"NOT {replaces(f's.{sequence}', f't.{sequence}')}"
    standing = f"EXISTS (SELECT FROM {table.name.sql} t WHERE {same('t')} AND {late})"
    chosen = ", ".join(f"s.{one}" for one in (*keys, sequence))
    # None where a newer row stands: that row itself holds a late change off.
    added = f"INSERT INTO {name} SELECT {chosen}, %(epoch)s, to_timestamp(%(clock)s) FROM ({newest}) s"
    moved = ", ".join(f"{one} = excluded.{one}" for one in (sequence, quote(EPOCH), quote(AT)))
    again = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {moved}"
    connection.exec_driver_sql(f"{added} WHERE s.{delete} AND NOT {standing} {again}", parameters)
    brought = f"DELETE FROM {name} d USING (SELECT DISTINCT {', '.join(f's.{one}' for one in keys)} {waiting.source}) s"
    there = f"SELECT FROM {table.name.sql} t WHERE {same('t')} AND {replaces(f't.{sequence}', f'd.{sequence}')}"
    connection.exec_driver_sql(f"{brought} WHERE {same('d')} AND EXISTS ({there})", parameters)
    due = f"SELECT ctid FROM {name} WHERE {quote(AT)} < to_timestamp(%(clock)s - %(seconds)s)"
    oldest = f"{due} ORDER BY {quote(AT)} LIMIT {_AT_ONCE}"
    connection.exec_driver_sql(f"DELETE FROM {name} WHERE ctid = ANY (ARRAY({oldest}))", parameters)


def clear(connection: Connection, writer: PostgresHeadScope, span: Span) -> None:
    """Forget what epochs removed whose rows leave: what comes instead is told from its beginning."""
    name = relation(writer)
    if not _there(connection, name):
        return
    where = f"WHERE {quote(EPOCH)} BETWEEN %(first)s AND %(last)s"
    connection.exec_driver_sql(f"DELETE FROM {name} {where}", {"first": span[0], "last": span[1]})
