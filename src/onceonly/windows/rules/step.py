"""Step one epoch of windows: timers, rows, noted time, closing.

Timers fire on the old state. Then rows are added, noted time passes ends, and windows close. The step is pure, and
deterministic in a tie. An epoch is an instant. The engine and the epochs before recorded its clock and its time, so a
replay takes the same steps. The order of phases is that of a runner in Beam's model. Here noted time decides, not the
rows that were read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from onceonly.windows.rules import triggers
from onceonly.windows.rules.assigners import LEAST, merged
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import (
    EpochClock,
    Kind,
    OpenWindowState,
    Partial,
    StateRequest,
    Stepped,
    Timing,
    WindowKey,
    WindowOutput,
    WindowResult,
)
from onceonly.windows.rules.triggers import WAIT, Event, Passed, Rows, Tick


def wanted(definition: Definition, moment: EpochClock, partials: Sequence[Partial]) -> StateRequest:
    """State that an epoch has to read. More does no harm.

    ``partials`` are those of its rows.
    """
    taken = [partial.place for partial in partials if not _late(definition, moment, partial)]
    places = () if definition.sessions else tuple(taken)
    keys = tuple(dict.fromkeys(place.key for place in taken)) if definition.sessions else ()
    return StateRequest(places, keys, moment.clock, moment.noted)


def step(
    definition: Definition, moment: EpochClock, held: Sequence[OpenWindowState], partials: Sequence[Partial]
) -> Stepped:
    """Step the windows of an epoch. The order of ``held`` and ``partials`` does not matter.

    ``held`` is the state that the epoch before left: the result of :func:`wanted`, or more. ``partials`` has each
    window once.
    """
    work = _Epoch(definition, moment, {one.place: _Open.of(one) for one in held})
    work.ticks()
    dropped = work.takes(partials)
    work.passes()
    work.closes()
    return Stepped(tuple(work.numbered()), *work.left(), dropped)


def _late(definition: Definition, moment: EpochClock, partial: Partial) -> bool:
    noted = moment.noted_before
    return noted is not None and definition.closes(partial.place.end) <= noted


_TICKS, _TAKES, _PASSES, _CLOSES = range(4)
"""The phases of an epoch, in order."""


@dataclass(slots=True)
class _Open:
    """A window during its epoch: :class:`OpenWindowState`, but mutable. Copies would cost most of the time."""

    place: WindowKey
    values: tuple[Json, ...]
    fresh: int = 0
    panes: int = 0
    shown: bool = False
    emitted: tuple[WindowOutput, ...] = ()
    trigger: Json = None
    changed: bool = False

    @classmethod
    def of(cls, kept: OpenWindowState) -> _Open:
        return cls(kept.place, kept.values, kept.fresh, kept.panes, kept.shown, kept.emitted, kept.trigger)


_Head = tuple[WindowKey, tuple[Json, ...], Kind, int, Timing, int]
"""Of a pane row what is known when it is written; whether it is the last one, and its number, are known at the end."""


class _Result(NamedTuple):
    """A result and its retractions, in the order of their rows."""

    order: tuple[str, int, int, int]
    heads: list[_Head]
    fired_at: int
    watermark: int | None


class _Epoch:
    def __init__(self, definition: Definition, moment: EpochClock, held: dict[WindowKey, _Open]) -> None:
        self._is, self._at = definition, moment
        self._before = LEAST if moment.noted_before is None else moment.noted_before
        self._now = LEAST if moment.noted is None else moment.noted
        self._open = held
        self._stood = tuple(held)
        self._closed: set[WindowKey] = set()
        self._results: list[_Result] = []

    # ---- the four phases

    def ticks(self) -> None:
        """Fire due timers on the old state. Of several, one writes a result, for nothing changed in between."""
        for one in self._open.values():
            while (due := triggers.wakes(self._is.trigger, one.trigger)) is not None and due <= self._at.clock:
                if self._fires(one, Tick(due)) and one.fresh:
                    self._emit(_TICKS, one, due)

    def takes(self, partials: Sequence[Partial]) -> int:
        """Add rows to their windows, after merging sessions. Returns the number of rows that came too late."""
        taken = [one for one in partials if not _late(self._is, self._at, one)]
        if self._is.sessions:
            taken = self._united(taken)
        for partial in taken:
            one = self._open.get(partial.place) or self._begun(partial.place)
            one.values = self._merged(one.values, partial.values)
            one.fresh += partial.rows
            one.changed = True
            if self._fires(one, Rows(partial.rows, partial.marks, self._at.clock)):
                self._emit(_TAKES, one, self._at.clock)
        return sum(one.rows for one in partials) - sum(one.rows for one in taken)

    def passes(self) -> None:
        """Fire windows whose end noted time passes."""
        for one in self._open.values():
            if self._before < one.place.end <= self._now:
                one.changed = True
                if self._fires(one, Passed()) and (one.fresh or self._is.panes.on_time == "always"):
                    self._emit(_PASSES, one, self._at.clock)

    def closes(self) -> None:
        """Close windows that take no more rows, with a last result if one is due."""
        for place, one in list(self._open.items()):
            if self._is.closes(place.end) <= self._now:
                if one.fresh:
                    self._emit(_CLOSES, one, self._at.clock)
                del self._open[place]
                self._closed.add(place)

    # ---- windows

    def _begun(self, place: WindowKey) -> _Open:
        one = self._open[place] = _Open(place, (None,) * len(self._is.folds))
        if place.end <= self._before:
            self._fires(one, Passed())  # it is late from its beginning: its result on time was due before
        return one

    def _fires(self, one: _Open, event: Event) -> bool:
        after, outcome = triggers.advanced(self._is.trigger, one.trigger, event)
        if after != one.trigger:
            one.trigger, one.changed = after, True
        return outcome is not WAIT

    def _united(self, partials: Sequence[Partial]) -> list[Partial]:
        """Merge overlapping sessions of a key. The rows of the epoch then belong to the union."""
        by_key: defaultdict[str, list[Partial]] = defaultdict(list)
        for partial in partials:
            by_key[partial.place.key].append(partial)
        standing: defaultdict[str, list[WindowKey]] = defaultdict(list)
        for place in self._open:
            if place.key in by_key:
                standing[place.key].append(place)
        return [one for key, own in by_key.items() for one in self._united_of(key, standing[key], own)]

    def _united_of(self, key: str, places: Sequence[WindowKey], partials: Sequence[Partial]) -> Iterator[Partial]:
        spans = [(place.start, place.end) for place in (*places, *(partial.place for partial in partials))]
        for (start, end), members in merged(spans):
            came = [partials[at - len(places)] for at in sorted(members) if at >= len(places)]
            if not came:
                continue
            place = WindowKey(key, start, end)
            self._absorb(place, [places[at] for at in sorted(members) if at < len(places)])
            yield self._sum(place, came)

    def _sum(self, place: WindowKey, partials: Sequence[Partial]) -> Partial:
        first = partials[0]
        if len(partials) == 1:
            return first._replace(place=place)
        values = self._joined([partial.values for partial in partials])
        return first._replace(place=place, values=values, rows=sum(partial.rows for partial in partials))

    def _joined(self, several: Sequence[tuple[Json, ...]]) -> tuple[Json, ...]:
        found = several[0]
        for other in several[1:]:
            found = self._merged(found, other)
        return found

    def _merged(self, one: tuple[Json, ...], other: tuple[Json, ...]) -> tuple[Json, ...]:
        return tuple([fold.merged(a, b) for fold, a, b in zip(self._is.folds, one, other, strict=True)])

    def _absorb(self, place: WindowKey, places: Sequence[WindowKey]) -> None:
        """Move partial results, waiting rows and retractable results of sessions to their union."""
        if not places or tuple(places) == (place,):
            return
        olds = [self._open.pop(one) for one in places]
        fresh = sum(old.fresh for old in olds)
        self._open[place] = _Open(
            place,
            self._joined([old.values for old in olds]),
            fresh,
            max(old.panes for old in olds),
            False,  # nothing was written with its bounds: sessions that stand do not overlap
            tuple(sorted(emitted for old in olds for emitted in old.emitted)),
            triggers.united(self._is.trigger, fresh, self._at.clock, passed=place.end <= self._before),
            changed=True,
        )

    # ---- results

    def _emit(self, phase: int, one: _Open, fired_at: int) -> None:
        """Write a result, and with retracting take back the current one."""
        how, place = self._is.panes.accumulation, one.place
        late = place.end <= self._before
        timing: Timing = "LATE" if late else "EARLY" if phase < _PASSES else "ON_TIME"
        values = self._values(one)
        kind: Kind = "+U" if one.shown and how != "discarding" else "+I"
        heads = [_taken_back(place, old, timing) for old in one.emitted]
        heads.append((place, values, kind, 1, timing, one.panes))
        noted = self._before if phase < _PASSES else self._now
        order = (place.key, phase, place.end, place.start)
        self._results.append(_Result(order, heads, fired_at, None if noted == LEAST else noted))
        if how == "discarding":
            one.values = (None,) * len(values)
        one.emitted = (WindowOutput(place.start, place.end, one.panes, list(values)),) if how == "retracting" else ()
        one.fresh, one.panes, one.shown, one.changed = 0, one.panes + 1, True, True

    def _values(self, one: _Open) -> tuple[Json, ...]:
        if self._is.panes.accumulation == "discarding" and not one.fresh:
            return tuple([fold.nothing for fold in self._is.folds])
        return tuple([fold.result(value) for fold, value in zip(self._is.folds, one.values, strict=True)])

    # ---- what is left

    def numbered(self) -> Iterator[WindowResult]:
        """The rows in their order, numbered within their key. The last one of a closed window is final."""
        ordered = sorted(self._results, key=itemgetter(0))
        last = {one.heads[-1][0]: one for one in ordered if one.heads[-1][0] in self._closed}
        key, seq = None, 0
        for one in ordered:
            if one.order[0] != key:
                key, seq = one.order[0], 0
            ends = last.get(one.heads[-1][0]) is one
            for head in one.heads:
                yield WindowResult(*head, ends and head[3] > 0, one.fired_at, one.watermark, seq)
                seq += 1

    def left(self) -> tuple[tuple[OpenWindowState, ...], tuple[WindowKey, ...]]:
        """Open windows that changed, and windows that are gone."""
        kept = tuple([self._kept(one) for one in self._open.values() if one.changed])
        return kept, tuple(place for place in self._stood if place not in self._open)

    def _kept(self, one: _Open) -> OpenWindowState:
        end = one.place.end
        wake_clock = triggers.wakes(self._is.trigger, one.trigger)
        wake_time = end if end > self._now else self._is.closes(end)
        state = (one.values, one.fresh, one.panes, one.shown, one.emitted, one.trigger)
        return OpenWindowState(one.place, *state, wake_clock=wake_clock, wake_time=wake_time)


def _taken_back(place: WindowKey, old: WindowOutput, timing: Timing) -> _Head:
    """A written row, again, with sign -1."""
    stood = WindowKey(place.key, old.start, old.end)
    return stood, tuple(old.values), "-U" if stood == place else "-D", -1, timing, old.pane
