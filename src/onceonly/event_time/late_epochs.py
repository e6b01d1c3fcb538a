"""Certify late rows per epoch, counted in markers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochTime, Unit
from onceonly_checkpoints.model import present

Stretch = tuple[int, int]
"""First and last of epochs in a row."""


@dataclass(frozen=True, slots=True)
class LateEpoch:
    """An epoch with ``late`` rows, the earliest at ``first``. Rows before ``horizon`` are late."""

    epoch: int
    late: int
    first: int
    horizon: int

    @property
    def worst(self) -> int:
        """Greatest lateness, in the dataset's unit."""
        return self.horizon - self.first


@dataclass(frozen=True, slots=True)
class Certificate:
    """Late rows of a range of epochs, from their markers.

    Attributes:
        untimed: rows without a time, which are never late.
        late: epochs with late rows, in order.
        unknown: ranges whose markers are gone or have no event time.
        unit: of their numbers, or ``None`` if no marker has one.
    """

    first: int
    last: int
    rows: int
    untimed: int
    late: tuple[LateEpoch, ...]
    unknown: tuple[Stretch, ...]
    unit: Unit | None

    def to_json(self) -> dict[str, Any]:
        """Return field names and values."""
        return {
            "epochs": [self.first, self.last],
            "rows": self.rows,
            "untimed": self.untimed,
            "late": [
                {"epoch": one.epoch, "late": one.late, "first": one.first, "horizon": one.horizon, "worst": one.worst}
                for one in self.late
            ],
            "unknown": [list(stretch) for stretch in self.unknown],
            **present(unit=self.unit),
        }


def certify(epochs: Sequence[Epoch], first: int, last: int) -> Certificate:
    """Check the epochs ``first..last``. ``epochs`` are the known ones, in any order."""
    told = {
        epoch.number: (epoch, epoch.time)
        for epoch in epochs
        if epoch.time is not None and first <= epoch.number <= last
    }
    times = [told[number] for number in sorted(told)]
    return Certificate(
        first,
        last,
        sum(one.rows for one, _ in times),
        sum(time.untimed for _, time in times),
        tuple(found for one, time in times if (found := _late(one, time)) is not None),
        tuple(_stretches(number for number in range(first, last + 1) if number not in told)),
        next((time.unit for _, time in times), None),
    )


def _late(one: Epoch, time: EpochTime) -> LateEpoch | None:
    if not time.late or time.first is None or time.horizon is None:
        return None
    return LateEpoch(one.number, time.late, time.first, time.horizon)


def _stretches(numbers: Iterable[int]) -> Iterator[Stretch]:
    begin = end = 0
    for number in numbers:
        if end and number == end + 1:
            end = number
            continue
        if end:
            yield begin, end
        begin = end = number
    if end:
        yield begin, end
