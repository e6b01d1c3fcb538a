"""Two drivers on one epoch, in every order of their steps: what a fence must be to keep the older one out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from onceonly_lab.necessity.symptoms import Symptom

STEPS = 3
"""Of each driver: open (install its fence, read the marker), check the fence, write rows and marker."""

ZOMBIE, SUCCESSOR = 1, 2
"""Generations of the drivers; the older one does not know of the younger."""


class Fencing(StrEnum):
    """What a driver does about the fence."""

    NONE = "no fence: the marker is read, then rows are written"
    CHECKED = "the fence is checked, then rows are written"
    ATOMIC = "the fence is checked in the transaction that writes"


MUST_DOUBLE: dict[Fencing, bool] = {Fencing.NONE: True, Fencing.CHECKED: True, Fencing.ATOMIC: False}
"""Whether some order of the steps must double the epoch; of those without, none may."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink that takes one epoch.

    Attributes:
        fence: highest generation installed.
        marked: whether the marker has the epoch.
        writes: how often its rows were written.
    """

    fence: int = 0
    marked: bool = False
    writes: int = 0


@dataclass(frozen=True, slots=True)
class Writer:
    """A driver.

    Attributes:
        generation: of its fence.
        step: how many of its steps it has taken.
        stopped: whether it has nothing to write, or knows that it was fenced out.
    """

    generation: int
    step: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Interleavings:
    """What all orders of the steps showed.

    Attributes:
        fencing: what drivers do about the fence.
        orders: how many there are.
        doubled: in how many of them the epoch was written twice.
    """

    fencing: Fencing
    orders: int
    doubled: int

    @property
    def counts(self) -> dict[Symptom, int]:
        """The same as of a variant."""
        return {Symptom.DUP: self.doubled} if self.doubled else {}

    @property
    def expected(self) -> frozenset[Symptom]:
        """What must be seen."""
        return frozenset({Symptom.DUP} if MUST_DOUBLE[self.fencing] else ())

    @property
    def as_expected(self) -> bool:
        """Whether that was seen and nothing else."""
        return frozenset(self.counts) == self.expected


def interleavings() -> tuple[Interleavings, ...]:
    """Run every order of the steps with every kind of fencing."""
    return tuple(_interleaved(fencing) for fencing in Fencing)


def _interleaved(fencing: Fencing) -> Interleavings:
    writes = [_run(fencing, order) for order in _orders()]
    return Interleavings(fencing, len(writes), sum(count > 1 for count in writes))


def _orders() -> Iterator[tuple[int, ...]]:
    """Who takes each step."""
    for places in combinations(range(2 * STEPS), STEPS):
        yield tuple(ZOMBIE if at in places else SUCCESSOR for at in range(2 * STEPS))


def _run(fencing: Fencing, order: tuple[int, ...]) -> int:
    """How often the rows were written."""
    sink = Sink()
    writers = {generation: Writer(generation) for generation in (ZOMBIE, SUCCESSOR)}
    for generation in order:
        sink, writers[generation] = _step(fencing, sink, writers[generation])
    return sink.writes


def _step(fencing: Fencing, sink: Sink, writer: Writer) -> tuple[Sink, Writer]:
    fenced = fencing is not Fencing.NONE
    went, superseded = replace(writer, step=writer.step + 1), fenced and sink.fence > writer.generation
    if writer.stopped:
        return sink, went
    if writer.step == 0:
        opened = replace(sink, fence=max(sink.fence, writer.generation))
        return opened, replace(went, stopped=sink.marked or superseded)
    if writer.step == 1:
        return sink, replace(went, stopped=superseded)
    if fencing is Fencing.ATOMIC and superseded:
        return sink, went
    return replace(sink, marked=True, writes=sink.writes + 1), went
