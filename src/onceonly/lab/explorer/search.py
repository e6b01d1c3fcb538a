"""Breadth-first search: every world within a bound, each invariant in each of them, the shortest way to a violation."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from onceonly.lab.explorer.lone import Lone
from onceonly.lab.explorer.moves import MoveTable
from onceonly.lab.explorer.table import Codes
from onceonly.lab.model import invariants
from onceonly.lab.model.invariants import Violation
from onceonly.lab.model.world import Bound, Part


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        bound: what was explored.
        states: worlds, each counted once.
        transitions: moves between them.
        depth: steps of the longest of the shortest ways to a world.
        seconds: how long it took.
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


class Search:
    """One search.

    Args:
        bound: what is explored.
        limit: seconds after which it stops, incomplete; ``None``: never.
    """

    def __init__(self, bound: Bound, limit: float | None = None) -> None:
        self._bound = bound
        self._limit = limit
        self._moves = MoveTable(bound)
        self._lone = Lone(self._moves)
        self._judged: dict[Codes, Violation | None] = {}
        self._seen: dict[Codes, None] = {self._moves.start: None}
        self._parents = array("q", [-1])
        self._transitions = 0

    def run(self) -> Found:
        """Search to the end of the bound, or to the first violation."""
        began = time.process_time()
        frozen = gc.isenabled()
        # Millions of tuples of integers hold no cycles; looking for some takes a third of the time.
        gc.disable()
        try:
            return self._search(began)
        finally:
            if frozen:
                gc.enable()

    def targets(self) -> set[tuple[Part, ...]]:
        """Everything that was found to lie in the sinks."""
        prefixes = {shared[: self._bound.staging] for shared in self._judged}
        return {self._moves.parts.decode(prefix) for prefix in prefixes}

    def _search(self, began: float) -> Found:
        level, depth = [self._moves.start], 0
        while level:
            level, violation, at = self._expand(level)
            depth += bool(level) or violation is not None
            if violation is not None:
                return self._found(began, depth, violation, self._story(at, violation))
            if self._limit is not None and time.process_time() - began > self._limit:
                return self._found(began, depth, complete=not level)
        return self._found(began, depth)

    def _expand(self, level: list[Codes]) -> tuple[list[Codes], Violation | None, Codes]:
        """The next level; or the first violation in it, with its world.

        One function, without calls where they can be spared: it runs for every move between any two worlds.
        """
        seen, parents, moves, nothing = self._seen, self._parents, self._moves, self._moves.nothing
        older, newer = self._bound.slots
        judged, known = self._judged, len(seen) - len(level)
        found: list[Codes] = []
        for mine, codes in enumerate(level, start=known):
            for move in moves.all(codes):
                self._transitions += 1
                after = list(codes)
                for place, code in move.updates:
                    after[place] = code
                if move.frees and after[older] == nothing != after[newer]:
                    after[older], after[newer] = after[newer], nothing
                reached = tuple(after)
                if reached in seen:
                    continue
                seen[reached] = None
                parents.append(mine)
                found.append(reached)
                shared = reached[:older]
                if (shared not in judged and self._judge(reached, shared)) or judged[shared]:
                    return found, judged[shared], reached
        return found, None, ()

    def _judge(self, codes: Codes, shared: Codes) -> Violation | None:
        parts = self._moves.parts.decode(shared)
        self._judged[shared] = invariants.of_world(self._bound, parts) or self._lone.judge(codes)
        return self._judged[shared]

    def _story(self, last: Codes, violation: Violation) -> tuple[str, ...]:
        worlds = list(self._seen)
        at = len(worlds) - 1
        way = [last]
        while (at := self._parents[at]) >= 0:
            way.append(worlds[at])
        way.reverse()
        steps = [self._words(one, two) for one, two in pairwise(way)]
        return (*steps, *self._lone.story(last, violation), f"{violation.name}: {violation.words}")

    def _words(self, one: Codes, two: Codes) -> str:
        return next(move.words for move in self._moves.all(one) if self._moves.after(one, move) == two)

    def _found(
        self,
        began: float,
        depth: int,
        violation: Violation | None = None,
        story: tuple[str, ...] = (),
        *,
        complete: bool = True,
    ) -> Found:
        return Found(
            self._bound,
            len(self._seen),
            self._transitions,
            depth,
            time.process_time() - began,
            len(self._judged),
            complete and violation is None,
            violation,
            story,
        )


def search(bound: Bound, limit: float | None = None) -> Found:
    """Explore a bound."""
    return Search(bound, limit).run()


def numbered(story: tuple[str, ...]) -> Iterator[str]:
    """A story's lines with their numbers."""
    width = len(str(len(story)))
    for number, words in enumerate(story, start=1):
        yield f"{number:>{width}}. {words}"
