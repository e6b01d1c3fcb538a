"""Net window results against each other and their state. Pure.

The state of an open window names its current results. A closed window has no state. There the rows decide: a replaced
result was retracted, one alone is left, and none of its numbers is missing. The source is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from onceonly.protocol.capabilities import StateRow
from onceonly.windows.rules import json_values
from onceonly.windows.rules.assigners import LEAST
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.state import OpenWindowState, WindowKey
from onceonly_checkpoints.epoch_time import END, ResultSchema
from onceonly_checkpoints.model import canonical

Window = tuple[str, int | None, int | None]
"""Key in canonical JSON, start and end; no bound where its column is null."""


class UnreadableResults(Exception):
    """Rows or state cannot be read as those of windows, for the reason in the text."""


@dataclass(frozen=True, slots=True)
class WindowMismatch:
    """A window with unexpected rows.

    ``epoch`` is the newest one with a row in it, or without any the one that wrote its state. ``evidence`` is in words.
    """

    epoch: int
    evidence: str


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected result of an open window, by the state that ``epoch`` wrote.

    ``pane`` is its number, or ``None`` if none was written with these bounds. ``values`` are known if the state has
    them.
    """

    epoch: int
    pane: int | None = None
    values: tuple[Json, ...] | None = None


# ---- windows by the state


def expect(expected: dict[Window, Expected], form: ResultSchema, row: StateRow) -> None:
    """Add the expected results of an open window, by its state.

    Raises ``UnreadableResults``: the row is no state of a window.
    """
    window_key = WindowKey(row.key, row.start, row.stop)
    try:
        state = OpenWindowState.read(window_key, row.body)
    except ValueError as error:
        raise UnreadableResults(f"the state of {named(window_of(*window_key))} says: {error}") from error
    expected.setdefault(window_of(*window_key), Expected(row.epoch))
    if form.accumulation == "retracting":
        for output in state.emitted:
            values = zip(output.values, form.values, strict=True)
            expected_values = tuple(None if kind in _UNSPELLED else value for value, (_, kind) in values)
            expected[window_of(row.key, output.start, output.end)] = Expected(row.epoch, output.pane, expected_values)
    elif state.shown:
        expected[window_of(*window_key)] = Expected(row.epoch, state.panes - 1)


def window_of(key: str, start: int, end: int) -> Window:
    """Return a window by its place in state, where a missing bound is the farthest possible one."""
    return key, None if start in (LEAST, END) else start, None if end in (LEAST, END) else end


def named(window: Window) -> str:
    """Describe a window in words."""
    key, start, end = window
    return f"the window of key {key} from {_bound(start)} to {_bound(end)}"


def _bound(at: int | None) -> str:
    return "ever" if at is None else str(at)


# ---- windows by their rows


class Result(NamedTuple):
    """A row of panes. ``kind``: ``+I``, ``-U``, ``+U`` or ``-D``."""

    window: Window
    kind: str
    sign: int
    pane: int
    values: tuple[Json, ...]


def read(form: ResultSchema, row: Mapping[str, Any]) -> Result:
    """Read a row of panes.

    Raises ``UnreadableResults``: it has other columns than a row of panes, or other values in them.
    """
    try:
        key = canonical([_coded(name, kind, row[name]) for name, kind in form.key])
        window = key, _time(row["window_start"]), _time(row["window_end"])
        values = tuple(_coded(name, kind, row[name]) for name, kind in form.values)
        return Result(window, row["kind"], int(row["sign"]), int(row["pane"]), values)
    except KeyError as error:
        raise UnreadableResults(f"its rows have no column {error.args[0]}") from error
    except TypeError as error:
        raise UnreadableResults(f"its rows are none of panes: {error}") from error


@dataclass(slots=True)
class _WindowRows:
    """Rows of one window so far."""

    first: int
    last: int = 0
    nets: dict[int, int] = field(default_factory=dict[int, int])
    absorbed: bool = False
    begins: bool = False
    odd: str = ""
    newest: tuple[int, tuple[Json, ...]] | None = None


class Rows:
    """Adds up rows of panes, window by window.

    Rows of the sink's epochs up to ``unjudged`` are not judged, 0 for none. Windows that began there are known in part.
    """

    def __init__(self, form: ResultSchema, unjudged: int = 0) -> None:
        self._form, self._unjudged = form, unjudged
        self._windows: dict[tuple[int, Window], _WindowRows] = {}

    def add(self, since: int, epoch: int, row: Mapping[str, Any]) -> None:
        """Take a row, by the names of its columns.

        ``since`` is the first epoch of the series of windows to which ``epoch``, which brought the row, belongs. Raises
        ``UnreadableResults``: it has other columns than a row of panes, or other values in them.
        """
        window, kind, sign, pane, values = read(self._form, row)
        tally = self._windows.setdefault((since, window), _WindowRows(epoch))
        tally.first, tally.last = min(tally.first, epoch), max(tally.last, epoch)
        tally.nets[pane] = tally.nets.get(pane, 0) + sign
        tally.absorbed = tally.absorbed or kind == "-D"
        tally.begins = tally.begins or (kind == "+I" and pane == 0)
        if sign != (-1 if kind in ("-U", "-D") else 1):
            tally.odd = tally.odd or f"a row of pane {pane} is {kind} and has sign {sign}"
        if sign > 0 and (tally.newest is None or pane >= tally.newest[0]):
            tally.newest = pane, values

    def closed(self, before: int | None) -> Iterator[WindowMismatch]:
        """Judge and discard windows that get no rows any more: they end at ``before`` or earlier. ``None``: none do."""
        # What a session had written is taken back when the union of it writes: that may be after its own end.
        if before is None or (self._form.merges and self._form.accumulation == "retracting"):
            return
        over = [key for key in self._windows if (END if key[1][2] is None else key[1][2]) <= before]
        for tally_key in over:
            yield from self._judged(tally_key[1], self._windows.pop(tally_key), None)

    def left(self, since: int, state: Mapping[Window, Expected] | None) -> Iterator[WindowMismatch]:
        """Judge all other windows.

        ``since`` is the first epoch of the series of windows in ``state``, which is ``None`` if unknown.
        """
        state = state or {}
        for (began, window), tally in self._windows.items():
            yield from self._judged(window, tally, state.get(window) if began == since else None)
        if self._unjudged < since:
            there = {window for began, window in self._windows if began == since}
            for window, expected in state.items():
                if expected.pane is not None and window not in there:
                    yield WindowMismatch(
                        expected.epoch, f"{named(window)}: by the state pane {expected.pane} stands, and no row does"
                    )

    def _judged(self, window: Window, tally: _WindowRows, expected: Expected | None) -> Iterator[WindowMismatch]:
        is_complete = tally.begins or self._form.upserts
        if tally.first <= self._unjudged or (self._unjudged and not is_complete):
            return
        if problem := tally.odd or self._wrong(tally):
            yield WindowMismatch(tally.last, f"{named(window)}: {problem}")
        elif expected and (problem := _differs(tally, expected)):
            yield WindowMismatch(max(tally.last, expected.epoch), f"{named(window)}: {problem}")

    def _wrong(self, tally: _WindowRows) -> str:
        """Return a contradiction among its own rows."""
        if self._form.upserts:
            return ""
        retracting = self._form.accumulation == "retracting"
        for pane, net in sorted(tally.nets.items()):
            if net > 1:
                return f"pane {pane} stands {net} times"
            if net < (0 if retracting else 1):
                return f"pane {pane} was taken back, and no row says that it was written"
        return _replaced(tally) if retracting else _gap(tally, begin=min(tally.nets) if self._form.merges else 0)


def _replaced(tally: _WindowRows) -> str:
    """Return the fault if a result is retracted before another one replaces it."""
    greatest, remaining = max(tally.nets), sorted(pane for pane, net in tally.nets.items() if net)
    if len(remaining) > 1:
        return f"panes {', '.join(map(str, remaining))} stand, and one alone may"
    if not remaining:
        return "" if tally.absorbed else f"pane {greatest} was taken back, and nothing stands in its place"
    return f"pane {remaining[0]} stands, and pane {greatest} was taken back" if remaining[0] < greatest else ""


def _gap(tally: _WindowRows, begin: int) -> str:
    """Return the fault if all results are kept."""
    missing = next((pane for pane in range(begin, max(tally.nets)) if pane not in tally.nets), None)
    return "" if missing is None else f"pane {missing} is missing, and pane {max(tally.nets)} stands"


def _differs(tally: _WindowRows, expected: Expected) -> str:
    """Return the difference between the state and consistent rows."""
    current_pane = max((pane for pane, net in tally.nets.items() if net > 0), default=None)
    if current_pane != expected.pane:
        return f"{_pane(current_pane)} stands, and by the state {_pane(expected.pane)}"
    if expected.values is None or tally.newest is None or tally.newest[1] == expected.values:
        return ""
    newest_values, state_values = canonical(list(tally.newest[1])), canonical(list(expected.values))
    return f"pane {current_pane} says {newest_values}, and by the state {state_values}"


def _pane(number: int | None) -> str:
    return "none" if number is None else f"pane {number}"


# ---- values as state spells them


def _time(value: Any) -> int | None:
    """Convert a bound to the unit of times: milliseconds of an instant, or the number."""
    if isinstance(value, datetime):
        micros: Any = json_values.encode("timestamp", value)
        return int(micros) // 1000
    return None if value is None else int(value)


_UNSPELLED = ("float",)
"""Kinds of which no two places spell a value alike."""


def _coded(name: str, kind: str, raw_value: Any) -> Json:
    if raw_value is None:
        return None
    value: Any = bytes(raw_value) if isinstance(raw_value, memoryview) else raw_value
    if not _is(kind, value):
        raise UnreadableResults(f"column {name} holds {type(value).__name__}, and {kind} was written")
    if kind in _UNSPELLED:
        return None
    if size := json_values.decimal(kind):
        try:
            number: Decimal = value
            return format(number.quantize(Decimal(1).scaleb(-size[1])), "f")
        except InvalidOperation as error:
            raise UnreadableResults(f"column {name} holds more digits than {kind}") from error
    return json_values.encode(kind, value)


def _is(kind: str, value: object) -> bool:
    if json_values.decimal(kind):
        return isinstance(value, Decimal)
    if kind in json_values.INSTANTS:
        return isinstance(value, datetime)
    return isinstance(value, _PYTHON.get(kind, int))


_PYTHON: Mapping[str, type] = {
    "string": str,
    "boolean": bool,
    "float": float,
    "double": float,
    "date": date,
    "binary": bytes,
}
