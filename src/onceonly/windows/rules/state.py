"""Values of the window engine: places, partial results, state and pane rows.

Pure.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from onceonly.errors import refuse
from onceonly.protocol.capabilities import GONE
from onceonly.windows.rules import json_values
from onceonly.windows.rules.assigners import LEAST
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Definition
from onceonly_checkpoints.epoch_time import END
from onceonly_checkpoints.model import canonical

if TYPE_CHECKING:
    import pyarrow as pa


Kind = Literal["+I", "-U", "+U", "-D"]
Timing = Literal["EARLY", "ON_TIME", "LATE"]


class WindowKey(NamedTuple):
    """Window of a key.

    ``key`` is a list of the key's values in canonical JSON. The window does not include its end.
    """

    key: str
    start: int
    end: int


class Partial(NamedTuple):
    """Result of an epoch's rows for one window.

    Attributes:
        window_key: the window, or the session of these rows alone.
        marks: number of rows for which the condition of ``AtMark`` is true.
        first: the least time of these rows.
    """

    window_key: WindowKey
    values: tuple[Json, ...]
    rows: int
    marks: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class EpochClock:
    """Time of an epoch.

    Attributes:
        clock: the recorded one, for timers. Never less than in the epoch before.
        complete_until: noted time of the epoch, or ``None`` for none.
        noted_before: noted time of the epoch before.
    """

    clock: int
    complete_until: int | None
    noted_before: int | None


class WindowOutput(NamedTuple):
    """A written result that may be retracted, with the bounds of its window at that time."""

    start: int
    end: int
    pane: int
    values: list[Json]


@dataclass(slots=True)
class OpenWindowState:
    """The state of an open window. Nobody changes it: to enforce that would take most of the time to make one.

    Attributes:
        values: partial results of all rows, or of those since the last result if results are discarded.
        fresh: rows since the last result.
        panes: results so far, and the number of the next one.
        shown: whether a result with these bounds was written.
        emitted: current results, if they may be retracted.
        trigger: state of the trigger.
        wake_clock: clock at which it must run without a row, or ``None``. Not in ``body``.
        wake_time: noted time at which it must run. Not in ``body``.
    """

    window_key: WindowKey
    values: tuple[Json, ...]
    fresh: int = 0
    panes: int = 0
    shown: bool = False
    emitted: tuple[WindowOutput, ...] = ()
    trigger: Json = None
    wake_clock: int | None = field(default=None, compare=False)
    wake_time: int = field(default=LEAST, compare=False)

    @property
    def body(self) -> str:
        """Everything except place and wakes, as canonical JSON."""
        emitted = [list(output) for output in self.emitted]
        return canonical([list(self.values), self.fresh, self.panes, int(self.shown), emitted, self.trigger])

    @classmethod
    def read(cls, window_key: WindowKey, body: str) -> OpenWindowState:
        """Parse a :attr:`body`. Raises ``ValueError``: it is none."""
        try:
            values, fresh, panes, shown, emitted, trigger = json.loads(body)
            outputs = tuple(WindowOutput(*fields) for fields in emitted)
            return cls(window_key, tuple(values), fresh, panes, bool(shown), outputs, trigger)
        except (TypeError, ValueError) as error:
            raise ValueError(f"no state of a window: {error}") from error


class WindowResult(NamedTuple):
    """A result row for sinks.

    Attributes:
        kind: ``+I`` the first of a window, ``-U`` and ``+U`` its replacement, ``-D`` one that is retracted because its
            session was absorbed.
        sign: -1 for a retraction.
        timing: before, when, or after the window's end was noted.
        pane: number of the result, from 0. A retraction has the retracted number. A union of sessions continues from
            their greatest.
        final: whether the window was closed in the same epoch.
        fired_at: the instant of the timer, or the clock of the epoch.
        watermark: noted time at that moment.
        seq: number of the row among those of its key in the epoch.
    """

    window_key: WindowKey
    values: tuple[Json, ...]
    kind: Kind
    sign: int
    timing: Timing
    pane: int
    final: bool
    fired_at: int
    watermark: int | None
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Stepped:
    """Result of an epoch for its windows.

    Attributes:
        changed_windows: open windows that changed.
        dropped: rows that came after their window was closed, once for each of these windows.
    """

    rows: tuple[WindowResult, ...]
    changed_windows: tuple[OpenWindowState, ...]
    gone: tuple[WindowKey, ...]
    dropped: int


# ---- Pane rows and window state as rows of Arrow, in Spark's types.

BUCKETS = 1024
"""By which state is divided among executors."""

_MICROS = 1000
_FARTHEST = END // _MICROS


def pane_table(definition: Definition, rows: Sequence[WindowResult]) -> pa.Table:
    """Return the rows of an epoch for its sinks.

    ``rows`` are in their order. As upserts, only the last one of each window is kept. Raises E146: a value that the
    type of its column does not hold.
    """
    upserts = definition.panes.results == "upserts"
    if upserts:
        rows = list({row.window_key: row for row in rows if row.kind != "-U"}.values())
    columns = _keys(definition, rows)
    columns["window_start"] = times_of(definition, [row.window_key.start for row in rows])
    columns["window_end"] = times_of(definition, [row.window_key.end for row in rows])
    for at, (name, kind) in enumerate(zip(definition.panes.aggregates, definition.value_kinds, strict=True)):
        columns[name] = _values(name, kind, at, rows)
    columns |= _sent(definition, rows)
    if upserts:
        columns["deleted"] = json_values.array("boolean", [row.sign < 0 for row in rows])
    return _table(columns)


def _keys(definition: Definition, rows: Sequence[WindowResult]) -> dict[str, pa.Array[Any]]:
    parsed = {key: json.loads(key) for key in {row.window_key.key for row in rows}}
    return {
        name: json_values.array(kind, [json_values.decode(kind, parsed[row.window_key.key][at]) for row in rows])
        for at, (name, kind) in enumerate(zip(definition.panes.keys, definition.key_kinds, strict=True))
    }


def _values(name: str, kind: str, at: int, rows: Sequence[WindowResult]) -> pa.Array[Any]:
    values = [json_values.decode(kind, row.values[at]) for row in rows]
    try:
        return json_values.array(kind, values)
    except (OverflowError, ValueError, TypeError) as error:
        wide = next(row for row, value in zip(rows, values, strict=True) if not _fits(kind, value))
        raise _too_wide(name, kind, wide) from error


def _fits(kind: str, value: Any) -> bool:
    try:
        json_values.array(kind, [value])
    except (OverflowError, ValueError, TypeError):
        return False
    return True


def _too_wide(name: str, kind: str, row: WindowResult) -> Exception:
    start, end = (None if bound in (LEAST, END) else bound for bound in (row.window_key.start, row.window_key.end))
    remedy = (
        f'give the query a new name, and take a wider type: {name}=Sum("CAST(... AS DECIMAL(38, 0))"); or one that'
        f' rounds: {name}=Sum("CAST(... AS DOUBLE)", approximate=True)'
    )
    cause = "a sum that grew past its type, or an Aggregate whose value() returns another type than it declares"
    return refuse(
        "E146", value=name, window=f"[{start}, {end})", key=row.window_key.key, type=kind, cause=cause, next=remedy
    )


def _sent(definition: Definition, rows: Sequence[WindowResult]) -> dict[str, pa.Array[Any]]:
    return {
        "kind": json_values.array("string", [row.kind for row in rows]),
        "sign": json_values.array("smallint", [row.sign for row in rows]),
        "timing": json_values.array("string", [row.timing for row in rows]),
        "pane": json_values.array("int", [row.pane for row in rows]),
        "final": json_values.array("boolean", [row.final for row in rows]),
        "fired_at": json_values.array("timestamp", [row.fired_at * _MICROS for row in rows]),
        "watermark": times_of(definition, [row.watermark for row in rows]),
        "seq": json_values.array("bigint", [row.seq for row in rows]),
    }


def times_of(definition: Definition, times: Sequence[int | None]) -> pa.Array[Any]:
    """Return times in Arrow, with null for no bound and for an instant outside the range of timestamps."""
    finite_times = [None if time in (None, LEAST, END) else time for time in times]
    if definition.unit == "integer":
        return json_values.array("bigint", list(finite_times))
    return json_values.array(
        "timestamp", [None if time is None or abs(time) > _FARTHEST else time * _MICROS for time in finite_times]
    )


def state_table(states: Sequence[OpenWindowState], gone: Sequence[WindowKey]) -> pa.Table:
    """Return the rows of state that an epoch writes, and those that it removes."""
    places = (*(state.window_key for state in states), *gone)
    none = len(gone)
    columns: Mapping[str, pa.Array[Any]] = {
        "key": json_values.array("string", [window_key.key for window_key in places]),
        "start": json_values.array("bigint", [window_key.start for window_key in places]),
        "stop": json_values.array("bigint", [window_key.end for window_key in places]),
        "body": json_values.array("string", [*(state.body for state in states), *[""] * none]),
        "wake_clock": json_values.array("bigint", [*(state.wake_clock for state in states), *[None] * none]),
        "wake_time": json_values.array("bigint", [*(state.wake_time for state in states), *[END] * none]),
        "bucket": json_values.array("smallint", [bucket(window_key.key) for window_key in places]),
        GONE: json_values.array("boolean", [*[False] * len(states), *[True] * none]),
    }
    return _table(columns)


def bucket(key: str) -> int:
    """Return the part of the state that has a key."""
    return zlib.crc32(key.encode()) % BUCKETS


def _table(columns: Mapping[str, pa.Array[Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.table(dict(columns))
