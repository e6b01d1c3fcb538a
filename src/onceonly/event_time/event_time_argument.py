"""Validate ``event_time=``: watermark column, callback or writers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from onceonly.errors import caution, nearest, refuse
from onceonly.errors.options import Column, Duration, checks_arguments, meaningless, misused, unfit
from onceonly.event_time.marker_sources import Peers
from onceonly.event_time.upstream import FromUpstream, Upstream
from onceonly.machine.event_time import MOST_WRITERS, EventTimeConfig
from onceonly.machine.facts import Happening
from onceonly.machine.writer_progress import WriterSet
from onceonly.protocol import Inspectable, Sink
from onceonly.protocol.capabilities import implements
from onceonly.protocol.row_times import TimedEpoch
from onceonly.spark.engine import QueryPlan, Run
from onceonly.spark.row_times import RowLimit
from onceonly_checkpoints import epoch_time
from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import shorten_list

Says = Callable[[TimedEpoch], object]


@checks_arguments
@dataclass(frozen=True, slots=True)
class EventTime:
    """Event time of rows by a column, and completeness after each epoch.

    Each epoch records the greatest time so far minus ``max_delay``: every row before it is committed. onceonly cannot
    prove ``max_delay``, but checks each row against it. A row behind the recorded time is written all the same, and
    counted as late. The recorded time never goes back.

    Args:
        column: exact name of a column that rows have after ``transform=``, of type ``timestamp``.
        max_delay: the longest that a row may come after one of a later time: ``"2 minutes"``, or ``"0s"`` for rows in
            order. For ``unit="integer"`` a number. There is no default, since it depends on the source.
        unit: ``"ms"``, or ``"integer"`` for a column of increasing integers: block heights, versions.
        callback: in place of ``max_delay``: a function that is called for each epoch, as for ``event_time=``.
        idle: after this time without input, ``"10 minutes"``, the recorded time follows the clock of the batches, so
            that a silent source does not hold it. It needs batches, which a ``heartbeat`` gives. Rows that come for
            that time are late.
        ahead: how far a row's time may be ahead of the clock of its batch, ``"1 hour"``. A row beyond is invalid where
            there is a quarantine, and else stops the query (E530): it would move the recorded time for good.

    Raises:
        ConfigurationError: E110, an argument without meaning.

    Example:
        ``exactly_once(sink, event_time=EventTime("event_time", max_delay="2 minutes"))``
    """

    column: Column
    max_delay: str | int | None = field(default=None, kw_only=True)
    unit: Unit = field(default="ms", kw_only=True)
    callback: Says | None = field(default=None, kw_only=True)
    idle: Duration | None = field(default=None, kw_only=True)
    ahead: Duration | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, period in (("idle", self.idle), ("ahead", self.ahead)):
            if period and (self.unit != "ms" or (name == "idle" and self.callback)):
                cause = "there is no clock of whole numbers" if self.unit != "ms" else "the callback gives the time"
                raise unfit("EventTime", f"{name}={period!r}", cause, f"leave {name}= out")
        if self.callback is None:
            self._behind()
        elif self.max_delay is not None or not callable(self.callback):
            expected = "a function of a TimedEpoch, in place of max_delay="
            raise meaningless("EventTime", "callback", self.callback, expected)

    def _behind(self) -> int:
        if self.unit == "integer":
            number = self.max_delay
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= END:
                expected = 'a whole number from 0 on, beside unit="integer": max_delay=1'
                raise meaningless("EventTime", "max_delay", number, expected)
            return number
        milliseconds = epoch_time.milliseconds(self.max_delay)
        if milliseconds is None:
            expected = 'a whole number and a unit: max_delay="2 minutes", max_delay="0s"'
            raise meaningless("EventTime", "max_delay", self.max_delay, expected)
        return milliseconds

    @property
    def noting(self) -> EventTimeConfig:
        """Configuration for the machine."""
        if self.callback is not None:
            return EventTimeConfig("function", self.unit, self.column, ahead=epoch_time.milliseconds(self.ahead))
        idle, ahead = epoch_time.milliseconds(self.idle), epoch_time.milliseconds(self.ahead)
        return EventTimeConfig("rows", self.unit, self.column, self._behind(), idle=idle, ahead=ahead)


Word = EventTime | FromUpstream | Literal["ingest", "watermark"] | Says
"""Event time of one writer."""


@checks_arguments
@dataclass(frozen=True, slots=True)
class Writers:
    """Event time of a dataset that several pipelines write. They share a target, or one of several.

    Each commit records its own writer's completeness. It also records that of the dataset, as far as this writer has
    seen the others: the least that active writers have recorded. No writer takes a lock, and readers need no rule of
    their own.

    Args:
        event_time: event time of this writer, as ``event_time=`` of a single writer.
        writers: names of the pipelines without which nothing is complete, seen or not, with this one. Any other writer
            in a target counts from its first epoch on. A topic does not show its writers, so name them if all targets
            are topics.
        timeout: after this time without a commit a writer is left out, ``"10 minutes"``, by the recorded clocks of the
            engines. The commit that leaves it out records that. Use more than the longest epoch plus the difference of
            clocks. By default it is never left out.

    Raises:
        ConfigurationError: E110, an argument without meaning. E135, a name twice. E136, too many writers.

    Example:
        ``Writers(EventTime("event_time", max_delay="2 minutes"), writers=("web", "app"), timeout="10 minutes")``
    """

    event_time: Word
    writers: Sequence[str] = field(default=(), kw_only=True)
    timeout: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        names = self.writers
        listed = isinstance(names, Sequence) and not isinstance(names, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not listed or not all(isinstance(name, str) and name for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise meaningless("Writers", "writers", names, 'names of pipelines: writers=("web", "app")')
        if twice := next((name for name in names if list(names).count(name) > 1), None):
            raise refuse("E135", problem=f'Writers(writers=) names "{twice}" twice', next="name each writer once")
        if len(names) > MOST_WRITERS:
            raise refuse("E136", writers=len(names), most=MOST_WRITERS)
        if self.timeout is not None and not epoch_time.milliseconds(self.timeout):
            raise meaningless("Writers", "timeout", self.timeout, 'a time longer than nothing: timeout="10 minutes"')

    @property
    def said(self) -> WriterSet:
        """Configuration for the machine."""
        return WriterSet(tuple(self.writers), epoch_time.milliseconds(self.timeout))


NoteTime = Word | Writers
"""What ``event_time=`` takes."""


@dataclass(frozen=True, slots=True)
class EventTimeArgument:
    """A checked ``event_time=``. ``says``: the user's function, called for each epoch, if there is one."""

    noting: EventTimeConfig
    says: Says | None
    words: str
    upstream: FromUpstream | None = None

    @property
    def row_limit(self) -> RowLimit | None:
        """The limit of ``ahead=``, or ``None`` for none."""
        ahead, column = self.noting.ahead, self.noting.column
        return None if ahead is None or column is None else RowLimit(column, ahead)

    def other_writers(self, unopened: Sequence[Sink]) -> Peers:
        """A reader of the dataset's other writers. ``unopened`` are sinks that were never opened."""
        return Peers(unopened)

    def source_dataset(self, pipeline: str) -> Upstream | None:
        """A reader of the dataset that the query reads, if its completeness is noted."""
        upstream = self.upstream
        return Upstream(pipeline, copy.copy(upstream.sink), upstream.pipeline, upstream.unit) if upstream else None

    def check_sinks(self, sinks: Sequence[Sink]) -> None:
        """Refuse a dataset whose other writers cannot be found (E135): none is named, and no sink shows them."""
        writers = self.noting.writers
        if writers is None or writers.declared or any(implements(sink, Inspectable, "pipelines") for sink in sinks):
            return
        shown = ", ".join(sink.id for sink in sinks)
        raise refuse(
            "E135",
            problem=f"Writers() names no writers, and {shown} does not show who writes there",
            next='name every writer of the dataset: Writers(..., writers=("web", "app"))',
        )

    def check_plan(self, plan: QueryPlan, pipeline: str) -> None:
        """Refuse a plan with state (E131): its rows do not show which times are still to come."""
        if (self.noting.column or self.upstream) and plan.stateful:
            raise refuse(
                "E131",
                pipeline=pipeline,
                how="FromUpstream" if self.upstream else "EventTime",
                problem="its plan keeps state",
                matter="state delays rows",
                cause="a window, an aggregate, a join of streams or a removal of duplicates before the sink",
                next='use the watermark: exactly_once(..., event_time="watermark"), with df.withWatermark(...)',
            )

    def check_run(self, run: Run, pipeline: str) -> None:
        """Refuse a run whose engine accepts rows behind its watermark, or a dataset that does not name the pipeline.

        Raises E131: as :meth:`check_plan`, and of a watermark under output mode ``complete``. E135: the dataset names
        writers without this pipeline.
        """
        self.check_plan(run.plan, pipeline)
        writers = self.noting.writers
        if writers and writers.declared and pipeline not in writers.declared:
            problem = f'Writers(writers=) does not name "{pipeline}", the pipeline that it was given to'
            listed = ", ".join(f'"{name}"' for name in (*writers.declared, pipeline))
            raise refuse("E135", problem=problem, next=f"name it as well: writers=({listed})")
        if self.noting.by == "watermark" and run.output == "complete":
            raise refuse(
                "E131",
                pipeline=pipeline,
                how="the watermark",
                problem='its output mode is "complete"',
                matter="in that mode Spark also takes rows that are older than the watermark",
                cause='.outputMode("complete")',
                next='.outputMode("append"); or .outputMode("update") and a sink with a key',
            )

    def check_columns(self, pipeline: str, columns: Sequence[tuple[str, str]]) -> None:
        """Refuse rows without a usable time column (E130). ``columns`` has name and type of each written column."""
        column, unit, names = self.noting.column, self.noting.unit, [name for name, _ in columns]
        if column is None:
            return
        kind = dict(columns).get(column)
        if kind is None:
            cause = "the column is spelled in another way, or transform= dropped it"
            problem = f"the rows have no such column{nearest([column], names)}"
            remedy = f"name one of these, or have transform= make it: {shorten_list(names)}"
            raise _timeless(pipeline, column, problem, cause, remedy)
        if kind in _KINDS[unit]:
            return
        remedy = f"make it one in transform=: df.withColumn({column!r}, {_casts(column, kind, unit)})"
        expected = "an instant" if unit == "ms" else "a whole number"
        raise _timeless(pipeline, column, f"it is of type {kind}, which is not {expected}", f"unit={unit!r}", remedy)

    def warnings(self, plan: QueryPlan, pipeline: str) -> tuple[Happening, ...]:
        """Warn about a query that notes a watermark and has none. No warning if its plan is unknown."""
        if self.noting.by != "watermark" or plan.text is None or _WATERMARK in plan.text:
            return ()
        return (Happening(EventKind.WARNED, caution("W704", pipeline=pipeline)),)


def check_event_time(note_time: object) -> EventTimeArgument:
    """Check ``event_time=`` (E110: an unknown form)."""
    if isinstance(note_time, Writers):
        return _of_all(_alone(note_time.event_time), note_time)
    return _alone(note_time)


def _alone(note_time: object) -> EventTimeArgument:
    """Check the event time of one writer (E110: an unknown form)."""
    match note_time:
        case EventTime(callback=None):
            words = f"the greatest {note_time.column} so far, less {note_time.max_delay}"
            words += f"; after {note_time.idle} without input, the recorded clock" if note_time.idle else ""
            return EventTimeArgument(note_time.noting, None, words)
        case EventTime(callback=says):
            return EventTimeArgument(
                note_time.noting, says, f"what {_name(says)} says, with rows by {note_time.column}"
            )
        case FromUpstream():
            return EventTimeArgument(EventTimeConfig("upstream", note_time.unit), None, note_time.words, note_time)
        case "ingest":
            return EventTimeArgument(
                EventTimeConfig("ingest"), None, "the moment at which the engine planned the batch"
            )
        case "watermark":
            return EventTimeArgument(EventTimeConfig("watermark"), None, "the engine's watermark")
        case _ if callable(note_time) and not isinstance(note_time, type):
            return EventTimeArgument(EventTimeConfig("function"), note_time, f"what {_name(note_time)} says")
        case _:
            pass
    expected = (
        'EventTime("event_time", max_delay="2 minutes"), FromUpstream(sink), "ingest", "watermark", a function of a '
        "TimedEpoch, or a Writers"
    )
    raise misused(
        f"exactly_once(event_time={note_time!r}) is not understood.",
        f"event_time= takes {expected}",
        f"give {expected}, or leave event_time= out",
    )


def _name(says: object) -> str:
    return f"{getattr(says, '__name__', type(says).__name__)}()"


def _of_all(own: EventTimeArgument, dataset: Writers) -> EventTimeArgument:
    named = f", among them {', '.join(dataset.writers)}" if dataset.writers else ""
    silent = f"; one that is silent for {dataset.timeout} is left out" if dataset.timeout else ""
    words = f"{own.words}; of the dataset the least that its writers noted{named}{silent}"
    return replace(own, noting=replace(own.noting, writers=dataset.said), words=words)


_KINDS = {"ms": ("timestamp",), "integer": ("tinyint", "smallint", "int", "bigint")}


def _casts(column: str, kind: str, unit: Unit) -> str:
    """Python expression that casts a column to a time.

    A column without a zone gets an example zone, which the user replaces.
    """
    if unit == "integer":
        return f'col({column!r}).cast("bigint")'
    if kind in _KINDS["integer"]:
        return f"timestamp_millis({column!r})"
    zoned = kind in ("timestamp_ntz", "date", "string")
    return f'to_utc_timestamp({column!r}, "Europe/Berlin")' if zoned else f'col({column!r}).cast("timestamp")'


def _timeless(pipeline: str, column: str, problem: str, cause: str, remedy: str) -> Exception:
    return refuse("E130", pipeline=pipeline, column=column, problem=problem, cause=cause, next=remedy)


_WATERMARK = "EventTimeWatermark"
"""Spark's name for the node of ``withWatermark``."""
