"""Event times of an epoch's rows, requested and measured in Arrow."""

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
    """What is asked of the rows of an epoch, before their action.

    Attributes:
        column: where a row says its time.
        unit: of the figures that are asked for.
        horizon: rows before it are late; ``None`` where nothing was noted yet.
    """

    column: str
    unit: Unit = "ms"
    horizon: int | None = None


@dataclass(frozen=True, slots=True)
class RowTimes:
    """What the rows of an epoch say, those that are good and no others; figures in the clock's unit.

    Attributes:
        first: the least time; ``None`` where no row has one.
        last: the greatest one.
        late: rows before the clock's horizon.
        untimed: rows whose time is null.
        said: what the user's function says that is complete now; ``None`` where there is none, or it says nothing.
        unsaid: why it could not say it; empty where it could.
    """

    first: int | None = None
    last: int | None = None
    late: int = 0
    untimed: int = 0
    said: int | None = None
    unsaid: str = ""


NO_TIMES = RowTimes()
"""Of an epoch without rows, and where nobody asked."""


@dataclass(frozen=True, slots=True)
class TimedEpoch:
    """What a function given as ``note_time=`` is told of the epoch at hand, after its action and before its commit.

    Attributes:
        number: of the epoch.
        slice: what it reads of the sources.
        rows: how many good ones it has.
        first: the least time of its rows, in the unit of the column; ``None`` without one.
        last: the greatest one.
        ingest: the clock that the engine recorded for the batch, milliseconds since 1970; the same in a replay.
        previous: what the epoch before noted; ``None`` before the first word.
        sources: what the slice's offsets are offsets of.
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
    """What stands in place of a word that could not be had: what was said before stands, and nobody waits.

    Attributes:
        reason: why. It must hold no secret.
    """

    reason: str


_STEPS = 1000
"""Microseconds, which rows have, in a millisecond, which is noted. By floor: what is whole is compared alike."""


class TimeTally:
    """Counts what a clock asks, piece by piece.

    Args:
        clock: what is asked.

    Attributes:
        times: what was answered so far.
    """

    def __init__(self, clock: Clock) -> None:
        self._steps = _STEPS if clock.unit == "ms" else 1
        self._horizon = None if clock.horizon is None else clock.horizon * self._steps
        self.times = NO_TIMES

    def add(self, column: pa.Array[Any]) -> None:
        """Count the times of some rows: timestamps with a zone, or integers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        compute: Any = pc
        kind: Any = column.type
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        values: Any = column.cast(pa.int64())
        found, past = compute.min_max(values).as_py(), self.times
        self.times = RowTimes(
            first=_of(min, past.first, self._whole(found["min"])),
            last=_of(max, past.last, self._whole(found["max"])),
            late=past.late + self._late(values),
            untimed=past.untimed + values.null_count,
        )

    def _whole(self, value: int | None) -> int | None:
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


def _of(choose: Callable[..., int | None], one: int | None, other: int | None) -> int | None:
    return choose((said for said in (one, other) if said is not None), default=None)
