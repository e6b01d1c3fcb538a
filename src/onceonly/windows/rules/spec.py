"""``Panes(...)``: the user's definition of windows, and its check.

The four questions are those of the Dataflow model: the results, their windows in event time, the processing time at
which they are written, and the relation of refinements. ``Definition`` applies them to rows of known columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from onceonly.errors import nearest, refuse
from onceonly.windows.rules import json_values, triggers
from onceonly.windows.rules.assigners import Fixed, Global, Sessions, Size, Sliding, Window, length, unit_of, wrong
from onceonly.windows.rules.triggers import AT_WATERMARK, AtMark, AtWatermark, Trigger, whole
from onceonly.windows.rules.values import Aggregate, Fold, Last, Value
from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.epoch_windows import ResultSchema
from onceonly_checkpoints.model import canonical

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
class Panes:
    """Results of windows over the rows of a query, which its sinks get instead of the rows.

    Each is written exactly once, with the state of its window and the time, in the transaction of the epoch.

    Args:
        key: column, or columns, that rows are grouped by. Null is a key.
        values: results by the name of their column.
        time: the column of event time, an instant or a whole number. ``"ingest"``: the moment at which its batch was
            planned, together with ``note_time="ingest"``.
        window: ``Fixed``, ``Sliding``, ``Sessions`` or ``Global``.
        trigger: when results are written. ``AtPeriod``, ``AtCount`` or ``AtMark`` alone is repeated.
        lateness: how far noted time passes the end of a window before it takes no more rows. ``"unlimited"``: a window
            takes rows until nothing follows.
        accumulation: relation of the results of one window. ``"discarding"``: each is of the rows since the last one.
            ``"accumulating"``: of all so far. ``"retracting"``: of all so far, and the same row with sign -1 takes back
            the one before.
        on_time: ``"always"`` writes a result when the end of a window is noted, ``"changed"`` only if rows came since
            the last one.
        rows: ``"changes"``: a row for each result and each retraction, to append. ``"upserts"``: the last one of an
            epoch for each window, with a column ``deleted``, for a sink with ``key=`` and ``delete="deleted"``.
        late_rows: ``"count"`` rows whose window is closed, or a sink that gets them.
        at_most: limit of open windows. An epoch that would leave more is refused. Default: no limit.
        state: the table of open windows, ``pg.table("scores_state")``, which nothing else writes. Default: a table
            beside that of the first sink in Postgres.

    Raises:
        ConfigurationError: E140, an invalid argument. E145, upserts that would leave rows behind.
    """

    key: str | Sequence[str]
    values: Mapping[str, Value]
    time: str
    window: Window
    trigger: Trigger = AT_WATERMARK
    lateness: Size = "0s"
    accumulation: Accumulation = "accumulating"
    on_time: Literal["always", "changed"] = "always"
    rows: Literal["changes", "upserts"] = "changes"
    late_rows: object = "count"
    at_most: int | None = None
    state: object = field(default=None, compare=False)

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
        return tuple(dict.fromkeys(text for value in self.values.values() for text in value.inputs))

    @property
    def marks(self) -> str | None:
        """The condition of ``AtMark``. ``None`` without one."""
        return next((one.condition for one in _all(self.trigger) if isinstance(one, AtMark)), None)

    @property
    def words(self) -> str:
        """For people."""
        kind = type(self.window).__name__.lower()
        return f"{', '.join(self.values)} of {', '.join(self.keys)} in {kind} windows, {self.accumulation}"


def _all(trigger: Trigger) -> list[Trigger]:
    return [trigger, *(one for part in trigger.parts for one in _all(part))]


def _check_columns(panes: Panes) -> None:
    keys = panes.keys if isinstance(panes.key, Sequence) else ()  # pyright: ignore[reportUnnecessaryIsInstance]
    if not keys or not all(isinstance(name, str) and name for name in keys) or len(set(keys)) < len(keys):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"key={panes.key!r}", "it names no columns, or one twice", 'give columns: key="team"')
    values: object = panes.values
    fit = isinstance(values, Mapping) and bool(panes.values)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not fit or not all(isinstance(name, str) and isinstance(one, Value) for name, one in panes.values.items()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"values={values!r}", "it says no results by their names", 'give values={"total": Sum("value")}')
    for name, one in panes.values.items():
        if not all(isinstance(text, str) and text.strip() for text in one.inputs):  # pyright: ignore[reportUnnecessaryIsInstance]
            by = ', by="event_time"' if isinstance(one, Last) else ""
            way = f'name a column, or give Spark SQL on one row: {name}={type(one).__name__}("value"{by})'
            raise wrong(f"{name}={one!r}", "it takes nothing of a row", way)
    if not isinstance(panes.time, str) or not panes.time:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"time={panes.time!r}", "it names no column", 'give time="event_time"')
    names = [name.lower() for name in (*keys, *panes.values)]
    if twice := next((name for name in names if names.count(name) > 1 or name in SENT), None):
        what = "every pane row has a column of this name" if twice in SENT else "it is there twice"
        raise wrong(f"a column called {twice}", what, "call the key or the value otherwise, with before= or in values=")


def _check_choices(panes: Panes) -> None:
    for name, value, choices in (
        ("accumulation", panes.accumulation, ("discarding", "accumulating", "retracting")),
        ("on_time", panes.on_time, ("always", "changed")),
        ("rows", panes.rows, ("changes", "upserts")),
    ):
        if value not in choices:
            raise wrong(f"{name}={value!r}", "there is no such choice", f"say one of {', '.join(map(repr, choices))}")
    if isinstance(panes.late_rows, str) and panes.late_rows != "count":
        raise wrong(
            f"late_rows={panes.late_rows!r}", "it is a word", 'give "count", or a sink: late_rows=pg.table("late")'
        )
    most = panes.at_most
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"at_most={most!r}", "it counts windows", "give a whole number, or leave it out")


def _check_shape(panes: Panes) -> None:
    if not isinstance(panes.window, Fixed | Sliding | Sessions | Global):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"window={panes.window!r}", "it is none", 'give Fixed("2 minutes"), Sliding, Sessions or Global()')
    if not isinstance(panes.trigger, Trigger):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong(f"trigger={panes.trigger!r}", "it is none", 'give one: AtWatermark(early=AtPeriod("1 minute"))')
    _lateness(panes)
    if len({one.condition for one in _all(panes.trigger) if isinstance(one, AtMark)}) > 1:
        raise wrong("two conditions of AtMark", "rows are asked for one", "join them: AtMark('a OR b')")
    if isinstance(panes.window, Sessions) and not triggers.merges(whole(panes.trigger)):
        way = "give AtWatermark, with AtPeriod or AtCount for early= and late=, or one of these alone"
        raise wrong(
            "sessions with a trigger of several", "of two that merge nobody can say what the union waits for", way
        )
    if panes.rows == "upserts" and panes.accumulation == "discarding":
        way = 'say accumulation="accumulating", or rows="changes"'
        raise wrong("upserts that discard", "each row would put a part in place of the whole", way)
    if panes.rows == "upserts" and isinstance(panes.window, Sessions) and panes.accumulation != "retracting":
        raise refuse("E145", problem=f"accumulation={panes.accumulation!r}")


@dataclass(frozen=True)
class Definition:
    """Windows over rows of known columns, for all rules of :mod:`onceonly.windows`.

    Attributes:
        unit: of times.
        key_kinds: of the key's columns.
        input_kinds: of the values' inputs, by their text.
        folds: the values over these, in order.
        lateness: in the unit. ``END`` if unlimited.
    """

    panes: Panes
    unit: Unit
    key_kinds: tuple[str, ...]
    input_kinds: Mapping[str, str] = field(hash=False)
    folds: tuple[Fold, ...] = field(hash=False, compare=False)
    lateness: int = 0

    @cached_property
    def trigger(self) -> Trigger:
        """The trigger as each window runs it."""
        return whole(self.panes.trigger, late=self.lateness > 0)

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
        return any(isinstance(value, Aggregate) for value in self.panes.values.values())

    @cached_property
    def value_kinds(self) -> tuple[str, ...]:
        """Kinds of the results, in order."""
        return tuple(fold.kind for fold in self.folds)

    def closes(self, end: int) -> int:
        """The time that must be noted before a window closes."""
        return min(end + self.lateness, END)

    @cached_property
    def meaning(self) -> str:
        """Fingerprint of the meaning of written rows."""
        panes = self.panes
        said = {
            "key": list(zip(panes.keys, self.key_kinds, strict=True)),
            "values": [[name, value.spelled] for name, value in panes.values.items()],
            "kinds": dict(self.input_kinds),
            "time": [panes.time, self.unit],
            "window": panes.window.spelled,
            "how": [panes.accumulation, panes.on_time, panes.rows],
        }
        return _hash(said)

    @cached_property
    def form(self) -> ResultSchema:
        """Columns and kinds of rows of panes."""
        panes = self.panes
        key = tuple(zip(panes.keys, self.key_kinds, strict=True))
        values = tuple(zip(panes.values, self.value_kinds, strict=True))
        return ResultSchema(key, values, panes.accumulation, panes.rows == "upserts", self.sessions)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the whole definition."""
        return self._all_said(self.trigger)

    @property
    def closing(self) -> str:
        """The fingerprint under ``late="closing"``. Empty for another trigger, or if ``late=`` was given."""
        said = self.panes.trigger
        return self._all_said(whole(said)) if isinstance(said, AtWatermark) and said.late is None else ""

    def _all_said(self, trigger: Trigger) -> str:
        return _hash({"meaning": self.meaning, "trigger": trigger.spelled, "lateness": self.lateness})


def define(panes: Panes, columns: Mapping[str, str], inputs: Mapping[str, str] | None = None) -> Definition:
    """The windows over rows of known columns.

    ``columns`` has the kind of each column, ``inputs`` the kind of each of ``Panes.expressions`` that is no column.

    Raises:
        ConfigurationError: E140, no such column, or one of a kind that does not fit. E144, a sum of floating point.
    """
    unit = _unit(panes, columns)
    _check_units(panes, unit)
    named = {text: columns[text] if text in columns else (inputs or {}).get(text, "") for text in panes.expressions}
    for text, kind in named.items():
        if not kind:
            raise _missing("a value takes", text, columns)
    folds = [value.over(name, [named[text] for text in value.inputs]) for name, value in panes.values.items()]
    keys = tuple(_key(name, columns) for name in panes.keys)
    return Definition(panes, unit, keys, named, tuple(folds), _lateness(panes))


def _lateness(panes: Panes) -> int:
    return END if panes.lateness == UNLIMITED else length("lateness", panes.lateness, least=0)


def _unit(panes: Panes, columns: Mapping[str, str]) -> Unit:
    if panes.time == INGEST and INGEST not in columns:
        return "ms"
    kind = columns.get(panes.time)
    if kind is None:
        raise _missing("time= is", panes.time, columns)
    if kind == "timestamp":
        return "ms"
    if kind not in json_values.INTEGERS:
        way = f'cast it to an instant in before=: F.col("{panes.time}").cast("timestamp")'
        raise wrong(f"time={panes.time!r} is {kind}", "it is no instant and no whole number", way)
    return "integer"


def _check_units(panes: Panes, unit: Unit) -> None:
    sizes = {"window": panes.window.unit}
    if 0 < _lateness(panes) < END:
        sizes["lateness"] = unit_of(panes.lateness)
    for name, of in sizes.items():
        if of is not None and of != unit:
            way = (
                "give sizes as numbers, Fixed(100)" if unit == "integer" else 'give sizes as times, Fixed("2 minutes")'
            )
            raise wrong(f"{name}= counts in {of!r}, and column {panes.time} in {unit!r}", "they are of two units", way)


def _key(name: str, columns: Mapping[str, str]) -> str:
    kind = columns.get(name)
    if kind is None:
        raise _missing("key= is", name, columns)
    if not json_values.known(kind) or kind in json_values.FLOATS:
        way = f'cast it in before=, to a text or a decimal: F.col("{name}").cast("string")'
        raise wrong(f"key={name!r} is {kind}", "two that are the same cannot always be told from two that are not", way)
    return kind


def _missing(what: str, name: str, columns: Mapping[str, str]) -> Exception:
    way = f"name one of {', '.join(columns)}{nearest([name], columns)}"
    return wrong(
        f"{what} {name!r}, and the rows have no such column", "a name is spelled otherwise, or it was dropped", way
    )


def _hash(said: object) -> str:
    return hashlib.sha256(canonical(said).encode()).hexdigest()[:16]
