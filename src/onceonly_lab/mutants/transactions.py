"""Mutants of transactions, staging, writers and readers.

Some put rows and marker into two transactions. These are M1, M2, M10-M14, M17-M20, M22, M28, M31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly import faults
from onceonly.faults import Point
from onceonly.machine import commands as c
from onceonly.machine import coordinator
from onceonly.machine.state import Job, State
from onceonly.protocol import Attempt, Batch, OutcomeUnknown, Prepared, Recorder, Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.runtime.ledger_sync import LedgerAttachment
from onceonly.runtime.runner import Runner
from onceonly.runtime.staging import StagedEpochs
from onceonly_checkpoints.digests import OutputDigest
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.manifest import Reference
from onceonly_lab.history.recorder import Look
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.mutants import wrapped
from onceonly_lab.mutants.wrapped import Held, Wrapped, held
from onceonly_lab.reading import KafkaReader
from onceonly_lab.stores.places import COLUMNS, Place
from onceonly_lab.stores.runner import RecordingRunner
from onceonly_lab.stores.world import Stores
from onceonly_sinks.kafka.markers import MarkerRecord, Written
from onceonly_sinks.kafka.producer import nested, places
from onceonly_sinks.memory import MemorySink

if TYPE_CHECKING:
    import pyarrow as pa


# ---- M1, M2, M10, M11, M18: rows and marker that are not one transaction, or not one of their own.


class RowsThenMarker(Wrapped):
    """M1 and M11: rows commit, and their marker in a second transaction."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Rows wait in this process."""
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Two transactions; between them, the first one is in the sink and not answered."""
        assert isinstance(prepared, Held)
        try:
            wrapped.into(self.place, prepared.table)
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
        wrapped.into(self.place, prepared.table)
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
        producer, servers = self._standing(), self.inner._on
        written = self._vouched(prepared, marker)
        rows = [(row["value"], row["key"]) for row in prepared.table.to_pylist()]
        producer.begin_transaction()
        entry = MarkerRecord(marker.fence, written, claim=False)
        producer.produce(servers.marker_topic, entry.value, entry.key(servers.writer), 0)
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
            self.inner._open_slot.quiet()
            servers = self.inner._on
            settings = servers.options.producer(servers.writer.transactional_id, servers.patience)
            # Its request is sent again when no answer comes: the first one may still be on its way then.
            self._producer = Producer({**settings, "socket.timeout.ms": 1000, "log_level": 0})
            self._producer.list_topics(timeout=10)
            self._producer.init_transactions(10)
        return self._producer

    def _vouched(self, prepared: Held, marker: Marker) -> Written:
        servers = self.inner._on
        topics = servers.look_at([self.place.topic])
        now = nested(servers.cluster.high(places(topics)))
        ids = {name: topic.id for name, topic in topics.items()}
        return Written(marker, prepared.rows, servers.identity(topics), ids, now, now)


class HealsInTwoSteps(RecordingRunner):
    """M18: what a sink lacks is brought to it in one transaction, and its marker in the next."""

    def _commit(self, state: State, command: c.Commit) -> c.Outcome:
        prepared: Any = self._prepared.get(command.marker.sink)
        if state.work.healing and prepared is not None:
            prepared.connection.commit()
            prepared.connection.close()
            prepared.connection = None
            faults.fire(Point.COMMIT_SENT)
        return super()._commit(state, command)


# ---- M12, M13, M14, M19, M28, M31: bytes of an epoch that nobody keeps, that are believed unread, or go too early.


class ComputesAgain(RecordingRunner):
    """M12: nothing is staged; what a sink lacks is computed again from the batch."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if not isinstance(command, c.Fetch):
            return super()._carry_out(state, command)
        assert state.work.epoch is not None
        self._staged = None
        faults.fire(Point.FETCH_AFTER)
        return c.Staged(command.manifest, state.work.epoch.digest.rows, state.work.epoch.digest)


class RecordsTooEarly(RecordingRunner):
    """M13: an epoch is recorded, and the engine told, before the last sink has committed it."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        last = isinstance(command, c.Commit) and command.marker.sink == state.targets[-1]
        if last and state.work.epoch is not None and not state.work.healing:
            super()._carry_out(state, c.Record(state.work.epoch, state.opening.fence, state.work.receipts))
        return super()._carry_out(state, command)


class _Believed(ArrowBatch):
    """Rows of files that nobody has looked at."""

    @property
    def rows(self) -> int:
        return self._table.num_rows

    @property
    def outputs(self) -> tuple[OutputDigest, ...]:
        return ()

    def times_of(self, clock: Clock) -> RowTimes:
        return self.timed(clock).times()

    def output(self, name: str | None) -> _Believed:
        return self


class BelievesTheStage(RecordingRunner):
    """M14: staged files were not flushed, and nobody compares sizes or digests before they are used again."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if isinstance(command, c.Fetch):
            return self._whatever_is_there(state, command)
        outcome = super()._carry_out(state, command)
        if not isinstance(command, c.Prepare) or not state.work.healing or state.work.epoch is None:
            return outcome
        believed: Any = self._prepared[command.sink]
        believed.rows = state.work.epoch.digest.rows
        return c.Prepared(state.work.epoch.digest.rows, state.work.epoch.digest)

    def _whatever_is_there(self, state: State, command: c.Fetch) -> c.Outcome:
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert state.work.epoch is not None
        folder = Path(Reference.parse(command.manifest).directory)
        tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
        self._staged = _Believed(pa.concat_tables(tables))
        faults.fire(Point.FETCH_AFTER)
        return c.Staged(command.manifest, state.work.epoch.digest.rows, state.work.epoch.digest)


class CommitsOneByOne(RecordingRunner):
    """M31: sinks that share a transaction get one each, and what lies in the driver's memory is all that heals them."""

    def _prepared_in(self, sink: Sink, batch: Batch, command: c.Prepare) -> Prepared:
        return sink.prepare(batch, command.number)

    def _committed_in(self, sink: Sink, command: c.Commit, recorder: LedgerAttachment | None) -> tuple[Receipt, ...]:
        markers = (command.marker, *command.sibling_markers)
        return tuple(self._sinks[marker.sink].commit(self._prepared.get(marker.sink), marker) for marker in markers)


class SweepsTooEarly(RecordingRunner):
    """M19: an epoch's bytes are removed once the first sink has it."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if isinstance(command, c.Commit) and command.marker.sink == state.targets[0] and self._staging:
            assert state.work.epoch is not None
            assert state.work.epoch.manifest is not None
            self._staging.drop(state.work.epoch.manifest)
        return super()._carry_out(state, command)


def tear(world: Stores) -> None:
    """The power fails: a staged file whose name was not flushed into its directory is gone."""
    world.staged()[-1].unlink()
    world.recorder.fault("a staged file is torn off")


def by_name(folder: str, _: Sequence[Sink]) -> StagedEpochs:
    """M28: a directory belongs to whoever has the pipeline's name, wherever his sinks lie."""
    return StagedEpochs(folder, PIPELINE, ())


def another_environment(world: Stores) -> None:
    """A pipeline of the same name, with a sink and a ledger of its own, is opened on the same staging directory."""
    sink = MemorySink("another environment")
    with closing(SqlLedger(str(world.folder / "another.db"))) as ledger:
        for opening in range(_OPENINGS):
            state = coordinator.start(Job(PIPELINE, (sink.id,), f"another-{opening}", None))
            Runner([sink], ledger, staging=world.staging([sink])).run(state)
    world.recorder.fault("another environment opens a pipeline of the same name")


_OPENINGS = 3
"""Each one counts a generation, so that the last one is above that of whoever staged the epoch in doubt."""


# ---- M17, M20, M22: rows of an attempt that did not win, partitions out of order, and a reader that reads too much.


class Counted:
    """A preparation that says what the winners said.

    Args:
        inner: what is really prepared.
        rows: the count.
    """

    def __init__(self, inner: Prepared, rows: int) -> None:
        self.inner = inner
        self.rows = rows

    def abandon(self) -> None:
        """Handed on."""
        self.inner.abandon()


class TakesEveryAttempt(Wrapped):
    """M17: rows of every attempt are written, not only of those that won."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """What the winners answer is only counted."""
        import pyarrow as pa

        received: list[pa.RecordBatch] = []

        def receive(attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
            batches = list(rows)
            received.extend(batches)
            return {"rows": sum(record_batch.num_rows for record_batch in batches)}

        answers = batch.on_executors(receive)
        table = pa.Table.from_batches(received, batch.schema)
        return Counted(super().prepare(ArrowBatch(table), epoch), sum(answer["rows"] for answer in answers))

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """All of them."""
        return super().commit(prepared.inner if isinstance(prepared, Counted) else prepared, marker)


class WritesInParallel(Wrapped):
    """M22: partitions are written side by side, whichever row comes first."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """The second partition is a row ahead of the first."""
        import pyarrow as pa

        parts: list[list[dict[str, Any]]] = []

        def receive(attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
            parts.append([row for record_batch in rows for row in record_batch.to_pylist()])
            return {}

        batch.on_executors(receive)
        first, second = parts
        mixed = [row for pair in zip(second, first, strict=True) for row in pair]
        return super().prepare(ArrowBatch(pa.Table.from_pylist(mixed, batch.schema)), epoch)


def uncommitted(store: Place) -> Look:
    """M20's reader: it sees what is in open transactions, and in those that were aborted."""
    kafka_store: Any = store
    return KafkaReader(kafka_store.id, kafka_store.direct, kafka_store.topic, COLUMNS, isolation="read_uncommitted")
