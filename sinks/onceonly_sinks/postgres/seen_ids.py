"""Deduplicate by a Postgres table of seen ids.

Executors look ids up, and ids expire by the clock of the epochs. The ids arrive like rows of any keyed table, in the
epoch's transaction. An id that comes again after its time takes the place of its old row. Whether an id counts depends
on epoch and clock alone. So the answer is the same for an epoch that is computed again, however late old rows are
deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from onceonly.protocol.batch import AsOf
from onceonly.protocol.capabilities import AT, ID
from onceonly.protocol.values import ExternalChange
from onceonly_sinks.postgres import errors
from onceonly_sinks.postgres.schema import EPOCH_COLUMN
from onceonly_sinks.postgres.server import Server, TableName, quote

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from sqlalchemy import Connection

    from onceonly_checkpoints.epoch import Epoch
    from onceonly_sinks.postgres.schema import Table

KEY = (ID,)

_LEAST = 10_000
_PER_ROW = 2
"""Old ids that leave with each row of an epoch: fewer than one, and the table would grow for ever."""

_TYPES = {ID: "binary", AT: "timestamp"}


def columns() -> pa.Schema:
    """Arrow schema of a batch of ids."""
    import pyarrow as pa

    instants: Any = pa.timestamp("us", "UTC")
    return pa.schema([(ID, pa.binary()), (AT, instants)])


def ready(connection: Connection, table: Table) -> None:
    """Add the index that finds old rows to a new table."""
    connection.exec_driver_sql(f"CREATE INDEX ON {table.name.sql} ({quote(AT)})", {})


def forget(connection: Connection, table: Table, epoch: Epoch, keep_seconds: int, rows: int) -> None:
    """Delete ids that are too old for any later epoch, after those of ``epoch`` are inserted.

    ``keep_seconds`` is the seconds for which an id is known, ``rows`` the epoch's number of rows. The epoch's clock
    counts.
    """
    clock_ms = epoch.lineage.batch_timestamp_ms if epoch.lineage else 0
    name, at = table.name.sql, quote(AT)
    oldest = f"SELECT ctid FROM {name} WHERE {at} < %(since)s ORDER BY {at} LIMIT %(most)s"
    parameters = {"since": _instant(clock_ms - keep_seconds * 1000), "most": max(_LEAST, _PER_ROW * rows)}
    connection.exec_driver_sql(f"DELETE FROM {name} WHERE ctid = ANY (ARRAY({oldest}))", parameters)


_SOME = 10_000
"""Ids that an opening counts at most, by the index: of an epoch with more, the first ones stand for all."""


def gone(connection: Connection, table: Table, sink: str, epochs: Sequence[Epoch]) -> tuple[ExternalChange, ...]:
    """Check whether ids of the newest epoch that brought some are missing. Earlier epochs are not checked.

    They cannot have left for their age: only a later epoch with ids would have removed them. ``epochs`` are the newest
    ones, oldest first.
    """
    for epoch in reversed(epochs):
        brought = epoch.digest_in(sink).rows
        if epoch.accepts(sink):
            break
        if brought and epoch.lineage:
            expected = min(brought, _SOME)
            within = f"{quote(AT)} = %(at)s AND {quote(EPOCH_COLUMN)} = %(epoch)s LIMIT %(most)s"
            parameters = {"at": _instant(epoch.lineage.batch_timestamp_ms), "epoch": epoch.number, "most": expected}
            query = f"SELECT count(*) FROM (SELECT FROM {table.name.sql} WHERE {within}) found"
            there = connection.exec_driver_sql(query, parameters).scalar_one()
            detail = f"ids of epoch {epoch.number} are not there any more: {expected - there} of {expected}"
            return () if there == expected else (ExternalChange("deleted", detail, fatal=True),)
    return ()


def recount(connection: Connection, table: Table, newest: Epoch, keep_seconds: int, after: int) -> Mapping[int, int]:
    """Ids that are still known, by their epoch: older ones may have been deleted.

    ``keep_seconds`` is the seconds for which an id is known, ``after`` the newest epoch whose marker is gone (0 for
    none).
    """
    number = quote(EPOCH_COLUMN)
    within = f"{quote(AT)} >= %(since)s AND {number} > %(after)s AND {number} >= %(series)s"
    parameters = {
        "since": _instant(since(connection, table, newest, keep_seconds)),
        "after": after,
        "series": newest.series,
    }
    query = f"SELECT {number}, count(*) FROM {table.name.sql} WHERE {within} GROUP BY {number}"
    return {row[0]: row[1] for row in connection.exec_driver_sql(query, parameters)}


def since(connection: Connection, table: Table, newest: Epoch, keep_seconds: int) -> int:
    """First instant whose ids are known, in milliseconds since 1970, by the latest clock that may have removed some."""
    last = connection.exec_driver_sql(f"SELECT max({quote(AT)}) FROM {table.name.sql}", {}).scalar_one()
    lineage = newest.resume_point.lineage
    clocks = [lineage.batch_timestamp_ms if lineage else 0]
    if last is not None:
        clocks.append((last - _instant(0)) // timedelta(milliseconds=1))
    return max(clocks) - keep_seconds * 1000


def _instant(clock_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=clock_ms)


@dataclass(frozen=True, slots=True)
class SeenIdsLookup:
    """Looks up the ids of one partition, on an executor. It can be pickled.

    Attributes:
        server: as an executor reaches it.
        application: the session's name, by which a newer driver can end it.
        name: of the table, ``None`` while it does not exist, and no id is known.
        retention_s: seconds for which an id is known.
    """

    sink: str
    server: Server
    application: str
    name: TableName | None
    address: str
    as_of: AsOf
    retention_s: int

    def __call__(self, pieces: Iterator[Sequence[bytes]]) -> Iterator[Collection[bytes]]:
        """Yield the known ids of each piece. Raises E501, E502, E507 and the like: Spark may try the task again."""
        if self.name is None:
            yield from (frozenset[bytes]() for _ in pieces)
            return
        with ExitStack() as held:
            connection: psycopg.Connection[Any] | None = None
            for piece in pieces:
                if not piece:
                    yield frozenset()
                    continue
                with errors.refusing(errors.Context(self.sink, self.address, types=_TYPES)):
                    # Not before there is an id to ask for: a partition may have none.
                    connection = connection or held.enter_context(
                        self.server.connect(application_name=self.application, autocommit=True)
                    )
                    ids = self._recorded_ids(connection, self.name, piece)
                yield ids

    def _recorded_ids(
        self, connection: psycopg.Connection[Any], name: TableName, ids: Sequence[bytes]
    ) -> frozenset[bytes]:
        id_, at, epoch = quote(ID), quote(AT), quote(EPOCH_COLUMN)
        counts = f"{epoch} >= %(series)s AND {epoch} < %(epoch)s AND {at} >= %(since)s"
        query = f"SELECT {id_} FROM {name.sql} WHERE {id_} = ANY (%(ids)s::bytea[]) AND {counts}"
        as_of = self.as_of
        since = _instant(as_of.clock_ms - self.retention_s * 1000)
        parameters = {"ids": list(ids), "series": as_of.series, "epoch": as_of.epoch, "since": since}
        with connection.cursor(binary=True) as cursor:
            return frozenset(bytes(row[0]) for row in cursor.execute(query.encode(), parameters))
