"""Fills and ends the transaction of an epoch, and that of a claim. What failed is judged by whoever called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Batch, Superseded
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.kafka import classify
from onceonly_sinks.kafka.cluster import Place, Topic
from onceonly_sinks.kafka.columns import Columns
from onceonly_sinks.kafka.feeding import Feeder
from onceonly_sinks.kafka.prepared import KafkaPrepared
from onceonly_sinks.kafka.records import Entry, Written
from onceonly_sinks.kafka.standing import Ground, Standing, nested, places
from onceonly_sinks.kafka.transactions import Transaction, lost

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_FEW = 100
"""Rows that are waited for before the others follow: enough to notice a lost producer, too few to cost time."""

Again = Callable[[], Standing]
"""Makes another standing under the same fence; raises ``Superseded`` where another one stands."""


def fill(ground: Ground, standing: Standing, batch: Batch, epoch: int, again: Again) -> KafkaPrepared:
    """Stream the rows into the transaction.

    A transaction that is lost meanwhile to another opening, or to a zombie, does not end the action: the rest of the
    batch is read, so that its digest is there, and the commit says what happened.

    Args:
        ground: where.
        standing: whose transaction takes the rows.
        batch: the rows.
        epoch: its number.
        again: makes another standing under the same fence.

    Raises:
        NotFlushed: the brokers do not take the rows.
        Hidden: a transaction in a topic that rows go to stays undecided.
        OnceOnlyError: E110, E501, E502, E506 to E508, E513, E517: a row or the brokers refuse; nothing is visible.
    """
    columns = Columns.check(ground.context.sink, batch.schema, ground.topic)
    filling = _Filling(ground, standing, columns, again)
    batches = batch.arrow()
    try:
        filling.run(batches)
    except Exception as error:
        if not isinstance(error, Superseded) and not lost(error):
            if (failure := classify.read(error)) is None:
                raise
            raise classify.refusal(failure, replace(ground.context, keyless=filling.keyless)) from error
        if filling.standing.transaction.expired:
            raise too_old(ground, filling.standing.transaction, epoch) from error
        log.info("%s: epoch %s: the transaction was lost while it was filled", ground.context.sink, epoch)
        filling.lost = type(error).__name__
        for _ in batches:
            pass
    finally:
        if not filling.done:
            filling.standing.transaction.end()
    return filling.prepared()


class _Filling:
    """One epoch's way into the transaction."""

    def __init__(self, ground: Ground, standing: Standing, columns: Columns, again: Again) -> None:
        self.standing = standing
        self._ground = ground
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
        self.standing.transaction.flush(partial(self._ground.look_at, self.standing.topics))

    def _first(self, batch: pa.RecordBatch) -> None:
        """A producer made ready may have been fenced since, in vain, by a driver that found itself superseded.

        It is noticed with the first few rows, while they are still at hand: they go through another producer.
        """
        few, rest = batch.slice(0, _FEW), batch.slice(_FEW)
        try:
            self._begin(few)
            self._flush()
        except Exception as error:
            if not lost(error) or self.standing.transaction.expired:
                raise
            self.standing.transaction.drop()
            self.standing = self._again()
            self._rows = 0
            self._begin(few)
        if rest.num_rows:
            self._feed(rest)

    def _begin(self, batch: pa.RecordBatch) -> None:
        # The engine may compute for long before the first row: neither the clock nor the offsets start earlier.
        self._start = self._ground.cluster.high(places(self.standing.topics))
        self._feed(batch)

    def _feed(self, batch: pa.RecordBatch) -> None:
        self.keyless = self.keyless or self._columns.keyless(batch)
        if new := self._columns.topics(batch) - self.standing.topics.keys():
            topics = self._ground.enter(self.standing, new)
            self._start.update(self._ground.cluster.high(places(topics)))
        self.standing.transaction.begin()
        feeder = Feeder(self.standing.transaction.producer, self._columns, self._ground.patience)
        with self.standing.transaction.telling():
            self._rows += feeder.feed(batch)

    def prepared(self) -> KafkaPrepared:
        end = {} if self.lost else offsets_now(self._ground, self.standing.topics)
        start = nested(self._start) if self._rows else end
        return KafkaPrepared(self.standing, self._rows, start, end, self.lost)


def offsets_now(ground: Ground, topics: Mapping[str, Topic]) -> Mapping[str, Mapping[int, int]]:
    """Offsets after the last record of every partition."""
    return nested(ground.cluster.high(places(topics)))


def written(ground: Ground, prepared: KafkaPrepared, marker: Marker) -> Written:
    """What vouches for an epoch."""
    topics = prepared.standing.topics
    ids = {name: topic.id for name, topic in sorted(topics.items())}
    identity = ground.identity(topics)
    return Written(marker, prepared.rows, identity, ids, prepared.start, prepared.end)


def put(ground: Ground, transaction: Transaction, entry: Entry) -> None:
    """Bring a record of ours to the marker topic, inside the transaction.

    Raises:
        KafkaException: fenced out, or refused.
        NotFlushed: the brokers do not take it.
        DestinationError: E508, the marker topic is gone.
    """
    transaction.begin()
    with transaction.telling():
        transaction.producer.produce(ground.marker_topic, entry.value, entry.key(ground.writer), 0)
    transaction.flush(partial(ground.look_at, [ground.marker_topic]))


def claim(ground: Ground, standing: Standing, fence: Fence) -> None:
    """Raise the fence over what stands, in a transaction of its own.

    Raises:
        KafkaException: whether it landed is unknown.
        NotFlushed: it did not.
    """
    put(ground, standing.transaction, standing.found.claimed(fence))
    standing.transaction.commit()


def too_old(ground: Ground, transaction: Transaction, epoch: int) -> OnceOnlyError:
    """The refusal of an epoch that took longer than a transaction may stay open."""
    limit, age = ground.options.timeout, transaction.age
    enough = int(max(2 * age, 2 * limit) * 1000)
    return refuse(
        "E513", sink=ground.context.sink, epoch=epoch, seconds=f"{age:.0f}", limit=f"{limit:g}", enough=enough
    )
