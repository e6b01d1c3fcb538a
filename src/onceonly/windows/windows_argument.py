"""Check ``windows=`` against sinks, ``event_time=`` and plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine.division_rules import WindowsConfig
from onceonly.protocol import Estimate, HostsStores, Sink
from onceonly.protocol.batch import Trim
from onceonly.protocol.capabilities import WindowStore
from onceonly.quality.spark_outputs import DividedBatch, beyond_a_row
from onceonly.spark import expression_check, frames
from onceonly.spark.engine import QueryPlan
from onceonly.windows import late_rows, spark_partials
from onceonly.windows.epoch_step import Targets, WindowStepper
from onceonly.windows.rules.assigners import Custom, Global, Sessions, wrong
from onceonly.windows.rules.spec import SENT, Definition, Windows, define
from onceonly.windows.rules.state import pane_table
from onceonly.windows.rules.values import Last, Max, Min
from onceonly.windows.spark_batch import ChainedBatch, WindowedBatch
from onceonly_checkpoints.digests import LATE, RECORDS, STATE, WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from onceonly.event_time.event_time_argument import EventTimeArgument


@dataclass(frozen=True, slots=True)
class WindowsArgument:
    """Panes of a call, with the sinks of state and of late rows. Without the latter, late rows are only counted.

    ``records`` is the id of a sink that makes records of results, or empty for none.
    """

    panes: Windows
    keeper: WindowStore
    late: Sink | None
    records: str = ""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Sinks of other rows than panes."""
        return (*([self.late] if self.late else []), self.keeper)

    def targets(self, sinks: Sequence[Sink]) -> Targets:
        """Assign all sinks of the call to panes, state and late rows."""
        results = [sink for sink in sinks if sink not in self.sinks]
        topics = [sink for sink in results if self.panes.records and sink.capabilities.records]
        panes = tuple(sink.id for sink in results if sink not in topics)
        late = self.late.id if self.late else None
        return Targets(panes, self.keeper.id, late, tuple(sink.id for sink in topics))

    def defined(self, pipeline: str, rows: DataFrame, time: EventTimeArgument | None) -> Definition:
        """Return the windows over such rows.

        ``rows`` are as a query without panes would write them, of a stream as well. ``time`` is how the query notes
        time. Raises E121: an expression is not one on a row; E140: the rows or the time of the query do not fit the
        windows; E144.
        """
        definition = define(self.panes, dict(rows.dtypes), spark_partials.kinds_of(pipeline, rows, self.panes))
        if time and time.noting.unit != definition.unit and time.noting.column:
            raise wrong(
                f"windows count time in {definition.unit!r}, and event_time= in {time.noting.unit!r}",
                "one of them is of instants and the other of whole numbers",
                "give both the same column, and sizes in its unit",
            )
        if self.late and (column := next((name for name in rows.columns if name.lower() in late_rows.ADDED), None)):
            raise wrong(
                f"rows have a column {column}, and late_rows= adds one of this name",
                "a late row is kept with its window and the recorded time",
                f'give it another name: transform=lambda df: df.withColumnRenamed("{column}", "{column}_")',
            )
        columns = dict(zip(definition.panes.keys, definition.key_kinds, strict=True))
        columns |= dict(zip(definition.panes.aggregates, definition.value_kinds, strict=True))
        if self.panes.records:
            columns = self._record(pipeline, definition, rows.sparkSession)
        self.check_records(columns)
        return definition

    def _record(self, pipeline: str, definition: Definition, session: SparkSession) -> dict[str, str]:
        results = frames.of_arrow(session, pane_table(definition, []))
        try:
            made = results.selectExpr(*self.panes.records)
        except Exception as error:  # of Spark's many classes: what it says is what the user needs
            raise expression_check.unread("Windows(records=)", pipeline, results, error) from error
        if sorted(made.columns) not in (["key", "value"], ["value"]):
            raise _no_record(self.records or "a topic", f"records= makes the columns {', '.join(made.columns)}")
        if reason := beyond_a_row(results, made):
            raise expression_check.not_row_by_row("Windows(records=)", pipeline, reason)
        return dict(made.dtypes)

    def check_records(self, columns: Mapping[str, str]) -> None:
        """Refuse results whose parts of a record are neither text nor bytes (E140)."""
        if not self.records:
            return
        for part in ("key", "value"):
            if (kind := columns.get(part, "string")) not in ("string", "binary"):
                raise _no_record(self.records, f"column {part} of window results is {kind}")

    @staticmethod
    def windows(definition: Definition) -> WindowsConfig:
        """Return the windows as the machine takes them."""
        fields = (definition.fingerprint, definition.meaning, definition.lateness, definition.panes.max_open)
        return WindowsConfig(*fields, overlap=definition.overlap, closing=definition.closing)

    @property
    def words(self) -> str:
        """The part that affects the guarantee, in words."""
        return f"{self.panes.words}; state in {self.keeper.id}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of results."""
        return (*self.panes.keys, *self.panes.aggregates, *SENT)

    @property
    def contents(self) -> dict[str, str]:
        """Contents of the sinks that do not get panes, in words, by sink id."""
        return {self.keeper.id: "windows"} | ({self.late.id: "late rows"} if self.late else {})

    @property
    def arguments(self) -> dict[str, object]:
        """The keyword argument, by name."""
        return {"windows": self.panes}

    def promise(self, sinks: Sequence[Sink]) -> dict[str, tuple[str, str]]:
        """By sink id, the name and the words of the rows that it gets. ``sinks`` get panes."""
        topics = self.targets(sinks).records
        outputs = {sink.id: (RECORDS if sink.id in topics else WINDOWS, self.words) for sink in sinks}
        outputs[self.keeper.id] = STATE, "every window that is open, as the newest epoch left it"
        if self.late:
            outputs[self.late.id] = LATE, "every row that came after its window was closed"
        return outputs

    def resolve(self, plan: QueryPlan, pipeline: str, rows: DataFrame, time: EventTimeArgument | None) -> Definition:
        """The windows over rows of a query, as in :meth:`defined`.

        Raises E141: the plan keeps state of its own. E121, E140 or E144, as :meth:`defined`.
        """
        if plan.stateful:
            raise refuse("E141", query=pipeline)
        return self.defined(pipeline, rows, time)

    def batch(
        self,
        rows: DataFrame,
        definition: Definition,
        sinks: Sequence[Sink],
        size: Estimate,
        without: Callable[[Trim], DataFrame],
    ) -> WindowedBatch:
        """A micro-batch with windows, whose results are for ``sinks``. ``without`` makes the rows of a trimmed one."""
        return WindowedBatch(rows, self._stepper(definition, sinks), size, without)

    def chain(self, divided: DividedBatch, definition: Definition, sinks: Sequence[Sink]) -> DividedBatch:
        """Have the good rows of a divided micro-batch go through windows, whose results are for ``sinks``."""
        divided.windowing = partial(ChainedBatch, self._stepper(definition, sinks))
        return divided

    def _stepper(self, definition: Definition, sinks: Sequence[Sink]) -> WindowStepper:
        return WindowStepper(definition, self.keeper, self.targets(sinks))

    @staticmethod
    def ordered_by(definition: Definition) -> Iterator[tuple[str, str, str]]:
        """The columns that order rows: the argument in words, the column, its type."""
        for name, value in definition.panes.aggregates.items():
            if isinstance(value, Last | Max | Min):
                by = value.by if isinstance(value, Last) else value.column
                yield f"{type(value).__name__} in aggregates= ({name})", by, definition.input_kinds.get(by, "")

    def reword(self, refused: OnceOnlyError) -> OnceOnlyError:
        """Reword E505 for panes: several results of one window, not several rows of a key."""
        details = refused.details
        if refused.code != "E505" or details["sink"] in {sink.id for sink in self.sinks}:
            return refused
        remedy = (
            'append the results: leave key= out; or upsert them, under another name=: Windows(..., results="upserts")'
        )
        return refuse("E505", sink=details["sink"], key=details["key"], example=details["example"], next=remedy)


def check_windows(panes: object, sinks: Sequence[Sink], time: EventTimeArgument | None) -> WindowsArgument:
    """Find the sinks that panes take, and refuse arguments that do not fit them.

    ``sinks`` are those of the call that get results, in order. Raises E140, E143.
    """
    if not isinstance(panes, Windows):
        raise wrong(
            f"windows={panes!r} defines no windows",
            "windows= takes a Windows",
            'give Windows(key="team", aggregates={"total": Sum("value")}, time="event_time", '
            'window=Tumbling("2 minutes"))',
        )
    if not sinks:
        raise wrong(
            "windows= has no sink for its results",
            "each sink of the call is in an Output or a Route, and gets rows",
            'name one beside them: exactly_once(Output(pg.table("sales"), name="sales"), pg.table("totals"), ...)',
        )
    if panes.needs_time and time is None:
        raise wrong(
            "windows= closes windows by time, and event_time= is missing",
            "event_time= is missing",
            f'add event_time=EventTime("{panes.time}", max_delay="2 minutes")',
        )
    if panes.time == "ingest" and (time is None or time.noting.by != "ingest"):
        problem = "windows= takes rows by the moment of their batch, and event_time= does not"
        raise wrong(problem, 'time="ingest"', 'add event_time="ingest"')
    late = panes.late_rows if panes.late_rows != "count" else None
    if late is not None and not isinstance(late, Sink):
        raise wrong(
            f"late_rows={late!r} is no sink", "it takes one, or counts", 'give late_rows=pg.table("late"), or "count"'
        )
    for sink in sinks:
        _check_key(panes, sink)
    keeper, records = _keeper(panes, sinks), next((sink.id for sink in sinks if sink.capabilities.records), "")
    if records and not panes.records and "value" not in (*panes.keys, *panes.aggregates):
        raise _no_record(records, "window results have no column value")
    return WindowsArgument(panes, keeper, late, records)


def _check_key(panes: Windows, sink: Sink) -> None:
    """Refuse a sink whose rows replace one another by another key than their window."""
    changes = sink.capabilities.changes
    if changes.sequence is not None:
        raise wrong(
            f"{sink.id} has sequence={changes.sequence!r}",
            "results of a window are ordered by their epochs, and seq begins at 0 in each of them",
            "leave sequence= out: the result of the later epoch wins",
        )
    if not changes.key:
        return
    window, needed = _named_by(panes)
    allowed = {*needed, *window} if panes.results == "upserts" else {*needed, *changes.key}
    if not set(needed) <= set(changes.key) <= allowed:
        raise wrong(
            f"{sink.id} has key=({', '.join(changes.key)}), and a window is named by ({', '.join(needed)})",
            "results of other windows would be replaced, or old results of a window would stay",
            f"give the sink key={needed!r}, and its table a unique index on these columns",
        )


def _named_by(panes: Windows) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that locate a window, and those that identify one of a key."""
    if isinstance(panes.window, Global):
        return (), panes.keys  # both ends are null
    ends = ("window_start", "window_end")
    return ends, (*panes.keys, *(ends if isinstance(panes.window, Sessions | Custom) else ends[:1]))


def _no_record(sink: str, problem: str) -> Exception:
    return wrong(
        f"{sink} takes records, and {problem}",
        "a record is made of the columns key and value, text or bytes; other columns of a window result are not in it",
        'make both of a result: Windows(..., records=["CAST(team AS STRING) AS key", "to_json(struct(*)) AS value"])',
    )


def _keeper(panes: Windows, sinks: Sequence[Sink]) -> WindowStore:
    separate = panes.state_sink is None
    named: Sequence[object] = sinks if separate else (panes.state_sink,)
    hosts = [sink for sink in named if isinstance(sink, HostsStores) and isinstance(sink, Sink)]
    # A database first: it commits state with results, and looks windows up by an index.
    hosts.sort(key=lambda sink: not sink.capabilities.carries_ledger)
    stores = (sink.window_store(separate=separate) for sink in hosts)
    keeper = next((store for store in stores if store is not None), None)
    if keeper is None:
        hosts_none = "none of the sinks can" if separate else f"state_sink={panes.state_sink!r} cannot"
        raise refuse("E143", problem=f"{hosts_none} hold windows and be asked for them", next=_STORE_REMEDY)
    if sink_id := next((sink.id for sink in sinks if keeper.id == sink.id), None):
        raise refuse("E143", problem=f"{sink_id} takes rows in the same call", next=_STORE_REMEDY)
    return keeper


_STORE_REMEDY = (
    "name a table of Postgres or Delta that is for this alone: "
    'Windows(..., state_sink=pg.table("scores_state")), or state_sink=DeltaSink("/lake/scores_state")'
)
