"""Check ``panes=`` against sinks, ``note_time=`` and plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from onceonly.errors import OnceOnlyError, refuse
from onceonly.event_time import event_time_argument
from onceonly.machine.window_rules import WindowsConfig
from onceonly.protocol import KeepsState, RecallsState, Sink
from onceonly.spark.engine import QueryPlan
from onceonly.windows import late_rows, spark_partials
from onceonly.windows.epoch_step import Targets
from onceonly.windows.rules.assigners import Global, Sessions
from onceonly.windows.rules.spec import Definition, Panes, define

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame


@runtime_checkable
class StateSink(Sink, RecallsState, Protocol):
    """A sink that holds the state of windows and can recall it."""


@dataclass(frozen=True, slots=True)
class WindowsArgument:
    """Panes of a call, with the sink of state.

    ``late`` is the sink of late rows, or ``None`` if they are only counted. ``records`` is the id of a sink of results
    that makes records of them, or empty.
    """

    panes: Panes
    keeper: StateSink
    late: Sink | None
    records: str = ""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that do not get panes."""
        return (*([self.late] if self.late else []), self.keeper)

    def targets(self, sinks: Sequence[Sink]) -> Targets:
        """Ids by output, of all sinks of the call."""
        panes = tuple(sink.id for sink in sinks if sink not in self.sinks)
        return Targets(panes, self.keeper.id, self.late.id if self.late else None)

    def defined(self, pipeline: str, rows: DataFrame, time: event_time_argument.EventTimeArgument | None) -> Definition:
        """The windows over rows as they would be written without panes. The rows may be a stream.

        ``time`` is the ``note_time=`` of the query.

        Raises:
            ConfigurationError: E121, an expression is not one on a row. E140, the rows or the time of the query do not
                fit. E144, a sum of floating point.
        """
        definition = define(self.panes, dict(rows.dtypes), spark_partials.kinds_of(pipeline, rows, self.panes))
        if time and time.noting.unit != definition.unit and time.noting.column:
            raise _unmeant(
                f"windows count time in {definition.unit!r}, and note_time= in {time.noting.unit!r}",
                "one of them is of instants and the other of whole numbers",
                "give both the same column, and sizes in its unit",
            )
        if self.late and (taken := next((name for name in rows.columns if name.lower() in late_rows.ADDED), None)):
            raise _unmeant(
                f"rows have a column {taken}, and late_rows= adds one of this name",
                "a late row is kept with its window and with what was noted",
                f'call it otherwise: before=lambda df: df.withColumnRenamed("{taken}", "{taken}_")',
            )
        self.check_records(definition)
        return definition

    def check_records(self, definition: Definition) -> None:
        """Refuse results whose parts of a record are neither text nor bytes.

        Raises:
            ConfigurationError: E140.
        """
        if not self.records:
            return
        columns = dict(zip(definition.panes.keys, definition.key_kinds, strict=True))
        columns |= dict(zip(definition.panes.values, definition.value_kinds, strict=True))
        for part in ("key", "value"):
            if (kind := columns.get(part, "string")) not in ("string", "binary"):
                raise _no_record(self.records, f"column {part} of pane rows is {kind}")

    @staticmethod
    def windows(definition: Definition) -> WindowsConfig:
        """Windows in the form of the machine."""
        said = (definition.fingerprint, definition.meaning, definition.lateness, definition.panes.at_most)
        return WindowsConfig(*said, overlap=definition.overlap, closing=definition.closing)

    @property
    def words(self) -> str:
        """Its part of the guarantee, in words."""
        return f"{self.panes.words}; state in {self.keeper.id}"


def check_windows(
    panes: Panes | None, sinks: Sequence[Sink], time: event_time_argument.EventTimeArgument | None, others: str = ""
) -> WindowsArgument | None:
    """Find the sinks that panes need, and refuse conflicting arguments.

    ``time`` is the ``note_time=`` of the query. ``others`` names another argument that divides rows, or is empty.

    Raises:
        ConfigurationError: E140, E143.
    """
    if panes is None:
        return None
    if not isinstance(panes, Panes):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise _unmeant(
            f"panes={panes!r} defines no windows",
            "panes= takes a Panes",
            'give Panes(key="team", values={"total": Sum("value")}, time="event_time", window=Fixed("2 minutes"))',
        )
    if others:
        raise _unmeant(
            f"{others} was given beside panes=",
            "rows are aggregated as they come, before anything else could take some of them apart",
            f"leave {others} out, and write good rows by a query of its own that this one reads",
        )
    if panes.needs_time and time is None:
        raise _unmeant(
            "panes= closes windows by time, and nobody says what is complete",
            "note_time= is missing",
            f'add note_time=EventTime("{panes.time}", delay="2 minutes")',
        )
    if panes.time == "ingest" and (time is None or time.noting.by != "ingest"):
        said = "panes= takes rows by the moment of their batch, and note_time= does not"
        raise _unmeant(said, 'time="ingest"', 'add note_time="ingest"')
    late = panes.late_rows if panes.late_rows != "count" else None
    if late is not None and not isinstance(late, Sink):
        raise _unmeant(
            f"late_rows={late!r} is no sink", "it takes one, or counts", 'give late_rows=pg.table("late"), or "count"'
        )
    for sink in sinks:
        _check_key(panes, sink)
    keeper, records = _keeper(panes, sinks), next((sink.id for sink in sinks if sink.capabilities.records), "")
    if records and "value" not in (*panes.keys, *panes.values):
        raise _no_record(records, "pane rows have no column value")
    return WindowsArgument(panes, keeper, late, records)


def _check_key(panes: Panes, sink: Sink) -> None:
    """Refuse a sink whose key does not identify a window."""
    changes = sink.capabilities.changes
    if changes.sequence is not None:
        raise _unmeant(
            f"{sink.id} has sequence={changes.sequence!r}",
            "results of a window are ordered by their epochs, and seq begins at 0 in each of them",
            "leave sequence= out: the result of the later epoch wins",
        )
    if not changes.key:
        return
    window, needed = _named_by(panes)
    allowed = {*needed, *window} if panes.rows == "upserts" else {*needed, *changes.key}
    if not set(needed) <= set(changes.key) <= allowed:
        raise _unmeant(
            f"{sink.id} has key=({', '.join(changes.key)}), and a window is named by ({', '.join(needed)})",
            "results of other windows would be replaced, or old results of a window would stay",
            f"give the sink key={needed!r}, and its table a unique index on these columns",
        )


def _named_by(panes: Panes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns of a window's bounds, and those that identify a window."""
    if isinstance(panes.window, Global):
        return (), panes.keys  # both ends are null
    ends = ("window_start", "window_end")
    return ends, (*panes.keys, *(ends if isinstance(panes.window, Sessions) else ends[:1]))


def said_of(chosen: WindowsArgument | None, refused: OnceOnlyError) -> OnceOnlyError:
    """Reword E505 for panes: several results of one window, not several rows of a key."""
    said = refused.details
    if chosen is None or refused.code != "E505" or said["sink"] in {sink.id for sink in chosen.sinks}:
        return refused
    way = 'append the results: leave key= out; or upsert them, under another name=: Panes(..., rows="upserts")'
    return refuse("E505", sink=said["sink"], key=said["key"], example=said["example"], next=way)


def _no_record(sink: str, problem: str) -> Exception:
    return _unmeant(
        f"{sink} takes records, and {problem}",
        "a record is made of the columns key and value, text or bytes; other columns of a pane row are not in it",
        'call them so: Panes(key="key", values={"value": ...}), with the key from before= and a value that is text: '
        'Last("name", by="event_time"), or an Aggregate with kind = "string"; or give a sink of Postgres or Delta',
    )


def _keeper(panes: Panes, sinks: Sequence[Sink]) -> StateSink:
    if panes.state is not None and not isinstance(panes.state, KeepsState):
        raise refuse("E143", problem=f"state={panes.state!r} cannot hold windows and be asked for them", next=_WAY)
    keeps = panes.state or next((sink for sink in sinks if isinstance(sink, KeepsState)), None)
    if not isinstance(keeps, KeepsState):
        raise refuse("E143", problem="none of the sinks can hold windows and be asked for them", next=_WAY)
    found = keeps.state_keeper(beside=panes.state is None)
    if not isinstance(found, StateSink):
        raise refuse("E143", problem=f"{keeps!r} cannot be asked for windows", next=_WAY)
    if taken := next((sink.id for sink in sinks if found.id == sink.id), None):
        raise refuse("E143", problem=f"{taken} takes rows in the same call", next=_WAY)
    return found


_WAY = 'name a table of Postgres: Panes(..., state=pg.table("scores_state"))'


def refuse_state(plan: QueryPlan, query: str) -> None:
    """Refuse a plan that keeps state of its own.

    Raises:
        ConfigurationError: E141.
    """
    if plan.stateful:
        raise refuse("E141", query=query)


def _unmeant(problem: str, cause: str, way: str) -> Exception:
    return refuse("E140", problem=problem, cause=cause, next=way)
