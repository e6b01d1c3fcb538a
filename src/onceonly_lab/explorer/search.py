"""Breadth-first search: every world within a bound, each invariant in each of them, the shortest way to a violation."""

from __future__ import annotations

import gc
import time
from itertools import pairwise

import numpy as np

from onceonly_lab.explorer.expand import Expander
from onceonly_lab.explorer.fold import Fold
from onceonly_lab.explorer.found import Found
from onceonly_lab.explorer.judge import Judge
from onceonly_lab.explorer.lone import Lone
from onceonly_lab.explorer.moves import MoveTable
from onceonly_lab.explorer.table import Codes
from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.world import Bound, Part

_AT_ONCE = 1 << 17
"""Worlds that are expanded together: enough to make good use of arrays, few enough to fit beside each other."""


class Search:
    """One search.

    Args:
        bound: what is explored.
        limit: seconds of processor after which it stops, incomplete; ``None``: never.
    """

    def __init__(self, bound: Bound, limit: float | None = None) -> None:
        self._bound = bound
        self._limit = limit
        self._moves = MoveTable(bound)
        self._judge_parts = Judge(self._moves.parts, bound)
        self._lone = Lone(self._moves, self._judge_parts)
        self._expander = Expander(self._moves)
        self._worlds = Fold(3)
        self._worlds.of(self._expander.start)
        self._parents = [np.array([-1], np.int32)]
        self._judged: dict[Codes, Violation | None] = {}
        self._verdicts: list[Violation | None] = [None]
        self._transitions = 0
        self._began = 0.0

    def run(self) -> Found:
        """Search to the end of the bound, or to the first violation."""
        self._began = time.process_time()
        collecting = gc.isenabled()
        # Hundreds of thousands of frozen values hold no cycles; looking for some takes longer than the search itself.
        gc.disable()
        try:
            return self._search()
        finally:
            if collecting:
                gc.enable()

    def _search(self) -> Found:
        first, depth = 0, 0
        while first < (last := self._worlds.count):
            at = self._level(first, last)
            depth += self._worlds.count > last
            if at is not None:
                return self._found(depth, at)
            if self._late():
                return self._found(depth, complete=self._worlds.count == last)
            first = last
        return self._found(depth)

    def targets(self) -> set[tuple[Part, ...]]:
        """Everything that was found to lie in the sinks."""
        prefixes = {shared[: self._bound.staging] for shared in self._judged}
        return {self._moves.parts.decode(prefix) for prefix in prefixes}

    def refusals(self) -> set[str]:
        """Why drivers stopped, in some world that was found: codes, and words of the engine."""
        return self._moves.refusals

    def ends(self) -> set[tuple[Part, ...]]:
        """Worlds out of which no move leads, of a search that is complete."""
        worlds = np.arange(self._worlds.count)
        left = [
            begin + self._expander.successors(self._worlds.span(begin, min(begin + _AT_ONCE, len(worlds))))[0]
            for begin in range(0, len(worlds), _AT_ONCE)
        ]
        ends = np.setdiff1d(worlds, np.concatenate(left))
        return {self._moves.parts.decode(self._codes(int(end))) for end in ends}

    def _late(self) -> bool:
        return self._limit is not None and time.process_time() - self._began > self._limit

    def _level(self, first: int, last: int) -> int | None:
        """Reach every world that is one move from some; the number of the first that breaks an invariant."""
        for begin in range(first, last, _AT_ONCE):
            known = self._worlds.count
            left, reached = self._expander.successors(self._worlds.span(begin, min(begin + _AT_ONCE, last)))
            _, fresh = self._worlds.of(reached)
            self._transitions += len(left)
            self._parents.append((begin + left[fresh]).astype(np.int32))
            at = self._first_broken(known)
            if at is not None or self._late():
                return at
        return None

    def _first_broken(self, first: int) -> int | None:
        broken = self._judge_new()
        if not broken:
            return None
        shared = self._worlds.span(first, self._worlds.count)[:, 0]
        return first + int(np.flatnonzero(np.isin(shared, broken))[0])

    def _judge_new(self) -> list[int]:
        """Judge what drivers share wherever it is new; those that break an invariant."""
        known = len(self._verdicts)
        nothing = self._moves.nothing
        for one in range(known, self._expander.shared.count):
            self._verdicts.append(self._judge(self._expander.codes(one, nothing, nothing)))
        return [one for one in range(known, len(self._verdicts)) if self._verdicts[one] is not None]

    def _judge(self, codes: Codes) -> Violation | None:
        shared = codes[: self._bound.slots[0]]
        if shared not in self._judged:
            self._judged[shared] = self._judge_parts(codes) or self._lone.judge(codes)
        return self._judged[shared]

    def _codes(self, world: int) -> Codes:
        shared, older, newer = self._worlds.row(world)
        return self._expander.codes(shared, older, newer)

    def _story(self, world: int, violation: Violation) -> tuple[str, ...]:
        parents = np.concatenate(self._parents)
        last, way = self._codes(world), [self._codes(world)]
        while (world := int(parents[world])) >= 0:
            way.append(self._codes(world))
        way.reverse()
        steps = [self._words(one, two) for one, two in pairwise(way)]
        return (*steps, *self._lone.story(last, violation), f"{violation.name}: {violation.words}")

    def _words(self, one: Codes, two: Codes) -> str:
        return next(move.words for move in self._moves.all(one) if self._moves.after(one, move) == two)

    def _found(self, depth: int, broken: int | None = None, *, complete: bool = True) -> Found:
        violation = None if broken is None else self._verdicts[self._worlds.row(broken)[0]]
        story = () if broken is None or violation is None else self._story(broken, violation)
        return Found(
            self._bound,
            self._worlds.count,
            self._transitions,
            depth,
            time.process_time() - self._began,
            len(self._judged),
            complete and violation is None,
            violation,
            story,
        )


def search(bound: Bound, limit: float | None = None) -> Found:
    """Explore a bound."""
    return Search(bound, limit).run()
