"""Carries the coordinator's commands out; the only loop with I/O.

Each command has one short method. An exception of a sink becomes an outcome where the contract names it. Every other
exception leaves the loop after the prepared writes were abandoned. Spark must see it, or it would write its commit log.
"""

from __future__ import annotations

import logging
import random
import shlex
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from onceonly import faults, protocol
from onceonly.errors import IdentityError, refuse
from onceonly.machine import commands as c
from onceonly.machine import coordinator, in_doubt, precheck
from onceonly.machine.facts import Offer, OutOfPhase, Reading
from onceonly.machine.overlap import held_files
from onceonly.machine.state import State
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol.batch import Bindable, Bound, Checkable, Paned, Recalling, TellsTime, TooLargeForDriver
from onceonly.protocol.guard import check_install
from onceonly.protocol.row_times import NO_TIMES
from onceonly.protocol.values import ExternalChange
from onceonly.runtime import ledger_sync, shared_transaction, sink_refusals, time_callback
from onceonly.runtime.events import EventLog
from onceonly.runtime.ledger_sync import LedgerAttachment
from onceonly.runtime.sink_refusals import content, histories, naming, proposing_output
from onceonly.spark.engine import Describing, undescribed
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import EpochRecord, Fence, Receipt, StateVersion, receipts_of
from onceonly_checkpoints.ledger import EventKind, Intent, Ledger, LedgerUnavailable
from onceonly_checkpoints.manifest import UnreadableManifest

if TYPE_CHECKING:
    from onceonly.runtime.staging import RereadableBatch, StagingArea

log = logging.getLogger(__name__)

ReadPeers = Callable[[str, Sequence[str]], tuple[tuple[TimedMarker, ...], str]]
"""Returns newest epochs of a pipeline's peers, some known by name, and why others were not read. Does not raise."""


@runtime_checkable
class StatefulBatch(Protocol):
    """A batch that can also be executed without being written."""

    def execute(self) -> Digest:
        """Run the whole plan, write nothing."""
        ...


_NAMING = ("E207", "E208", "E209", "E213")
"""Refusals before anything is indexed whose commands name sinks by the ids that the ledger is to know."""


class Runner:
    """Run a state to its end.

    Args:
        sinks: in commit order.
        carried: the sink's own transaction records the epoch in the ledger.
        staging: for epochs of several sinks. ``None`` if no batch is written.
        fetch: reads staged files by the reference in a marker.
        sink_epochs: epochs by sink id that ``recover rewind`` sets together with the fence, in ``ReplacesRows`` sinks.
        says: the user's event-time callback, called for each epoch after its action.
        peers: reads the newest epochs of other writers of the dataset.
        guard: called before each step, raises if the caller may write no longer.
        admit: called at each opening with the sinks open, raises to refuse the batch.
        describing: as in :class:`onceonly.spark.engine.Run`.
        state_of: the state with which a batch begins, or ``None`` for a plan without state.

    ``phases`` are the seconds of each phase of the newest epoch.
    """

    def __init__(
        self,
        sinks: Sequence[protocol.Sink],
        ledger: Ledger,
        *,
        carried: bool = False,
        staging: StagingArea | None = None,
        fetch: Callable[[str, protocol.Batch | None], RereadableBatch] | None = None,
        sink_epochs: Mapping[str, int] | None = None,
        says: time_callback.TimeCallback | None = None,
        peers: ReadPeers | None = None,
        guard: Callable[[], None] = lambda: None,
        admit: Callable[[Offer | None], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        describing: Describing = undescribed,
        state_of: Callable[[int], StateVersion | None] = lambda _: None,
    ) -> None:
        self._sinks = {sink.id: sink for sink in sinks}
        self._all = tuple(self._sinks.values())
        self._ledger = ledger
        self.events = EventLog(self._all, ledger)
        self._carried = carried
        self._staging = staging
        self._fetch_staged = fetch or _fetch_staged_files
        self._sink_epochs = sink_epochs or {}
        self._says = says
        self._peers = peers
        self._guard = guard
        self._admit = admit
        self._sleep = sleep
        self._describing = describing
        self.state_of = state_of
        self._batch: protocol.Batch | None = None
        self._staged: RereadableBatch | None = None
        self._borrowed: list[str] = []
        self._prepared: dict[str, protocol.Prepared] = {}
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
            c.Poll: self._poll,
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

    def run(self, state: State, batch: protocol.Batch | None = None) -> State:
        """Drive the machine until it returns. An ``OnceOnlyError`` is its refusal, or that of the ledger or a sink."""
        self._batch, self._staged, self._borrowed = batch, None, []
        self._prepared, self.phases = {}, {}
        self.events.begin()
        try:
            with self._describing() as describe:
                while not isinstance(command := coordinator.next(state), c.Return):
                    log.debug("pipeline %s: %s", state.job.pipeline, type(command).__name__)
                    self._guard()
                    if job := _job(state, command):
                        describe(job)
                    state = coordinator.apply(state, self._carry_out(state, command))
            return state
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error
        except BaseException as error:
            self.events.failed(state.job.pipeline, error, state)
            raise
        finally:
            for prepared in self._prepared.values():
                prepared.abandon()
            if self._staging:
                for reference in self._borrowed:
                    self._staging.drop(reference)

    @contextmanager
    def _timed(self, phase: str) -> Generator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases[phase] = self.phases.get(phase, 0.0) + time.perf_counter() - began

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        carry_out: Callable[[State, Any], c.Outcome] = self._handlers[type(command)]
        try:
            return carry_out(state, command)
        except protocol.Superseded as superseded:
            return c.Overtaken(superseded.current_fence)
        except protocol.OutcomeUnknown as lost:
            return c.Unknown(lost.reason)
        except protocol.Conflict as conflict:
            return self._taken_back(conflict)
        except Exception as error:
            if fenced := self._fenced(state, command):
                log.debug("what a driver meets that is fenced out", exc_info=error)
                return fenced
            raise

    def _fenced(self, state: State, command: c.Command) -> c.Overtaken | None:
        """Return the fence of a newer owner, who raises all fences before he changes staged files or state."""
        with suppress(Exception):  # the first failure is reported
            if isinstance(command, c.Stage) or (isinstance(command, c.Prepare | c.Commit) and self._removed()):
                sink = self._sinks[state.sink]
                superseded = check_install(sink.id, sink.fence(), state.opening.fence)
                return c.Overtaken(superseded.current_fence) if superseded else None
        return None

    def _removed(self) -> bool:
        from onceonly.runtime.staging import StagedBatch

        return isinstance(self._staged, StagedBatch) and self._staged.gone

    def _of(self, state: State) -> tuple[protocol.Sink, ...]:
        return tuple(self._sinks[sink] for sink in state.job.sinks)

    # ---- opening

    def _probe(self, state: State, _: c.Probe) -> c.Outcome:
        with self._timed("open"):
            for sink in self._all:
                with naming(sink):
                    sink.open(state.job.pipeline)
            self._admit(state.job.offer)
            fences: list[Fence | None] = []
            for sink in self._of(state):
                with naming(sink):
                    fences.append(sink.fence())
        faults.fire(faults.Point.PROBE_AFTER)
        return c.Probed(tuple(fences))

    def _recall(self, state: State, _: c.Recall) -> c.Outcome:
        with self._timed("open"):
            self._ledger.open()
            head = self._ledger.head(state.job.pipeline)
            events = self._ledger.events(state.job.pipeline, in_doubt.WINDOW)
            cut = ledger_sync.cut(self._ledger, state.job.pipeline, head)
            offer = state.job.offer
            # Not among the events above: a query that restarts again and again writes more than that window holds.
            replays = self._ledger.events(state.job.pipeline, 10, EventKind.STATE_LEFT) if offer and offer.state else ()
            left = tuple(event.reason for event in replays)
        faults.fire(faults.Point.RECALL_AFTER)
        return c.Recalled(head, in_doubt.ended(events), cut, left)

    def _look(self, state: State, _: c.Look) -> c.Outcome:
        with self._timed("open"):
            receipts = receipts_of(state.opening.head)
            sights: list[protocol.Peek] = []
            for sink in self._of(state):
                with naming(sink):
                    sights.append(_sight(sink, receipts.get(sink.id)))
            recorded_epoch = state.opening.head.epoch.number if state.opening.head else 0
            if not precheck.lacks(tuple(sights), recorded_epoch):
                return c.Looked(tuple(sights))
            epochs = tuple(marker.epoch for marker, _ in histories(self._of(state), recorded_epoch))
            return c.Looked(tuple(sights), epochs)

    def _install(self, _: State, command: c.Install) -> c.Outcome:
        sink = self._sinks[command.sink]
        faults.fire(faults.Point.INSTALL_BEFORE)
        answer: c.Outcome = c.Installed()
        with self._timed("fence"), naming(sink):
            try:
                self._put_fence(sink, command.fence)
            except protocol.Superseded as fenced:
                answer = c.Overtaken(fenced.current_fence)
            except protocol.OutcomeUnknown as lost:
                answer = c.Unknown(lost.reason)
        faults.fire(faults.Point.INSTALL_AFTER)
        return answer

    def _put_fence(self, sink: protocol.Sink, fence: Fence) -> None:
        if sink.id not in self._sink_epochs:
            sink.install(fence)
        elif isinstance(sink, protocol.ReplacesRows):
            sink.reset_to(fence, self._sink_epochs[sink.id])
        else:
            raise TypeError(f"{sink.id} cannot be put at an epoch")

    def _read(self, _: State, command: c.Read) -> c.Outcome:
        sink = self._sinks[command.sink]
        with self._timed("fence"), naming(sink):
            position = sink.position(command.since)
            behind = position.marker is not None and position.epoch > command.after
            ahead = tuple(sink.history(command.after)) if behind else ()
        faults.fire(faults.Point.READ_AFTER)
        recorded_identity = command.since.identity if command.since else position.identity
        doubted = recorded_identity != position.identity or any(event.fatal for event in position.disturbances)
        return Reading(command.sink, position, command.since, ahead, content(sink) if doubted else None)

    def _index(self, state: State, command: c.Index) -> c.Outcome:
        for marker, receipts in command.epochs:
            self._ledger.record(EpochRecord(state.job.pipeline, marker.fence, marker.epoch, receipts))
            if {sink for sink, _ in marker.epoch.sinks} <= {receipt.sink for receipt in receipts}:
                ledger_sync.seal(self._all, state.job.pipeline, marker.epoch, self._ledger)
        ledger_sync.enter(self._ledger, self._all, state.job.pipeline, command.lineage, command.fence.generation)
        for sink in self._all:
            with naming(sink):
                sink.sweep()
        if self._staging:
            self._staging.sweep(command.fence.generation, command.newest_manifest)
        since = command.columns_epoch
        records = self._ledger.epochs(state.job.pipeline, since, since) if since else ()
        faults.fire(faults.Point.REINDEX_AFTER)
        return c.Indexed(records[0].epoch.columns if records else ())

    # ---- one epoch

    def _recollect(self, state: State, command: c.Recollect) -> c.Outcome:
        first_record = self._ledger.find(state.job.pipeline, command.query_id, command.batch_id)
        if first_record is None or not command.newest:
            return c.Recollected(())
        first = first_record.epoch.number
        records = self._ledger.epochs(state.job.pipeline, first - 1, command.newest)
        epochs = tuple(record.epoch for record in records)
        preceding = next((epoch for epoch in epochs if epoch.number < first), None)
        return c.Recollected(tuple(epoch for epoch in epochs if epoch.number >= first), preceding)

    def _gather(self, state: State, command: c.Gather) -> c.Outcome:
        records = self._ledger.epochs(state.job.pipeline, command.newest.series, command.newest.number)
        return c.Gathered(held_files(ledger_sync.completed(records), command.newest))

    def _execute(self, state: State, command: c.Execute) -> c.Outcome:
        batch = _aside(self._rows(state), command.aside)
        if not isinstance(batch, StatefulBatch):
            raise OutOfPhase(state.phase.value, "a batch that can be executed alone")
        with self._timed("execute"):
            digest = batch.execute()
        faults.fire(faults.Point.EXECUTE_AFTER)
        return c.Executed(digest, self._left(state))

    def _intend(self, state: State, command: c.Intend) -> c.Outcome:
        if command.replaces:
            sink_refusals.demand(self._all, state.job.pipeline, command.replaces)
        with self._timed("intend"):
            self._ledger.intend(Intent(state.job.pipeline, command.number, command.fence, command.slice))
        faults.fire(faults.Point.INTEND_AFTER)
        return c.Done()

    def _poll(self, state: State, command: c.Poll) -> c.Outcome:
        if self._peers is None:
            raise OutOfPhase(state.phase.value, "a reader of other writers")
        with self._timed("poll"):
            return c.Polled(*self._peers(state.job.pipeline, command.writers))

    def _fetch(self, _: State, command: c.Fetch) -> c.Outcome:
        with self._timed("fetch"):
            try:
                staged_batch = self._fetch_staged(command.manifest, self._batch)
            except UnreadableManifest as gone:
                return c.Missing(str(gone))
        self._staged = staged_batch
        faults.fire(faults.Point.FETCH_AFTER)
        return c.Staged(command.manifest, staged_batch.rows, staged_batch.digest(), staged_batch.outputs)

    def _stage(self, state: State, command: c.Stage) -> c.Outcome:
        rows = _aside(time_callback.trimmed(self._rows(state), command.trim), command.aside)
        faults.fire(faults.Point.STAGE_BEFORE)
        if command.as_of and isinstance(rows, Recalling):
            rows = rows.as_of(command.as_of)
        paned = self._stepped(state, command, command.bound, rows) if command.bound else None
        with self._timed("stage"), self._naming_ledger():
            in_files = command.lasting or (isinstance(rows, Checkable) and rows.checked_in_files)
            memory_batch = None if in_files else shared_transaction.collect_in_memory(paned or rows, self._of(state))
            reference, self._staged = (
                (None, memory_batch) if memory_batch else self._in_files(state, command, paned or rows)
            )
            self._borrowed += [reference] if reference else []
            broken = rows.broken(self._staged.output) if isinstance(rows, Checkable) else ()
            # Not in the action that stages them: the horizon would have it compiled anew for each epoch.
            times = self._staged.times_of(command.clock) if command.clock and not paned else NO_TIMES
        if reference and not (command.healing or broken):
            # Otherwise it was computed again for sinks that were behind, or is refused: no marker will name it.
            self._borrowed.remove(reference)
        digest = self._staged.digest()
        if command.healing or broken:
            epoch_times = None
        else:
            epoch_times = paned.times() if paned else time_callback.call_time_callback(state, times, digest, self._says)
        faults.fire(faults.Point.STAGE_AFTER)
        windows, columns = (paned.panes(), paned.columns()) if paned else (None, ())
        outputs = self._staged.outputs
        left = self._left(state)
        return c.Staged(reference, self._staged.rows, digest, outputs, epoch_times, windows, broken, columns, left)

    def _left(self, state: State) -> StateVersion | None:
        """The state that the batch left. Its tasks have committed it by the end of the action."""
        return self.state_of(state.offered.lineage.batch_id + 1)

    def _stepped(self, state: State, command: c.Stage, to: Bound, rows: protocol.Batch) -> Paned:
        """Update the open windows: by the batch's one action, or behind it if its rows are divided first."""
        if not isinstance(rows, Bindable):
            raise OutOfPhase(state.phase.value, "a batch with windows")
        with self._timed("step"), self._naming_ledger():
            return rows.bound(to, command.clock, partial(time_callback.times_and_completeness, state, self._says))

    @contextmanager
    def _naming_ledger(self) -> Generator[None]:
        """Name the ledger in E226, since the commands in the message must work when pasted."""
        try:
            yield
        except IdentityError as error:
            if error.code != "E226":
                raise
            raise refuse(error.code, **{**error.details, "ledger": shlex.quote(self._ledger.address)}) from error

    def _in_files(self, state: State, command: c.Stage, rows: protocol.Batch) -> tuple[str, RereadableBatch]:
        if self._staging is None:
            raise OutOfPhase(state.phase.value, "a staging area")
        made = self._staging.write(rows, command.number, command.fence, command.slice)
        return made.reference.text, made.batch

    def _rows(self, state: State) -> protocol.Batch:
        if self._batch is None:
            raise OutOfPhase(state.phase.value, "rows")
        return self._batch

    def _staged_batch(self, state: State) -> RereadableBatch:
        if self._staged is None:
            raise OutOfPhase(state.phase.value, "staged rows")
        return self._staged

    def _prepare(self, state: State, command: c.Prepare) -> c.Outcome:
        sink = self._sinks[command.sink]
        rows = None if self._staged else time_callback.trimmed(self._rows(state), command.trim)
        batch = (
            time_callback.with_row_times(rows, command.clock)
            if rows
            else self._staged_batch(state).output(command.output)
        )
        faults.fire(faults.Point.PREPARE_BEFORE)
        if earlier := self._prepared.pop(command.sink, None):
            earlier.abandon()
        with self._timed("prepare"), naming(sink), proposing_output(sink, self._sinks.values()):
            try:
                prepared = self._prepared_in(sink, batch, command)
            except TooLargeForDriver as error:
                raise refuse("E521", sink=command.sink, epoch=command.number, reason=str(error)) from error
            self._prepared[command.sink] = prepared
            counted = batch.digest()
        times = batch.times() if command.clock and isinstance(batch, TellsTime) else NO_TIMES
        epoch_times = time_callback.call_time_callback(state, times, counted, self._says) if rows else None
        faults.fire(faults.Point.PREPARE_AFTER)
        return c.Prepared(prepared.rows, counted, epoch_times, self._left(state) if rows else None)

    def _prepared_in(self, sink: protocol.Sink, batch: protocol.Batch, command: c.Prepare) -> protocol.Prepared:
        if command.sibling_sinks and isinstance(sink, protocol.JoinsTransaction):
            siblings = [(self._sinks[sink_id], self._prepared[sink_id]) for sink_id in command.sibling_sinks]
            return sink.prepare_joined(batch, command.number, siblings, command.replaces)
        if command.replaces is None:
            return sink.prepare(batch, command.number)
        return sink_refusals.able(sink).prepare_replacement(batch, command.number, command.replaces)

    def _commit(self, state: State, command: c.Commit) -> c.Outcome:
        sink = self._sinks[command.marker.sink]
        # Not where one is brought to the epoch of the others.
        is_complete = 1 + len(command.sibling_markers) == len(state.job.sinks)
        carries = self._carried and is_complete
        recorder = LedgerAttachment(self._ledger, state.job.offer, tuple(self.phases.items())) if carries else None
        faults.fire(faults.Point.COMMIT_BEFORE)
        with self._timed("commit"), naming(sink):
            receipt, *sibling_receipts = self._committed_in(sink, command, recorder)
        for marker in (command.marker, *command.sibling_markers):
            self._prepared.pop(marker.sink, None)
        faults.fire(faults.Point.COMMIT_AFTER)
        return c.Committed(receipt, self._let_pass(command), tuple(sibling_receipts))

    def _committed_in(
        self, sink: protocol.Sink, command: c.Commit, recorder: LedgerAttachment | None
    ) -> tuple[Receipt, ...]:
        prepared, marker = self._prepared.get(sink.id), command.marker
        if not command.sibling_markers:
            return (sink.commit(prepared, marker, recorder),)
        if not isinstance(sink, protocol.JoinsTransaction):
            raise OutOfPhase("commit", f"a transaction of {sink.id} for several sinks")
        others = [
            (self._sinks[sibling.sink], self._prepared.get(sibling.sink), sibling)
            for sibling in command.sibling_markers
        ]
        return sink.commit_joined(prepared, marker, others, recorder)

    def _let_pass(self, command: c.Commit | c.LookUp) -> tuple[ExternalChange, ...]:
        sinks = [self._sinks[marker.sink] for marker in (command.marker, *command.sibling_markers)]
        return tuple(
            passed for sink in sinks if isinstance(sink, protocol.DetectsChanges) for passed in sink.tolerated_now()
        )

    def _taken_back(self, conflict: protocol.Conflict) -> c.Outcome:
        """Abandon every prepared write, so that it blocks no other writer while the epoch waits."""
        log.warning("%s; the epoch is written again", conflict)
        for prepared in self._prepared.values():
            prepared.abandon()
        self._prepared = {}
        return c.RolledBack(conflict.reason, conflict.blocker)

    def _look_up(self, _: State, command: c.LookUp) -> c.Outcome:
        receipts: list[Receipt | None] = []
        for marker in (command.marker, *command.sibling_markers):
            sink = self._sinks[marker.sink]
            with self._timed("look up"), naming(sink):
                receipts.append(sink.look_up(marker))
        faults.fire(faults.Point.LOOK_UP_AFTER)
        receipt, *sibling_receipts = receipts
        there = [sibling for sibling in sibling_receipts if sibling]
        # Every sink is read, though one absent marker decides: any of them may hold a newer fence.
        if receipt is None or len(there) < len(sibling_receipts):
            return c.Absent()
        return c.Committed(receipt, self._let_pass(command), tuple(there))

    def _record(self, state: State, command: c.Record) -> c.Outcome:
        faults.fire(faults.Point.RECORD_BEFORE)
        with self._timed("record"):
            files = state.job.offer.files if state.job.offer else ()
            if command.skipped:
                ledger_sync.complete(self._ledger, state.job.pipeline, command.epoch, files)
            elif not self._carried:
                phases = tuple(self.phases.items())
                receipts = command.receipts
                record = EpochRecord(state.job.pipeline, command.fence, command.epoch, receipts, files, phases)
                self._ledger.record(record)
        ledger_sync.seal(self._all, state.job.pipeline, command.epoch, self._ledger)
        if self._staging and command.replaced:
            self._staging.drop(command.replaced)  # every sink holds the epoch after it
        faults.fire(faults.Point.RECORD_AFTER)
        return c.Done()

    # ---- messages

    def _note(self, state: State, command: c.Note) -> c.Outcome:
        self.events.note(state.job.pipeline, command.happenings, state.opening.fence.generation)
        return c.Done()

    def _wait(self, _: State, command: c.Wait) -> c.Outcome:
        self._sleep(random.uniform(0.05, 0.2) * 2 ** min(command.attempt, 5))
        return c.Done()

    def _refuse(self, state: State, command: c.Refuse) -> NoReturn:
        from onceonly.runtime import remedies

        job, opening = state.job, state.opening
        head = opening.head.epoch if opening.head else None
        if opening.peek is not None or command.refusal.code in _NAMING:
            ledger_sync.learn(self._ledger, self._all, job.pipeline, head.number if head else 0)
        refused = remedies.Context(job.pipeline, opening.fence, opening.last or head, job.offer)
        raise remedies.error_of(command.refusal, refused, self._ledger, self._all, self._fetch_staged)


def _job(state: State, command: c.Command) -> str:
    """Text for the Spark UI, of a command that may run jobs. Empty for others."""
    match command:
        case c.Execute():
            what = "compute again"
        case c.Stage():
            what = "stage"
        case c.Prepare():
            what = f"write {command.sink}"
        case c.Commit():
            what = f"commit {command.marker.sink}"
        case _:
            return ""
    return f"onceonly: epoch {state.current.number if state.work.epoch else state.work.number}, {what}"


def _aside(batch: protocol.Batch, checks: Sequence[str]) -> protocol.Batch:
    """Return the batch, with all rows bad if they broke checks."""
    return batch.aside(checks) if checks and isinstance(batch, Checkable) else batch


def _fetch_staged_files(manifest: str, batch: protocol.Batch | None) -> RereadableBatch:
    """The staged rows of a manifest. A query that stages nothing loads no code for files."""
    from onceonly.runtime import staging

    return staging.fetch(manifest, batch)


def _sight(sink: protocol.Sink, receipt: Receipt | None) -> protocol.Peek:
    """Return ``look()``, with the target's identity if it lacks epochs, and with other writers if there are any."""
    sight = sink.look()
    behind = receipt if receipt and sight.epoch < receipt.epoch else None
    identity = sink.identity_now(behind.identity) if behind and isinstance(sink, protocol.DetectsChanges) else None
    if behind and identity is not None:
        content = (
            sink.content_epoch() if identity != behind.identity and isinstance(sink, protocol.ReplacesRows) else None
        )
        sight = replace(sight, identity=identity, content=content)
    if sight.strangers and isinstance(sink, protocol.Inspectable):
        return replace(sight, writers=tuple(sink.pipelines()))
    return sight
