"""Measure the event times of an epoch's rows.

It holds the request, the answer, and the computation over rows in Arrow form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.model import Slice, SourceIdentity

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Clock:
    """The request for the event times of an epoch, before its action.

    Attributes:
        unit: of the requested figures.
        horizon: rows before it are late. ``None`` where nothing was noted yet.
    """

    column: str
    unit: Unit = "ms"
    horizon: int | None = None


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Event times of an epoch's good rows, in the clock's unit.

    Attributes:
        first: the least time. ``None`` where no row has one.
        untimed: number of rows whose time is null.
        callback_time: the time up to which the user's function declares data complete. ``None`` without an answer.
        unsaid: why it has no answer. Empty where it has one.
    """

    first: int | None = None
    last: int | None = None
    late: int = 0
    untimed: int = 0
    callback_time: int | None = None
    unsaid: str = ""


NO_TIMES = RowTimes()
"""Of an epoch without rows, and where nobody asked."""


@dataclass(frozen=True, slots=True)
class TimedEpoch:
    """Argument of an ``event_time=`` function: an epoch before its commit.

    Attributes:
        slice: offset range that it reads of the sources.
        first: the least time of its rows, in the unit of the column. ``None`` without one. ``last`` is the greatest.
        ingest: the engine's recorded clock for the batch, milliseconds since 1970. A replay has the same.
        previous: the time that the epoch before recorded. ``None`` before the first.
        sources: the sources of these offsets.
    """

    number: int
    slice: Slice
    rows: int
    first: int | None
    last: int | None
    ingest: int
    previous: int | None
    sources: tuple[SourceIdentity, ...] = ()


@dataclass(frozen=True, slots=True)
class NoEventTime:
    """Replaces a noted time that could not be computed: the previous one remains valid, and no reader waits.

    ``reason`` must hold no secret.
    """

    reason: str


_STEPS = 1000
"""Microseconds, which rows have, in a millisecond, which is noted. By floor: what is whole is compared alike."""


class TimeTally:
    """Measures event times piece by piece, into ``times``."""

    def __init__(self, clock: Clock) -> None:
        self._steps = _STEPS if clock.unit == "ms" else 1
        self._horizon = None if clock.horizon is None else clock.horizon * self._steps
        self.times = NO_TIMES

    def add(self, column: pa.Array[Any]) -> None:
        """Add the times of some rows: timestamps with a zone, or integers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        compute: Any = pc
        kind: Any = column.type
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        values: Any = column.cast(pa.int64())
        extremes, past = compute.min_max(values).as_py(), self.times
        self.times = RowTimes(
            first=_of(min, past.first, self._to_unit(extremes["min"])),
            last=_of(max, past.last, self._to_unit(extremes["max"])),
            late=past.late + self._late(values),
            untimed=past.untimed + values.null_count,
        )

    def _to_unit(self, value: int | None) -> int | None:
        return None if value is None else value // self._steps

    def _late(self, values: Any) -> int:
        import pyarrow.compute as pc

        compute: Any = pc
        if self._horizon is None or self._horizon < -END:
            return 0
        if self._horizon > END:
            return len(values) - int(values.null_count)
        late: int | None = compute.sum(compute.less(values, self._horizon)).as_py()
        return late or 0


def _of(choose: Callable[..., int | None], previous: int | None, other: int | None) -> int | None:
    return choose((time for time in (previous, other) if time is not None), default=None)
