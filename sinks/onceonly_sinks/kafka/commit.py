"""Run the Kafka transactions of an epoch and of a claim.

``KafkaPrepared`` carries an epoch's rows from ``prepare`` to ``commit``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Batch, Superseded
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.kafka import errors
from onceonly_sinks.kafka.cluster import Place, Topic
from onceonly_sinks.kafka.columns import Columns, Feeder
from onceonly_sinks.kafka.markers import MarkerRecord, Offsets, Written
from onceonly_sinks.kafka.producer import Destination, SinkState, nested, places
from onceonly_sinks.kafka.transactions import Transaction, lost

if TYPE_CHECKING:
    import pyarrow as pa


# ---- What ``prepare`` hands to ``commit``: rows in an open transaction, which no reader of committed records sees.


@dataclass(slots=True)
class KafkaPrepared:
    """Records of one epoch in the transaction of ``state``.

    ``start`` are the offsets before the first record, ``end`` those after the last. ``lost`` is the cause if the
    transaction was lost after the batch had been read. ``None`` if it is intact.
    """

    state: SinkState
    rows: int
    start: Offsets
    end: Offsets
    lost: str | None = None

    def abandon(self) -> None:
        """Abort the transaction unless its commit was sent, and drop the producer. Never raises. May repeat."""
        self.state.transaction.end()


# ---- Fills and ends the transaction of an epoch, and that of a claim. What failed is judged by whoever called.

log = logging.getLogger(__name__)

_FEW = 100
"""Rows that are waited for before the others follow: enough to notice a lost producer, too few to cost time."""

Again = Callable[[], SinkState]
"""Makes another state under the same fence; raises ``Superseded`` where another one stands."""


def fill(destination: Destination, state: SinkState, batch: Batch, epoch: int, again: Again) -> KafkaPrepared:
    """Stream the rows into the transaction.

    Another opening or a zombie may end the transaction meanwhile. That does not end the action. The rest of the batch
    is read for its digest, and the commit reports the loss. ``again`` makes another state under the same fence.

    Raises:
        NotFlushed: the brokers do not take the rows.
        Hidden: a transaction in a topic of the rows stays undecided.
        OnceOnlyError: E110, E501, E502, E506 to E508, E513, E517: a row or the brokers refuse. Nothing is visible.
    """
    columns = Columns.check(destination.context.sink, batch.schema, destination.topic)
    filling = _Filling(destination, state, columns, again)
    batches = batch.arrow()
    try:
        filling.run(batches)
    except Exception as error:
        if not isinstance(error, Superseded) and not lost(error):
            if (failure := errors.read(error)) is None:
                raise
            raise errors.refusal(failure, replace(destination.context, keyless=filling.keyless)) from error
        if filling.state.transaction.expired:
            raise too_old(destination, filling.state.transaction, epoch) from error
        log.info("%s: epoch %s: the transaction was lost while it was filled", destination.context.sink, epoch)
        filling.lost = type(error).__name__
        for _ in batches:
            pass
    finally:
        if not filling.done:
            filling.state.transaction.end()
    return filling.prepared()


class _Filling:
    def __init__(self, destination: Destination, state: SinkState, columns: Columns, again: Again) -> None:
        self.state = state
        self._destination = destination
        self._columns = columns
        self._again = again
        self._start: dict[Place, int] = {}
        self._rows = 0
        self.done = False
        self.lost: str | None = None
        self.keyless = False

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            if batch.num_rows and not self._rows:
                self._first(batch)
            elif batch.num_rows:
                self._feed(batch)
        self._flush()
        self.done = True

    def _flush(self) -> None:
        self.state.transaction.flush(partial(self._destination.look_at, self.state.topics))

    def _first(self, batch: pa.RecordBatch) -> None:
        """Send the first few rows on their own, to notice a producer that was fenced since it was prepared.

        A driver that found itself superseded may have fenced it in vain. The few rows are still at hand, and go through
        another producer.
        """
        few, rest = batch.slice(0, _FEW), batch.slice(_FEW)
        try:
            self._begin(few)
            self._flush()
        except Exception as error:
            if not lost(error) or self.state.transaction.expired:
                raise
            self.state.transaction.drop()
            self.state = self._again()
            self._rows = 0
            self._begin(few)
        if rest.num_rows:
            self._feed(rest)

    def _begin(self, batch: pa.RecordBatch) -> None:
        # The engine may compute for long before the first row: neither the clock nor the offsets start earlier.
        self._start = self._destination.cluster.high(places(self.state.topics))
        self._feed(batch)

    def _feed(self, batch: pa.RecordBatch) -> None:
        self.keyless = self.keyless or self._columns.keyless(batch)
        if new := self._columns.topics(batch) - self.state.topics.keys():
            topics = self._destination.enter(self.state, new)
            self._start.update(self._destination.cluster.high(places(topics)))
        self.state.transaction.begin()
        feeder = Feeder(self.state.transaction.producer, self._columns, self._destination.patience)
        with self.state.transaction.telling():
            self._rows += feeder.feed(batch)

    def prepared(self) -> KafkaPrepared:
        end = {} if self.lost else offsets_now(self._destination, self.state.topics)
        start = nested(self._start) if self._rows else end
        return KafkaPrepared(self.state, self._rows, start, end, self.lost)


def offsets_now(destination: Destination, topics: Mapping[str, Topic]) -> Mapping[str, Mapping[int, int]]:
    """Offsets after the last record of every partition."""
    return nested(destination.cluster.high(places(topics)))


def written(destination: Destination, prepared: KafkaPrepared, marker: Marker) -> Written:
    """The marker record of an epoch, with its offsets."""
    topics = prepared.state.topics
    ids = {name: topic.id for name, topic in sorted(topics.items())}
    identity = destination.identity(topics)
    return Written(marker, prepared.rows, identity, ids, prepared.start, prepared.end)


def put(destination: Destination, transaction: Transaction, entry: MarkerRecord) -> None:
    """Add a record of ours to the marker topic, inside the transaction.

    Raises KafkaException if fenced out or refused, and ``NotFlushed`` if the brokers do not take it. Raises E508 if the
    marker topic is gone.
    """
    transaction.begin()
    with transaction.telling():
        transaction.producer.produce(destination.marker_topic, entry.value, entry.key(destination.writer), 0)
    transaction.flush(partial(destination.look_at, [destination.marker_topic]))


def claim(destination: Destination, state: SinkState, fence: Fence) -> None:
    """Raise the fence over the newest record, in a transaction of its own.

    Raises KafkaException if the outcome is unknown, and ``NotFlushed`` if it did not land.
    """
    put(destination, state.transaction, state.found.claimed(fence))
    state.transaction.commit()


def too_old(destination: Destination, transaction: Transaction, epoch: int) -> OnceOnlyError:
    """The refusal of an epoch that took longer than a transaction may stay open."""
    limit, age = destination.options.timeout, transaction.age
    enough = int(max(2 * age, 2 * limit) * 1000)
    return refuse(
        "E513", sink=destination.context.sink, epoch=epoch, seconds=f"{age:.0f}", limit=f"{limit:g}", enough=enough
    )
