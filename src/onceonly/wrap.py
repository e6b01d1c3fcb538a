"""``exactly_once(sink)``: an ordinary ``foreachBatch`` function around a runner.

The wrapper keeps no generation: each run of the query has an opening of its own, found by the session that Spark made
for the run, so a callback that wakes up after ``stop()`` can only meet its own, outdated opening.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly import (
    arguments,
    coordinator,
    engine,
    faults,
    foreseen,
    guarantee,
    measure,
    offsetlog,
    overlap,
    promise,
    trimming,
    who,
    written,
)
from onceonly.calls import Holder
from onceonly.errors import OnceOnlyError, refuse
from onceonly.estimate import Past, estimate, units
from onceonly.facts import Adopt, Happening, Offer, Overlap
from onceonly.faults import Point
from onceonly.notebook import Receipts, Report
from onceonly.protocol import Sink
from onceonly.runner import Runner
from onceonly.runs import Runs
from onceonly.sparkbatch import SparkBatch
from onceonly.staging import Staging
from onceonly.state import State
from onceonly.written import Written
from onceonly_checkpoints import chain
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.slices import InputFile
from onceonly_checkpoints.storage import is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

LedgerPlace = str | os.PathLike[str] | Ledger | None


@dataclass(frozen=True, slots=True)
class _Options:
    """What the user chose; see :func:`exactly_once`."""

    name: str | None
    ledger: LedgerPlace
    before: Callable[[DataFrame], DataFrame] | None
    adopt: Adopt
    overlap: Overlap
    staging: str | None
    lossy_source: str | None


@dataclass
class _Opening:
    """One run's machine between two batches."""

    run: engine.Run
    holder: Holder
    runner: Runner
    application: str = ""
    state: State | None = None
    past: Past | None = None
    written: Written | None = None
    columns: str = ""
    told: bool = False

    @property
    def pipeline(self) -> str:
        """The name that is written under."""
        return self.holder.pipeline


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


class CallbackInterrupted(RuntimeError):
    """A ``BaseException`` ended the callback. Left as it is, it would hang the query for ever."""


class ExactlyOnce:
    """What :func:`exactly_once` returns. Pass it to ``foreachBatch`` or call it from a function of your own."""

    def __init__(self, sinks: tuple[Sink, ...], options: _Options) -> None:
        self._sinks = sinks
        self._options = options
        self._number = next(_wrappers)
        self._current: _Opening | None = None
        self._turn = threading.Lock()
        self._last_receipts = Receipts()
        self._plan: engine.Plan | None = None
        self._written: Written | None = None

    def __repr__(self) -> str:
        named = f", name={self._options.name!r}" if self._options.name else ""
        return f"exactly_once({', '.join(map(repr, self._sinks))}{named})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the promise, as :meth:`explain` says it, and the newest receipts."""
        return self.explain().html + (self._last_receipts.html if self._last_receipts else "")

    @property
    def last_receipts(self) -> Receipts:
        """What each sink answered to the newest epoch of this process; empty before the first."""
        return self._last_receipts

    def explain(self, df: DataFrame | None = None) -> Report:
        """What is promised for each sink, why, and what would weaken it: a text, and in a notebook a table.

        Says more once the query runs.

        Args:
            df: the stream, as ``writeStream`` gets it, for what its plan shows before it is started. Nothing is run.

        Raises:
            ConfigurationError: E110, it is no stream.
        """
        chosen = guarantee.Chosen(self._options.adopt, self._options.before is not None, self._stages)
        if df is None:
            return Report(guarantee.explain(self._sinks, self._plan, self._written, chosen))
        plan = foreseen.plan_of(df)
        found = foreseen.written_of(plan, self._shaped(df))
        text = guarantee.explain(self._sinks, plan, found, chosen)
        try:
            named, lossy = self._options.name or "the query", self._options.lossy_source
            refuse_plan(plan, named, lossy, found.nondeterministic, self._one_by_one)
        except OnceOnlyError as refused:
            return Report(f"{text}\nAs it is, it will be refused:\n{refused}")
        return Report(text)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch, or prove that it is already written.

        Raises:
            OnceOnlyError: the batch was not written; the message says why and what to do.
            CallbackInterrupted: the interpreter was told to stop in the middle; nothing half-done is visible.
        """
        try:
            self._write(df, batch_id)
        except OnceOnlyError as refused:
            log.error("%s", refused)
            log.debug("what led to it", exc_info=refused)
            # The message says all; what led to it would only bury it in Spark's traceback, where it stands three times.
            raise refused.with_traceback(None) from None
        except Exception:
            raise
        except BaseException as stop:
            raise CallbackInterrupted(f"the callback was ended by {type(stop).__name__}") from stop

    def _write(self, df: DataFrame, batch_id: int) -> None:
        caller = engine.caller(df)
        opening = self._opening(df, caller)
        try:
            with _runs.writing(opening.holder, batch_id, caller.batch_id):
                self._write_in(opening, df, batch_id)
        except BaseException as error:
            opening.runner.tell(opening.pipeline, error)
            raise

    def _write_in(self, opening: _Opening, df: DataFrame, batch_id: int) -> None:
        run = opening.run
        seen = offsetlog.see(df, batch_id, run)
        faults.fire(Point.DISCOVER_AFTER)
        if opening.state is None:
            self._refuse_untrimmable(opening, seen, df)
        rows = self._shaped(df)
        sizes, missing = measure.stat(df, seen.files)
        offer = Offer(
            slice=seen.slice,
            lineage=seen.lineage,
            sources=seen.sources,
            schema=chain.fingerprint(rows.dtypes),
            stateful=run.plan.stateful,
            missing=missing,
            files=seen.files,
            begins=seen.begins,
            earlier=self._earlier(opening, seen),
        )
        found = self._look(opening, rows, offer.schema)
        covered = units(seen.slice, sizes)
        size = estimate(covered, opening.past, measure.row_width(rows), files=bool(sizes), stateful=run.plan.stateful)
        batch = SparkBatch(rows, size, found.left_out, lambda trim: self._shaped(trimming.trimmed(df, trim)))
        self._drive(opening, offer, batch)
        self._tell(opening, found, seen.lineage.watermark_ms)
        if covered and opening.state and opening.state.epoch:
            opening.past = Past(covered, opening.state.epoch.digest.rows)
        faults.fire(Point.RETURN_BEFORE)

    def _look(self, opening: _Opening, rows: DataFrame, columns: str) -> Written:
        """What is known of the written rows: once per run; where a replay must give the same, for new columns again."""
        plan = opening.run.plan
        repeats = plan.stateful or self._one_by_one
        if opening.written is None or (repeats and opening.columns != columns):
            found = written.look(plan, rows)
            refuse_unrepeatable(plan, opening.pipeline, found.nondeterministic, self._one_by_one)
            opening.written, opening.columns, self._written = found, columns, found
        return opening.written

    def _shaped(self, df: DataFrame) -> DataFrame:
        return self._options.before(df) if self._options.before else df

    def _refuse_untrimmable(self, opening: _Opening, seen: offsetlog.Seen, df: DataFrame) -> None:
        """What is promised for the day on which a checkpoint is lost must hold on the first day."""
        if self._options.overlap == "trim":
            reason = overlap.unfit(seen.sources, dict(df.dtypes), stateful=opening.run.plan.stateful)
            if reason:
                raise refuse("E115", query=opening.pipeline, reason=reason)

    def _earlier(self, opening: _Opening, seen: offsetlog.Seen) -> tuple[InputFile, ...] | None:
        written = opening.state is not None and not opening.state.skipped
        if self._options.overlap == "stop" or written or not overlap.reads_files(seen.sources):
            return None
        return offsetlog.earlier_files(opening.run, seen.slice)

    def _drive(self, opening: _Opening, offer: Offer, batch: SparkBatch) -> None:
        if opening.state is None:
            owner = who.owner(opening.application)
            state = coordinator.start(
                opening.pipeline,
                self._ids,
                owner,
                offer,
                adopt=self._options.adopt,
                overlap=self._options.overlap,
                stages=self._stages,
            )
        else:
            state = coordinator.resume(opening.state, offer)
        opening.state = None  # a run that fails here must open again before it may write
        opening.state = opening.runner.run(state, batch)
        self._report(opening, opening.state)

    def _tell(self, opening: _Opening, found: Written, watermark_ms: int) -> None:
        """Keep with the pipeline what a run promises, once, and what Spark left out of a batch."""
        state, plan = opening.state, opening.run.plan
        if state is None or state.epoch is None:
            return
        said: list[Happening] = []
        if not opening.told:
            said += [promise.kept(self.explain())]
            said += promise.warned(opening.pipeline, plan, found, self._sinks, state.receipts)
        # Before there is a watermark no row is late.
        if plan.stateful and watermark_ms and (rows := engine.late_rows(opening.run)):
            said.append(promise.late(rows, watermark_ms, state.epoch.number))
        opening.runner.keep(state, said)
        opening.told = not state.skipped  # a skipped batch has no receipts to compare

    def _report(self, opening: _Opening, state: State) -> None:
        epoch = state.epoch
        if epoch is None:
            return
        sinks = ", ".join(self._ids)
        if state.skipped:
            log.info("pipeline %s: epoch %d already held by %s, skipped", opening.pipeline, epoch.number, sinks)
            return
        self._last_receipts = Receipts(state.receipts)
        phases = " ".join(f"{phase} {seconds * 1000:.0f} ms" for phase, seconds in opening.runner.phases.items())
        rows = epoch.digest.rows
        log.info("pipeline %s: epoch %d committed %s %d rows %s", opening.pipeline, epoch.number, sinks, rows, phases)

    @property
    def _stages(self) -> bool:
        """Several sinks must get the same bytes; one gets them from files where it is told to."""
        return len(self._sinks) > 1 or self._options.staging is not None

    @property
    def _one_by_one(self) -> str:
        """The sink that takes rows without a transaction, which then is the only one; empty for none."""
        return next((sink.id for sink in self._sinks if not sink.capabilities.transactional), "")

    @property
    def _ids(self) -> tuple[str, ...]:
        return tuple(sink.id for sink in self._sinks)

    # ---- one opening per run

    def _opening(self, df: DataFrame, caller: engine.Caller) -> _Opening:
        known = self._current
        if known is not None and known.run.session == caller.session:
            return known
        run = engine.discover_run(df)
        pipeline = self._options.name or run.name
        if not pipeline:
            raise refuse("E101")
        refuse_unfit(run, pipeline, self._options.lossy_source, self._one_by_one)
        holder = Holder(pipeline, self._number, run.query_id, run.run_id)
        came = {"own": run.session, "session": caller.session, "group": engine.group(df)}
        enter = partial(_runs.enter, holder, self._sinks, partial(engine.still_running, df), **came)
        if known is not None and known.holder == holder:
            enter()
            return known  # rows that another session made
        (ledger, carried), staging = self._place_ledger(run), self._place_staging(run, pipeline)
        enter()
        self._plan = run.plan
        guard = partial(_runs.check, holder)
        runner = Runner(self._sinks, ledger, carried=carried, staging=staging, guard=guard)
        opening = _Opening(run, holder, runner, df.sparkSession.sparkContext.applicationId)
        with self._turn:
            self._current = opening
        watch = threading.Thread(target=self._close_at_end, args=(opening, ledger), daemon=True)
        watch.start()
        _watches[:] = [*(one for one in _watches if one.is_alive()), watch]
        return opening

    def _close_at_end(self, opening: _Opening, ledger: Ledger) -> None:
        """Release the connections of a run once its query has ended; a callback that is still at work ends first."""
        engine.await_end(opening.run)
        with _runs.leaving(opening.holder) as sinks:
            with self._turn:
                if self._current is opening:
                    self._current = None
            if opening.state is not None:
                opening.runner.ends(opening.state)
            ledger.close()
            for sink in sinks:
                sink.close()

    def _place_ledger(self, run: engine.Run) -> tuple[Ledger, bool]:
        # Executors import this package too; they need no SQLAlchemy.
        from onceonly_checkpoints.sqlledger import SqlLedger

        urls = [sink.ledger_url for sink in self._sinks if sink.capabilities.carries_ledger]
        own = next((url for url in urls if url), None)
        # One transaction carries rows and record only where there is no other sink to wait for.
        alone = len(self._sinks) == 1
        if self._options.ledger is None and own:
            return SqlLedger(own), alone
        if self._options.ledger is None:
            if not is_local(run.checkpoint):
                raise refuse("E107", checkpoint=run.checkpoint)
            return SqlLedger(_beside(run.checkpoint, "onceonly.db")), False
        if isinstance(self._options.ledger, str | os.PathLike):
            ledger = SqlLedger(os.fspath(self._options.ledger))
            return ledger, alone and own is not None and ledger.address == SqlLedger(own).address
        return self._options.ledger, False

    def _place_staging(self, run: engine.Run, pipeline: str) -> Staging | None:
        if not self._stages:
            return None
        return Staging(self._options.staging or _beside(run.checkpoint, "onceonly.staging"), pipeline, self._sinks)


def refuse_unfit(run: engine.Run, pipeline: str, lossy_source: str | None = None, one_by_one: str = "") -> None:
    """Refuse a run that no epochs can be built on, before anything is opened.

    Args:
        run: the run.
        pipeline: its name.
        lossy_source: the kind of source that the user knows to forget its rows.
        one_by_one: id of a sink that takes rows without a transaction; empty for none.

    Raises:
        ConfigurationError: E104 its mode, E105 a temporary checkpoint, E109 or E129 no determinism, E116 a source
            that reads lost offsets as nothing, E126 one that reads lost files as nothing, E127 one that cannot replay.
    """
    if run.mode:
        raise refuse(
            "E104",
            query=pipeline,
            mode=run.mode,
            next="use trigger(processingTime=...) or trigger(availableNow=True)",
        )
    if run.temporary:
        raise refuse("E105", query=pipeline, checkpoint=run.checkpoint)
    refuse_plan(run.plan, pipeline, lossy_source, run.plan.nondeterministic, one_by_one)


def refuse_plan(
    plan: engine.Plan, pipeline: str, lossy_source: str | None, nondeterministic: str | None, one_by_one: str = ""
) -> None:
    """Refuse a plan, whether it runs already or not.

    Args:
        plan: of the query.
        pipeline: its name.
        lossy_source: the kind of source that the user knows to forget its rows.
        nondeterministic: SQL of an expression that another run may compute otherwise.
        one_by_one: id of a sink that takes rows without a transaction; empty for none.

    Raises:
        ConfigurationError: E109, E116, E126, E127 or E129, as :func:`refuse_unfit` says.
    """
    refuse_unrepeatable(plan, pipeline, nondeterministic, one_by_one)
    for source in plan.sources:
        if source.reads_on:
            raise refuse("E116", query=pipeline, source=source.origin)
        if source.passes_over:
            raise refuse("E126", query=pipeline, source=source.origin, setting=source.passes_over)
        if source.lossy and source.lossy != lossy_source:
            raise refuse("E127", query=pipeline, source=source.origin, kind=source.lossy)


def refuse_unrepeatable(plan: engine.Plan, pipeline: str, nondeterministic: str | None, one_by_one: str) -> None:
    """Refuse a plan that gives other rows in another run, where what one run left is met by what the next one gives.

    State is what the last run computed; a sink that takes rows without a transaction holds parts of each run.

    Raises:
        ConfigurationError: E109 of state, E129 of such a sink.
    """
    if nondeterministic and plan.stateful:
        raise refuse("E109", query=pipeline, expression=nondeterministic)
    if nondeterministic and one_by_one:
        raise refuse("E129", query=pipeline, sink=one_by_one, expression=nondeterministic)


def _beside(checkpoint: str, what: str) -> str:
    """A path or URL next to a checkpoint: outside of it, so that deleting the checkpoint keeps what lies there."""
    if not is_local(checkpoint):
        return f"{checkpoint.rstrip('/')}.{what}"
    root = local_path(checkpoint)
    return str(root.with_name(f"{root.name}.{what}"))


def exactly_once(
    *sinks: Sink,
    name: str | None = None,
    ledger: LedgerPlace = None,
    before: Callable[[DataFrame], DataFrame] | None = None,
    adopt: str | Mapping[str, Any] | None = None,
    overlap: str = "stop",
    staging: str | os.PathLike[str] | None = None,
    lossy_source: str | None = None,
) -> ExactlyOnce:
    """Wrap sinks so that every row of the stream reaches each exactly once, across crashes, restarts, zombie drivers.

    Args:
        sinks: where the rows go. Several get the same bytes: each batch is written once to ``staging``, and committed
            from there in the order of this call; sinks that a crash left behind are brought to the others' epoch.
        name: the pipeline's stable name; default is the query's ``queryName``.
        ledger: index and history, rebuildable from the sink: an SQLAlchemy URL, a path of a SQLite file, or a
            ``Ledger``. Default: the sink's own database if it is one, else a SQLite file beside a local checkpoint.
        before: a pure function applied to each batch before it is written.
        adopt: what to do when the target already holds rows that are not ours: ``"here"`` keeps them and starts after
            them; a mapping ``{source id: offset}`` says which offsets they contain, and the query must go on there.
        overlap: what to do when a new or rolled-back checkpoint offers rows of recorded epochs again: ``"stop"``, or
            ``"trim"``: write only rows whose position in the source is in no epoch. That takes a plan without state
            over one Kafka or file source, and rows that still have ``topic``, ``partition`` and ``offset``, or
            ``_metadata.file_path`` as ``file_path``; ``before=`` may drop them.
        staging: where batches for several sinks are written: a directory that driver and executors share, or a URL
            that Spark and an installed driver of fsspec both reach. Default: beside the checkpoint. A single sink needs
            none; given one, it reads each epoch from files, piece by piece: so a topic takes epochs larger than the
            driver does.
        lossy_source: the kind of a source that cannot give its rows again, ``"socket"`` or ``"memory"``: what it has
            handed out is lost with a batch that a crash cuts off before it is written. Without this it is refused.

    Returns:
        A function for ``foreachBatch``.

    Raises:
        ConfigurationError: E102 no sink, not a sink, or two with one id; E110 an argument that cannot mean anything;
            E114 rows cannot be staged there; E128 a sink without a transaction was given what hangs on one.
    """
    arguments.check_sinks(sinks)
    arguments.check_before(before)
    arguments.check_name(name)
    arguments.check_ledger(ledger)
    arguments.check_lossy(lossy_source)
    chosen, place = arguments.overlap(overlap), arguments.staging_place(staging)
    arguments.check_one_by_one(sinks, chosen, place)
    options = _Options(name, ledger, before, arguments.adopted(adopt), chosen, place, lossy_source)
    return ExactlyOnce(sinks, options)
