"""Values of the window engine: places, partial results, state and pane rows.

Pure.
"""

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
    """A window of a key. ``end`` is exclusive. The key is a list of its values in canonical JSON."""

    key: str
    start: int
    end: int


class Partial(NamedTuple):
    """Partial result of an epoch's rows for one window.

    Attributes:
        place: the window. For sessions, the session of these rows alone.
        values: a partial result for each value, in order.
        marks: number of rows for which the condition of ``AtMark`` is true.
        first: least time of these rows.
        last: greatest time.
    """

    place: WindowKey
    values: tuple[Json, ...]
    rows: int
    marks: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class EpochClock:
    """Clock and noted time of an epoch.

    The clock is recorded, for timers, and never less than in the epoch before. ``noted_before`` was noted with that
    epoch.
    """

    clock: int
    noted: int | None
    noted_before: int | None


class WindowOutput(NamedTuple):
    """A current result that may be taken back, with the bounds of the window for which it was written."""

    start: int
    end: int
    pane: int
    values: list[Json]


@dataclass(frozen=True, slots=True)
class OpenWindowState:
    """The state of an open window.

    Attributes:
        values: partial results of all rows, or, with discarding, of those since the last result.
        fresh: rows since the last result.
        panes: number of results so far, which is the number of the next one.
        shown: whether a result with these very bounds was written.
        emitted: current results, if they may be taken back.
        trigger: state of the trigger.
        wake_clock: clock at which it acts without a row. ``None`` for none. Not in ``body``.
        wake_time: noted time at which it acts. Not in ``body``.
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
            ValueError: it is no state of a window.
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
        values: the results, in order.
        kind: ``+I`` the first of a window, ``-U`` and ``+U`` a replacement, ``-D`` a result that is taken back because
            its session was absorbed.
        sign: -1 for a result that is taken back.
        timing: before, when, or after the window's end was noted.
        pane: number of the result, from 0. A retraction has the number of its result. A union of sessions goes on from
            the greatest of theirs.
        final: whether the window was closed in the same epoch.
        fired_at: the instant of the timer, or the clock of the epoch.
        watermark: noted time at that moment.
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
    """State that an epoch has to read: that of ``places``, and of all windows of ``keys`` if windows merge.

    Windows that act at ``wake_clock`` or before belong to it. So do those that wait for ``wake_time``, the time that is
    noted now, or ``None``.
    """

    places: tuple[WindowKey, ...]
    keys: tuple[str, ...]
    wake_clock: int
    wake_time: int | None


@dataclass(frozen=True, slots=True)
class Stepped:
    """Result of an epoch: pane rows, open windows that changed (``kept``), and windows that are no longer open.

    ``dropped`` counts rows that came after their window was closed, each once for each of these windows.
    """

    rows: tuple[WindowResult, ...]
    kept: tuple[OpenWindowState, ...]
    gone: tuple[WindowKey, ...]
    dropped: int
