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
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from onceonly import coordinator, engine, faults, guarantee
from onceonly.errors import refuse
from onceonly.estimate import Past, estimate, units
from onceonly.facts import Adopt, Offer
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly.runner import Runner
from onceonly.runs import Runs
from onceonly.sparkbatch import SparkBatch
from onceonly.state import State
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Receipt, SourceOffsets, canonical
from onceonly_checkpoints.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

LedgerPlace = str | os.PathLike[str] | Ledger | None


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

    def __init__(
        self,
        sink: Sink,
        name: str | None,
        ledger: LedgerPlace,
        before: Callable[[DataFrame], DataFrame] | None,
        adopt: Adopt,
    ) -> None:
        self._sink = sink
        self._name = name
        self._ledger = ledger
        self._before = before
        self._adopt: Adopt = adopt
        self._openings: dict[str, _Opening] = {}
        self._turn = threading.Lock()
        self._last_receipt: Receipt | None = None
        self._plan: engine.Plan | None = None

    @property
    def last_receipt(self) -> Receipt | None:
        """What the sink answered to the newest epoch of this process; ``None`` before the first."""
        return self._last_receipt

    def explain(self) -> str:
        """What is promised for this sink, why, and what would weaken it. Says more once the query runs."""
        return guarantee.derive(self._sink, self._plan, self._adopt).text

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
        seen = engine.see(df, batch_id, run)
        faults.fire(Point.DISCOVER_AFTER)
        rows = self._before(df) if self._before else df
        sizes, missing = engine.stat(df, seen.files)
        offer = Offer(
            slice=seen.slice,
            lineage=seen.lineage,
            sources=seen.sources,
            schema=chain.fingerprint(rows.dtypes),
            stateful=run.plan.stateful,
            missing=missing,
            files=seen.files,
        )
        covered = units(seen.slice, sizes)
        size = estimate(covered, opening.past, engine.row_width(rows), files=bool(sizes), stateful=run.plan.stateful)
        leave_out = run.plan.float_columns if run.plan.stateful else frozenset[str]()
        self._drive(opening, offer, SparkBatch(rows, size, leave_out))
        if covered and opening.state and opening.state.epoch:
            opening.past = Past(covered, opening.state.epoch.digest.rows)
        faults.fire(Point.RETURN_BEFORE)

    def _drive(self, opening: _Opening, offer: Offer, batch: SparkBatch) -> None:
        if opening.state is None:
            owner = secrets.token_hex(8)
            state = coordinator.start(opening.pipeline, (self._sink.id,), owner, offer, adopt=self._adopt)
        else:
            state = coordinator.resume(opening.state, offer)
        opening.state = None  # a run that fails here must open again before it may write
        opening.state = opening.runner.run(state, batch)
        self._report(opening, opening.state)

    def _report(self, opening: _Opening, state: State) -> None:
        epoch = state.epoch
        if epoch is None:
            return
        if state.skipped:
            log.info(
                "pipeline %s: epoch %d already held by %s, skipped",
                opening.pipeline,
                epoch.number,
                self._sink.id,
            )
            return
        self._last_receipt = state.receipts[0]
        phases = " ".join(f"{phase} {seconds * 1000:.0f} ms" for phase, seconds in opening.runner.phases.items())
        log.info(
            "pipeline %s: epoch %d committed %s %d rows %s",
            opening.pipeline,
            epoch.number,
            self._sink.id,
            epoch.digest.rows,
            phases,
        )

    # ---- one opening per run

    def _opening(self, df: DataFrame) -> _Opening:
        run_id = engine.run_id(df)
        known = self._openings.get(run_id)
        if known is not None:
            _runs.check(known.pipeline, run_id)
            return known
        run = engine.discover_run(df)
        pipeline = self._name or run.name
        if not pipeline:
            raise refuse("E101")
        _refuse_unfit(run, pipeline)
        _runs.enter(pipeline, run.query_id, run_id, partial(engine.still_running, df))
        self._plan = run.plan
        ledger, carried = self._place_ledger(run)
        opening = _Opening(run, pipeline, Runner([self._sink], ledger, carried=carried))
        with self._turn:
            self._openings = {run_id: opening}
        watch = threading.Thread(target=self._close_at_end, args=(opening, ledger), daemon=True)
        watch.start()
        return opening

    def _close_at_end(self, opening: _Opening, ledger: Ledger) -> None:
        """Release the connections of a run once its query has ended; a callback that is still at work ends first."""
        engine.await_end(opening.run)
        with opening.busy, self._turn:
            ledger.close()
            if self._openings.get(opening.run.run_id) is opening:
                self._sink.close()

    def _place_ledger(self, run: engine.Run) -> tuple[Ledger, bool]:
        # Executors import this package too; they need no SQLAlchemy.
        from onceonly_checkpoints.sqlledger import SqlLedger

        own = self._sink.ledger_url if self._sink.capabilities.carries_ledger else None
        if self._ledger is None and own:
            return SqlLedger(own), True
        if self._ledger is None:
            return SqlLedger(_beside(run.checkpoint)), False
        if isinstance(self._ledger, str | os.PathLike):
            ledger = SqlLedger(os.fspath(self._ledger))
            return ledger, own is not None and ledger.address == SqlLedger(own).address
        return self._ledger, False


def _refuse_unfit(run: engine.Run, pipeline: str) -> None:
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


def _beside(checkpoint: str) -> str:
    """A SQLite file next to a local checkpoint: outside of it, so that deleting the checkpoint keeps the history."""
    parsed = urlparse(checkpoint)
    if parsed.scheme not in ("", "file"):
        raise refuse("E107", checkpoint=checkpoint)
    root = Path(parsed.path)
    return str(root.with_name(f"{root.name}.onceonly.db"))


def exactly_once(
    *sinks: Sink,
    name: str | None = None,
    ledger: LedgerPlace = None,
    before: Callable[[DataFrame], DataFrame] | None = None,
    adopt: str | Mapping[str, Any] | None = None,
) -> ExactlyOnce:
    """Wrap a sink so that every row of the stream reaches it exactly once, across crashes, restarts and zombie drivers.

    Args:
        sinks: where the rows go. One sink in this version: several would need staging, and are refused.
        name: the pipeline's stable name; default is the query's ``queryName``.
        ledger: index and history, rebuildable from the sink: an SQLAlchemy URL, a path of a SQLite file, or a
            ``Ledger``. Default: the sink's own database if it is one, else a SQLite file beside a local checkpoint.
        before: a pure function applied to each batch before it is written.
        adopt: what to do when the target already holds rows that are not ours: ``"here"`` keeps them and starts after
            them; a mapping ``{source id: offset}`` says which offsets they contain, and the query must go on there.

    Returns:
        A function for ``foreachBatch``.

    Raises:
        ConfigurationError: E102 no sink, not a sink, or several; E110 an argument that cannot mean anything.
    """
    sink = _the_sink(sinks)
    if before is not None and not callable(before):
        raise _meaningless("before", before, "a function from DataFrame to DataFrame")
    if name is not None and not name.strip():
        raise _meaningless("name", name, "a name that is not blank")
    return ExactlyOnce(sink, name, ledger, before, _adopted(adopt))


def _adopted(adopt: str | Mapping[str, Any] | None) -> Adopt:
    if adopt is None:
        return None
    if adopt == "here":
        return "here"
    if not isinstance(adopt, Mapping):
        raise _meaningless("adopt", adopt, '"here", or the offsets that the target already contains')
    texts = {source: value if isinstance(value, str) else canonical(value) for source, value in adopt.items()}
    return SourceOffsets.of(texts)


def _the_sink(sinks: tuple[Sink, ...]) -> Sink:
    for sink in sinks:
        if not isinstance(sink, Sink):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
            raise refuse(
                "E102",
                problem=f"exactly_once() got {type(sink).__name__!r}, which is not a sink.",
                next="pass a sink, e.g. exactly_once(PostgresSink(dsn, table='orders'))",
            )
    ids = [sink.id for sink in sinks]
    if twins := {id_ for id_ in ids if ids.count(id_) > 1}:
        problem = f"Two sinks of one pipeline have the id {min(twins)!r}."
        raise refuse("E102", problem=problem, next="tell them apart: PostgresSink(..., id='orders-eu')")
    if len(sinks) != 1:
        problem = f"exactly_once() got {len(sinks)} sinks; this version writes an epoch to exactly one."
        raise refuse("E102", problem=problem, next="give one sink, and run one query per sink")
    return sinks[0]


def _meaningless(argument: str, value: object, wanted: str) -> Exception:
    return refuse(
        "E110",
        problem=f"exactly_once({argument}={value!r}) means nothing.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}, or leave {argument}= out",
    )
