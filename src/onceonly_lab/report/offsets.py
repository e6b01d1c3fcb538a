"""What each sink took of each source partition, as bars over the offsets: holes and overlaps are seen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from onceonly_lab.checker.reading import Reading

INPUT = "input"
"""The lane of what the source holds."""


class Stretch(StrEnum):
    """What a bar is."""

    INPUT = "input"
    TAKEN = "taken"
    AGAIN = "taken again"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of offsets.

    Attributes:
        lane: the input, or a sink.
        start: first offset.
        end: the one behind the last.
        what: taken once, again, or left out.
        epoch: of a sink's stretch, the epoch that took it or should have; ``None`` at the end of what a sink took.
    """

    lane: str
    start: int
    end: int
    what: Stretch
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of the source.

    Attributes:
        name: as the history names it.
        lanes: the input and the sinks, in order.
        bars: in the order of the lanes, then of the epochs.
    """

    name: str
    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]

    @property
    def sound(self) -> bool:
        """Whether each sink took everything, once."""
        return not any(bar.what in (Stretch.AGAIN, Stretch.LEFT_OUT) for bar in self.bars)


def partitions(reading: Reading) -> tuple[Partition, ...]:
    """Every partition, broken ones first; none where the history tells no slices."""
    ends = _input(reading)
    for commits in reading.landed.values():
        for one in commits[0].call.said.slice or ():
            ends.setdefault(one.partition, (one.start, one.start))
    lanes = (INPUT, *reading.case.sinks)
    found = [Partition(name, lanes, tuple(_bars(reading, name, ends[name]))) for name in ends]
    return tuple(sorted(found, key=lambda one: one.sound))


def _input(reading: Reading) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for entry in reading.case.inputs:
        for one in entry.slice or ():
            low, high = found.get(one.partition, (one.start, one.end))
            found[one.partition] = (min(low, one.start), max(high, one.end))
    return found


def _bars(reading: Reading, partition: str, ends: tuple[int, int]) -> Iterator[Bar]:
    first, last = ends
    if last > first:
        yield Bar(INPUT, first, last, Stretch.INPUT)
    for sink in reading.case.sinks:
        taken = _taken(reading, sink, partition)
        yield from _stretches(sink, taken, first)
        yield from _doubled(reading, sink, partition)
        stands = max((end for _, end in taken.values()), default=first)
        # A sink of which the history tells no commit is judged by its rows alone: nothing says what it took.
        if reading.case.settled and sink in reading.case.committing and stands < last:
            yield Bar(sink, stands, last, Stretch.LEFT_OUT)


def _doubled(reading: Reading, sink: str, partition: str) -> Iterator[Bar]:
    """An epoch that two commits brought, with no restore between them that had taken the first away."""
    for epoch in reading.epochs(sink):
        first, *more = reading.landings(sink, epoch)
        for commit in more:
            if reading.case.last_restore(sink, commit.at) < first.at:
                for one in commit.call.said.slice or ():
                    if one.partition == partition:
                        yield Bar(sink, one.start, one.end, Stretch.AGAIN, epoch)


def _taken(reading: Reading, sink: str, partition: str) -> Mapping[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for epoch in reading.epochs(sink):
        commit = reading.explains(sink, epoch)
        for one in (commit.call.said.slice or ()) if commit else ():
            if one.partition == partition:
                found[epoch] = (one.start, one.end)
    return found


def _stretches(sink: str, taken: Mapping[int, tuple[int, int]], stands: int) -> Iterator[Bar]:
    for epoch, (start, end) in taken.items():
        if start > stands:
            yield Bar(sink, stands, start, Stretch.LEFT_OUT, epoch)
        again = min(stands, end)
        if start < again:
            yield Bar(sink, start, again, Stretch.AGAIN, epoch)
        if max(start, again) < end:
            yield Bar(sink, max(start, again), end, Stretch.TAKEN, epoch)
        stands = max(stands, end)
