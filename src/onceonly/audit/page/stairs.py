"""The offset staircase: where each partition of a source stood, epoch by epoch, and where it broke. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onceonly.audit.page.outcome import Outcome
from onceonly.sources import numbers
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.slices import SourceOffsets


@dataclass(frozen=True, slots=True)
class Break:
    """An epoch that does not start where the one before it ended.

    Attributes:
        epoch: its number.
        low: the lower of the two offsets.
        high: the higher one.
        outcome: GAP for a hole, DOUBLED for an overlap, ADOPTED where an operator moved the position.
    """

    epoch: int
    low: float
    high: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Stair:
    """One partition.

    Attributes:
        name: source id and path of the offset, ``events/0``.
        points: ``(epoch, offset at its end)``, oldest first, begun with where the first epoch started.
        breaks: oldest first.
    """

    name: str
    points: tuple[tuple[int, float], ...]
    breaks: tuple[Break, ...]

    @property
    def sound(self) -> bool:
        """Whether every step starts where the one before it ended, or an operator said otherwise."""
        return all(one.outcome is Outcome.ADOPTED for one in self.breaks)

    def thinned(self, at_most: int) -> Stair:
        """The same with at most so many points, and all points beside a break."""
        width = -(-len(self.points) // at_most) or 1
        beside = {one.epoch + step for one in self.breaks for step in (-1, 0)}
        last = len(self.points) - 1
        kept = (
            point
            for index, point in enumerate(self.points)
            if index % width == 0 or index == last or point[0] in beside
        )
        return Stair(self.name, tuple(kept), self.breaks)


@dataclass(slots=True)
class _Climb:
    name: str
    points: list[tuple[int, float]] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)

    def step(self, epoch: Epoch, start: float | None, end: float) -> None:
        moved = epoch.adoption is not None
        before = self.points[-1][1] if self.points else None
        if before is None:
            self.points.append((epoch.number - 1, end if start is None else start))
        elif start is not None and start != before:
            torn = Outcome.GAP if start > before else Outcome.DOUBLED
            self._broken(epoch, before, start, Outcome.ADOPTED if moved else torn)
        if moved and before is not None and end != before:
            self._broken(epoch, before, end, Outcome.ADOPTED)
        self.points.append((epoch.number, end))

    def _broken(self, epoch: Epoch, one: float, other: float, outcome: Outcome) -> None:
        self.breaks.append(Break(epoch.number, min(one, other), max(one, other), outcome))


def stairs(epochs: Sequence[Epoch]) -> tuple[Stair, ...]:
    """One staircase per number in the offsets, broken ones first.

    Offsets that are not JSON have no numbers and give none; what they say is judged by the chain and the findings.
    """
    climbs: dict[tuple[str, str], _Climb] = {}
    read = _Reader()
    for epoch in epochs:
        starts, ends = read(epoch.slice.start), read(epoch.slice.end)
        for place, end in ends.items():
            climb = climbs.setdefault(place, _Climb(_name(place, len(epoch.slice.end.entries))))
            climb.step(epoch, starts.get(place), end)
    found = [Stair(climb.name, tuple(climb.points), tuple(climb.breaks)) for climb in climbs.values()]
    return tuple(sorted(found, key=lambda stair: stair.sound))


class _Reader:
    """Parses offsets; the end of one epoch is nearly always the start of the next and is parsed once."""

    def __init__(self) -> None:
        self._last: tuple[SourceOffsets | None, dict[tuple[str, str], float]] = (None, {})

    def __call__(self, offsets: SourceOffsets) -> dict[tuple[str, str], float]:
        if offsets != self._last[0]:
            self._last = (offsets, dict(_leaves(offsets)))
        return self._last[1]


def _leaves(offsets: SourceOffsets) -> Iterator[tuple[tuple[str, str], float]]:
    for source, text in offsets.entries:
        for path, value in (numbers(text) or {}).items():
            yield (source, path), value


def _name(place: tuple[str, str], sources: int) -> str:
    source, path = place
    inner = path.removeprefix("/") or "offset"
    return inner if sources == 1 else f"{source}: {inner}"
