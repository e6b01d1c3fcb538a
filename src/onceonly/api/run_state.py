"""Run state: one opening per run of a query, by session.

A wrapper keeps no generation: a callback that wakes up after ``stop()`` can only meet its own, outdated opening.
"""

from __future__ import annotations

import atexit
import copy
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.api import arguments
from onceonly.api.admission import Admission
from onceonly.api.arguments import Arguments, refuse_checkpoint, refuse_unfit
from onceonly.api.progress import Progress
from onceonly.errors import refuse
from onceonly.machine.admission import check_output, further_rows
from onceonly.machine.callback_rules import Holder
from onceonly.machine.estimate import Past
from onceonly.machine.state import State
from onceonly.runtime import shared_transaction
from onceonly.runtime.runner import Runner
from onceonly.runtime.runs import Runs
from onceonly.spark import fingerprint
from onceonly.spark.engine import Caller, QueryEngine, QueryPlan, Run
from onceonly.spark.fingerprint import Determinism
from onceonly_checkpoints.code_version import Code
from onceonly_checkpoints.epoch import StateVersion
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.spark.offsets import replayed_checkpoint
from onceonly_checkpoints.storage import is_local, path_next_to

if TYPE_CHECKING:
    from onceonly.event_time.marker_sources import Peers
    from onceonly.event_time.upstream import Upstream
    from onceonly.lineage import Delivery
    from onceonly.quality.division import ResolvedDivision
    from onceonly.runtime.staging import StagedEpochs
    from onceonly.windows.rules.spec import Definition


@dataclass
class RunState:
    """State of one run between two batches.

    Attributes:
        holder: pipeline and run, as the other runs of this process see them.
        runner: carries out the commands of the machine.
        ledger: where its epochs are recorded.
        admission: checks its targets, and knows which sinks share one.
        application: Spark's application id.
        state: of the machine. ``None`` until a batch is finished, and after one that failed.
        past: input and size of the last epoch.
        written: facts about the written rows. ``None`` until they were inspected.
        columns: the columns that they had then.
        admitted: columns that passed the checks. Empty before the first batch.
        outputs: resolved outputs, with the columns of the rows then. ``None`` until they were resolved.
        windows: the resolved windows, with the columns of the rows then. ``None`` until they were resolved.
        is_promise_recorded: whether the pipeline has recorded the guarantee of this run.
        peers: reads other writers of the dataset. ``None`` if there are none.
        upstream: reads the dataset whose completeness this one continues. ``None`` without such a dataset.
        code: the code that runs. ``None`` before the first batch.
        progress: shows its epochs to a person.
        delivery: sends the events of its epochs to a receiver. ``None`` without ``lineage=``.
    """

    run: Run
    holder: Holder
    runner: Runner
    ledger: Ledger
    admission: Admission
    application: str = ""
    state: State | None = None
    past: Past | None = None
    written: Determinism | None = None
    columns: Sequence[tuple[str, str]] = ()
    admitted: Sequence[tuple[str, str]] = ()
    outputs: tuple[Sequence[tuple[str, str]], ResolvedDivision] | None = None
    windows: tuple[Sequence[tuple[str, str]], Definition] | None = None
    is_promise_recorded: bool = False
    peers: Peers | None = None
    upstream: Upstream | None = None
    code: RunCode | None = None
    progress: Progress = field(default_factory=Progress)
    delivery: Delivery | None = None

    @property
    def pipeline(self) -> str:
        """Name of the pipeline."""
        return self.holder.pipeline

    @contextmanager
    def writing(self, batch_id: int, planned: int) -> Generator[None]:
        """Hold the sinks exclusively while a batch is written. An exception is recorded in the ledger.

        ``batch_id`` comes from the callback, ``planned`` from the engine.
        """
        try:
            with _runs.writing(self.holder, batch_id, planned):
                yield
        except BaseException as error:
            self.runner.events.failed(self.pipeline, error)
            raise
        finally:
            if self.delivery:
                self.delivery.wake()


_runs = Runs()
_wrappers = itertools.count()
_watches: list[threading.Thread] = []
_LAST_WORD_S = 1.0
"""Seconds that the end of a process waits for queries that have ended to say so in their ledgers."""


@atexit.register
def _let_them_say_that_they_ended() -> None:
    until = time.monotonic() + _LAST_WORD_S
    for watch in _watches:
        watch.join(max(0.0, until - time.monotonic()))


class RunStates:
    """Find the opening of the run that calls one wrapper.

    Attributes:
        plan: of the newest run. ``None`` before the first.
        further: whether a group that changes is a further row in it.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._number = next(_wrappers)
        self._current: RunState | None = None
        self._turn = threading.Lock()
        shared = arguments.event_time is not None and arguments.event_time.noting.writers is not None
        # Peers are read by handles of their own, and only of a sink that was never opened one can be made.
        self._unopened = tuple(map(copy.copy, arguments.sinks)) if shared else ()
        self.plan: QueryPlan | None = None
        self.further = False

    def of(self, df: Any, engine: QueryEngine, caller: Caller) -> RunState:
        """The opening in which a batch is written. The first batch of a run gets a new one.

        Raises:
            ConfigurationError: the query has no name, another checkpoint than the call names, a mode, plan or source
                that cannot have epochs, or no place for them.
            IdentityError: E238 the checkpoint is a replay checkpoint.
            FencedOut: E402 a newer run has started.
        """
        current = self._current
        if current is not None and current.run.session == caller.session:
            return current
        chosen = self._arguments
        run = engine.discover(df, chosen.hint)
        refuse_checkpoint(chosen.checkpoint, run)
        pipeline = chosen.name or run.name
        if not pipeline:
            raise refuse("E101")
        refuse_unfit(run, pipeline, chosen.recovery.lossy_source, chosen.one_by_one)
        original = None if chosen.replaying else replayed_checkpoint(run.files)
        if original:
            raise refuse("E238", pipeline=pipeline, checkpoint=run.checkpoint, original=original)
        if chosen.event_time:
            chosen.event_time.check_run(run, pipeline)
        check_output(pipeline, run.output, chosen.adding)
        holder = Holder(pipeline, self._number, run.query_id, run.run_id)
        came = {"own": run.session, "session": caller.session, "group": engine.group(df)}
        enter = partial(_runs.enter, holder, chosen.sinks, partial(engine.still_running, df), **came)
        if current is not None and current.holder == holder:
            enter()
            return current  # rows that another session made
        (ledger, carried), staging = _ledger(chosen, run), _staging(chosen, run, pipeline)
        enter()
        self.plan, self.further = run.plan, further_rows(run.output, run.plan.text, stateful=run.plan.stateful)
        guard = partial(_runs.check, holder)
        upstream = chosen.event_time.source_dataset(pipeline) if chosen.event_time else None
        says = upstream or (chosen.event_time.says if chosen.event_time else None)
        peers = chosen.event_time.other_writers(self._unopened) if chosen.event_time and self._unopened else None
        admit = Admission(chosen, pipeline)
        runner = Runner(
            chosen.sinks,
            ledger,
            carried=carried,
            staging=staging,
            says=says,
            peers=peers,
            guard=guard,
            admit=admit,
            describing=run.describing,
            state_of=_state_of(run),
        )
        application = engine.application(df)
        opening = RunState(run, holder, runner, ledger, admit, application, peers=peers, upstream=upstream)
        opening.delivery = chosen.lineage.deliver(run, ledger, pipeline) if chosen.lineage else None
        with self._turn:
            self._current = opening
        watch = threading.Thread(target=self._close_at_end, args=(opening, ledger), daemon=True)
        watch.start()
        _watches[:] = [*(thread for thread in _watches if thread.is_alive()), watch]
        return opening

    def _close_at_end(self, opening: RunState, ledger: Ledger) -> None:
        """Release the connections of a run once its query has ended. A callback that is still at work ends first."""
        opening.run.engine.await_end(opening.run)
        with _runs.leaving(opening.holder) as sinks:
            with self._turn:
                if self._current is opening:
                    self._current = None
            opening.progress.close()
            if opening.state is not None:
                opening.runner.events.ended(opening.state)
            ledger.close()
            for sink in sinks:
                sink.close()
            for reading in (opening.peers, opening.upstream):
                if reading:
                    reading.close()
        if opening.delivery:  # last, as it may wait for a receiver: a new run of the query need not
            opening.delivery.close()


def _state_of(run: Run) -> Callable[[int], StateVersion | None]:
    if not run.plan.stateful:
        return lambda _: None
    from onceonly_checkpoints.spark.state import read_state

    return partial(read_state, run.files)


def _ledger(chosen: Arguments, run: Run) -> tuple[Ledger, bool]:
    # Executors import this package too; they need no SQLAlchemy.
    from onceonly_checkpoints.ledger.sql import SqlLedger

    urls = [sink.ledger_url for sink in chosen.sinks if sink.capabilities.carries_ledger]
    own = next((url for url in urls if url), None)
    # One transaction carries rows and record only where there is no other transaction to wait for.
    alone = len(chosen.sinks) == 1 or shared_transaction.transaction_groups(chosen.sinks) == (chosen.ids,)
    if chosen.storage.ledger is None and own:
        return SqlLedger(own), alone
    if chosen.storage.ledger is None:
        if not is_local(run.checkpoint):
            raise refuse("E107", checkpoint=run.checkpoint)
        return SqlLedger(path_next_to(run.checkpoint, "onceonly.db")), False
    if isinstance(chosen.storage.ledger, str | os.PathLike):
        ledger = SqlLedger(os.fspath(chosen.storage.ledger))
        return ledger, alone and own is not None and ledger.address == SqlLedger(own).address
    return chosen.storage.ledger, False


def _staging(chosen: Arguments, run: Run, pipeline: str) -> StagedEpochs | None:
    if not chosen.stages:
        return None
    from onceonly.runtime.staging import StagedEpochs

    chosen_place = chosen.storage.staging
    location = os.fspath(chosen_place) if chosen_place is not None else path_next_to(run.checkpoint, "onceonly.staging")
    return StagedEpochs(location, pipeline, chosen.sinks, chosen.storage.keep_epochs)


# ---- Which code a run is: what its user calls it, and the fingerprint of what it computes. Found once per run.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunCode:
    """The code of a run.

    Attributes:
        code: as each of its epochs notes it.
        text: what its fingerprint is of, a line each; empty where there is none.
    """

    code: Code
    text: str = ""


def of_run(call_arguments: Arguments, determinism: Determinism) -> RunCode:
    """The code that runs."""
    version = call_arguments.version or arguments.version(None)
    if not determinism.text:
        return RunCode(Code(version))
    functions = ""
    try:
        functions = fingerprint.describe(call_arguments.transform) if call_arguments.transform else ""
    except RecursionError:
        log.info("transform= holds values that are nested too deeply to be compared")
    text = "\n".join(part for part in (determinism.text, functions) if part)
    return RunCode(Code(version, fingerprint.fingerprint(determinism.text, functions)), text)
