"""Judge window results against each other and against window state.

The state of an open window lists its current results. The state of a closed window is gone, so its rows are judged
alone. A replaced result was taken back, one result remains, and no pane number is missing. The source is not read.
Pure.
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
from onceonly_checkpoints.epoch_time import END
from onceonly_checkpoints.epoch_windows import ResultSchema
from onceonly_checkpoints.model import canonical

Window = tuple[str, int | None, int | None]
"""Key in canonical JSON, start and end; no bound where its column is null."""


class UnreadableResults(Exception):
    """Rows or state cannot be read as those of windows. The text has the reason."""


@dataclass(frozen=True, slots=True)
class WindowMismatch:
    """A window with wrong rows. ``epoch`` is that of its newest row, or the one that wrote its state."""

    epoch: int
    evidence: str


@dataclass(frozen=True, slots=True)
class Expected:
    """The result that the state of an open window expects.

    Attributes:
        epoch: that wrote the state.
        pane: number of the current result. ``None`` if none was written with these bounds.
        values: of this result, if the state holds them.
    """

    epoch: int
    pane: int | None = None
    values: tuple[Json, ...] | None = None


# ---- windows by the state


def expect(found: dict[Window, Expected], form: ResultSchema, row: StateRow) -> None:
    """Add the expected results of an open window, from its row of state, to ``found``.

    Raises:
        Untold: it is no state of a window.
    """
    place = WindowKey(row.key, row.start, row.stop)
    try:
        kept = OpenWindowState.read(place, row.body)
    except ValueError as error:
        raise UnreadableResults(f"the state of {named(window_of(*place))} says: {error}") from error
    found.setdefault(window_of(*place), Expected(row.epoch))
    if form.accumulation == "retracting":
        for one in kept.emitted:
            values = zip(one.values, form.values, strict=True)
            said = tuple(None if kind in _UNSPELLED else value for value, (_, kind) in values)
            found[window_of(row.key, one.start, one.end)] = Expected(row.epoch, one.pane, said)
    elif kept.shown:
        found[window_of(*place)] = Expected(row.epoch, kept.panes - 1)


def window_of(key: str, start: int, end: int) -> Window:
    """A window by its place in state, where a missing bound is the farthest number."""
    return key, None if start in (LEAST, END) else start, None if end in (LEAST, END) else end


def named(window: Window) -> str:
    """A window in words."""
    key, start, end = window
    return f"the window of key {key} from {_bound(start)} to {_bound(end)}"


def _bound(at: int | None) -> str:
    return "ever" if at is None else str(at)


# ---- windows by their rows


class Result(NamedTuple):
    """Content of a row of panes. Values are encoded as in state. ``sign`` is -1 for a row that takes one back."""

    window: Window
    kind: str
    sign: int
    pane: int
    values: tuple[Json, ...]


def read(form: ResultSchema, row: Mapping[str, Any]) -> Result:
    """Read a row of panes.

    Raises:
        Untold: it has other columns than a row of panes, or values of other types.
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
class _Seen:
    """Rows of one window so far."""

    first: int
    last: int = 0
    nets: dict[int, int] = field(default_factory=dict[int, int])
    absorbed: bool = False
    begins: bool = False
    odd: str = ""
    newest: tuple[int, tuple[Json, ...]] | None = None


class Rows:
    """Add up rows of panes, window by window.

    ``unjudged`` is the newest epoch of the sink whose rows are not judged, or 0. A window that began in it or before is
    known in part.
    """

    def __init__(self, form: ResultSchema, unjudged: int = 0) -> None:
        self._form, self._unjudged = form, unjudged
        self._seen: dict[tuple[int, Window], _Seen] = {}

    def add(self, since: int, epoch: int, row: Mapping[str, Any]) -> None:
        """Add a row that ``epoch`` wrote. ``since`` is the first epoch of those whose windows continue each other.

        Raises:
            Untold: it has other columns than a row of panes, or values of other types.
        """
        window, kind, sign, pane, values = read(self._form, row)
        one = self._seen.setdefault((since, window), _Seen(epoch))
        one.first, one.last = min(one.first, epoch), max(one.last, epoch)
        one.nets[pane] = one.nets.get(pane, 0) + sign
        one.absorbed = one.absorbed or kind == "-D"
        one.begins = one.begins or (kind == "+I" and pane == 0)
        if sign != (-1 if kind in ("-U", "-D") else 1):
            one.odd = one.odd or f"a row of pane {pane} is {kind} and has sign {sign}"
        if sign > 0 and (one.newest is None or pane >= one.newest[0]):
            one.newest = pane, values

    def closed(self, before: int | None) -> Iterator[WindowMismatch]:
        """Judge windows that get no more rows, and forget them: those that end at ``before`` or earlier."""
        # What a session had written is taken back when the union of it writes: that may be after its own end.
        if before is None or (self._form.merges and self._form.accumulation == "retracting"):
            return
        over = [one for one in self._seen if (END if one[1][2] is None else one[1][2]) <= before]
        for place in over:
            yield from self._judged(place[1], self._seen.pop(place), None)

    def left(self, since: int, state: Mapping[Window, Expected] | None) -> Iterator[WindowMismatch]:
        """Judge all others.

        ``since`` is the first epoch of those whose windows the state covers. ``state`` has the expected results of open
        windows, or is ``None``.
        """
        state = state or {}
        for (began, window), one in self._seen.items():
            yield from self._judged(window, one, state.get(window) if began == since else None)
        if self._unjudged < since:
            there = {window for began, window in self._seen if began == since}
            for window, wanted in state.items():
                if wanted.pane is not None and window not in there:
                    yield WindowMismatch(
                        wanted.epoch, f"{named(window)}: by the state pane {wanted.pane} stands, and no row does"
                    )

    def _judged(self, window: Window, one: _Seen, wanted: Expected | None) -> Iterator[WindowMismatch]:
        whole = one.begins or self._form.upserts
        if one.first <= self._unjudged or (self._unjudged and not whole):
            return
        if said := one.odd or self._wrong(one):
            yield WindowMismatch(one.last, f"{named(window)}: {said}")
        elif wanted and (said := _differs(one, wanted)):
            yield WindowMismatch(max(one.last, wanted.epoch), f"{named(window)}: {said}")

    def _wrong(self, one: _Seen) -> str:
        """Contradictions among its own rows."""
        if self._form.upserts:
            return ""
        taken = self._form.accumulation == "retracting"
        for pane, net in sorted(one.nets.items()):
            if net > 1:
                return f"pane {pane} stands {net} times"
            if net < (0 if taken else 1):
                return f"pane {pane} was taken back, and no row says that it was written"
        return _replaced(one) if taken else _gap(one, begin=min(one.nets) if self._form.merges else 0)


def _replaced(one: _Seen) -> str:
    """The error of a window whose results are taken back before a replacement."""
    greatest, stands = max(one.nets), sorted(pane for pane, net in one.nets.items() if net)
    if len(stands) > 1:
        return f"panes {', '.join(map(str, stands))} stand, and one alone may"
    if not stands:
        return "" if one.absorbed else f"pane {greatest} was taken back, and nothing stands in its place"
    return f"pane {stands[0]} stands, and pane {greatest} was taken back" if stands[0] < greatest else ""


def _gap(one: _Seen, begin: int) -> str:
    """The error of a window whose results all remain."""
    missing = next((pane for pane in range(begin, max(one.nets)) if pane not in one.nets), None)
    return "" if missing is None else f"pane {missing} is missing, and pane {max(one.nets)} stands"


def _differs(one: _Seen, wanted: Expected) -> str:
    """Contradictions between the state and rows that are consistent among themselves."""
    stands = max((pane for pane, net in one.nets.items() if net > 0), default=None)
    if stands != wanted.pane:
        return f"{_pane(stands)} stands, and by the state {_pane(wanted.pane)}"
    if wanted.values is None or one.newest is None or one.newest[1] == wanted.values:
        return ""
    return f"pane {stands} says {canonical(list(one.newest[1]))}, and by the state {canonical(list(wanted.values))}"


def _pane(number: int | None) -> str:
    return "none" if number is None else f"pane {number}"


# ---- values as state spells them


def _time(value: Any) -> int | None:
    """A bound in the unit of times: milliseconds of an instant, or the number."""
    if isinstance(value, datetime):
        micros: Any = json_values.encode("timestamp", value)
        return int(micros) // 1000
    return None if value is None else int(value)


_UNSPELLED = ("float",)
"""Kinds of which no two places spell a value alike."""


def _coded(name: str, kind: str, given: Any) -> Json:
    if given is None:
        return None
    value: Any = bytes(given) if isinstance(given, memoryview) else given
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
