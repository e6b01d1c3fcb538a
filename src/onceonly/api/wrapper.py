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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.api import admission, arguments, guarantee, row_rules
from onceonly.api.arguments import Arguments, LedgerPlace, Staging, refuse_plan, refuse_unrepeatable, refuse_untrimmable
from onceonly.api.guarantee import Receipts, Report
from onceonly.api.run_state import RunState
from onceonly.api.write_epoch import Epochs
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.event_time import event_time_argument
from onceonly.event_time.event_time_argument import NoteTime
from onceonly.machine.facts import Replays
from onceonly.protocol import Estimate, Sink
from onceonly.protocol.batch import Trim
from onceonly.quality import spark_outputs
from onceonly.quality.dedupe import Dedupe
from onceonly.quality.dedupe import check as check_dedupe
from onceonly.quality.output import Output, check
from onceonly.quality.quality import Quality, check_kind, keeping, refusal_text
from onceonly.quality.quality import check as check_quality
from onceonly.quality.routes import Route, expecting
from onceonly.quality.spark_dedupe import DedupingBatch
from onceonly.quality.spark_outputs import DividedBatch, ResolvedOutput
from onceonly.quality.spark_row_rules import Demanded
from onceonly.spark import batch as trimming
from onceonly.spark import determinism, expression_check
from onceonly.spark.batch import SparkBatch
from onceonly.spark.connect import pickling, worker
from onceonly.spark.detect import engine_for
from onceonly.spark.determinism import Determinism
from onceonly.spark.engine import QueryPlan
from onceonly.spark.input import read_input
from onceonly.windows import windows_argument as paning
from onceonly.windows.batch import WindowedBatch
from onceonly.windows.epoch_step import WindowStepper
from onceonly.windows.rules.spec import Panes
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.model import SourceIdentity

if TYPE_CHECKING:
    from onceonly.api.arguments import Arguments
    from onceonly.protocol import DataFrame


log = logging.getLogger(__name__)


class CallbackInterrupted(RuntimeError):
    """A ``BaseException`` ended the callback. Left as it is, it would hang the query for ever."""


class ExactlyOnce:
    """The result of :func:`exactly_once`. Pass it to ``foreachBatch`` or call it from a function of your own."""

    def __init__(self, given: Arguments) -> None:
        self._arguments = given
        self._epochs = Epochs(given)

    def __reduce__(self) -> tuple[Callable[[Arguments], ExactlyOnce], tuple[Arguments]]:
        """Pickle for the server of Spark Connect: only the arguments of the call, and nothing of this process.

        Raises:
            ConfigurationError: E106 it does not know its checkpoint. E110 or E151 a part of it cannot be sent.
        """
        check_sendable(self._arguments)
        return _arrived, (self._arguments,)

    def __repr__(self) -> str:
        named = f", name={self._arguments.name!r}" if self._arguments.name else ""
        outputs = self._arguments.outputs
        quality, dedupe = self._arguments.quality, self._arguments.dedupe
        taken: list[Sink] = [sink for output in outputs for sink in output.sinks]
        taken += [quality.quarantine] if quality and quality.quarantine else []
        taken += [dedupe.keeper] if dedupe else []
        taken += self._arguments.panes.sinks if self._arguments.panes else []
        whole = [sink for sink in self._arguments.sinks if sink not in taken]
        named += f", {quality=}" if quality else ""
        named += f", {dedupe=}" if dedupe else ""
        named += f", panes={self._arguments.panes.panes!r}" if self._arguments.panes else ""
        return f"exactly_once({', '.join(map(repr, (*whole, *outputs)))}{named})"

    def _repr_html_(self) -> str:
        """The guarantee, as from :meth:`explain`, and the newest receipts, for a notebook."""
        return self.explain().html + (self.last_receipts.html if self.last_receipts else "")

    @property
    def one_by_one(self) -> str:
        """Id of the sink without transactions. Empty for none."""
        return self._arguments.one_by_one

    @property
    def adding(self) -> tuple[str, ...]:
        """Ids of the append-only sinks."""
        return self._arguments.adding

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
        given = self._arguments
        if df is None:
            return self._epochs.promise()
        if not df.isStreaming:
            raise refuse(
                "E110",
                problem="explain() got a DataFrame that is no stream.",
                cause="it was read with spark.read, or it is a batch",
                next="give the DataFrame that writeStream is called on, or leave it out",
            )
        plan = engine_for(df).foreseen(df)
        rows = given.shaped(df)
        found = determinism.foreseen(plan, rows)
        text = guarantee.explain(given.sinks, plan, found, given.chosen)
        try:
            named = given.name or "the query"
            refuse_plan(plan, named, given.lossy_source, found.nondeterministic, given.one_by_one)
            event_time_argument.check_plan(given.time, plan, named)
            admission.check_columns(given, named, rows.columns, folds=admission.folds(rows))
            event_time_argument.check_columns(given.time, named, rows.dtypes)
            if given.panes:
                paning.refuse_state(plan, named)
                given.panes.defined(named, rows, given.time)
            elif given.divided:
                self._divide(plan, named, rows, found)
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
            caller = engine.caller(df, self._arguments.told)
            opening = self._epochs.openings.of(df, engine, caller)
            with opening.writing(batch_id, caller.batch_id):
                self._write(opening, df, batch_id)
        except OnceOnlyError as found:
            refused = paning.said_of(self._arguments.panes, refusal_text(self._arguments.quality, found))
            log.error("%s", refused)
            log.debug("what led to it", exc_info=found)
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
        rows = self._arguments.shaped(df)
        columns: Sequence[tuple[str, str]] = rows.dtypes
        if opening.admitted != columns:
            admission.check_columns(self._arguments, opening.pipeline, rows.columns, folds=admission.folds(rows))
            opening.admitted = columns
        event_time_argument.check_columns(self._arguments.time, opening.pipeline, columns)
        found = self._look(opening, rows, columns)
        back, demands = self._looks_back(opening), partial(self._demand_trimmable, opening, df)
        read = read_input(df, batch_id, opening.run, columns, past=opening.past, looks_back=back, demands=demands)
        batch = self._batch(opening, rows, read.estimate, found, partial(self._without, df))
        self._epochs.write(opening, batch, read, columns, found)

    def _batch(
        self,
        opening: RunState,
        rows: DataFrame,
        size: Estimate,
        found: Determinism,
        without: Callable[[Trim], DataFrame],
    ) -> SparkBatch:
        given = self._arguments
        if not given.divided:
            return SparkBatch(rows, size, found.left_out, without)
        columns = rows.dtypes
        if given.panes:
            return WindowedBatch(rows, self._stepping(given.panes, opening, rows), size, without)
        if opening.outputs is None or opening.outputs[0] != columns:
            demanded = row_rules.asked(given, opening.pipeline, rows)
            opening.outputs = columns, self._divide(opening.run.plan, opening.pipeline, rows, found, demanded)
        outputs = opening.outputs[1]
        if given.dedupe:
            return DedupingBatch(rows, outputs, size, found.left_out, without, repeats=given.dedupe.repeats)
        return DividedBatch(rows, outputs, size, found.left_out, without)

    def _stepping(self, chosen: paning.WindowsArgument, opening: RunState, rows: DataFrame) -> WindowStepper:
        columns = rows.dtypes
        if opening.windows is None or opening.windows[0] != columns:
            paning.refuse_state(opening.run.plan, opening.pipeline)
            opening.windows = columns, chosen.defined(opening.pipeline, rows, self._arguments.time)
        return WindowStepper(opening.windows[1], chosen.keeper, chosen.targets(self._arguments.sinks))

    @expression_check.quietly()
    def _divide(
        self, plan: QueryPlan, pipeline: str, rows: DataFrame, found: Determinism, demanded: Sequence[Demanded] = ()
    ) -> tuple[ResolvedOutput, ...]:
        """Apply outputs, expectations and rules of sinks to the rows."""
        given = self._arguments
        for by in given.routes:
            expression_check.check_route(pipeline, rows, by)
        wanted = tuple(output.wanted for output in given.outputs)
        if given.dedupe:
            wanted = (*wanted, given.dedupe.repeats.wanted(pipeline, rows))
        if given.quality:
            expectations = given.quality.expectations(demanded)
            expectations.check(pipeline, rows)
            wanted = expectations.divide(rows, wanted)
        resolved = spark_outputs.resolve(plan, pipeline, rows, wanted, found.left_out)
        admission.check_outputs(given, pipeline, resolved)
        return resolved

    def _look(self, opening: RunState, rows: DataFrame, columns: Sequence[tuple[str, str]]) -> Determinism:
        """Inspect the written rows once per run. If a replay must repeat them, inspect new columns again."""
        plan, one_by_one = opening.run.plan, self._arguments.one_by_one
        repeats = plan.stateful or one_by_one
        if opening.written is None or (repeats and opening.columns != columns):
            found = determinism.look(plan, rows)
            refuse_unrepeatable(plan, opening.pipeline, found.nondeterministic, one_by_one)
            opening.written, opening.columns, self._epochs.written = found, columns, found
        return opening.written

    def _demand_trimmable(self, opening: RunState, df: DataFrame, sources: Sequence[SourceIdentity]) -> None:
        if opening.state is None and self._arguments.overlap == "trim":
            refuse_untrimmable(opening.run.plan, opening.pipeline, sources, dict(df.dtypes))

    def _without(self, df: DataFrame, trim: Trim) -> DataFrame:
        """The rows of a trimmed batch. ``before=`` comes second, because it may drop the columns that identify rows."""
        return self._arguments.shaped(trimming.trimmed(df, trim))

    def _looks_back(self, opening: RunState) -> bool:
        """Whether to compare a batch with the files of all earlier ones: until this run has written a batch itself."""
        return self._arguments.overlap == "trim" and (opening.state is None or opening.state.work.skipped)


def _arrived(given: Arguments) -> ExactlyOnce:
    """Make a wrapper in the process to which it was sent."""
    worker.arrived()
    return ExactlyOnce(given)


@checks_arguments
def exactly_once(
    *sinks: Sink | Output | Route,
    name: str | None = None,
    ledger: LedgerPlace = None,
    before: Callable[[DataFrame], DataFrame] | None = None,
    adopt: str | Mapping[str, Any] | None = None,
    overlap: str = "stop",
    staging: str | os.PathLike[str] | Staging | None = None,
    lossy_source: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    on_refresh: str = "stop",
    quality: Quality | None = None,
    dedupe: Dedupe | None = None,
    note_time: NoteTime | None = None,
    panes: Panes | None = None,
    version: str | None = None,
) -> ExactlyOnce:
    """Wrap sinks so that every row of the stream reaches each exactly once, across crashes, restarts, zombie drivers.

    Args:
        sinks: where the rows go. Several get the same bytes: each batch is written once to ``staging``, and committed
            from there in the order of this call. After a crash, sinks that are behind are brought to the others' epoch.
            Sinks in an :class:`onceonly.Output` get its rows and columns. Those in an :class:`onceonly.Route` get the
            rows with their value of a column.
        name: the pipeline's stable name. Default is the query's ``queryName``.
        ledger: index and history, rebuildable from the sink: an SQLAlchemy URL, a path of a SQLite file, or a
            ``Ledger``. Default: the sink's own database if it is one, else a SQLite file beside a local checkpoint.
        before: a pure function applied to each batch before it is written.
        adopt: what to do when the target already holds rows that are not ours. ``"here"`` keeps them and starts after
            them. A mapping ``{source id: offset}`` gives the offsets that they contain, and the query must go on there.
        overlap: what to do when a new or rolled-back checkpoint offers rows of recorded epochs again. ``"stop"``, or
            ``"trim"``: write only rows whose position in the source is in no epoch. Trimming needs a plan without state
            over one Kafka or file source. The rows must still have ``topic``, ``partition`` and ``offset``, or
            ``_metadata.file_path`` as ``file_path``. ``before=`` may drop them.
        staging: where batches for several sinks are written: a directory that driver and executors share, or a URL
            that Spark and an installed driver of fsspec both reach. Default: beside the checkpoint. A single sink needs
            none. If given, it reads each epoch from files, piece by piece, so a topic takes epochs that exceed the
            driver's memory. A :class:`onceonly.Staging` also sets how many epochs stay, to bring a restored sink level.
        lossy_source: ``"socket"`` or ``"memory"``: the kind of a source that cannot give its rows again. A crash before
            the write then loses the batch. Without this argument such a source is refused.
        checkpoint: the query's ``checkpointLocation``, spelled as the server does. Spark Connect needs it, and as
            ``name=`` the query's ``queryName``, because it does not pass them to the callback. Elsewhere onceonly
            compares it with Spark's. :func:`onceonly.start` sets all of them.
        on_refresh: what to do at a full refresh of a declarative pipeline, which begins anew in a sibling directory of
            its checkpoint and clears no sink. ``"stop"``, or ``"replace"``: the transaction of the first new rows
            deletes the old ones from every sink. The source may no longer hold all rows of the sinks. Readers then see
            a table that refills.
        quality: expectations of each row, and the sink of bad rows.
        dedupe: the identity of rows that a producer sent twice, and the table of known ids. Classic sessions only.
        note_time: the time before which all rows are there, recorded in each epoch and committed with its rows. Classic
            sessions only. :class:`onceonly.EventTime` takes it from a column, ``"ingest"`` from the moment at which the
            engine planned the batch, ``"watermark"`` from its watermark. A function of a :class:`onceonly.TimedEpoch`
            returns milliseconds since 1970, a datetime with a zone, or ``None`` for nothing new.
            :class:`onceonly.FromUpstream` takes it from the table or topic that is read. :class:`onceonly.Dataset` is
            for several writers. The time never goes back.
        panes: windows over the rows, an :class:`onceonly.windows.Panes`. Their results go to the sinks in place of the
            rows, and their state is committed with them. Classic sessions only.
        version: your name for the running code, such as a commit of Git. Default is ``ONCEONLY_VERSION`` of the
            environment. Each epoch records it, and a replay under other code reports it.

    Returns:
        A function for ``foreachBatch``. For Spark Connect it is sent to the server, with sinks and options.

    Raises:
        ConfigurationError: E102 no sink, not a sink, or two with one id. E110 an invalid argument. E114 rows cannot be
            staged there. E120 outputs that form no epoch. E122 no ids can be kept there. E128 an argument that needs a
            transaction, with a sink without transactions. E135 writers that nothing leads to. E140 or E143 panes that
            do not go with the rest.
        IdentityError: E247 ``on_refresh="replace"`` with a sink that cannot replace rows.
    """
    routed = tuple(sink for sink in sinks if isinstance(sink, Route))
    taking = tuple(one for each in sinks for one in (each.outputs if isinstance(each, Route) else (each,)))
    given = tuple(one for each in taking for one in (each.sinks if isinstance(each, Output) else (each,)))
    divided = tuple(one for one in taking if isinstance(one, Output))
    check(divided)
    check_kind(quality)
    quality = expecting(quality, routed)
    arguments.check_sinks(given)
    takes = (*given, *([quality.quarantine] if quality and quality.quarantine else []))
    check_dedupe(dedupe, takes)
    quality = dedupe.beside(quality) if dedupe else quality
    check_quality(quality, given)
    if quality and quality.quarantine:
        given = (*given, quality.quarantine)
        arguments.check_sinks(given)
    keeping(quality)
    if dedupe:
        given = (*given, dedupe.keeper)
        arguments.check_sinks(given)
    adopted, time = arguments.adopted(adopt), event_time_argument.check_event_time(note_time)
    apart = {"an Output or a Route": divided, "dedupe=": dedupe, "quality=": quality}
    paned = paning.check_windows(panes, given, time, next((what for what, said in apart.items() if said), ""))
    if paned:
        given = (*given, *paned.sinks)
        arguments.check_sinks(given)
    event_time_argument.check_sinks(time, given)
    arguments.check_before(before)
    arguments.check_name(name)
    arguments.check_ledger(ledger)
    arguments.check_lossy(lossy_source)
    chosen, place = arguments.overlap(overlap), Staging.of(staging)
    arguments.check_one_by_one(given, chosen, place, divided=bool(divided or quality or dedupe or panes))
    where = arguments.checkpoint_place(checkpoint)
    refresh = arguments.on_refresh(on_refresh, given, name)
    said = (name, ledger, before, adopted, chosen, place, lossy_source, where, refresh, divided, quality, dedupe, time)
    by = tuple(route.by for route in routed)
    return ExactlyOnce(Arguments(given, *said, panes=paned, routes=by, version=arguments.version(version)))


# ---- Whether a wrapper can be sent to another process, as Spark Connect does with a callback: refused part by
# part.


def check_sendable(given: Arguments) -> None:
    """Refuse what cannot be sent, or could not find its query there.

    Raises:
        ConfigurationError: E106 no checkpoint; E110 a sink or ledger that lives in this process; E151 a sink or
            ``before=`` that cannot be pickled.
    """
    if given.checkpoint is None:
        raise pickling.untold()
    if given.divided:
        what = f"has output {given.outputs[0].name!r}" if given.outputs else "was given quality="
        what = "was given dedupe=" if given.dedupe else "was given panes=" if given.panes else what
        raise refuse(
            "E110",
            problem=f"exactly_once() {what}, and the query runs on Spark Connect.",
            cause="outputs are written, and bad or repeated rows told from good ones, on classic sessions only",
            next="give each sink a query of its own there, with its own name, checkpoint and before=",
        )
    if given.time:
        raise refuse(
            "E110",
            problem="exactly_once() was given note_time=, and the query runs on Spark Connect.",
            cause="what rows say of time is noted on classic sessions only",
            next="leave note_time= out there, or run the query on a classic session",
        )
    if isinstance(given.ledger, Ledger):
        raise refuse(
            "E110",
            problem=f"The ledger {given.ledger!r} lives in this process, and the callback runs in the server's.",
            cause="the query runs on Spark Connect, and ledger= was given a ledger that was made here",
            next='give its address: exactly_once(..., ledger="postgresql://..." or "sqlite:////path/ledger.db")',
        )
    for sink in given.sinks:
        if reason := pickling.unpicklable(sink):
            way = f"have {type(sink).__name__} make it in open(), or leave it out in __reduce__"
            raise refuse("E151", part=sink.id, reason=reason, next=way)
    if reason := pickling.unpicklable(given.before):
        way = "make within the function what it needs, from df.sparkSession where it is the session"
        raise refuse("E151", part="before=", reason=reason, next=way)
