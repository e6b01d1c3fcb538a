"""``exactly_once(sink)``: the ``foreachBatch`` function, and each batch's way through it.

    first     once per run: what the plan of the query shows (E109, E129)
    input     ``input.read_input``: all that the engine, its logs and the sources are asked for the batch
    offer     what is decided on: a value
    decision  ``coordinator``: pure
    prepare   ``runner``: rows near each sink, in the batch's one action
    commit    rows and marker together; what is left of it are receipts

From the offer on a batch goes the way that ``epochs`` has for all ways in. What stays the same for a run is
found by ``openings``, at the run's first batch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from onceonly.api import admission, arguments, guarantee
from onceonly.api.arguments import Arguments, Recovery, Storage
from onceonly.api.guarantee import Receipts, Report
from onceonly.api.run_state import RunState
from onceonly.api.write_epoch import Epochs
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import checks_arguments, misused
from onceonly.machine.facts import Replays
from onceonly.machine.overlap import unfit
from onceonly.protocol import Estimate, Sink
from onceonly.protocol.batch import Trim
from onceonly.protocol.values import SOURCE
from onceonly.runtime import sink_refusals
from onceonly.spark import batch as trimming
from onceonly.spark import fingerprint, frames
from onceonly.spark.batch import SparkBatch
from onceonly.spark.detect import engine_for
from onceonly.spark.engine import QueryPlan
from onceonly.spark.fingerprint import Determinism
from onceonly.spark.input import Input, read_input
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import SourceIdentity

if TYPE_CHECKING:
    from onceonly.api.arguments import Arguments
    from onceonly.event_time.event_time_argument import EventTimeArgument, NoteTime
    from onceonly.lineage import OpenLineage
    from onceonly.protocol import DataFrame
    from onceonly.quality.division import Division
    from onceonly.quality.outputs import Output, Route
    from onceonly.quality.quality import Dedupe, Quality
    from onceonly.spark.row_times import RowLimit
    from onceonly.windows.rules.spec import Windows


log = logging.getLogger(__name__)


class CallbackInterrupted(RuntimeError):
    """A ``BaseException`` ended the callback. Left as it is, it would hang the query for ever."""


class ExactlyOnce:
    """The result of :func:`exactly_once`. Pass it to ``foreachBatch`` or call it from a function of your own."""

    def __init__(self, call: Arguments) -> None:
        self.arguments = call
        self._epochs = Epochs(call)

    def __reduce__(self) -> tuple[Callable[[Arguments], ExactlyOnce], tuple[Arguments]]:
        """Pickle for the server of Spark Connect: only the arguments of the call, and nothing of this process.

        Raises:
            ConfigurationError: E106 it does not know its checkpoint. E110 or E151 a part of it cannot be sent.
        """
        check_sendable(self.arguments)
        return _arrived, (self.arguments,)

    def __repr__(self) -> str:
        call = self.arguments
        parts = [part for part in (call.division, call.windows) if part]
        plain_sinks = [sink for sink in call.sinks if not any(sink in part.sinks for part in parts)]
        positional = map(repr, (*plain_sinks, *(call.division.outputs if call.division else ())))
        keywords: dict[str, object] = {"name": call.name} if call.name else {}
        for part in parts:
            keywords |= part.arguments
        return f"exactly_once({', '.join([*positional, *(f'{name}={value!r}' for name, value in keywords.items())])})"

    def _repr_html_(self) -> str:
        """The guarantee, as from :meth:`explain`, and the newest receipts, for a notebook."""
        return self.explain().html + (self.last_receipts.html if self.last_receipts else "")

    @property
    def last_receipts(self) -> Receipts:
        """Receipts of the newest epoch of this process, one per sink. Empty before the first."""
        return self._epochs.last_receipts

    def explain(self, df: DataFrame | None = None) -> Report:
        """The guarantee for each sink, with reasons and dangers: a text, and in a notebook a table.

        The text is more precise once the query runs. ``df`` is the stream as ``writeStream`` gets it, to inspect its
        plan before the start. Nothing is run.

        Raises:
            ConfigurationError: E110, it is no stream. E113 another PySpark.
        """
        call = self.arguments
        if df is None:
            return self._epochs.promise()
        if not df.isStreaming:
            raise misused(
                "explain() got a DataFrame that is no stream.",
                "it was read with spark.read, or it is a batch",
                "give the DataFrame that writeStream is called on, or leave it out",
            )
        plan = engine_for(df).foreseen(df)
        rows = call.shaped(df)
        query_determinism = fingerprint.foreseen(plan, rows)
        text = guarantee.explain(call.sinks, plan, query_determinism, call.chosen)
        try:
            named = call.name or "the query"
            call.check_plan(plan, named, query_determinism.nondeterministic)
            _check_columns(call, named, rows)
            _check_order(call, plan, named, df, rows)
            if call.windows:
                call.windows.resolve(plan, named, rows, call.event_time)
            if call.division:
                divided = call.division.resolve(plan, named, rows, query_determinism.left_out)
                admission.check_outputs(call, named, divided.outputs)
        except OnceOnlyError as refused:
            return Report(f"{text}\nAs it is, it will be refused:\n{refused}")
        return Report(text)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch, or prove that it is already written.

        Raises:
            OnceOnlyError: the batch was not written. The message has the reason and the next step.
            CallbackInterrupted: the interpreter was stopped in the middle. No partial result is visible.
        """
        try:
            engine = engine_for(df)
            caller = engine.caller(df, self.arguments.hint)
            opening = self._epochs.openings.of(df, engine, caller)
            with opening.writing(batch_id, caller.batch_id):
                self._write(opening, df, batch_id)
        except OnceOnlyError as error:
            refused = error
            for part in (self.arguments.division, self.arguments.windows):
                refused = part.reword(refused) if part else refused
            log.error("%s", refused)
            log.debug("what led to it", exc_info=error)
            # The message says all; what led to it would only bury it in Spark's traceback, where it stands three times.
            raise refused.with_traceback(None) from None
        except Exception:
            raise
        except BaseException as stop:
            raise CallbackInterrupted(f"the callback was ended by {type(stop).__name__}") from stop

    def replay(self, df: DataFrame, batch_id: int, replays: Replays) -> None:
        """Write a batch that runs the recorded epochs of ``replays`` again, or prove that it is already written.

        ``batch_id`` counts in the replay checkpoint.

        Raises:
            OnceOnlyError: as for any batch. E239 the target holds another run's rows.
        """
        self._epochs.replays = replays
        self(df, batch_id)

    def _write(self, opening: RunState, df: DataFrame, batch_id: int) -> None:
        rows = self.arguments.shaped(df)
        columns: Sequence[tuple[str, str]] = rows.dtypes
        typed = frames.columns_of(rows.schema)
        if opening.admitted != columns:
            _check_columns(self.arguments, opening.pipeline, rows)
            _check_order(self.arguments, opening.run.plan, opening.pipeline, df, rows)
            opening.admitted = columns
        query_determinism = self._look(opening, rows, columns)
        # Until this run has written a batch itself, one is compared with the files of all earlier ones.
        back = self.arguments.recovery.overlap == "trim" and (opening.state is None or opening.state.work.skipped)
        demands = partial(self._demand_trimmable, opening, df)
        read = read_input(df, batch_id, opening.run, columns, past=opening.past, looks_back=back, demands=demands)
        rows = self._ordered(rows, read.estimate)
        without = partial(self._without, df, read.estimate)
        batch = self._batch(opening, rows, read, query_determinism, without)
        self._epochs.write(opening, batch, read, typed, query_determinism)

    def _batch(
        self,
        opening: RunState,
        rows: DataFrame,
        read: Input,
        query_determinism: Determinism,
        without: Callable[[Trim], DataFrame],
    ) -> SparkBatch:
        call = self.arguments
        columns, plan, size = rows.dtypes, opening.run.plan, read.estimate
        if call.windows and (opening.windows is None or opening.windows[0] != columns):
            opening.windows = columns, call.windows.resolve(plan, opening.pipeline, rows, call.event_time)
        definition = opening.windows[1] if opening.windows else None
        if call.division:
            if opening.outputs is None or opening.outputs[0] != columns:
                demanded = call.division.demanded(call.taking, opening.pipeline, rows)
                divided = call.division.resolve(plan, opening.pipeline, rows, query_determinism.left_out, demanded)
                admission.check_outputs(call, opening.pipeline, divided.outputs)
                opening.outputs = columns, divided
            batch = call.division.batch(rows, opening.outputs[1], read, query_determinism, without)
            if call.windows and definition:
                batch = call.windows.chain(batch, definition, call.of_results)
            return batch
        if call.windows and definition:
            return call.windows.batch(rows, definition, call.of_results, size, without)
        return SparkBatch(rows, size, query_determinism.left_out, without)

    def _look(self, opening: RunState, rows: DataFrame, columns: Sequence[tuple[str, str]]) -> Determinism:
        """Inspect the written rows once per run. If a replay must repeat them, inspect new columns again."""
        plan, one_by_one = opening.run.plan, self.arguments.one_by_one
        repeats = plan.stateful or one_by_one
        if opening.written is None or (repeats and opening.columns != columns):
            query_determinism = fingerprint.look(plan, rows)
            arguments.refuse_unrepeatable(plan, opening.pipeline, query_determinism.nondeterministic, one_by_one)
            opening.written, opening.columns, self._epochs.written = query_determinism, columns, query_determinism
        return opening.written

    def _demand_trimmable(self, opening: RunState, df: DataFrame, sources: Sequence[SourceIdentity]) -> None:
        """Refuse a query that onceonly could never trim (E115). What it promises must hold from the first day."""
        if opening.state is not None or self.arguments.recovery.overlap != "trim":
            return
        if reason := unfit(sources, dict(df.dtypes), stateful=opening.run.plan.stateful):
            raise refuse("E115", query=opening.pipeline, reason=reason)

    def _without(self, df: DataFrame, size: Estimate, trim: Trim) -> DataFrame:
        """The rows of a trimmed batch. ``transform=`` comes second: it may drop the columns that identify rows."""
        return self._ordered(self.arguments.shaped(trimming.trimmed(df, trim)), size)

    def _ordered(self, rows: DataFrame, size: Estimate) -> DataFrame:
        _, order, keyed = self.arguments.order
        return trimming.ordered(rows, order, size, keyed=keyed) if order else rows


def _check_columns(call: Arguments, query: str, rows: DataFrame) -> None:
    """Refuse columns that a sink cannot distinguish (E138), or that have no time (E130)."""
    admission.check_columns(call, query, rows.columns, folds=admission.folds(rows))
    if call.event_time:
        call.event_time.check_columns(query, rows.dtypes)


def _check_order(call: Arguments, plan: QueryPlan, query: str, df: DataFrame, rows: DataFrame) -> None:
    """Refuse rows that cannot be ordered as a sink asks (E138, E148). They were made of ``df``."""
    lost = trimming.order_lost(plan, df, rows) if call.order[1] == SOURCE else ""
    call.check_order(query, dict(rows.dtypes), lost)


def _arrived(call: Arguments) -> ExactlyOnce:
    """Make a wrapper in the process to which it was sent."""
    from onceonly.spark.connect import worker

    worker.arrived()
    return ExactlyOnce(call)


@checks_arguments
def exactly_once(
    *sinks: Sink | Output | Route,
    name: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    quality: Quality | None = None,
    dedupe: Dedupe | None = None,
    event_time: NoteTime | None = None,
    windows: Windows | None = None,
    version: str | None = None,
    recovery: Recovery = arguments.DEFAULT_RECOVERY,
    storage: Storage = arguments.DEFAULT_STORAGE,
    lineage: OpenLineage | None = None,
) -> ExactlyOnce:
    """Make a ``foreachBatch`` function: each row reaches each sink exactly once.

    Args:
        sinks: where the rows go. Several get the same bytes: each batch is staged once, and committed from there in the
            order of this call. After a crash, sinks that are behind are brought to the others' epoch. Sinks in an
            :class:`onceonly.Output` get its rows and columns. Those in a :class:`onceonly.Route` get the rows with
            their value of a column.
        name: the pipeline's stable name. Default is the query's ``queryName``.
        checkpoint: the query's ``checkpointLocation``, spelled as the server does. Spark Connect needs both, since its
            callback does not get them. :func:`onceonly.start` gives both to the query. Elsewhere Spark's must be equal.
        transform: a pure function applied to each batch before it is written.
        quality: expectations of each row, and the sink of bad rows.
        dedupe: the identity of rows that a producer sent twice, and the table of known ids. Classic sessions only.
        event_time: the time before which all rows are there, committed in each epoch. It never goes back. Classic
            sessions only. ``"ingest"`` is the moment at which the engine planned the batch, ``"watermark"`` its own. A
            function of a :class:`onceonly.event_time.TimedEpoch` returns milliseconds, an aware datetime or ``None``.
        windows: windows over the rows. Results go to the sinks, with their state. Classic sessions only.
        version: your name for the running code, such as a commit of Git. Default is ``ONCEONLY_VERSION`` of the
            environment. Each epoch records it, and a replay under other code reports it.
        recovery: reactions to rows that come again, rows of others in the target, a full refresh, a lossy source.
        storage: places of the ledger and of staged epochs.
        lineage: receiver of OpenLineage events of each epoch, after its commit. Classic sessions only.

    Returns:
        A function for ``foreachBatch``. For Spark Connect it is sent to the server, with sinks and options.

    Raises:
        ConfigurationError: E102 no sink, not a sink, or two with one id. E110 an invalid argument. E114 rows cannot be
            staged there. E120 outputs that form no epoch. E122 no ids can be kept there. E128 an argument that needs a
            transaction, with a sink without transactions. E135 writers that nothing leads to. E140 or E143 windows
            that do not go with the rest.
        IdentityError: E247 ``Recovery(on_refresh="replace")`` with a sink that cannot replace rows.
    """
    time = _checked_time(event_time)
    all_sinks, division = _divided(sinks, quality, dedupe, time.row_limit if time else None)
    windowed = None
    if windows is not None:
        from onceonly.windows.windows_argument import check_windows

        windowed = check_windows(windows, [s for s in all_sinks if not division or s not in division.sinks], time)
        all_sinks = (*all_sinks, *windowed.sinks)
        arguments.check_sinks(all_sinks)
    if time:
        time.check_sinks(all_sinks)
    arguments.check_transform(transform)
    arguments.check_name(name)
    arguments.check_order(all_sinks, "dedupe=" if dedupe else "windows=" if windows else "")
    arguments.check_judges(all_sinks)
    arguments.check_one_by_one(all_sinks, recovery, storage, divided=division is not None or windows is not None)
    if recovery.on_refresh == "replace":
        sink_refusals.demand(all_sinks, name or "the query")
    return ExactlyOnce(
        Arguments(
            sinks=all_sinks,
            name=name,
            checkpoint=arguments.checkpoint_place(checkpoint),
            transform=transform,
            division=division,
            event_time=time,
            windows=windowed,
            version=arguments.version(version),
            recovery=recovery,
            storage=storage,
            lineage=lineage,
        )
    )


# A query loads the rooms that it asks for: no import of one stands outside of a function.


def _checked_time(event_time: NoteTime | None) -> EventTimeArgument | None:
    if event_time is None:
        return None
    from onceonly.event_time.event_time_argument import check_event_time

    return check_event_time(event_time)


def _divided(
    sinks: Sequence[Sink | Output | Route], quality: Quality | None, dedupe: Dedupe | None, row_limit: RowLimit | None
) -> tuple[tuple[Sink, ...], Division | None]:
    """The sinks of a call, and how its rows are divided among them."""
    plain = tuple(sink for sink in sinks if isinstance(sink, Sink))
    if len(plain) == len(sinks) and quality is None and dedupe is None:
        arguments.check_sinks(plain)
        return plain, None
    from onceonly.quality.division import divide

    return divide(sinks, quality, dedupe, arguments.check_sinks, row_limit)


# ---- Whether a wrapper can be sent to another process, as Spark Connect does with a callback: refused part by
# part.


def check_sendable(call: Arguments) -> None:
    """Refuse what cannot be sent, or could not find its query there.

    Raises:
        ConfigurationError: E106 no checkpoint; E110 a sink or ledger that lives in this process; E151 a sink or
            ``transform=`` that cannot be pickled.
    """
    from onceonly.spark.connect import worker

    if call.checkpoint is None:
        raise worker.untold()
    if call.divided:
        what = call.division.argument if call.division else "was given windows="
        raise misused(
            f"exactly_once() {what}, and the query runs on Spark Connect.",
            "side outputs, quality= and dedupe= work on classic sessions only",
            "give each sink a query of its own there, with its own name, checkpoint and transform=",
        )
    if only := "event_time" if call.event_time else "lineage" if call.lineage else "":
        raise misused(
            f"exactly_once() was given {only}=, and the query runs on Spark Connect.",
            f"{only}= works on classic sessions only",
            f"leave {only}= out there, or run the query on a classic session",
        )
    if isinstance(ledger := call.storage.ledger, Ledger):
        raise misused(
            f"The ledger {ledger!r} lives in this process, and the callback runs in the server's.",
            "the query runs on Spark Connect, and Storage(ledger=) has a ledger that was made here",
            'give its address: exactly_once(..., storage=Storage(ledger="postgresql://..."))',
        )
    for sink in call.sinks:
        if reason := worker.unpicklable(sink):
            remedy = f"have {type(sink).__name__} make it in open(), or leave it out in __reduce__"
            raise refuse("E151", part=sink.id, reason=reason, next=remedy)
    if reason := worker.unpicklable(call.transform):
        remedy = "create these values within the function, a session as df.sparkSession"
        raise refuse("E151", part="transform=", reason=reason, next=remedy)
