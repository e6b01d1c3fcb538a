"""What a search found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.world import Bound


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        bound: what was explored.
        states: worlds, each counted once.
        transitions: moves between them.
        depth: steps of the longest of the shortest ways to a world.
        seconds: of processor.
        shared: how many worlds differ in what outlives drivers.
        complete: whether every world within the bound was visited.
        violation: the first invariant that does not hold; ``None`` if all do.
        story: the steps that lead there, in words.
    """

    bound: Bound
    states: int
    transitions: int
    depth: int
    seconds: float
    shared: int
    complete: bool
    violation: Violation | None = None
    story: tuple[str, ...] = ()

    @property
    def rate(self) -> int:
        """States a second."""
        return int(self.states / max(self.seconds, 1e-9))


def numbered(story: tuple[str, ...]) -> Iterator[str]:
    """A story's lines with their numbers."""
    width = len(str(len(story)))
    for number, words in enumerate(story, start=1):
        yield f"{number:>{width}}. {words}"
