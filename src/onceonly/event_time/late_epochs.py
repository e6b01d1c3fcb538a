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
    """An epoch with rows behind its horizon.

    Attributes:
        epoch: its number.
        late: how many rows.
        first: the earliest one.
        horizon: what counted as late.
    """

    epoch: int
    late: int
    first: int
    horizon: int

    @property
    def worst(self) -> int:
        """How late the earliest one was, in the dataset's unit."""
        return self.horizon - self.first


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the markers of some epochs say of late rows.

    Attributes:
        first: number of the first epoch.
        last: of the last one.
        rows: in all of them.
        untimed: those without a time, which are never late.
        late: epochs with late rows, in order.
        unknown: stretches of which nothing can be said: the marker is gone, or says nothing of time.
        unit: what their numbers count; ``None`` where none says anything.
    """

    first: int
    last: int
    rows: int
    untimed: int
    late: tuple[LateEpoch, ...]
    unknown: tuple[Stretch, ...]
    unit: Unit | None

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
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
    """Look through the epochs ``first..last``.

    Args:
        epochs: those that are known, in any order.
        first: number of the first one to look at.
        last: of the last one.
    """
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
