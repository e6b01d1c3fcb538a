"""Carries the coordinator's commands out; the only loop with I/O.

Each command has one short method. What a sink raises becomes an outcome where the contract says so; everything else leaves the loop as it is,
after the preparation was abandoned: Spark must see it, or it would write its commit log.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from onceonly import commands as c
from onceonly import coordinator, faults
from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.protocol import Batch, OutcomeUnknown, Prepared, Sink, Superseded
from onceonly.recovery import Offer, Reading
from onceonly_checkpoints.epoch import Digest, Epoch, EpochRecord, Lineage
from onceonly_checkpoints.ledger import Event, Intent, Ledger, LedgerUnavailable, Pipeline

log = logging.getLogger(__name__)

REFUSED_OFFER = 0
"""Epoch number under which the ledger keeps the slice that was refused last, so that ``queries adopt`` can name it."""

_LINEAGE_WINDOW = 64
"""How far behind the head the newest lineage is searched; adoptions in a row are rare."""


class StatefulBatch(Batch, Protocol):
    """A batch that can also be executed without being written."""

    def execute(self) -> Digest:
        """Run the whole plan, write nothing."""
        ...


class Runner:
    """Brings a state to its end.

    Args:
        sinks: the pipeline's sinks in commit order.
        ledger: its index.
        carried: whether the sink's own transaction records the epoch in the ledger.
    """

    def __init__(self, sinks: Sequence[Sink], ledger: Ledger, *, carried: bool = False) -> None:
        self._sinks = {sink.id: sink for sink in sinks}
        self._ledger = ledger
        self._carried = carried
        self._batch: Batch | None = None
        self._prepared: dict[str, Prepared] = {}
        self.phases: dict[str, float] = {}

    def run(self, state: coordinator.State, batch: Batch | None = None) -> coordinator.State:
        """Drive the machine until it returns.

        Raises:
            OnceOnlyError: the machine refused, the ledger is away, or a sink cannot take the rows.
        """
        self._batch, self._prepared, self.phases = batch, {}, {}
        try:
            while not isinstance(command := coordinator.next(state), c.Return):
                log.debug("pipeline %s: %s", state.pipeline, type(command).__name__)
                state = coordinator.apply(state, self._carry_out(state, command))
            return state
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error
        finally:
            for prepared in self._prepared.values():
                prepared.abandon()

    @contextmanager
    def _timed(self, phase: str) -> Generator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases[phase] = self.phases.get(phase, 0.0) + time.perf_counter() - began

    def _carry_out(self, state: coordinator.State, command: c.Command) -> c.Outcome:
        match command:
            case c.Probe():
                return self._probe(state)
            case c.Recall():
                return self._recall(state)
            case c.Install():
                return self._install(command)
            case c.Read():
                return self._read(command)
            case c.Index():
                return self._index(state, command)
            case c.Recollect():
                return self._recollect(state, command)
            case c.Execute():
                return self._execute()
            case c.Intend():
                return self._intend(state, command)
            case c.Prepare():
                return self._prepare(command)
            case c.Commit():
                return self._commit(state, command)
            case c.LookUp():
                return self._look_up(command)
            case c.Record():
                return self._record(state, command)
            case c.Note():
                return self._note(state, command)
            case c.Wait():
                time.sleep(random.uniform(0.05, 0.2) * 2 ** min(command.attempt, 5))
                return c.Done()
            case c.Refuse():
                self._remember_offer(state)
                raise refuse(command.refusal.code, **dict(command.refusal.details))
            case c.Return():
                raise AssertionError("the loop ends on Return")

    # ---- opening

    def _probe(self, state: coordinator.State) -> c.Outcome:
        with self._timed("open"):
            for sink in self._sinks.values():
                sink.open(state.pipeline)
            fences = tuple(self._sinks[sink].fence() for sink in state.sinks)
        faults.fire(Point.PROBE_AFTER)
        return c.Probed(fences)

    def _recall(self, state: coordinator.State) -> c.Outcome:
        with self._timed("open"):
            self._ledger.open()
            head = self._ledger.head(state.pipeline)
            lineage = self._newest_lineage(state.pipeline, head)
        faults.fire(Point.RECALL_AFTER)
        return c.Recalled(head, lineage)

    def _newest_lineage(self, pipeline: str, head: EpochRecord | None) -> Lineage | None:
        if head is None or head.epoch.lineage:
            return head.epoch.lineage if head else None
        first = max(1, head.epoch.number - _LINEAGE_WINDOW)
        known = [record.epoch.lineage for record in self._ledger.epochs(pipeline, first) if record.epoch.lineage]
        return known[-1] if known else None

    def _install(self, command: c.Install) -> c.Outcome:
        faults.fire(Point.INSTALL_BEFORE)
        with self._timed("fence"):
            answer = _answer(lambda: self._sinks[command.sink].install(command.fence))
        faults.fire(Point.INSTALL_AFTER)
        return answer or c.Installed()

    def _read(self, command: c.Read) -> c.Outcome:
        sink = self._sinks[command.sink]
        with self._timed("fence"):
            try:
                position = sink.position(command.since)
                behind = position.marker is not None and position.epoch > command.after
                ahead = tuple(sink.history(command.after)) if behind else ()
            except Superseded as fenced:
                return c.Overtaken(fenced.found)
        faults.fire(Point.READ_AFTER)
        return Reading(command.sink, position, command.since, ahead)

    def _index(self, state: coordinator.State, command: c.Index) -> c.Outcome:
        for marker, receipt in command.epochs:
            self._ledger.record(EpochRecord(state.pipeline, marker.fence, marker.epoch, (receipt,)))
        lineage = state.offer.lineage if state.offer else state.lineage
        self._ledger.enter(
            Pipeline(
                state.pipeline,
                tuple((sink.id, sink.address) for sink in self._sinks.values()),
                lineage.query_id if lineage else "",
                lineage.checkpoint if lineage else "",
                command.fence.generation,
                time.time_ns() // 1_000_000,
            )
        )
        for sink in self._sinks.values():
            sink.sweep()
        faults.fire(Point.REINDEX_AFTER)
        return c.Done()

    # ---- one epoch

    def _recollect(self, state: coordinator.State, command: c.Recollect) -> c.Outcome:
        found = self._ledger.find(state.pipeline, command.query_id, command.batch_id)
        if found is None or state.last is None:
            return c.Recollected(())
        records = self._ledger.epochs(state.pipeline, found.epoch.number, state.last.number)
        return c.Recollected(tuple(record.epoch for record in records))

    def _execute(self) -> c.Outcome:
        with self._timed("execute"):
            digest = self._stateful_batch().execute()
        faults.fire(Point.EXECUTE_AFTER)
        return c.Executed(digest)

    def _stateful_batch(self) -> StatefulBatch:
        batch = self._batch
        assert batch is not None
        assert hasattr(batch, "execute")
        return batch  # type: ignore[return-value]

    def _intend(self, state: coordinator.State, command: c.Intend) -> c.Outcome:
        assert state.fence is not None
        assert state.offer is not None
        with self._timed("intend"):
            self._ledger.intend(Intent(state.pipeline, command.number, state.fence, state.offer.slice))
        faults.fire(Point.INTEND_AFTER)
        return c.Done()

    def _prepare(self, command: c.Prepare) -> c.Outcome:
        batch = self._batch
        assert batch is not None
        faults.fire(Point.PREPARE_BEFORE)
        if earlier := self._prepared.pop(command.sink, None):
            earlier.abandon()
        with self._timed("prepare"):
            prepared = self._sinks[command.sink].prepare(batch, command.number)
            self._prepared[command.sink] = prepared
            counted = batch.digest()
        faults.fire(Point.PREPARE_AFTER)
        return c.Prepared(prepared.rows, counted)

    def _commit(self, state: coordinator.State, command: c.Commit) -> c.Outcome:
        sink = self._sinks[command.marker.sink]
        prepared = self._prepared.get(sink.id)
        recorder = _Carried(self._ledger, state.offer, tuple(self.phases.items())) if self._carried else None
        faults.fire(Point.COMMIT_BEFORE)
        with self._timed("commit"):
            try:
                receipt = sink.commit(prepared, command.marker, recorder)
            except Superseded as fenced:
                return c.Overtaken(fenced.found)
            except OutcomeUnknown as lost:
                return c.Unknown(lost.reason)
        self._prepared.pop(sink.id, None)
        faults.fire(Point.COMMIT_AFTER)
        return c.Committed(receipt)

    def _look_up(self, command: c.LookUp) -> c.Outcome:
        sink = self._sinks[command.marker.sink]
        with self._timed("look up"):
            try:
                receipt = sink.look_up(command.marker)
            except Superseded as fenced:
                return c.Overtaken(fenced.found)
            except OutcomeUnknown as lost:
                return c.Unknown(lost.reason)
        faults.fire(Point.LOOK_UP_AFTER)
        return c.Committed(receipt) if receipt else c.Absent()

    def _record(self, state: coordinator.State, command: c.Record) -> c.Outcome:
        assert state.fence is not None
        faults.fire(Point.RECORD_BEFORE)
        with self._timed("record"):
            if not self._carried:
                self._ledger.record(self._record_of(state, command.epoch))
        faults.fire(Point.RECORD_AFTER)
        return c.Done()

    def _record_of(self, state: coordinator.State, epoch: Epoch) -> EpochRecord:
        assert state.fence is not None
        files = state.offer.files if state.offer else ()
        phases = tuple(self.phases.items())
        return EpochRecord(state.pipeline, state.fence, epoch, state.receipts, files, phases)

    # ---- events

    def _note(self, state: coordinator.State, command: c.Note) -> c.Outcome:
        generation = state.fence.generation if state.fence else 0
        for happening in command.happenings:
            log.info("pipeline %s: %s: %s", state.pipeline, happening.kind.value, happening.reason)
            event = Event(state.pipeline, happening.kind, happening.reason, happening.epoch, generation)
            self._ledger.note(event)
        return c.Done()

    def _remember_offer(self, state: coordinator.State) -> None:
        offer: Offer | None = state.offer
        if offer and state.fence and state.refusal and state.refusal.code.startswith("E2"):
            self._ledger.intend(Intent(state.pipeline, REFUSED_OFFER, state.fence, offer.slice))


@dataclass(frozen=True, slots=True)
class _Carried:
    """Adds what only the runner knows to the record that a sink writes in its own transaction."""

    ledger: Ledger
    offer: Offer | None
    phases: tuple[tuple[str, float], ...]

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        files = self.offer.files if self.offer else ()
        self.ledger.record(replace(record, files=files, phases=self.phases), connection)


def _answer(call: Callable[[], None]) -> c.Outcome | None:
    try:
        call()
    except Superseded as fenced:
        return c.Overtaken(fenced.found)
    except OutcomeUnknown as lost:
        return c.Unknown(lost.reason)
    return None
