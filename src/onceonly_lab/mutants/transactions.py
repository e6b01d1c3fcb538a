"""M1, M2, M10, M11, M18: rows and marker that are not one transaction, or not one of their own."""

from __future__ import annotations

from typing import Any

from onceonly import commands as c
from onceonly import faults
from onceonly.faults import Point
from onceonly.protocol import Batch, OutcomeUnknown, Prepared, Recorder
from onceonly.state import State
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.mutants import raw
from onceonly_lab.mutants.wrapped import Held, Wrapped, held
from onceonly_lab.stores.told import ToldRunner
from onceonly_sinks.kafka.records import Entry, Written
from onceonly_sinks.kafka.standing import nested, places


class RowsThenMarker(Wrapped):
    """M1 and M11: rows commit, and their marker in a second transaction."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Rows wait in this process."""
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Two transactions; between them, the first one is in the sink and not answered."""
        assert isinstance(prepared, Held)
        try:
            raw.into(self.place, prepared.table)
        except Exception as lost:
            raise OutcomeUnknown(self.id, type(lost).__name__) from lost
        faults.fire(Point.COMMIT_SENT)
        return super().commit(None, marker)


class MarkerThenRows(Wrapped):
    """M2: the marker commits, and its rows in a second transaction."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Rows wait in this process."""
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Two transactions; the sink itself passes the point between them."""
        assert isinstance(prepared, Held)
        receipt = super().commit(None, marker)
        raw.into(self.place, prepared.table)
        return receipt


class ReusesItsProducer(Wrapped):
    """M10: one Kafka producer for all epochs, also for the one after a commit that timed out."""

    _producer: Any = None

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Rows wait in this process."""
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Marker and rows in one transaction of the old producer, the rows in two parts."""
        from confluent_kafka import KafkaException

        assert isinstance(prepared, Held)
        try:
            return self._written(prepared, marker)
        except KafkaException as lost:
            self._producer = None
            raise OutcomeUnknown(self.id, lost.args[0].name()) from lost

    def close(self) -> None:
        """The producer goes, too."""
        self._producer = None
        super().close()

    def _written(self, prepared: Held, marker: Marker) -> Receipt:
        producer, ground = self._standing(), self.inner._on
        written = self._vouched(prepared, marker)
        rows = [(row["value"], row["key"]) for row in prepared.table.to_pylist()]
        producer.begin_transaction()
        entry = Entry(marker.fence, written, claim=False)
        producer.produce(ground.marker_topic, entry.value, entry.key(ground.writer), 0)
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            for value, key in part:
                producer.produce(self.place.topic, value, key)
            producer.flush(10)
            faults.fire(Point.PREPARE_SENT)
        producer.commit_transaction(10)
        faults.fire(Point.COMMIT_SENT)
        return written.receipt

    def _standing(self) -> Any:
        from confluent_kafka import Producer

        if self._producer is None:
            self.inner._foot.quiet()
            ground = self.inner._on
            settings = ground.options.producer(ground.writer.transactional_id, ground.patience)
            # Its request is sent again when no answer comes: the first one may still be on its way then.
            self._producer = Producer({**settings, "socket.timeout.ms": 1000, "log_level": 0})
            self._producer.list_topics(timeout=10)
            self._producer.init_transactions(10)
        return self._producer

    def _vouched(self, prepared: Held, marker: Marker) -> Written:
        ground = self.inner._on
        topics = ground.look_at([self.place.topic])
        now = nested(ground.cluster.high(places(topics)))
        ids = {name: topic.id for name, topic in topics.items()}
        return Written(marker, prepared.rows, ground.identity(topics), ids, now, now)


class HealsInTwoSteps(ToldRunner):
    """M18: what a sink lacks is brought to it in one transaction, and its marker in the next."""

    def _commit(self, state: State, command: c.Commit) -> c.Outcome:
        prepared: Any = self._prepared.get(command.marker.sink)
        if state.healing and prepared is not None:
            prepared.connection.commit()
            prepared.connection.close()
            prepared.connection = None
            faults.fire(Point.COMMIT_SENT)
        return super()._commit(state, command)
