"""Base classes of mutants: a delegating sink, and writes without a sink."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Batch, Capabilities, Peek, Position, Prepared, Recorder, SinkBase
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.stores.places import PATIENCE, KafkaPlace, Place, PostgresPlace

if TYPE_CHECKING:
    import pyarrow as pa


# ---- Writing without the sink: rows, and for Postgres a marker that is conditional on nothing, in one transaction.

_INSERT = "INSERT INTO {} (id, key, amount, value) VALUES (%(id)s, %(key)s, %(amount)s, %(value)s)"
_EPOCH = """
INSERT INTO onceonly.epoch (pipeline, sink, epoch, generation, owner, chain, rows, marker, system_id, timeline,
                            target_oid)
SELECT pipeline, sink, %(epoch)s, %(generation)s, %(owner)s, %(chain)s, %(rows)s, %(marker)s,
       (SELECT system_identifier::text FROM pg_control_system()), 1, %(table)s::regclass::oid
FROM onceonly.head WHERE pipeline = %(pipeline)s AND sink = %(sink)s
ON CONFLICT (pipeline, sink, epoch) DO UPDATE
SET generation = excluded.generation, owner = excluded.owner, rows = excluded.rows, marker = excluded.marker
"""
_HEAD = """
UPDATE onceonly.head h SET epoch = %(epoch)s, chain = %(chain)s, target_oid = %(table)s::regclass::oid, timeline = 1,
       system_id = (SELECT system_identifier::text FROM pg_control_system())
WHERE pipeline = %(pipeline)s AND sink = %(sink)s
"""
_NEWEST = "SELECT coalesce(max(epoch), 0) FROM onceonly.epoch WHERE pipeline = %s AND sink = %s"
_FORCE = "UPDATE onceonly.head SET generation = %s, owner = %s WHERE pipeline = %s AND sink = %s"


def into(store: Any, rows: pa.Table, marker: Marker | None = None) -> None:
    """Write rows in a transaction of their own; into Postgres a marker, too, whatever stands there.

    Raises:
        psycopg.Error, KafkaException: the transaction failed, or its answer was lost.
    """
    if isinstance(store, KafkaPlace):
        _into_kafka(store, rows)
    else:
        _into_postgres(store, rows, marker)


def _into_postgres(store: PostgresPlace, rows: pa.Table, marker: Marker | None) -> None:
    import psycopg
    from psycopg import sql

    insert = sql.SQL(_INSERT).format(sql.Identifier(store.table))
    with psycopg.connect(store.dsn, sslmode="disable") as connection, connection.cursor() as cursor:
        cursor.executemany(insert, rows.to_pylist())
        if marker is not None:
            parameters = _said(store, marker, rows.num_rows)
            cursor.execute(_HEAD, parameters)
            cursor.execute(_EPOCH, parameters)


def _said(store: PostgresPlace, marker: Marker, rows: int) -> dict[str, object]:
    return {
        "pipeline": marker.pipeline,
        "sink": marker.sink,
        "epoch": marker.epoch.number,
        "chain": marker.epoch.chain,
        "rows": rows,
        "marker": marker.text,
        "table": f'"{store.table}"',
        **marker.fence.to_json(),
    }


def _into_kafka(store: KafkaPlace, rows: pa.Table) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": store.servers, "transactional.id": f"raw-{uuid.uuid4().hex}", "log_level": 0}
    producer = Producer(settings)
    producer.list_topics(timeout=PATIENCE)
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for row in rows.to_pylist():
        producer.produce(store.topic, row["value"], row["key"])
    producer.commit_transaction(PATIENCE)


def newest(store: PostgresPlace) -> int:
    """Number of the newest epoch, read without any lock."""
    import psycopg

    with psycopg.connect(store.direct) as connection:
        row = connection.execute(_NEWEST, (PIPELINE, store.id)).fetchone()
    return int(row[0]) if row else 0


def force_fence(store: PostgresPlace, generation: int, owner: str) -> None:
    """Make a fence the one that stands, whatever stood there."""
    import psycopg

    with psycopg.connect(store.direct) as connection:
        connection.execute(_FORCE, (generation, owner, PIPELINE, store.id))


# ---- A sink that hands everything on to the one it wraps; a mutant overrides what it breaks.


class Wrapped(SinkBase):
    """A real sink on a real place.

    Args:
        store: where it writes to.
    """

    def __init__(self, store: Place) -> None:
        # Mutants reach for what only their own kind of place and sink has.
        self.place: Any = store
        self.inner: Any = store.sink()
        super().__init__(str(self.inner.id))

    @property
    def address(self) -> str:
        """The wrapped sink's."""
        return str(self.inner.address)

    @property
    def capabilities(self) -> Capabilities:
        """The wrapped sink's."""
        capabilities: Capabilities = self.inner.capabilities
        return capabilities

    def open(self, pipeline: str) -> None:
        """Handed on, as all that follows."""
        super().open(pipeline)
        self.inner.open(pipeline)

    def fence(self) -> Fence | None:
        """Handed on."""
        fence: Fence | None = self.inner.fence()
        return fence

    def look(self) -> Peek:
        """Handed on."""
        peek: Peek = self.inner.look()
        return peek

    def install(self, fence: Fence) -> None:
        """Handed on."""
        self.inner.install(fence)

    def position(self, since: Receipt | None) -> Position:
        """Handed on."""
        position: Position = self.inner.position(since)
        return position

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Handed on."""
        prepared: Prepared = self.inner.prepare(batch, epoch)
        return prepared

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Handed on."""
        receipt: Receipt = self.inner.commit(prepared, marker)
        return receipt

    def look_up(self, marker: Marker) -> Receipt | None:
        """Handed on."""
        receipt: Receipt | None = self.inner.look_up(marker)
        return receipt

    def sweep(self) -> None:
        """Handed on."""
        self.inner.sweep()

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Handed on."""
        yield from self.inner.history(after)

    def close(self) -> None:
        """Handed on."""
        self.inner.close()

    def receipt(self, marker: Marker) -> Receipt:
        """The receipt of an epoch that is there, whoever brought it."""
        return next(receipt for _, receipt in self.history(marker.epoch.number - 1))


class Held:
    """Rows that wait in this process.

    Args:
        table: the rows.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def rows(self) -> int:
        """How many."""
        return int(self.table.num_rows)

    def abandon(self) -> None:
        """They go with the process."""


def held(batch: Batch) -> Held:
    """Take all rows of a batch."""
    import pyarrow as pa

    return Held(pa.Table.from_batches(list(batch.arrow()), batch.schema))
