"""Run the Kafka transactions of a claim and of an epoch."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from onceonly import faults
from onceonly.errors import OnceOnlyError, refuse
from onceonly.faults import Point
from onceonly.protocol import Batch, OutcomeUnknown, Superseded
from onceonly.protocol.guard import check_install
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_sinks.kafka import errors, executors, markers
from onceonly_sinks.kafka.cluster import PartitionKey, Topic
from onceonly_sinks.kafka.columns import Columns, Feeder
from onceonly_sinks.kafka.errors import Kind
from onceonly_sinks.kafka.markers import MarkerRecord, Offsets, Written
from onceonly_sinks.kafka.producer import Destination, Prewarmed, SinkState, flat, nested, places
from onceonly_sinks.kafka.transactions import NotFlushed, Transaction, lost

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

StateFactory = Callable[[], SinkState]
"""Makes another state under the same fence; raises ``Superseded`` where another one stands."""


def fill(
    destination: Destination, state: SinkState, batch: Batch, epoch: int, state_factory: StateFactory
) -> KafkaPrepared:
    """Stream the rows into the transaction.

    Another opening or a zombie may end the transaction meanwhile. That does not end the action. The rest of the batch
    is read for its digest, and the commit reports the loss. ``state_factory`` makes another state under the same fence.

    Raises ``NotFlushed`` if the brokers do not take the rows, and ``HiddenTransaction`` if a transaction in a topic of
    the rows stays undecided. After E110, E501, E502, E506 to E508, E513 or E517 a row or the brokers refused, and
    nothing is visible.
    """
    columns = Columns.check(destination.context.sink, batch.schema, destination.topic)
    filling = _Filling(destination, state, columns, state_factory)
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


def fill_by_tasks(
    destination: Destination, state: SinkState, batch: Batch, epoch: int, state_factory: StateFactory
) -> KafkaPrepared:
    """As :func:`fill`, by Spark's tasks.

    A failure ends in a fence, which raises ``Superseded`` if another one stands: a task that still sends has an old
    epoch then.
    """
    start = destination.cluster.high(places(state.topics))
    try:
        state.transaction.begin()
        rows = executors.send(destination, state, batch, epoch)
        prepared = KafkaPrepared(state, rows, nested(start), {})
        grown = take_in(destination, prepared, now := destination.look_at(state.topics))
        # Of two producers that number one partition's records, the brokers take those of the second for repeated ones.
        if all(now[name].id == topic.id for name, topic in state.topics.items()):
            prepared.rows = min(rows, grown)
        return prepared
    except BaseException as error:
        expired = too_old(destination, state.transaction, epoch) if state.transaction.expired else None
        state.transaction.end()
        failure = errors.read(error)
        state_factory().transaction.drop()
        if failure is None:
            raise
        raise expired or errors.refusal(failure, destination.context) from error


class _Filling:
    def __init__(
        self, destination: Destination, state: SinkState, columns: Columns, state_factory: StateFactory
    ) -> None:
        self.state = state
        self._destination = destination
        self._columns = columns
        self._state_factory = state_factory
        self._start: dict[PartitionKey, int] = {}
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
            self.state = self._state_factory()
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


def take_in(destination: Destination, prepared: KafkaPrepared, now: Mapping[str, Topic]) -> int:
    """Add partitions that a topic got since its state was read. Returns by how many offsets all have grown."""
    new = set(places({name: now[name] for name in prepared.state.topics})) - flat(prepared.end).keys()
    if new:
        prepared.start = nested({**dict.fromkeys(new, 0), **flat(prepared.start)})
        prepared.end = nested({**destination.cluster.high(new), **flat(prepared.end)})
    return sum(flat(prepared.end).values()) - sum(flat(prepared.start).values())


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
    put(destination, state.transaction, replace(state.newest_record, fence=fence, claim=True))
    state.transaction.commit()


def too_old(destination: Destination, transaction: Transaction, epoch: int) -> OnceOnlyError:
    """The refusal of an epoch that took longer than a transaction may stay open."""
    limit, age = destination.options.timeout, transaction.age
    enough = int(max(2 * age, 2 * limit) * 1000)
    return refuse(
        "E513", sink=destination.context.sink, epoch=epoch, seconds=f"{age:.0f}", limit=f"{limit:g}", enough=enough
    )


# ---- Install the fence of a Kafka sink with a claim record.

_CLAIMS = 6
"""Another driver of ours that wakes up can end a claim by fencing; it finds itself superseded and does not go on."""

_PAUSE = 0.1


class ProducerSlot:
    """Fence and states of one opening."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._fence: Fence | None = None
        self._prewarmed: Prewarmed | None = None
        self._ready: SinkState | None = None

    @property
    def fence(self) -> Fence:
        """The installed fence. Raises RuntimeError before the first one."""
        if self._fence is None:
            raise RuntimeError("install a fence first")
        return self._fence

    def install(self, fence: Fence) -> None:
        """As :meth:`KafkaSink.install`."""
        self.forget()
        with self._destination.refusing():
            self._destination.cluster.make_marker_topic(self._destination.marker_topic)
            # Fencing ends whatever a living driver has open, so it is not done where it is known to be in vain.
            self._not_superseded(self._destination.tail.visible(), fence)
        for attempt in range(_CLAIMS):
            if self._claims(fence):
                self._fence = fence
                return
            # Each fencing ends the claims of the others: without chance between them, several could do so for ever.
            time.sleep(random.uniform(0, _PAUSE * 2**attempt))
        raise OutcomeUnknown(self._destination.context.sink, f"a claim was lost {_CLAIMS} times")

    def _claims(self, fence: Fence) -> bool:
        """Fence, read, claim, read back. Returns whether our fence is installed. The next round finds a lost answer."""
        state = self._fences()
        if state is None:
            return False
        if state.newest_record.fence == fence:
            self._ready = state
            return True
        try:
            self._not_superseded(state.newest_record, fence)
            if not self._sends(state, fence):
                return False
        finally:
            state.transaction.end()
        with self._destination.refusing():
            entry = self._destination.newest()
        self._not_superseded(entry, fence)
        return entry.fence == fence

    def _fences(self) -> SinkState | None:
        with self._destination.refusing():
            try:
                return self._destination.stand()
            except Exception as error:
                if not lost(error):
                    raise
                return None

    def _sends(self, state: SinkState, fence: Fence) -> bool:
        """Whether the claim got a positive answer. The next round reads an unknown outcome."""
        sink = self._destination.context.sink
        try:
            claim(self._destination, state, fence)
            faults.fire(Point.INSTALL_SENT)
        except NotFlushed:
            return False
        except Exception as error:
            failure = errors.read(error)
            if failure is None:
                raise OutcomeUnknown(sink, type(error).__name__) from error
            if failure.kind not in (Kind.LOST, Kind.UNREACHABLE) and not state.transaction.sent:
                raise errors.refusal(failure, self._destination.context) from error
            log.info("%s: a claim was lost (%s)", sink, failure.name)
            return False
        return True

    def _not_superseded(self, entry: MarkerRecord, fence: Fence) -> None:
        superseded = check_install(self._destination.context.sink, entry.fence, fence)
        if superseded is not None:
            raise superseded

    def stand(self, fence: Fence) -> SinkState:
        """The prepared state, or a new one, under our fence. Raises as :meth:`Destination.stand`.

        Raises ``Superseded`` if another fence is installed, and E508 if none of ours is.
        """
        ready, prewarmed = self._ready, self._prewarmed
        self._ready = self._prewarmed = None
        state = ready or (prewarmed.take() if prewarmed else None)
        return state or self.stand_anew(fence)

    def stand_anew(self, fence: Fence) -> SinkState:
        """A new state under our fence. A driver that is fenced out does not disturb the current one.

        Raises as :meth:`stand`.
        """
        state = self._destination.stand(partial(self._worth, fence))
        try:
            self._must_stand(state.newest_record, fence)
        except BaseException:
            state.transaction.drop()
            raise
        return state

    def _worth(self, fence: Fence) -> None:
        if not self._destination.tail.unmoved():
            self._must_stand(self._destination.tail.visible(), fence)

    def _must_stand(self, entry: MarkerRecord, fence: Fence) -> None:
        refused = markers.fenced(entry, fence, self._destination.context.sink)
        if refused is not None:
            raise refused

    def keep(self, state: SinkState) -> None:
        """Keep a state for the next epoch."""
        self.forget()
        self._ready = state

    def prewarm(self, fence: Fence) -> None:
        """Start to prepare the state of the next epoch, if none is ready."""
        if self._ready is not None:
            return
        self.forget()
        self._prewarmed = Prewarmed(partial(self.stand_anew, fence))

    def quiet(self, seconds: float | None = None) -> None:
        """Wait until the background thread ends, at most so many seconds."""
        if self._prewarmed is not None:
            self._prewarmed.wait(seconds)

    def forget(self) -> None:
        """Drop prepared states. May repeat."""
        if self._ready is not None:
            self._ready.transaction.drop()
        if self._prewarmed is not None:
            self._prewarmed.discard()
        self._ready = self._prewarmed = None
