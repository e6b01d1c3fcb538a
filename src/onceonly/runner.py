"""Carries the coordinator's commands out; the only loop with I/O.

Each command has one short method. What a sink raises becomes an outcome where the contract says so; everything else
leaves the loop as it is, after the preparation was abandoned: Spark must see it, or it would write its commit log.
"""

from __future__ import annotations

import logging
import random
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

from onceonly import commands as c
from onceonly import coordinator, endings, faults, look, recovery, staging, stops
from onceonly.errors import OnceOnlyError, mask, refuse
from onceonly.facts import Happening, Offer, Reading, Refusal
from onceonly.faults import Point
from onceonly.overlap import held_files
from onceonly.promise import unsaid
from onceonly.protocol import (
    Batch,
    Conflict,
    Disturbance,
    Identified,
    OutcomeUnknown,
    Permissive,
    Prepared,
    Shared,
    Sight,
    Sink,
    Superseded,
    TooLargeForDriver,
)
from onceonly.remedies import Where
from onceonly.staging import Stages, Still
from onceonly.state import Phase, State
from onceonly.trim import Trim, Trimmable
from onceonly_checkpoints.epoch import Digest, Epoch, EpochRecord, Fence, Lineage, Receipt
from onceonly_checkpoints.jsonform import UnreadableMarker
from onceonly_checkpoints.ledger import Event, EventKind, Intent, Ledger, LedgerUnavailable, Pipeline
from onceonly_checkpoints.manifest import UnreachableManifest, UnreadableManifest

log = logging.getLogger(__name__)

_LOUD = {EventKind.WARNED, EventKind.LATE}
"""What is logged as a warning."""


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
        staging: where epochs of several sinks are staged; ``None`` where no batch is written.
        fetch: reads staged bytes back by the reference in a marker.
        guard: raises where the caller must touch nothing any more; asked before each step.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        ledger: Ledger,
        *,
        carried: bool = False,
        staging: Stages | None = None,
        fetch: Callable[[str, Batch | None], Still] = staging.fetch,
        guard: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sinks = {sink.id: sink for sink in sinks}
        self._ledger = ledger
        self._carried = carried
        self._staging = staging
        self._fetch_staged = fetch
        self._guard = guard
        self._sleep = sleep
        self._batch: Batch | None = None
        self._staged: Batch | None = None
        self._borrowed: str | None = None
        self._prepared: dict[str, Prepared] = {}
        self._told: BaseException | None = None
        self.phases: dict[str, float] = {}
        self._handlers: dict[type, Callable[[State, Any], c.Outcome]] = {
            c.Probe: self._probe,
            c.Recall: self._recall,
            c.Look: self._look,
            c.Install: self._install,
            c.Read: self._read,
            c.Index: self._index,
            c.Recollect: self._recollect,
            c.Gather: self._gather,
            c.Execute: self._execute,
            c.Intend: self._intend,
            c.Fetch: self._fetch,
            c.Stage: self._stage,
            c.Prepare: self._prepare,
            c.Commit: self._commit,
            c.LookUp: self._look_up,
            c.Record: self._record,
            c.Note: self._note,
            c.Wait: self._wait,
            c.Refuse: self._refuse,
        }

    def run(self, state: State, batch: Batch | None = None) -> State:
        """Drive the machine until it returns.

        Raises:
            OnceOnlyError: the machine refused, the ledger is away, or a sink cannot take the rows.
        """
        self._batch, self._staged, self._borrowed = batch, None, None
        self._prepared, self.phases = {}, {}
        self._told = None
        try:
            while not isinstance(command := coordinator.next(state), c.Return):
                log.debug("pipeline %s: %s", state.pipeline, type(command).__name__)
                self._guard()
                state = coordinator.apply(state, self._carry_out(state, command))
            return state
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error
        except UnreadableMarker as error:
            refusal = _unreadable(state, error)
            self.tell(state.pipeline, refusal, state)
            raise refusal from error
        except BaseException as error:
            self.tell(state.pipeline, error, state)
            raise
        finally:
            for prepared in self._prepared.values():
                prepared.abandon()
            if self._staging and self._borrowed:
                self._staging.drop(self._borrowed)

    @contextmanager
    def _timed(self, phase: str) -> Generator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases[phase] = self.phases.get(phase, 0.0) + time.perf_counter() - began

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        carry_out: Callable[[State, Any], c.Outcome] = self._handlers[type(command)]
        return carry_out(state, command)

    # ---- opening

    def _probe(self, state: State, _: c.Probe) -> c.Outcome:
        with self._timed("open"):
            for sink in self._sinks.values():
                sink.open(state.pipeline)
            fences = tuple(self._sinks[sink].fence() for sink in state.sinks)
        faults.fire(Point.PROBE_AFTER)
        return c.Probed(fences)

    def _recall(self, state: State, _: c.Recall) -> c.Outcome:
        with self._timed("open"):
            self._ledger.open()
            head = self._ledger.head(state.pipeline)
            ended = endings.ended(self._ledger.events(state.pipeline, endings.WINDOW))
        faults.fire(Point.RECALL_AFTER)
        return c.Recalled(head, ended)

    def _look(self, state: State, _: c.Look) -> c.Outcome:
        with self._timed("open"):
            receipts = {one.sink: one for one in state.head.receipts} if state.head else {}
            sights = tuple(_sight(self._sinks[sink], receipts.get(sink)) for sink in state.sinks)
            known = state.head.epoch.number if state.head else 0
            if not look.lacks(sights, known):
                return c.Looked(sights)
            told = (marker.epoch for sink in state.sinks for marker, _ in self._sinks[sink].history(known))
            return c.Looked(sights, tuple(told))

    def _install(self, _: State, command: c.Install) -> c.Outcome:
        faults.fire(Point.INSTALL_BEFORE)
        with self._timed("fence"):
            answer = _answer(lambda: self._sinks[command.sink].install(command.fence))
        faults.fire(Point.INSTALL_AFTER)
        return answer or c.Installed()

    def _read(self, _: State, command: c.Read) -> c.Outcome:
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

    def _index(self, state: State, command: c.Index) -> c.Outcome:
        for marker, receipts in command.epochs:
            self._ledger.record(EpochRecord(state.pipeline, marker.fence, marker.epoch, receipts))
        newest = state.last or (state.head.epoch if state.head else None)
        before = newest.standing.lineage if newest else None
        self._enter(state.pipeline, state.offer.lineage if state.offer else before, command.fence.generation)
        for sink in self._sinks.values():
            sink.sweep()
        if self._staging:
            self._staging.sweep(command.fence.generation, state.last.manifest if state.last else None)
        faults.fire(Point.REINDEX_AFTER)
        return c.Done()

    # ---- one epoch

    def _recollect(self, state: State, command: c.Recollect) -> c.Outcome:
        found = self._ledger.find(state.pipeline, command.query_id, command.batch_id)
        if found is None or state.last is None:
            return c.Recollected(())
        records = self._ledger.epochs(state.pipeline, found.epoch.number, state.last.number)
        return c.Recollected(tuple(record.epoch for record in records))

    def _gather(self, state: State, _: c.Gather) -> c.Outcome:
        assert state.last is not None
        records = self._ledger.epochs(state.pipeline, 1, state.last.number)
        return c.Gathered(held_files(records, state.last))

    def _execute(self, _: State, __: c.Execute) -> c.Outcome:
        with self._timed("execute"):
            digest = self._stateful_batch().execute()
        faults.fire(Point.EXECUTE_AFTER)
        return c.Executed(digest)

    def _stateful_batch(self) -> StatefulBatch:
        batch = self._batch
        assert batch is not None
        assert hasattr(batch, "execute")
        return batch  # type: ignore[return-value]

    def _intend(self, state: State, command: c.Intend) -> c.Outcome:
        assert state.fence is not None
        assert state.offer is not None
        with self._timed("intend"):
            slice_ = state.slice or state.offer.slice
            self._ledger.intend(Intent(state.pipeline, command.number, state.fence, slice_))
        faults.fire(Point.INTEND_AFTER)
        return c.Done()

    def _fetch(self, _: State, command: c.Fetch) -> c.Outcome:
        with self._timed("fetch"):
            try:
                found = self._fetch_staged(command.manifest, self._batch)
            except UnreadableManifest as gone:
                return c.Missing(str(gone))
        self._staged = found
        faults.fire(Point.FETCH_AFTER)
        return c.Staged(command.manifest, found.rows, found.digest())

    def _stage(self, state: State, command: c.Stage) -> c.Outcome:
        assert self._batch is not None
        assert self._staging is not None
        assert state.fence is not None
        assert state.offer is not None
        faults.fire(Point.STAGE_BEFORE)
        with self._timed("stage"):
            batch, slice_ = _trimmed(self._batch, command.trim), state.slice or state.offer.slice
            made = self._staging.write(batch, command.number, state.fence, slice_)
        self._staged = made.batch
        if state.healing:
            self._borrowed = made.reference.text  # computed again for sinks that were behind: no marker names it
        faults.fire(Point.STAGE_AFTER)
        return c.Staged(made.reference.text, made.batch.rows, made.batch.digest())

    def _prepare(self, _: State, command: c.Prepare) -> c.Outcome:
        batch = self._staged or self._batch
        assert batch is not None
        if self._staged is None:
            batch = _trimmed(batch, command.trim)
        faults.fire(Point.PREPARE_BEFORE)
        if earlier := self._prepared.pop(command.sink, None):
            earlier.abandon()
        with self._timed("prepare"):
            try:
                prepared = self._sinks[command.sink].prepare(batch, command.number)
            except TooLargeForDriver as error:
                raise refuse("E521", sink=command.sink, epoch=command.number, reason=str(error)) from error
            except Superseded as fenced:
                return c.Overtaken(fenced.found)
            except Conflict as conflict:
                return self._taken_back(conflict)
            self._prepared[command.sink] = prepared
            counted = batch.digest()
        faults.fire(Point.PREPARE_AFTER)
        return c.Prepared(prepared.rows, counted)

    def _commit(self, state: State, command: c.Commit) -> c.Outcome:
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
            except Conflict as conflict:
                return self._taken_back(conflict)
        self._prepared.pop(sink.id, None)
        faults.fire(Point.COMMIT_AFTER)
        return c.Committed(receipt, _passed(sink))

    def _taken_back(self, conflict: Conflict) -> c.Outcome:
        """Nothing is held while others are waited for: what is prepared in other sinks would stand in their way."""
        log.warning("%s; the epoch is written again", conflict)
        for prepared in self._prepared.values():
            prepared.abandon()
        self._prepared = {}
        return c.Again(conflict.reason, conflict.blocker)

    def _look_up(self, _: State, command: c.LookUp) -> c.Outcome:
        sink = self._sinks[command.marker.sink]
        with self._timed("look up"):
            try:
                receipt = sink.look_up(command.marker)
            except Superseded as fenced:
                return c.Overtaken(fenced.found)
            except OutcomeUnknown as lost:
                return c.Unknown(lost.reason)
        faults.fire(Point.LOOK_UP_AFTER)
        return c.Committed(receipt, _passed(sink)) if receipt else c.Absent()

    def _record(self, state: State, command: c.Record) -> c.Outcome:
        assert state.fence is not None
        faults.fire(Point.RECORD_BEFORE)
        with self._timed("record"):
            if state.skipped:
                self._complete(state, command.epoch)
            elif not self._carried:
                self._ledger.record(self._record_of(state, command.epoch))
        if self._staging and not state.skipped and state.last and state.last.manifest:
            self._staging.drop(state.last.manifest)  # every sink holds the epoch after it
        faults.fire(Point.RECORD_AFTER)
        return c.Done()

    def _complete(self, state: State, epoch: Epoch) -> None:
        """A record that was rebuilt from a marker has no input files; the replay of its batch brings them again."""
        known = self._ledger.epochs(state.pipeline, epoch.number, epoch.number)
        if state.offer and state.offer.files and known and not known[0].files:
            self._ledger.record(replace(known[0], files=state.offer.files))

    def _record_of(self, state: State, epoch: Epoch) -> EpochRecord:
        assert state.fence is not None
        files = state.offer.files if state.offer else ()
        phases = tuple(self.phases.items())
        return EpochRecord(state.pipeline, state.fence, epoch, state.receipts, files, phases)

    # ---- events

    def tell(self, pipeline: str, error: BaseException, state: State | None = None) -> None:
        """Note in the ledger that an opening failed, once for each error. What is being raised is not replaced."""
        told, self._told = self._told, error
        # Of other exceptions nothing is known, not even that the process outlives them.
        if (
            error is not told
            and isinstance(error, Exception | KeyboardInterrupt | SystemExit)
            and self._reaches(error, state)
        ):
            self._noted(endings.failure(pipeline, error, state))

    def _reaches(self, error: BaseException, state: State | None) -> bool:
        """Whether the ledger need not be waited for in vain: it may lie where nobody answers."""
        beside = any(sink.ledger_url for sink in self._sinks.values())
        silent = beside and state is not None and state.phase is Phase.PROBE
        return not silent and getattr(error, "code", "") != "E511"

    def ends(self, state: State) -> None:
        """Note in the ledger that the opening is over and leaves nothing behind."""
        self._noted(endings.end(state))

    def _noted(self, event: Event) -> None:
        try:
            self._ledger.open()
            self._ledger.note(event)
        except LedgerUnavailable as away:
            log.debug("pipeline %s: its end cannot be noted: %s", event.pipeline, away)

    def _note(self, state: State, command: c.Note) -> c.Outcome:
        generation = state.fence.generation if state.fence else 0
        for happening in command.happenings:
            self._say(state.pipeline, happening, generation)
        return c.Done()

    def _say(self, pipeline: str, happening: Happening, generation: int) -> None:
        level = logging.WARNING if happening.kind in _LOUD else logging.INFO
        log.log(level, "pipeline %s: %s: %s", pipeline, happening.kind.value, happening.reason)
        self._ledger.note(Event(pipeline, happening.kind, happening.reason, happening.epoch, generation))

    def keep(self, state: State, happenings: Sequence[Happening]) -> None:
        """Log what was found of a batch beside its rows and keep it with the pipeline, unless its log says it already.

        Raises:
            OnceOnlyError: E511, the ledger is away. The epoch stands; its batch comes again and is skipped.
        """
        generation = state.fence.generation if state.fence else 0
        try:
            for happening in unsaid(happenings, self._ledger.events(state.pipeline)) if happenings else ():
                self._say(state.pipeline, happening, generation)
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error

    def _wait(self, _: State, command: c.Wait) -> c.Outcome:
        self._sleep(random.uniform(0.05, 0.2) * 2 ** min(command.attempt, 5))
        return c.Done()

    def _refuse(self, state: State, command: c.Refuse) -> NoReturn:
        refusal = command.refusal
        if state.seen is not None or refusal.code == "E213":
            self._learn(state)
        # The message must stand alone: the command it prints names the ledger, without its password.
        ledger = shlex.quote(self._ledger.address)
        ledger += self._elsewhere(state.pipeline) if refusal.code != "E213" else ""  # there the call lacks a sink
        details: dict[str, object] = {"ledger": ledger, "where": self._where}
        if refusal.code.startswith("E2"):
            newest = state.last or (state.head.epoch if state.head else None)
            lineage = state.offer.lineage if state.offer else newest and newest.standing.lineage
            checkpoint = lineage.checkpoint if lineage else ""
            named = Where(state.pipeline, f" --ledger {ledger}", checkpoint)
            refusal = self._still_staged(refusal)
            told = stops.tell(refusal, self._ledger, named, newest, state.offer)
            details |= told.details
            stops.remember(self._ledger, state.pipeline, state.fence or Fence(0, state.owner), told.stop)
        raise refuse(refusal.code, **{**details, **dict(refusal.details)})

    def _still_staged(self, refusal: Refusal) -> Refusal:
        """A refusal that counts on staged bytes, without them where they are gone: then no command brings them."""
        said = dict(refusal.details)
        if said.get("staged"):
            try:
                self._fetch_staged(str(said["staged"]), None)
            except UnreachableManifest as error:
                return Refusal.of(refusal.code, **{**said, "gone": mask(str(error))})  # another machine may read it
            except UnreadableManifest:
                return Refusal.of(refusal.code, **{**said, "staged": None})
        return refusal

    @property
    def _where(self) -> str:
        return " ".join(f"--sink {shlex.quote(sink.address)}" for sink in self._sinks.values())

    def _elsewhere(self, pipeline: str) -> str:
        """Commands find sinks by the ledger. A refused call does not correct it: the call may be what is wrong."""
        known = next((entry.sinks for entry in self._ledger.pipelines() if entry.name == pipeline), None)
        ours = tuple((sink.id, sink.address) for sink in self._sinks.values())
        return f" {self._where}" if known is not None and dict(known) != dict(ours) else ""

    def _learn(self, state: State) -> None:
        """Whoever was refused by a look has indexed nothing; the commands in his message need what the sinks know."""
        known = state.head.epoch.number if state.head else 0
        told = [pair for sink in self._sinks.values() for pair in sink.history(known)]
        for marker, receipts in recovery.by_epoch(told):
            # One that some sinks lack is being written, or waits to be healed: no record comes before that.
            if {receipt.sink for receipt in receipts} >= {sink for sink, _ in marker.epoch.sinks}:
                self._ledger.record(EpochRecord(state.pipeline, marker.fence, marker.epoch, receipts))
        if told and all(entry.name != state.pipeline for entry in self._ledger.pipelines()):
            newest = max((marker for marker, _ in told), key=lambda marker: marker.epoch.number)
            self._enter(state.pipeline, newest.epoch.standing.lineage, newest.fence.generation)

    def _enter(self, pipeline: str, lineage: Lineage | None, generation: int) -> None:
        self._ledger.enter(
            Pipeline(
                pipeline,
                tuple((sink.id, sink.address) for sink in self._sinks.values()),
                lineage.query_id if lineage else "",
                lineage.checkpoint if lineage else "",
                generation,
                time.time_ns() // 1_000_000,
            )
        )


def _unreadable(state: State, error: UnreadableMarker) -> OnceOnlyError:
    """A marker that this version cannot read: of which sink, the machine's step tells where there are several."""
    sink = state.sinks[min(state.index, len(state.sinks) - 1)]
    cause = "a newer onceonly wrote it, or somebody edited it"
    next_ = "upgrade onceonly to the version that wrote it (pip install --upgrade onceonly), and restart the query"
    return refuse("E508", sink=sink, reason=f"a marker cannot be read: {error}", cause=cause, next=next_)


@dataclass(frozen=True, slots=True)
class _Carried:
    """Adds what only the runner knows to the record that a sink writes in its own transaction."""

    ledger: Ledger
    offer: Offer | None
    phases: tuple[tuple[str, float], ...]

    @property
    def address(self) -> str:
        return self.ledger.address

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        files = self.offer.files if self.offer else ()
        self.ledger.record(replace(record, files=files, phases=self.phases), connection)


def _passed(sink: Sink) -> tuple[Disturbance, ...]:
    return tuple(sink.passed()) if isinstance(sink, Permissive) else ()


def _trimmed(batch: Batch, trim: Trim | None) -> Batch:
    if trim is None:
        return batch
    if not isinstance(batch, Trimmable):
        raise TypeError(f"{type(batch).__name__} cannot be trimmed")
    return batch.trimmed(trim)


def _sight(sink: Sink, receipt: Receipt | None) -> Sight:
    """What a look shows; whose rows are there is asked where they are not ours, what it is where some lack."""
    sight = sink.look()
    if receipt and sight.epoch < receipt.epoch and isinstance(sink, Identified):
        sight = replace(sight, identity=sink.identity_beside(receipt.identity))
    return replace(sight, writers=tuple(sink.writers())) if sight.strangers and isinstance(sink, Shared) else sight


def _answer(call: Callable[[], None]) -> c.Outcome | None:
    try:
        call()
    except Superseded as fenced:
        return c.Overtaken(fenced.found)
    except OutcomeUnknown as lost:
        return c.Unknown(lost.reason)
    return None
