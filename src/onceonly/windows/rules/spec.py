"""``Windows(...)``: the definition of windows, checked against known columns.

The four questions are those of the Dataflow model: which results are computed, where in event time, when in processing
time they are written, and how refinements relate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from onceonly.errors import nearest, refuse
from onceonly.windows.rules import json_values, triggers
from onceonly.windows.rules.assigners import (
    LEAST,
    Custom,
    Global,
    Sessions,
    Size,
    Sliding,
    Span,
    Tumbling,
    Window,
    length,
    unit_of,
    wrong,
)
from onceonly.windows.rules.triggers import AT_WATERMARK, AtMark, AtWatermark, Trigger, complete_trigger
from onceonly.windows.rules.values import Aggregate, Fold, Last, Value
from onceonly_checkpoints.epoch_time import END, ResultSchema, Unit
from onceonly_checkpoints.model import canonical, shorten_list

INGEST = "ingest"
"""Time of rows that are of the moment in which their batch was planned."""

UNLIMITED = "unlimited"

Accumulation = Literal["discarding", "accumulating", "retracting"]

SENT = (
    "window_start",
    "window_end",
    "kind",
    "sign",
    "timing",
    "pane",
    "final",
    "fired_at",
    "watermark",
    "seq",
    "deleted",
)
"""Columns that a pane row has beside key and values."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows over the rows of a query. Its sinks get results instead of rows.

    Each is written exactly once, with the state of its window and the time, in the transaction of the epoch.

    Args:
        key: columns to group rows by. Null is a key.
        aggregates: aggregates of the rows of a window, by the name of the result's column.
        time: event time of a row: an instant, or a whole number. ``"ingest"``: the moment at which its batch was
            planned, together with ``event_time="ingest"``.
        window: ``Tumbling``, ``Sliding``, ``Sessions``, ``Global`` or ``Custom``.
        trigger: when results are written. ``AtPeriod``, ``AtCount`` or ``AtMark`` alone is repeated.
        allowed_lateness: how long a window takes rows after the watermark passed its end. ``"unlimited"``: until the
            writer ends.
        accumulation: how results of one window relate. ``"discarding"``: each is of the rows since the last one.
            ``"accumulating"``: of all so far. ``"retracting"``: of all so far, and the result before is retracted by
            the same row with sign -1.
        on_time: whether there is a result ``"always"`` when the watermark passes the end of a window, or only if it
            ``"changed"`` since the last one.
        results: ``"changes"``: a row for each result and each retraction, to append. ``"upserts"``: the last one of an
            epoch for each window, with a column ``deleted``, for a sink with ``key=`` and ``delete_flag="deleted"``.
        records: key and value of a topic's records, in Spark SQL over the columns of a result: ``["team AS key",
            "to_json(struct(*)) AS value"]``. ``"IF(deleted, NULL, ...) AS value"`` makes tombstones of upserts.
        late_rows: treatment of rows whose window is closed: ``"count"``, or a sink that gets them.
        max_open: limit for open windows. An epoch that would leave more is refused. Default: any number.
        state_sink: table for open windows, ``pg.table("scores_state")``, without any other rows. Default: a table
            beside that of the first sink in Postgres, or without one in Delta.

    Raises:
        ConfigurationError: E140, an invalid definition; E145, upserts that would leave rows behind.
    """

    key: str | Sequence[str]
    aggregates: Mapping[str, Value]
    time: str
    window: Window
    trigger: Trigger = AT_WATERMARK
    allowed_lateness: Size = "0s"
    accumulation: Accumulation = "accumulating"
    on_time: Literal["always", "changed"] = "always"
    results: Literal["changes", "upserts"] = "changes"
    records: Sequence[str] = ()
    late_rows: object = "count"
    max_open: int | None = None
    state_sink: object = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _check_columns(self)
        _check_choices(self)
        _check_shape(self)

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of the key."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def needs_time(self) -> bool:
        """Whether it waits for noted time."""
        return self.trigger.holds(AtWatermark) or _lateness(self) > 0

    @property
    def expressions(self) -> tuple[str, ...]:
        """Inputs of the values: columns, or Spark SQL on one row."""
        return tuple(dict.fromkeys(text for value in self.aggregates.values() for text in value.inputs))

    @property
    def bounds(self) -> tuple[str, ...]:
        """Start and end of a row's window, if rows name theirs: columns, or Spark SQL on one row."""
        return (self.window.start, self.window.end) if isinstance(self.window, Custom) else ()

    @property
    def marks(self) -> str | None:
        """Condition of ``AtMark``, or ``None`` without one."""
        return next((trigger.condition for trigger in _all(self.trigger) if isinstance(trigger, AtMark)), None)

    @property
    def words(self) -> str:
        """The definition in words."""
        kind = type(self.window).__name__.lower()
        return f"{', '.join(self.aggregates)} of {', '.join(self.keys)} in {kind} windows, {self.accumulation}"


def _all(trigger: Trigger) -> list[Trigger]:
    return [trigger, *(nested for part in trigger.parts for nested in _all(part))]


def _check_columns(panes: Windows) -> None:
    keys = panes.keys if isinstance(panes.key, Sequence) else ()  # pyright: ignore[reportUnnecessaryIsInstance]
    if not keys or not all(isinstance(name, str) and name for name in keys) or len(set(keys)) < len(keys):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"key={panes.key!r}", "it names no columns, or one twice", 'give columns: key="team"')
    values: object = panes.aggregates
    fit = isinstance(values, Mapping) and bool(panes.aggregates)  # pyright: ignore[reportUnnecessaryIsInstance]
    entries = panes.aggregates.items() if fit else ()
    if not entries or not all(isinstance(name, str) and isinstance(value, Value) for name, value in entries):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"aggregates={values!r}", "it names no results", 'give aggregates={"total": Sum("value")}')
    for name, aggregate in panes.aggregates.items():
        if not all(isinstance(text, str) and text.strip() for text in aggregate.inputs):  # pyright: ignore[reportUnnecessaryIsInstance]
            by = ', by="event_time"' if isinstance(aggregate, Last) else ""
            remedy = f'name a column, or give Spark SQL on one row: {name}={type(aggregate).__name__}("value"{by})'
            raise wrong(f"{name}={aggregate!r}", "it takes nothing of a row", remedy)
    if not isinstance(panes.time, str) or not panes.time:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"time={panes.time!r}", "it names no column", 'give time="event_time"')
    names = [name.lower() for name in (*keys, *panes.aggregates)]
    if twice := next((name for name in names if names.count(name) > 1 or name in SENT), None):
        what = "every window result has a column of this name" if twice in SENT else "it is there twice"
        raise wrong(
            f"a column called {twice}",
            what,
            "give the key or the value another name, with transform= or in aggregates=",
        )


def _check_choices(panes: Windows) -> None:
    for name, value, choices in (
        ("accumulation", panes.accumulation, ("discarding", "accumulating", "retracting")),
        ("on_time", panes.on_time, ("always", "changed")),
        ("results", panes.results, ("changes", "upserts")),
    ):
        if value not in choices:
            raise wrong(f"{name}={value!r}", "there is no such choice", f"say one of {', '.join(map(repr, choices))}")
    if isinstance(panes.late_rows, str) and panes.late_rows != "count":
        raise wrong(
            f"late_rows={panes.late_rows!r}", "it is a word", 'give "count", or a sink: late_rows=pg.table("late")'
        )
    if isinstance(panes.records, str):
        raise wrong(f"records={panes.records!r}", "it is one text", f"give a list: records=[{panes.records!r}]")
    most = panes.max_open
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"max_open={most!r}", "it counts windows", "give a whole number, or leave it out")


def _check_shape(panes: Windows) -> None:
    if not isinstance(panes.window, Tumbling | Sliding | Sessions | Global | Custom):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(
            f"window={panes.window!r}",
            "it is none",
            'give Tumbling("2 minutes"), Sliding, Sessions, Global or Custom',
        )
    if not isinstance(panes.trigger, Trigger):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"trigger={panes.trigger!r}", "it is none", 'give one: AtWatermark(early=AtPeriod("1 minute"))')
    _lateness(panes)
    if len({trigger.condition for trigger in _all(panes.trigger) if isinstance(trigger, AtMark)}) > 1:
        raise wrong("two conditions of AtMark", "rows are asked for one", "join them: AtMark('a OR b')")
    if isinstance(panes.window, Sessions) and not triggers.merges(complete_trigger(panes.trigger)):
        remedy = "give AtWatermark, with AtPeriod or AtCount for early= and late=, or one of these alone"
        raise wrong(
            "sessions with a trigger of several",
            "for two sessions that merge, the trigger of the union is undefined",
            remedy,
        )
    if panes.results == "upserts" and panes.accumulation == "discarding":
        remedy = 'say accumulation="accumulating", or results="changes"'
        raise wrong("upserts that discard", "each row would put a part in place of the whole", remedy)
    if panes.results == "upserts" and isinstance(panes.window, Sessions) and panes.accumulation != "retracting":
        raise refuse("E145", problem=f"accumulation={panes.accumulation!r}")


@dataclass(frozen=True)
class Definition:
    """Windows over rows of known columns, for all rules of :mod:`onceonly.windows`.

    Attributes:
        folds: the values over these, in order.
        lateness: in the unit, or ``END`` if unlimited.
    """

    panes: Windows
    unit: Unit
    key_kinds: tuple[str, ...]
    input_kinds: Mapping[str, str] = field(hash=False)
    folds: tuple[Fold, ...] = field(hash=False, compare=False)
    lateness: int = 0

    @cached_property
    def trigger(self) -> Trigger:
        """Trigger of a window."""
        return complete_trigger(self.panes.trigger, late=self.lateness > 0)

    @cached_property
    def sessions(self) -> bool:
        """Whether windows merge."""
        return isinstance(self.panes.window, Sessions)

    @property
    def overlap(self) -> bool:
        """Whether a row can be in several windows."""
        window = self.panes.window
        return isinstance(window, Sliding) and window.numbers[0] > window.numbers[1]

    @cached_property
    def by_spark(self) -> bool:
        """Whether only Spark can compute some partial results."""
        return any(isinstance(value, Aggregate) for value in self.panes.aggregates.values())

    @cached_property
    def value_kinds(self) -> tuple[str, ...]:
        """Kinds of the results, in order."""
        return tuple(fold.kind for fold in self.folds)

    def spans(self, time: int, own: Span | None = None) -> list[Span]:
        """Return the windows of a row. ``own`` is the one that it names."""
        window = self.panes.window
        if isinstance(window, Custom):
            return [own] if own else []
        return window.of(time)

    def closes(self, end: int) -> int:
        """Return the noted time at which a window closes."""
        return min(end + self.lateness, END)

    def closed_end(self, complete_until: int | None) -> int:
        """Return the latest end of windows that a noted time closes."""
        if complete_until is None:
            return LEAST
        return END if complete_until >= END else complete_until - self.lateness

    @cached_property
    def meaning(self) -> str:
        """Fingerprint of the meaning of rows in sinks."""
        panes = self.panes
        content = {
            "key": list(zip(panes.keys, self.key_kinds, strict=True)),
            "values": [[name, value.spelled] for name, value in panes.aggregates.items()],
            "kinds": dict(self.input_kinds),
            "time": [panes.time, self.unit],
            "window": panes.window.spelled,
            "how": [panes.accumulation, panes.on_time, panes.results],
        }
        return _hash(content)

    @cached_property
    def form(self) -> ResultSchema:
        """Columns and kind of pane rows."""
        panes = self.panes
        key = tuple(zip(panes.keys, self.key_kinds, strict=True))
        values = tuple(zip(panes.aggregates, self.value_kinds, strict=True))
        return ResultSchema(key, values, panes.accumulation, panes.results == "upserts", self.sessions)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the whole definition."""
        return self._all_said(self.trigger)

    @property
    def closing(self) -> str:
        """The same as if late rows waited until their window closes. Empty with ``late``, or for another trigger."""
        trigger = self.panes.trigger
        return (
            self._all_said(complete_trigger(trigger))
            if isinstance(trigger, AtWatermark) and trigger.late is None
            else ""
        )

    def _all_said(self, trigger: Trigger) -> str:
        return _hash({"meaning": self.meaning, "trigger": trigger.spelled, "lateness": self.lateness})


def define(panes: Windows, columns: Mapping[str, str], inputs: Mapping[str, str] | None = None) -> Definition:
    """Return the windows over rows of known columns.

    ``columns`` has the kind of each column. ``inputs`` has that of each of ``Windows.expressions`` that is no column.
    Raises E140: no such column, or one of a kind that does not fit; E144: a sum of floating point.
    """
    unit = _unit(panes, columns)
    _check_units(panes, unit)
    texts = (*panes.expressions, *panes.bounds)
    named = {text: columns[text] if text in columns else (inputs or {}).get(text, "") for text in texts}
    for text, kind in named.items():
        if not kind:
            raise _missing("a window begins or ends at" if text in panes.bounds else "a value takes", text, columns)
    _check_bounds(panes, unit, [named[text] for text in panes.bounds], stamped=panes.time not in columns)
    folds = [value.over(name, [named[text] for text in value.inputs]) for name, value in panes.aggregates.items()]
    keys = tuple(_key(name, columns) for name in panes.keys)
    return Definition(panes, unit, keys, named, tuple(folds), _lateness(panes))


def _check_bounds(panes: Windows, unit: Unit, kinds: Sequence[str], *, stamped: bool) -> None:
    if kinds and stamped:
        problem = f"a window that rows name, with time={INGEST!r}"
        raise wrong(problem, "all rows of a batch have one time", "give time= a column of the rows")
    if not set(kinds) <= ({"timestamp"} if unit == "ms" else set(json_values.INTEGERS)):
        problem = f"bounds of a window are {' and '.join(kinds)}, and time={panes.time!r} counts in {unit!r}"
        raise wrong(problem, "they are of two kinds", "cast the bounds to the kind of time=, in the SQL of Custom")


def _lateness(panes: Windows) -> int:
    return END if panes.allowed_lateness == UNLIMITED else length("allowed_lateness", panes.allowed_lateness, least=0)


def _unit(panes: Windows, columns: Mapping[str, str]) -> Unit:
    if panes.time == INGEST and INGEST not in columns:
        return "ms"
    kind = columns.get(panes.time)
    if kind is None:
        raise _missing("time= is", panes.time, columns)
    if kind == "timestamp":
        return "ms"
    if kind not in json_values.INTEGERS:
        remedy = f'cast it to an instant in transform=: F.col("{panes.time}").cast("timestamp")'
        raise wrong(f"time={panes.time!r} is {kind}", "it is no instant and no whole number", remedy)
    return "integer"


def _check_units(panes: Windows, unit: Unit) -> None:
    sizes = {"window": panes.window.unit}
    if 0 < _lateness(panes) < END:
        sizes["allowed_lateness"] = unit_of(panes.allowed_lateness)
    for name, of in sizes.items():
        if of is not None and of != unit:
            remedy = (
                "give sizes as numbers, Tumbling(100)"
                if unit == "integer"
                else 'give sizes as times, Tumbling("2 minutes")'
            )
            raise wrong(
                f"{name}= counts in {of!r}, and column {panes.time} in {unit!r}", "they are of two units", remedy
            )


def _key(name: str, columns: Mapping[str, str]) -> str:
    kind = columns.get(name)
    if kind is None:
        raise _missing("key= is", name, columns)
    if not json_values.is_storable(kind) or kind in json_values.FLOATS:
        remedy = f'cast it in transform=, to a text or a decimal: F.col("{name}").cast("string")'
        raise wrong(f"key={name!r} is {kind}", "equal and different keys cannot always be distinguished", remedy)
    return kind


def _missing(what: str, name: str, columns: Mapping[str, str]) -> Exception:
    remedy = f"name one of {shorten_list([*columns])}{nearest([name], columns)}"
    return wrong(
        f"{what} {name!r}, and the rows have no such column", "a misspelt name, or the column was dropped", remedy
    )


def _hash(content: object) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]
