"""``exactly_once(sink)``: an ordinary ``foreachBatch`` function around a runner.

The wrapper keeps no generation: each run of the query has an opening of its own, found by the run id of the calling
thread, so a callback that wakes up after ``stop()`` can only meet its own, outdated opening.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly import coordinator, engine, faults, guarantee, measure, offsetlog, overlap, trimming
from onceonly.errors import refuse
from onceonly.estimate import Past, estimate, units
from onceonly.facts import Adopt, Offer, Overlap
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly.runner import Runner
from onceonly.runs import Runs
from onceonly.sparkbatch import SparkBatch
from onceonly.stagefiles import directory
from onceonly.staging import Staging
from onceonly.state import State
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.slices import InputFile, SourceOffsets, canonical
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


@dataclass
class _Opening:
    """One run's machine between two batches."""

    run: engine.Run
    pipeline: str
    runner: Runner
    state: State | None = None
    past: Past | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)


_runs = Runs()


class CallbackInterrupted(RuntimeError):
    """A ``BaseException`` ended the callback. Left as it is, it would hang the query for ever."""


class ExactlyOnce:
    """What :func:`exactly_once` returns. Pass it to ``foreachBatch`` or call it from a function of your own."""

    def __init__(self, sinks: tuple[Sink, ...], options: _Options) -> None:
        self._sinks = sinks
        self._options = options
        self._current: _Opening | None = None
        self._turn = threading.Lock()
        self._last_receipts: tuple[Receipt, ...] = ()
        self._plan: engine.Plan | None = None

    @property
    def last_receipts(self) -> tuple[Receipt, ...]:
        """What each sink answered to the newest epoch of this process; empty before the first."""
        return self._last_receipts

    def explain(self) -> str:
        """What is promised for each sink, why, and what would weaken it. Says more once the query runs."""
        return guarantee.explain(self._sinks, self._plan, self._options.adopt, staged=self._stages)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch, or prove that it is already written.

        Raises:
            OnceOnlyError: the batch was not written; the message says why and what to do.
            CallbackInterrupted: the interpreter was told to stop in the middle; nothing half-done is visible.
        """
        try:
            self._write(df, batch_id)
        except Exception:
            raise
        except BaseException as stop:
            raise CallbackInterrupted(f"the callback was ended by {type(stop).__name__}") from stop

    def _write(self, df: DataFrame, batch_id: int) -> None:
        opening = self._opening(df)
        with opening.busy:
            self._write_in(opening, df, batch_id)

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
        covered = units(seen.slice, sizes)
        size = estimate(covered, opening.past, measure.row_width(rows), files=bool(sizes), stateful=run.plan.stateful)
        leave_out = run.plan.float_columns if run.plan.stateful else frozenset[str]()
        batch = SparkBatch(rows, size, leave_out, lambda trim: self._shaped(trimming.trimmed(df, trim)))
        self._drive(opening, offer, batch)
        if covered and opening.state and opening.state.epoch:
            opening.past = Past(covered, opening.state.epoch.digest.rows)
        faults.fire(Point.RETURN_BEFORE)

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
            owner = secrets.token_hex(8)
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

    def _report(self, opening: _Opening, state: State) -> None:
        epoch = state.epoch
        if epoch is None:
            return
        sinks = ", ".join(self._ids)
        if state.skipped:
            log.info("pipeline %s: epoch %d already held by %s, skipped", opening.pipeline, epoch.number, sinks)
            return
        self._last_receipts = state.receipts
        phases = " ".join(f"{phase} {seconds * 1000:.0f} ms" for phase, seconds in opening.runner.phases.items())
        rows = epoch.digest.rows
        log.info("pipeline %s: epoch %d committed %s %d rows %s", opening.pipeline, epoch.number, sinks, rows, phases)

    @property
    def _stages(self) -> bool:
        """Several sinks must get the same bytes; one gets them from files where it is told to."""
        return len(self._sinks) > 1 or self._options.staging is not None

    @property
    def _ids(self) -> tuple[str, ...]:
        return tuple(sink.id for sink in self._sinks)

    # ---- one opening per run

    def _opening(self, df: DataFrame) -> _Opening:
        known = self._current
        if known is not None and known.run.run_id == engine.run_id(df):
            _runs.check(known.pipeline, known.run.run_id)
            return known
        run = engine.discover_run(df)
        pipeline = self._options.name or run.name
        if not pipeline:
            raise refuse("E101")
        refuse_unfit(run, pipeline)
        _runs.enter(pipeline, run.query_id, run.run_id, partial(engine.still_running, df))
        self._plan = run.plan
        ledger, carried = self._place_ledger(run)
        runner = Runner(self._sinks, ledger, carried=carried, staging=self._place_staging(run, pipeline))
        opening = _Opening(run, pipeline, runner)
        with self._turn:
            self._current = opening
        watch = threading.Thread(target=self._close_at_end, args=(opening, ledger), daemon=True)
        watch.start()
        return opening

    def _close_at_end(self, opening: _Opening, ledger: Ledger) -> None:
        """Release the connections of a run once its query has ended; a callback that is still at work ends first."""
        engine.await_end(opening.run)
        with opening.busy, self._turn:
            ledger.close()
            if self._current is opening:
                self._current = None
                for sink in self._sinks:
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
        return Staging(self._options.staging or _beside(run.checkpoint, "onceonly.staging"), pipeline)


def refuse_unfit(run: engine.Run, pipeline: str) -> None:
    """Refuse a run that no epochs can be built on, before anything is opened.

    Raises:
        ConfigurationError: E104 its mode, E105 a temporary checkpoint, E109 state and no determinism, E116 a Kafka
            source that reads lost offsets as nothing.
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
    if run.plan.nondeterministic:
        raise refuse("E109", query=pipeline, expression=run.plan.nondeterministic)
    for source in run.plan.sources:
        if source.brokers and not source.brokers.stops_at_loss:
            raise refuse("E116", query=pipeline, source=source.origin)


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

    Returns:
        A function for ``foreachBatch``.

    Raises:
        ConfigurationError: E102 no sink, not a sink, or two with one id; E110 an argument that cannot mean anything;
            E114 rows cannot be staged there.
    """
    _check_sinks(sinks)
    if before is not None and not callable(before):
        raise _meaningless("before", before, "a function from DataFrame to DataFrame")
    if name is not None and not name.strip():
        raise _meaningless("name", name, "a name that is not blank")
    chosen = _OVERLAPS.get(overlap)
    if chosen is None:
        raise _meaningless("overlap", overlap, '"stop" or "trim"')
    return ExactlyOnce(sinks, _Options(name, ledger, before, _adopted(adopt), chosen, _staging_place(staging)))


_OVERLAPS: dict[str, Overlap] = {"stop": "stop", "trim": "trim"}


def _staging_place(staging: str | os.PathLike[str] | None) -> str | None:
    if staging is None:
        return None
    place = os.fspath(staging)
    directory(place)  # what cannot be reached from here is refused before the query starts
    return place


def _adopted(adopt: str | Mapping[str, Any] | None) -> Adopt:
    if adopt is None:
        return None
    if adopt == "here":
        return "here"
    if not isinstance(adopt, Mapping):
        raise _meaningless("adopt", adopt, '"here", or the offsets that the target already contains')
    texts = {source: value if isinstance(value, str) else canonical(value) for source, value in adopt.items()}
    return SourceOffsets.of(texts)


def _check_sinks(sinks: tuple[Sink, ...]) -> None:
    example = "pass a sink, e.g. exactly_once(PostgresSink(dsn, table='orders'))"
    if not sinks:
        raise refuse("E102", problem="exactly_once() got no sink.", next=example)
    for sink in sinks:
        if not isinstance(sink, Sink):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
            problem = f"exactly_once() got {type(sink).__name__!r}, which is not a sink."
            raise refuse("E102", problem=problem, next=example)
    ids = [sink.id for sink in sinks]
    if twins := {id_ for id_ in ids if ids.count(id_) > 1}:
        problem = f"Two sinks of one pipeline have the id {min(twins)!r}."
        raise refuse("E102", problem=problem, next="tell them apart: PostgresSink(..., id='orders-eu')")


def _meaningless(argument: str, value: object, wanted: str) -> Exception:
    return refuse(
        "E110",
        problem=f"exactly_once({argument}={value!r}) means nothing.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}, or leave {argument}= out",
    )
