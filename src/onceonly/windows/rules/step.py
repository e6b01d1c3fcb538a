"""Step windows by an epoch: timers, rows, watermark, closing. Pure.

An epoch is an instant. Its clock and its time were recorded by the engine and by the epochs before, so a replay takes
the same steps. The order of phases is that of a runner in Beam's model. Unlike there, noted time decides, and not the
rows that were read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from onceonly.protocol.capabilities import StateWanted
from onceonly.windows.rules import json_values, triggers
from onceonly.windows.rules.assigners import LEAST, Span, merged
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import (
    EpochClock,
    Kind,
    OpenWindowState,
    Partial,
    Stepped,
    Timing,
    WindowKey,
    WindowOutput,
    WindowResult,
)
from onceonly.windows.rules.triggers import WAIT, Event, Passed, Rows, Tick
from onceonly_checkpoints.model import canonical


def state_request(definition: Definition, moment: EpochClock, partials: Sequence[Partial]) -> StateWanted:
    """Return the state that an epoch must read: all windows of a key if windows merge. It may get more."""
    window_keys = [partial.window_key for partial in _timely(definition, moment, partials)]
    places = () if definition.sessions else tuple(window_keys)
    keys = tuple(dict.fromkeys(window_key.key for window_key in window_keys)) if definition.sessions else ()
    return StateWanted(places, keys, moment.clock, moment.complete_until)


def step(
    definition: Definition, moment: EpochClock, held: Iterable[OpenWindowState], partials: Sequence[Partial]
) -> Stepped:
    """Step the windows by an epoch. The order of ``held`` and ``partials`` does not matter.

    ``held`` is the state as the epoch before left it, at least that of :func:`wanted`. ``partials`` has each window
    once.
    """
    work = _Epoch(definition, moment, {state.window_key: _Open.of(state) for state in held})
    work.ticks()
    dropped = work.takes(partials)
    work.passes()
    work.closes()
    return Stepped(tuple(work.numbered()), *work.left(), dropped)


def _timely(definition: Definition, moment: EpochClock, partials: Sequence[Partial]) -> list[Partial]:
    """Return partial results of windows that no epoch before closed."""
    closed_end = definition.closed_end(moment.noted_before)
    return [partial for partial in partials if partial.window_key.end > closed_end]


_TICKS, _TAKES, _PASSES, _CLOSES = range(4)
"""The phases of an epoch, in order."""


@dataclass(slots=True)
class _Open:
    """An :class:`OpenWindowState` that changes in place during its epoch: copies would cost most of the time."""

    window_key: WindowKey
    values: tuple[Json, ...]
    fresh: int = 0
    panes: int = 0
    shown: bool = False
    emitted: tuple[WindowOutput, ...] = ()
    trigger: Json = None
    changed: bool = False

    @classmethod
    def of(cls, state: OpenWindowState) -> _Open:
        return cls(state.window_key, state.values, state.fresh, state.panes, state.shown, state.emitted, state.trigger)


_Head = tuple[WindowKey, tuple[Json, ...], Kind, int, Timing, int]
"""Of a pane row what is known when it is written; whether it is the last one, and its number, are known at the end."""


class _Result(NamedTuple):
    """A result with its retractions, in the order of its rows."""

    order: tuple[str, int, int, int]
    heads: list[_Head]
    fired_at: int
    watermark: int | None


class _Epoch:
    def __init__(self, definition: Definition, moment: EpochClock, held: dict[WindowKey, _Open]) -> None:
        self._is, self._at = definition, moment
        self._before = LEAST if moment.noted_before is None else moment.noted_before
        self._now = LEAST if moment.complete_until is None else moment.complete_until
        self._open = held
        self._initial_keys = tuple(held)
        self._closed: set[WindowKey] = set()
        self._results: list[_Result] = []

    # ---- the four phases

    def ticks(self) -> None:
        """Fire due timers on the state before the epoch. Of several one fires, because nothing changed in between."""
        for window in self._open.values():
            while (due := triggers.wakes(self._is.trigger, window.trigger)) is not None and due <= self._at.clock:
                if self._fires(window, Tick(due)) and window.fresh:
                    self._emit(_TICKS, window, due)

    def takes(self, partials: Sequence[Partial]) -> int:
        """Join the rows, after windows that merge have merged. Return how many came too late."""
        timely = _timely(self._is, self._at, partials)
        if self._is.sessions:
            timely = self._united(timely)
        for partial in timely:
            if window := self._open.get(partial.window_key):
                window.values = _merged(self._is, window.values, partial.values)
            else:
                window = self._begun(partial)
            window.fresh += partial.rows
            window.changed = True
            if self._fires(window, Rows(partial.rows, partial.marks, self._at.clock)):
                self._emit(_TAKES, window, self._at.clock)
        return sum(candidate.rows for candidate in partials) - sum(candidate.rows for candidate in timely)

    def passes(self) -> None:
        """Fire the windows whose end the noted time has passed."""
        for window in self._open.values():
            if self._before < window.window_key.end <= self._now:
                window.changed = True
                if self._fires(window, Passed()) and (window.fresh or self._is.panes.on_time == "always"):
                    self._emit(_PASSES, window, self._at.clock)

    def closes(self) -> None:
        """Remove windows that take no rows any more, with a last result if one is due."""
        closed_end = self._is.closed_end(self._now)
        for window in [window for window in self._open.values() if window.window_key.end <= closed_end]:
            if window.fresh:
                self._emit(_CLOSES, window, self._at.clock)
            del self._open[window.window_key]
            self._closed.add(window.window_key)

    # ---- windows

    def _begun(self, partial: Partial) -> _Open:
        window = self._open[partial.window_key] = _Open(partial.window_key, partial.values)
        if partial.window_key.end <= self._before:
            self._fires(window, Passed())  # it is late from its beginning: its result on time was due before
        return window

    def _fires(self, window: _Open, event: Event) -> bool:
        after, outcome = triggers.advanced(self._is.trigger, window.trigger, event)
        if after != window.trigger:
            window.trigger, window.changed = after, True
        return outcome is not WAIT

    def _united(self, partials: Sequence[Partial]) -> list[Partial]:
        """Merge a key's sessions that overlap. The rows of the epoch then belong to the union."""
        by_key: defaultdict[str, list[Partial]] = defaultdict(list)
        for partial in partials:
            by_key[partial.window_key.key].append(partial)
        open_keys: defaultdict[str, list[WindowKey]] = defaultdict(list)
        for window_key in self._open:
            if window_key.key in by_key:
                open_keys[window_key.key].append(window_key)
        return [union for key, own in by_key.items() for union in self._united_of(key, open_keys[key], own)]

    def _united_of(self, key: str, places: Sequence[WindowKey], partials: Sequence[Partial]) -> Iterator[Partial]:
        spans = [
            (window_key.start, window_key.end)
            for window_key in (*places, *(partial.window_key for partial in partials))
        ]
        for (start, end), members in merged(spans):
            came = [partials[at - len(places)] for at in sorted(members) if at >= len(places)]
            if not came:
                continue
            union_key = WindowKey(key, start, end)
            self._absorb(union_key, [places[at] for at in sorted(members) if at < len(places)])
            yield joined(self._is, union_key, came)

    def _absorb(self, union_key: WindowKey, places: Sequence[WindowKey]) -> None:
        """Move a session's partial results, waiting rows and retractable results into the union."""
        if not places or tuple(places) == (union_key,):
            return
        olds = [self._open.pop(window_key) for window_key in places]
        fresh = sum(old.fresh for old in olds)
        self._open[union_key] = _Open(
            union_key,
            _merged(self._is, *(old.values for old in olds)),
            fresh,
            max(old.panes for old in olds),
            False,  # nothing was written with its bounds: sessions that stand do not overlap
            tuple(sorted(emitted for old in olds for emitted in old.emitted)),
            triggers.united(self._is.trigger, fresh, self._at.clock, passed=union_key.end <= self._before),
            changed=True,
        )

    # ---- results

    def _emit(self, phase: int, window: _Open, fired_at: int) -> None:
        """Write a result, and retract the current ones if accumulation is retracting."""
        how, window_key = self._is.panes.accumulation, window.window_key
        late = window_key.end <= self._before
        timing: Timing = "LATE" if late else "EARLY" if phase < _PASSES else "ON_TIME"
        values = self._values(window)
        kind: Kind = "+U" if window.shown and how != "discarding" else "+I"
        heads = [_taken_back(window_key, old, timing) for old in window.emitted]
        heads.append((window_key, values, kind, 1, timing, window.panes))
        complete_until = self._before if phase < _PASSES else self._now
        order = (window_key.key, phase, window_key.end, window_key.start)
        self._results.append(_Result(order, heads, fired_at, None if complete_until == LEAST else complete_until))
        if how == "discarding":
            window.values = (None,) * len(values)
        window.emitted = (
            (WindowOutput(window_key.start, window_key.end, window.panes, list(values)),) if how == "retracting" else ()
        )
        window.fresh, window.panes, window.shown, window.changed = 0, window.panes + 1, True, True

    def _values(self, window: _Open) -> tuple[Json, ...]:
        if self._is.panes.accumulation == "discarding" and not window.fresh:
            return tuple([fold.nothing for fold in self._is.folds])
        return tuple([fold.result(value) for fold, value in zip(self._is.folds, window.values, strict=True)])

    # ---- what is left

    def numbered(self) -> Iterator[WindowResult]:
        """Number the rows within their key, and mark the last one of a closed window."""
        ordered = sorted(self._results, key=itemgetter(0))
        last = {candidate.heads[-1][0]: candidate for candidate in ordered if candidate.heads[-1][0] in self._closed}
        key, seq = None, 0
        for pane_result in ordered:
            if pane_result.order[0] != key:
                key, seq = pane_result.order[0], 0
            ends = last.get(pane_result.heads[-1][0]) is pane_result
            for head in pane_result.heads:
                yield WindowResult(*head, ends and head[3] > 0, pane_result.fired_at, pane_result.watermark, seq)
                seq += 1

    def left(self) -> tuple[tuple[OpenWindowState, ...], tuple[WindowKey, ...]]:
        """Return open windows that changed, and those that closed."""
        states = tuple([self._open_state(window) for window in self._open.values() if window.changed])
        return states, tuple(window_key for window_key in self._initial_keys if window_key not in self._open)

    def _open_state(self, window: _Open) -> OpenWindowState:
        end = window.window_key.end
        wake_clock = triggers.wakes(self._is.trigger, window.trigger)
        wake_time = end if end > self._now else self._is.closes(end)
        state = (window.values, window.fresh, window.panes, window.shown, window.emitted, window.trigger)
        return OpenWindowState(window.window_key, *state, wake_clock=wake_clock, wake_time=wake_time)


def _taken_back(window_key: WindowKey, old: WindowOutput, timing: Timing) -> _Head:
    old_key = WindowKey(window_key.key, old.start, old.end)
    return old_key, tuple(old.values), "-U" if old_key == window_key else "-D", -1, timing, old.pane


# ---- Compute partial results of few rows in this process.
#
# The rules are those by which Spark computes them for many rows.


class Row(NamedTuple):
    """Values that windows take of a row.

    Attributes:
        time: in the unit of the definition, or ``None`` without one.
        inputs: values of ``Windows.expressions``, in order.
        mark: whether the condition of ``AtMark`` is true.
        own: the window that the row names, for ``Custom``.
    """

    key: Sequence[Any]
    time: int | None
    inputs: Sequence[Any]
    mark: bool = False
    own: Span | None = None


def key_text(definition: Definition, key: Sequence[Any]) -> str:
    """Return a key as in state and partial results: canonical JSON of its values."""
    return canonical([json_values.encode(kind, value) for kind, value in zip(definition.key_kinds, key, strict=True)])


def partials_of(definition: Definition, rows: Iterable[Row]) -> list[Partial]:
    """Return the partial results of rows by window. Rows without a time are in none."""
    at = {text: position for position, text in enumerate(definition.panes.expressions)}
    takes = [[at[text] for text in value.inputs] for value in definition.panes.aggregates.values()]
    sums: dict[WindowKey, _Sum] = {}
    for row in rows:
        if row.time is None:
            continue
        key = key_text(definition, row.key)
        for start, end in definition.spans(row.time, row.own):
            window_sum = sums.setdefault(WindowKey(key, start, end), _Sum([None] * len(takes), row.time, row.time))
            window_sum.add(definition, takes, row, row.time)
    partials = [total.partial(window_key) for window_key, total in sums.items()]
    return sessions(definition, partials) if definition.sessions else partials


def sessions(definition: Definition, partials: Sequence[Partial]) -> list[Partial]:
    """Merge partial results of a key's sessions that overlap."""
    by_key: dict[str, list[Partial]] = {}
    for partial in partials:
        by_key.setdefault(partial.window_key.key, []).append(partial)
    joined_partials: list[Partial] = []
    for key, own in by_key.items():
        for (start, end), members in merged(
            (own_partial.window_key.start, own_partial.window_key.end) for own_partial in own
        ):
            joined_partials.append(joined(definition, WindowKey(key, start, end), [own[at] for at in sorted(members)]))
    return joined_partials


def joined(definition: Definition, window_key: WindowKey, partials: Sequence[Partial]) -> Partial:
    """Merge several partial results."""
    if len(partials) == 1:
        return partials[0]._replace(window_key=window_key)
    values = _merged(definition, *(partial.values for partial in partials))
    rows, marks = sum(partial.rows for partial in partials), sum(partial.marks for partial in partials)
    first, last = min(partial.first for partial in partials), max(partial.last for partial in partials)
    return Partial(window_key, values, rows, marks, first, last)


def _merged(definition: Definition, values: tuple[Json, ...], *others: tuple[Json, ...]) -> tuple[Json, ...]:
    for other in others:
        values = tuple([fold.merged(a, b) for fold, a, b in zip(definition.folds, values, other, strict=True)])
    return values


@dataclass(slots=True)
class _Sum:
    values: list[Json]
    first: int
    last: int
    count: int = 0
    marks: int = 0

    def add(self, definition: Definition, takes: Sequence[Sequence[int]], row: Row, time: int) -> None:
        for at, (fold, inputs) in enumerate(zip(definition.folds, takes, strict=True)):
            self.values[at] = fold.add(self.values[at], [row.inputs[index] for index in inputs])
        self.count += 1
        self.marks += row.mark
        self.first, self.last = min(self.first, time), max(self.last, time)

    def partial(self, window_key: WindowKey) -> Partial:
        return Partial(window_key, tuple(self.values), self.count, self.marks, self.first, self.last)
