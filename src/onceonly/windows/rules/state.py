"""Window keys, partial results, open state and results. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from onceonly.windows.rules.assigners import LEAST
from onceonly.windows.rules.json_values import Json
from onceonly_checkpoints.model import canonical

Kind = Literal["+I", "-U", "+U", "-D"]
Timing = Literal["EARLY", "ON_TIME", "LATE"]


class WindowKey(NamedTuple):
    """Which window of which key.

    Attributes:
        key: canonical JSON of the key's values, a list.
        start: where it begins.
        end: where it ends; what is of this time is not in it.
    """

    key: str
    start: int
    end: int


class Partial(NamedTuple):
    """What the rows of an epoch give for one window.

    Attributes:
        place: the window; of a session, what these rows alone make of it.
        values: a partial result for each value, in order.
        rows: how many.
        marks: for how many the condition of ``AtMark`` is true.
        first: the least time of these rows.
        last: the greatest.
    """

    place: WindowKey
    values: tuple[Json, ...]
    rows: int
    marks: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class EpochClock:
    """When an epoch is.

    Attributes:
        clock: the recorded one, to which timers run: never less than in the epoch before.
        noted: what is noted with the epoch; ``None`` for nothing.
        noted_before: what the epoch before noted.
    """

    clock: int
    noted: int | None
    noted_before: int | None


class WindowOutput(NamedTuple):
    """A result that stands and may be taken back.

    Attributes:
        start: of the window that it was written for.
        end: of that window.
        pane: its number.
        values: what was written.
    """

    start: int
    end: int
    pane: int
    values: list[Json]


@dataclass(frozen=True, slots=True)
class OpenWindowState:
    """The state of an open window.

    Attributes:
        place: the window.
        values: partial results: of all rows, or, where results are discarded, of those since the last one.
        fresh: rows since the last result.
        panes: results so far, and the number of the next one.
        shown: whether a result with these very bounds was written.
        emitted: results that stand, where they may be taken back.
        trigger: state of the trigger.
        wake_clock: at which clock it has something to do without a row; ``None`` for none. Not in ``body``.
        wake_time: what must be noted for that. Not in ``body``.
    """

    place: WindowKey
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
        """All but place and wakes, as canonical JSON."""
        emitted = [list(one) for one in self.emitted]
        return canonical([list(self.values), self.fresh, self.panes, int(self.shown), emitted, self.trigger])

    @classmethod
    def read(cls, place: WindowKey, body: str) -> OpenWindowState:
        """The inverse of :attr:`body`.

        Raises:
            ValueError: it is none.
        """
        try:
            values, fresh, panes, shown, emitted, trigger = json.loads(body)
            stands = tuple(WindowOutput(*one) for one in emitted)
            return cls(place, tuple(values), fresh, panes, bool(shown), stands, trigger)
        except (TypeError, ValueError) as error:
            raise ValueError(f"no state of a window: {error}") from error


class WindowResult(NamedTuple):
    """A row that sinks get.

    Attributes:
        place: the window.
        values: the results, in order.
        kind: ``+I`` the first of a window, ``-U`` and ``+U`` one that takes its place, ``-D`` one that is taken back
            because its session was absorbed.
        sign: -1 of one that is taken back.
        timing: before, when, or after the window's end was noted.
        pane: number of the result, from 0; of one that is taken back its own; a union of sessions goes on from the
            greatest of theirs.
        final: whether the window was closed in the same epoch.
        fired_at: the instant of the timer, or the clock of the epoch.
        watermark: what was noted then.
        seq: number of the row among those of its key in the epoch.
    """

    place: WindowKey
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
class StateRequest:
    """What of the state an epoch has to see.

    Attributes:
        places: these windows.
        keys: all windows of these keys, where windows merge.
        wake_clock: and those that have something to do at this clock or before.
        wake_time: and those that wait for what is noted now; ``None`` where nothing is.
    """

    places: tuple[WindowKey, ...]
    keys: tuple[str, ...]
    wake_clock: int
    wake_time: int | None


@dataclass(frozen=True, slots=True)
class Stepped:
    """What an epoch makes of its windows.

    Attributes:
        rows: what sinks get.
        kept: windows that are open, those that changed.
        gone: windows that are open no more.
        dropped: rows that came after their window was closed, each once for each of these windows.
    """

    rows: tuple[WindowResult, ...]
    kept: tuple[OpenWindowState, ...]
    gone: tuple[WindowKey, ...]
    dropped: int
