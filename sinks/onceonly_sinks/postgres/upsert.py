"""Insert or upsert the loaded rows into the target, tombstones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import nearest, refuse
from onceonly.protocol.values import SOURCE, replaces
from onceonly_checkpoints.model import shorten_list
from onceonly_sinks.postgres.ddl import NAMED
from onceonly_sinks.postgres.head import PostgresHeadScope
from onceonly_sinks.postgres.schema import Table, is_there
from onceonly_sinks.postgres.server import printed, quote

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from onceonly.protocol.capabilities import Span
    from onceonly_checkpoints.epoch import Epoch


@dataclass(frozen=True, slots=True)
class Waiting:
    """A relation whose rows wait beside the target.

    Attributes:
        relation: quoted name.
        winners: condition that keeps the rows of the winning task attempts, or ``true`` if there was only one.
        columns: the target's columns that it holds, without the delete column.
        tombstones: quoted name of the table of removed keys, empty for none.
    """

    relation: str
    winners: str
    parameters: Mapping[str, Any]
    columns: tuple[str, ...]
    tombstones: str = ""

    @property
    def source(self) -> str:
        """FROM and WHERE."""
        return f"FROM {self.relation} s WHERE {self.winners}"


@dataclass(frozen=True, slots=True)
class Merge:
    """How rows meet those already there.

    Attributes:
        key: columns that identify a row, empty for an append.
        sequence: column that orders the changes of one key.
        delete: boolean column of the batch, not of the table. A row with true removes its key.
        tombstones: seconds for which a removed key is remembered, 0 for none.
        keeps: seconds after which a row leaves a table of seen ids, 0 in any other table.
        state: whether it is a table of window state.
        history: whether replaced rows are kept in a table beside.
        keep_history: epochs of history that are kept, 0 for ever.
        order: column by which the rows of an append are inserted, ``source`` for their order in the batch.
    """

    key: tuple[str, ...] = ()
    sequence: str | None = None
    delete: str | None = None
    tombstones: int = 0
    keeps: int = 0
    state: bool = False
    history: bool = False
    keep_history: int = 0
    order: str | None = None


def check_index(sink: str, table: Table, merge: Merge) -> None:
    """Refuse a table without a unique index on exactly the key.

    Raises E506: no unique index on exactly these columns, or no such column.
    """
    column_names = [*merge.key, *([merge.sequence] if merge.sequence else [])]
    missing = [name for name in column_names if name not in table.by_name]
    keys = ", ".join(map(printed, merge.key))
    if missing:
        difference = f"the table has no column {', '.join(missing)}; it has: {shorten_list([*table.by_name])}"
        mismatch, cause = NAMED, "key= or sequence= names another column than was meant, or the table lacks it"
        next_ = f"correct key= or sequence={nearest(missing, table.by_name)}"
    elif merge.key and frozenset(merge.key) not in table.keys:
        mismatch = "cannot find the row of a key"
        difference = f"no unique index of the table is on exactly ({', '.join(merge.key)})"
        cause = "the table was made without such an index, or key= is not what its rows are unique by"
        next_ = f"CREATE UNIQUE INDEX CONCURRENTLY ON {table.name.printed} ({keys})"
    else:
        return
    raise refuse("E506", sink=sink, mismatch=mismatch, difference=difference, because=cause, next=next_)


def check_rows(connection: Connection, sink: str, waiting: Waiting, merge: Merge) -> None:
    """Refuse a null in key, sequence or delete, and two newest rows for one key. Raises E503, E504 or E505."""
    if not merge.key:
        return
    _no_null_key(connection, sink, waiting, merge)
    for column, use in (
        (merge.sequence, "sequence= orders the changes of a row by it"),
        (merge.delete, "delete_flag= asks it what to do"),
    ):
        if column:
            query = f"SELECT count(*) {waiting.source} AND s.{quote(column)} IS NULL"
            count = connection.exec_driver_sql(query, dict(waiting.parameters)).scalar_one()
            if count:
                next_ = f"fill {column}, e.g. with transform="
                details = {"column": column, "reason": f"{count} nulls, and {use}", "next": next_}
                raise refuse("E503", sink=sink, **details, because="the query leaves it null in some rows")
    key_values = connection.exec_driver_sql(_ambiguous(waiting, merge), dict(waiting.parameters)).first()
    if key_values is not None:
        raise refuse(
            "E505",
            sink=sink,
            key=", ".join(merge.key),
            example=", ".join(f"{name} = {value}" for name, value in zip(merge.key, key_values, strict=True)),
            next="name the column that orders the changes of a row: PostgresSink(..., sequence=...)"
            if merge.sequence is None
            else f"make {merge.sequence} different for each change of a row",
        )


def _no_null_key(connection: Connection, sink: str, waiting: Waiting, merge: Merge) -> None:
    null = " OR ".join(f"s.{quote(name)} IS NULL" for name in merge.key)
    query = f"SELECT count(*) {waiting.source} AND ({null})"
    count = connection.exec_driver_sql(query, dict(waiting.parameters)).scalar_one()
    if count:
        raise refuse("E504", sink=sink, key=", ".join(merge.key), count=count)


def _ambiguous(waiting: Waiting, merge: Merge) -> str:
    """Query keys with more than one newest row. Rows that are equal in every column count as one change."""
    keys = ", ".join(quote(name) for name in merge.key)
    if merge.sequence is None:
        return f"SELECT {keys} {waiting.source} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
    column_names = (*waiting.columns, *([merge.delete] if merge.delete else []))
    columns = ", ".join(f"s.{quote(name)}" for name in column_names)
    # rank, and not row_number: two changes in the same place are what is looked for. In binary, since a row with a json
    # column has no equality (42883), and a text rounds doubles where a role has set extra_float_digits.
    newest = f"rank() OVER (PARTITION BY {keys} ORDER BY s.{quote(merge.sequence)} DESC) AS place"
    inner = f"SELECT {keys}, pg_catalog.record_send(ROW({columns})) AS line, {newest} {waiting.source}"
    return f"SELECT {keys} FROM ({inner}) r WHERE place = 1 GROUP BY {keys} HAVING count(DISTINCT line) > 1 LIMIT 1"


def count(connection: Connection, waiting: Waiting) -> int:
    """How many rows wait."""
    query = f"SELECT count(*) {waiting.source}"
    return int(connection.exec_driver_sql(query, dict(waiting.parameters)).scalar_one())


def apply(connection: Connection, table: Table, waiting: Waiting, merge: Merge, epoch: int) -> int:
    """Bring the rows into the target in the open transaction, and return how many were inserted or updated."""
    # Not MERGE, though it takes 1.2 s where these two take 1.5 (100k rows into 500k): it is of Postgres 15, and where
    # somebody else inserts the key at that moment it fails with 23505, while ON CONFLICT updates.
    remove(connection, table, waiting, merge)
    return insert(connection, table, waiting, merge, epoch)


def remove(connection: Connection, table: Table, waiting: Waiting, merge: Merge) -> None:
    """Delete the keys of rows whose delete column is true."""
    if merge.delete:
        connection.exec_driver_sql(_delete(table, waiting, merge, merge.delete), dict(waiting.parameters))


def insert(connection: Connection, table: Table, waiting: Waiting, merge: Merge, epoch: int) -> int:
    """Insert or update the other rows, and return how many."""
    parameters = {**waiting.parameters, "epoch": epoch}
    return connection.exec_driver_sql(_insert(table, waiting, merge), parameters).rowcount


def kept_back(connection: Connection, table: Table, waiting: Waiting, merge: Merge, *, changed: int, rows: int) -> int:
    """Count waiting rows that had no effect after :func:`apply`, as triggers may have kept them back.

    Without a sequence each row changes exactly one. With one, the row of its key must be at least as new afterwards.
    """
    if not merge.key:
        return rows - changed
    ineffective_rows = connection.exec_driver_sql(
        _ineffective(table, waiting, merge), dict(waiting.parameters)
    ).scalar_one()
    if merge.sequence or merge.delete or not _changes(table, waiting, merge):
        return int(ineffective_rows)
    return max(int(ineffective_rows), rows - changed)


def _changes(table: Table, waiting: Waiting, merge: Merge) -> bool:
    """Whether a row that is there already is written again: not if the key is all there is."""
    return bool({*waiting.columns, *([table.epoch_column] if table.epoch_column else [])} - set(merge.key))


def _ineffective(table: Table, waiting: Waiting, merge: Merge) -> str:
    """Query rows whose key is missing or older, and removed keys that are still there and not newer."""
    same = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in merge.key)
    older = f" AND t.{quote(merge.sequence)} >= s.{quote(merge.sequence)}" if merge.sequence else ""
    there = f"EXISTS (SELECT FROM {table.name.sql} t WHERE {same}{older})"
    if not merge.delete:
        return f"SELECT count(*) FROM ({newest(waiting, merge)}) s WHERE NOT {there}"
    sequence = quote(merge.sequence) if merge.sequence else ""
    not_newer = f" AND {replaces(f's.{sequence}', f't.{sequence}')}" if sequence else ""
    left = f"EXISTS (SELECT FROM {table.name.sql} t WHERE {same}{not_newer})"
    gone = f"CASE WHEN s.{quote(merge.delete)} THEN NOT {left} ELSE {there} END"
    return f"SELECT count(*) FROM ({newest(waiting, merge)}) s WHERE NOT {gone}"


def _delete(table: Table, waiting: Waiting, merge: Merge, delete: str) -> str:
    same = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in merge.key)
    newer = ""
    if merge.sequence:
        sequence = quote(merge.sequence)
        newer = f" AND {replaces(f's.{sequence}', f't.{sequence}')}"
    rows = f"({newest(waiting, merge)}) s"
    return f"DELETE FROM {table.name.sql} t USING {rows} WHERE s.{quote(delete)} AND {same}{newer}"


def newest(waiting: Waiting, merge: Merge) -> str:
    """The newest waiting row of each key. It must be known before its delete column is read."""
    if not merge.sequence:
        return f"SELECT s.* {waiting.source}"
    keys = ", ".join(f"s.{quote(name)}" for name in merge.key)
    query = f"SELECT DISTINCT ON ({keys}) s.* {waiting.source} ORDER BY {keys}, s.{quote(merge.sequence)} DESC"
    if not waiting.tombstones:
        return query
    same = " AND ".join(f"d.{quote(name)} = s.{quote(name)}" for name in merge.key)
    late = f"NOT {replaces(f's.{quote(merge.sequence)}', f'd.{quote(merge.sequence)}')}"
    removed = f"SELECT FROM {waiting.tombstones} d WHERE {same} AND {late}"
    return f"SELECT s.* FROM ({query}) s WHERE NOT EXISTS ({removed})"


def _insert(table: Table, waiting: Waiting, merge: Merge) -> str:
    columns = [quote(name) for name in waiting.columns]
    values = [f"s.{name}" for name in columns]
    if table.epoch_column is not None:
        columns.append(quote(table.epoch_column))
        values.append("%(epoch)s::bigint")
    rows = f"FROM ({newest(waiting, merge)}) s" if merge.sequence else waiting.source
    if merge.delete:
        rows += f"{' WHERE' if merge.sequence else ' AND'} NOT s.{quote(merge.delete)}"
    into = f"INSERT INTO {table.name.sql} AS t ({', '.join(columns)})"
    ordered = f" ORDER BY s.{quote(merge.order)}" if merge.order not in (None, SOURCE) else ""
    return f"{into} SELECT {', '.join(values)} {rows}{ordered}{_on_conflict(columns, merge)}"


def _on_conflict(columns: Sequence[str], merge: Merge) -> str:
    if not merge.key:
        return ""
    keys = [quote(name) for name in merge.key]
    changed = [f"{name} = excluded.{name}" for name in columns if name not in keys]
    clause = f" ON CONFLICT ({', '.join(keys)}) DO "
    if not changed:
        return clause + "NOTHING"  # all columns are the key, and SET takes no empty list
    guard = ""
    if merge.sequence:
        # A change that comes late must not undo a newer one; a row without a sequence counts as the oldest.
        sequence = quote(merge.sequence)
        guard = f" WHERE {replaces(f'excluded.{sequence}', f't.{sequence}')}"
    return f"{clause}UPDATE SET {', '.join(changed)}{guard}"


# ---- Keys that were removed, remembered for a time: an older change that comes late must not bring a row back.
#
# Of a removed row nothing is left that a late change could be compared with. So the change that removed it stays for
# a while, in a table of ours, in the epoch's transaction; Cassandra and Kafka's compaction call that a tombstone.
# What is remembered ends by the clock of the epochs: a replay forgets what its first attempt forgot.

EPOCH, AT = "onceonly epoch", "onceonly at"
"""Columns beside those of key and sequence."""

_AT_ONCE = 10_000
"""How many go in one epoch at most: those that are due are many after a long stop."""


def relation(writer: PostgresHeadScope) -> str:
    """Quoted name of the table of a sink's tombstones."""
    return f"onceonly.{quote(f'tombstones_{writer.tag}')}"


def ready(connection: Connection, table: Table, writer: PostgresHeadScope, merge: Merge) -> None:
    """Make the table of tombstones in the open transaction, where it is not there."""
    name = relation(writer)
    if is_there(connection, name):
        return
    sequence = merge.sequence or ""
    columns = ", ".join(
        f"{quote(column_name)} {table.by_name[column_name].ddl} NOT NULL" for column_name in (*merge.key, sequence)
    )
    ours = f"{quote(EPOCH)} bigint NOT NULL, {quote(AT)} timestamptz NOT NULL"
    keys = ", ".join(quote(key_name) for key_name in merge.key)
    connection.exec_driver_sql(f"CREATE TABLE {name} ({columns}, {ours}, PRIMARY KEY ({keys}))", {})
    connection.exec_driver_sql(f"CREATE INDEX ON {name} ({quote(AT)})", {})


def remember(connection: Connection, table: Table, waiting: Waiting, merge: Merge, epoch: Epoch) -> None:
    """Update the tombstones after :func:`upsert.apply`: add removed keys, drop those that came again, delete old ones.

    They carry the epoch's number and time.
    """
    name, delete, sequence = waiting.tombstones, quote(merge.delete or ""), quote(merge.sequence or "")
    keys = [quote(key_name) for key_name in merge.key]
    rows = newest(waiting, merge)
    clock = epoch.lineage.batch_timestamp_ms / 1000 if epoch.lineage else 0
    parameters = {**waiting.parameters, "epoch": epoch.number, "clock": clock, "seconds": merge.tombstones}

    def same(alias: str) -> str:
        return " AND ".join(f"{alias}.{key} = s.{key}" for key in keys)

    late = f"NOT {replaces(f's.{sequence}', f't.{sequence}')}"
    newer_exists = f"EXISTS (SELECT FROM {table.name.sql} t WHERE {same('t')} AND {late})"
    chosen = ", ".join(f"s.{column}" for column in (*keys, sequence))
    # None where a newer row stands: that row itself holds a late change off.
    added = f"INSERT INTO {name} SELECT {chosen}, %(epoch)s, to_timestamp(%(clock)s) FROM ({rows}) s"
    moved = ", ".join(f"{column} = excluded.{column}" for column in (sequence, quote(EPOCH), quote(AT)))
    on_conflict = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {moved}"
    connection.exec_driver_sql(f"{added} WHERE s.{delete} AND NOT {newer_exists} {on_conflict}", parameters)
    brought = f"DELETE FROM {name} d USING (SELECT DISTINCT {', '.join(f's.{key}' for key in keys)} {waiting.source}) s"
    there = f"SELECT FROM {table.name.sql} t WHERE {same('t')} AND {replaces(f't.{sequence}', f'd.{sequence}')}"
    connection.exec_driver_sql(f"{brought} WHERE {same('d')} AND EXISTS ({there})", parameters)
    due = f"SELECT ctid FROM {name} WHERE {quote(AT)} < to_timestamp(%(clock)s - %(seconds)s)"
    oldest = f"{due} ORDER BY {quote(AT)} LIMIT {_AT_ONCE}"
    connection.exec_driver_sql(f"DELETE FROM {name} WHERE ctid = ANY (ARRAY({oldest}))", parameters)


def clear(connection: Connection, writer: PostgresHeadScope, span: Span) -> None:
    """Forget what epochs removed whose rows leave: what comes instead is told from its beginning."""
    name = relation(writer)
    if not is_there(connection, name):
        return
    where = f"WHERE {quote(EPOCH)} BETWEEN %(first)s AND %(last)s"
    connection.exec_driver_sql(f"DELETE FROM {name} {where}", {"first": span[0], "last": span[1]})
