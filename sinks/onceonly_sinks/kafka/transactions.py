"""Run one Kafka transaction per producer instance.

A producer is made, fenced, filled, and ended or dropped. It is never used for a second transaction. librdkafka keeps
its producer epoch for the life of an instance. A late end of one transaction would end the next one of the same
instance. A new instance has a new epoch, and the late request is refused (KIP-890).
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly_sinks.kafka import errors
from onceonly_sinks.kafka.errors import Kind
from onceonly_sinks.kafka.options import Options

if TYPE_CHECKING:
    from confluent_kafka import Producer

log = logging.getLogger(__name__)

_ABORT_SECONDS = 5.0
_SLICE = 0.5
_STALL = 2.0
"""Seconds without a record taken after which it is asked why; a topic that is gone stalls the client for 30."""

_STATISTICS_MS = 50

_WRONG_STATE = "_STATE"


class NotFlushed(Exception):
    """The brokers did not take the records in time."""


class Transaction:
    """A producer that fenced its predecessors, and its only transaction.

    ``id`` is stable over all drivers of the sink. ``patience`` is in seconds, for one answer. ``sent`` is true once its
    commit was sent. ``shared``: others will send in it under its ids.
    """

    def __init__(self, options: Options, id: str, patience: float, *, shared: bool = False) -> None:
        from confluent_kafka import Producer

        self.id = id
        self.patience = patience
        self._limit = options.timeout
        settings: dict[str, Any] = options.producer(id, patience)
        if shared:
            settings |= {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self._take_ids}
        self._ids: tuple[int, int] | None = None
        self._held: list[Producer] = [Producer(settings, logger=log)]
        self._begun: float | None = None
        self.sent = False
        self._connect()
        if shared:
            threading.Thread(target=_listen, args=(weakref.ref(self),), name="onceonly-kafka-ids", daemon=True).start()

    def _take_ids(self, statistics: str) -> None:
        known = json.loads(statistics)["eos"]
        if known["txn_state"] in ("Ready", "InTransaction") and known["producer_id"] >= 0:
            self._ids = known["producer_id"], known["producer_epoch"]

    def take_statistics(self) -> float:
        """Take the client's statistics. Returns seconds until the next, 0 once other calls take them."""
        producers = self._held[:]
        if self._begun is not None or not producers:
            return 0
        producers[0].poll(0)
        return _SLICE if self._ids else _STATISTICS_MS / 1000

    def ids(self) -> tuple[int, int]:
        """The client's id and epoch, under which others may send. Raises ``NotFlushed`` if they stay unknown."""
        deadline = time.monotonic() + self.patience
        while self._ids is None:
            if time.monotonic() > deadline:
                raise NotFlushed(f"the client did not tell its ids in {self.patience:g} s")
            self.producer.poll(_STATISTICS_MS / 1000)
        return self._ids

    def _connect(self) -> None:
        """Start the connection, which takes some 50 ms, without waiting. The client alone does not always start it."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            self.producer.list_topics(timeout=0)

    @property
    def producer(self) -> Producer:
        """The producer. Raises RuntimeError once it was dropped."""
        if not self._held:
            raise RuntimeError("this transaction has ended")
        return self._held[0]

    @property
    def age(self) -> float:
        """Seconds since the first record may have been sent. 0 before."""
        return time.monotonic() - self._begun if self._begun is not None else 0.0

    @property
    def expired(self) -> bool:
        """Whether the brokers may have ended it for its age."""
        return self.age >= self._limit

    def fence(self, budget: float) -> None:
        """End a transaction that an earlier producer of this id left open, and fence that producer out.

        ``budget`` is in seconds. The brokers may take 30 to end a decided transaction. Raises KafkaException if not
        fenced.
        """
        from confluent_kafka import KafkaException

        # Fencing without a connection that is already up waits for the client's own timer: half a second in 19 of 60
        # cases, and in none of 24 after this call (11 ms, 82 at most). The client's back-off settings do not help.
        self.producer.list_topics(timeout=min(5.0, self.patience))
        deadline = time.monotonic() + budget
        while True:
            try:
                self.producer.init_transactions(min(self.patience, max(0.1, deadline - time.monotonic())))
            except KafkaException as error:
                failure = errors.read(error)
                if failure is None or not failure.retriable or time.monotonic() >= deadline:
                    raise
            else:
                return

    def begin(self) -> None:
        """Begin the transaction right before its first record, when the brokers start to count its age. May repeat.

        Raises KafkaException if the producer was fenced out.
        """
        if self._begun is None:
            self.producer.begin_transaction()
            self._begun = time.monotonic()

    def flush(self, stalled: Callable[[], object] = lambda: None) -> None:
        """Send every record to the brokers.

        ``stalled`` is called once after two seconds without progress, and raises if it knows the cause. Raises
        KafkaException if fenced out or refused, and ``NotFlushed`` if the brokers did not take all records in time.
        """
        moved, last, notified = time.monotonic(), len(self.producer), False
        while left := self.producer.flush(_SLICE):
            if left < last:
                moved, last = time.monotonic(), left
            waited = time.monotonic() - moved
            if waited > self.patience:
                raise NotFlushed(f"{left} records were not taken in {self.patience:g} s")
            if waited > _STALL and not notified:
                notified = True
                stalled()
        if self._begun is not None:
            # Where no record was sent, asking would begin it, behind the back of whoever brings the marker.
            self._raise_if_broken()

    def _raise_if_broken(self) -> None:
        """Raise the error that broke the transaction, if any.

        A refused record ends it, and ``flush`` does not report that. Beginning it again only reveals its state. An
        intact transaction answers that the call does not fit its state. A broken one answers with the error that broke
        it.
        """
        from confluent_kafka import KafkaException

        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            failure = errors.read(error)
            if failure is None or failure.name != _WRONG_STATE:
                raise

    @contextmanager
    def telling(self) -> Generator[None]:
        """Raise the error that broke the transaction, if a call only reports that it is broken."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            failure = errors.read(error)
            if failure is not None and failure.name == _WRONG_STATE:
                self._raise_if_broken()
            raise

    def commit(self) -> None:
        """Commit. After any error the outcome is unknown, and this producer must not be used again.

        Raises KafkaException without a positive answer.
        """
        self.sent = True
        self.producer.commit_transaction(self.patience)

    def end(self) -> None:
        """Abort the transaction unless its commit was sent, and drop the producer. Never raises."""
        if not self._held:
            return
        if self._begun is not None and not self.sent:
            with contextlib.suppress(Exception):
                self.producer.purge()
                self.producer.abort_transaction(_ABORT_SECONDS)
        self.drop()

    def drop(self) -> None:
        """Drop the producer in any state. Never raises, never waits."""
        held, self._held = self._held, []
        if held:
            # The last reference closes the instance, which may wait for the brokers.
            threading.Thread(target=held.clear, name="onceonly-kafka-drop", daemon=True).start()


def _listen(unused: weakref.ref[Transaction]) -> None:
    """Take statistics, which pile up, as long as no other call does. Keeps alive no transaction that nobody holds."""
    while (transaction := unused()) is not None and (pause := transaction.take_statistics()):
        del transaction
        time.sleep(pause)


class Transactions:
    """Transactions of one transactional id. The next one's producer connects ahead of need.

    Arguments as of :class:`Transaction`.
    """

    def __init__(self, options: Options, id: str, patience: float, *, shared: bool = False) -> None:
        self._make = partial(Transaction, options, id, patience, shared=shared)
        self._lock = threading.Lock()
        self._next: Transaction | None = None
        self._closed = False

    def ready(self) -> None:
        """Make the next one, if there is none. Raises KafkaException for an option that the client does not take."""
        with self._lock:
            if self._next is None and not self._closed:
                self._next = self._make()

    def take(self) -> Transaction:
        """The next one, not fenced yet."""
        with self._lock:
            transaction, self._next = self._next, None
        transaction = transaction or self._make()
        self.ready()
        return transaction

    def forget(self) -> None:
        """Drop the unused one, so that the next one starts with a fresh client. May repeat."""
        with self._lock:
            unwanted, self._next = self._next, None
        if unwanted is not None:
            unwanted.drop()

    def close(self) -> None:
        """Drop the unused one, and make none ahead any more. May repeat."""
        with self._lock:
            self._closed = True
        self.forget()


def lost(error: BaseException) -> bool:
    """Whether an error means that the producer lost its transaction, to another producer or to its age."""
    failure = errors.read(error)
    return failure is not None and failure.kind is Kind.LOST
