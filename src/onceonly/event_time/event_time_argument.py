"""Validate ``note_time=``: watermark column, callback or writers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from onceonly.errors import caution, nearest, refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.event_time.from_upstream import FromUpstream
from onceonly.machine.event_time import MOST_WRITERS, EventTimeConfig
from onceonly.machine.facts import Happening
from onceonly.machine.writer_progress import WriterSet
from onceonly.protocol import Shared, Sink
from onceonly.protocol.row_times import TimedEpoch
from onceonly.spark.engine import QueryPlan, Run
from onceonly_checkpoints import period
from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.ledger import EventKind

Says = Callable[[TimedEpoch], object]


@checks_arguments
@dataclass(frozen=True, slots=True)
class EventTime:
    """Event time of rows by a column, and completeness after each epoch.

    Each epoch notes the greatest time so far minus ``delay``: every row before it is written. onceonly cannot prove a
    declared disorder, but checks each row against it. A row behind the noted time is written all the same, and counted
    as late. The noted time never goes back.

    Args:
        column: exact name of a column that rows have after ``before=``, of type ``timestamp``.
        delay: how long after a row one of an earlier time may arrive: ``"2 minutes"``, or ``"0s"`` for rows in order.
            For ``unit="integer"`` a number. There is no default, since it depends on the source.
        unit: ``"ms"``, or ``"integer"`` for a column of increasing integers: block heights, versions.
        says: in place of ``delay``: a function that is called for each epoch, as for ``note_time=``.

    Raises:
        ConfigurationError: E110, an argument without meaning.

    Example:
        ``exactly_once(sink, note_time=EventTime("event_time", delay="2 minutes"))``
    """

    column: str
    delay: str | int | None = field(default=None, kw_only=True)
    unit: Unit = field(default="ms", kw_only=True)
    says: Says | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _meaningless("column", self.column, 'the name of a column: EventTime("event_time", ...)')
        if self.unit not in ("ms", "integer"):
            raise _meaningless("unit", self.unit, '"ms" or "integer"')
        if self.says is None:
            self._behind()
        elif self.delay is not None or not callable(self.says):
            raise _meaningless("says", self.says, "a function of a TimedEpoch, in place of delay=")

    def _behind(self) -> int:
        """Delay in the unit."""
        if self.unit == "integer":
            number = self.delay
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= END:
                raise _meaningless("delay", number, 'a whole number from 0 on, beside unit="integer": delay=1')
            return number
        found = period.milliseconds(self.delay)
        if found is None:
            raise _meaningless("delay", self.delay, 'a whole number and a unit: delay="2 minutes", delay="0s"')
        return found

    @property
    def noting(self) -> EventTimeConfig:
        """Configuration for the machine."""
        if self.says is not None:
            return EventTimeConfig("function", self.unit, self.column)
        return EventTimeConfig("rows", self.unit, self.column, self._behind())


Word = EventTime | FromUpstream | Literal["ingest", "watermark"] | Says
"""Event time of one writer."""


@checks_arguments
@dataclass(frozen=True, slots=True)
class Dataset:
    """Event time of a dataset that several pipelines write into one target, or into several of which they share one.

    Each commit notes its own writer's completeness. It also notes the completeness of the dataset as far as this writer
    has seen the others: the least that active writers have noted. No writer takes a lock, and readers need no rule of
    their own.

    Args:
        time: event time of this writer, as ``note_time=`` of a single writer.
        writers: names of the pipelines without which nothing is complete, seen or not, with this one. Any other writer
            in a target counts from its first epoch on. A topic does not show its writers, so name them if all targets
            are topics.
        timeout: after this time without a commit a writer is left out, ``"10 minutes"``, by the recorded clocks of the
            engines. The commit that leaves it out notes that. Use more than the longest epoch plus the difference of
            clocks. By default it is never left out.

    Raises:
        ConfigurationError: E110, an argument without meaning. E135, a name twice. E136, too many writers.

    Example:
        ``Dataset(EventTime("event_time", delay="2 minutes"), writers=("web", "app"), timeout="10 minutes")``
    """

    time: Word
    writers: Sequence[str] = field(default=(), kw_only=True)
    timeout: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        names = self.writers
        listed = isinstance(names, Sequence) and not isinstance(names, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not listed or not all(isinstance(name, str) and name for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _meaningless("writers", names, 'names of pipelines: writers=("web", "app")', "Dataset")
        if twice := next((name for name in names if list(names).count(name) > 1), None):
            raise refuse("E135", problem=f'Dataset(writers=) names "{twice}" twice', next="name each writer once")
        if len(names) > MOST_WRITERS:
            raise refuse("E136", writers=len(names), most=MOST_WRITERS)
        if self.timeout is not None and not period.milliseconds(self.timeout):
            raise _meaningless("timeout", self.timeout, 'a time longer than nothing: timeout="10 minutes"', "Dataset")

    @property
    def said(self) -> WriterSet:
        """Configuration for the machine."""
        return WriterSet(tuple(self.writers), period.milliseconds(self.timeout))


NoteTime = Word | Dataset
"""What ``note_time=`` takes."""


@dataclass(frozen=True, slots=True)
class EventTimeArgument:
    """A checked ``note_time=``.

    Attributes:
        says: the user's function, called for each epoch, if there is one.
        words: what is noted, as part of a sentence.
        upstream: the dataset whose completeness is noted, if there is one.
    """

    noting: EventTimeConfig
    says: Says | None
    words: str
    upstream: FromUpstream | None = None


def check_event_time(note_time: object) -> EventTimeArgument | None:
    """Check ``note_time=``.

    Raises:
        ConfigurationError: E110, an unknown form.
    """
    if note_time is None:
        return None
    if isinstance(note_time, Dataset):
        return _of_all(_alone(note_time.time), note_time)
    return _alone(note_time)


def _alone(note_time: object) -> EventTimeArgument:
    """Check the event time of one writer.

    Raises:
        ConfigurationError: E110, an unknown form.
    """
    match note_time:
        case EventTime(says=None):
            words = f"the greatest {note_time.column} so far, less {note_time.delay}"
            return EventTimeArgument(note_time.noting, None, words)
        case EventTime(says=says):
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
    wanted = (
        'EventTime("event_time", delay="2 minutes"), FromUpstream(sink), "ingest", "watermark", a function of a '
        "TimedEpoch, or a Dataset"
    )
    raise refuse(
        "E110",
        problem=f"exactly_once(note_time={note_time!r}) is not understood.",
        cause=f"note_time= takes {wanted}",
        next=f"give {wanted}, or leave note_time= out",
    )


def _name(says: object) -> str:
    return f"{getattr(says, '__name__', type(says).__name__)}()"


def _of_all(own: EventTimeArgument, dataset: Dataset) -> EventTimeArgument:
    named = f", among them {', '.join(dataset.writers)}" if dataset.writers else ""
    silent = f"; one that is silent for {dataset.timeout} is left out" if dataset.timeout else ""
    words = f"{own.words}; of the dataset the least that its writers noted{named}{silent}"
    return replace(own, noting=replace(own.noting, writers=dataset.said), words=words)


def _check_writer(time: EventTimeArgument | None, pipeline: str) -> None:
    writers = time.noting.writers if time else None
    if writers and writers.declared and pipeline not in writers.declared:
        problem = f'Dataset(writers=) does not name "{pipeline}", the pipeline that it was given to'
        listed = ", ".join(f'"{name}"' for name in (*writers.declared, pipeline))
        raise refuse("E135", problem=problem, next=f"name it as well: writers=({listed})")


def check_sinks(time: EventTimeArgument | None, sinks: Sequence[Sink]) -> None:
    """Refuse a dataset whose other writers cannot be found.

    Raises:
        ConfigurationError: E135, no writer is named, and no sink shows its other writers.
    """
    writers = time.noting.writers if time else None
    if writers is None or writers.declared or any(isinstance(sink, Shared) for sink in sinks):
        return
    shown = ", ".join(sink.id for sink in sinks)
    raise refuse(
        "E135",
        problem=f"Dataset() names no writers, and {shown} does not show who writes there",
        next='name every writer of the dataset: Dataset(..., writers=("web", "app"))',
    )


def check_plan(time: EventTimeArgument | None, plan: QueryPlan, pipeline: str) -> None:
    """Refuse a plan with state: its rows do not show which times are still to come.

    Raises:
        ConfigurationError: E131.
    """
    if time and (time.noting.column or time.upstream) and plan.stateful:
        raise refuse(
            "E131",
            pipeline=pipeline,
            how="FromUpstream" if time.upstream else "EventTime",
            problem="its plan keeps state",
            matter="rows that state holds back come out later than others of their time",
            cause="a window, an aggregate, a join of streams or a removal of duplicates stands before the sink",
            next='use the engine\'s own word, exactly_once(..., note_time="watermark"), with df.withWatermark(...)',
        )


def check_run(time: EventTimeArgument | None, run: Run, pipeline: str) -> None:
    """Refuse a run whose engine accepts rows behind its watermark, or a dataset that does not name the pipeline.

    Raises:
        ConfigurationError: E131, as :func:`check_plan`, and of a watermark under output mode ``complete``. E135, the
            dataset names writers without this pipeline.
    """
    check_plan(time, run.plan, pipeline)
    _check_writer(time, pipeline)
    if time and time.noting.by == "watermark" and run.output == "complete":
        raise refuse(
            "E131",
            pipeline=pipeline,
            how="the watermark",
            problem='its output mode is "complete"',
            matter="in that mode rows that are older than the watermark are taken all the same",
            cause='.outputMode("complete")',
            next='.outputMode("append"); or .outputMode("update") and a sink with a key',
        )


def check_columns(time: EventTimeArgument | None, pipeline: str, columns: Sequence[tuple[str, str]]) -> None:
    """Refuse rows without a usable time column. ``columns`` has name and type of each column that is written.

    Raises:
        ConfigurationError: E130.
    """
    if time is None or time.noting.column is None:
        return
    column, names = time.noting.column, [name for name, _ in columns]
    kind = dict(columns).get(column)
    if kind is None:
        cause = "the column is spelled in another way, or before= dropped it"
        problem = f"the rows have no such column{nearest([column], names)}"
        way = f"name one of these, or have before= make it: {', '.join(names)}"
        raise _timeless(pipeline, column, problem, cause, way)
    if kind in _KINDS[time.noting.unit]:
        return
    way = f"make it one in before=: df.withColumn({column!r}, {_casts(column, kind, time.noting.unit)})"
    wanted = "an instant" if time.noting.unit == "ms" else "a whole number"
    raise _timeless(pipeline, column, f"it is of type {kind}, which is not {wanted}", f"unit={time.noting.unit!r}", way)


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


def _timeless(pipeline: str, column: str, problem: str, cause: str, way: str) -> Exception:
    return refuse("E130", pipeline=pipeline, column=column, problem=problem, cause=cause, next=way)


def timeless(time: EventTimeArgument | None, plan: QueryPlan, pipeline: str) -> tuple[Happening, ...]:
    """Warn about a query that notes a watermark and has none. No warning if its plan is unknown."""
    if time is None or time.noting.by != "watermark" or plan.text is None or _WATERMARK in plan.text:
        return ()
    return (Happening(EventKind.WARNED, caution("W704", pipeline=pipeline)),)


_WATERMARK = "EventTimeWatermark"
"""Spark's name for the node of ``withWatermark``."""


def _meaningless(argument: str, value: object, wanted: str, of: str = "EventTime") -> Exception:
    return refuse(
        "E110",
        problem=f"{of}({argument}={value!r}) is not understood.",
        cause=f"{argument}= takes {wanted}",
        next=f"give {wanted}",
    )
