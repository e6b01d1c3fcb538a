"""Breadth-first search for the shortest way to an invariant violation.

It checks each invariant in every world within a bound.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from onceonly_lab.explorer.expand import Expander, Fold
from onceonly_lab.explorer.lone import Judge, Lone
from onceonly_lab.explorer.moves import Codes, MoveTable
from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.world import Bound, Part

# ---- What a search found.


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


# ---- What a search found, in words for a terminal.


def described(bound: Bound) -> str:
    """A bound in one sentence."""
    parts = [
        f"{len(bound.kinds)} sinks ({', '.join(bound.sinks)})",
        f"{bound.records} records in batches of 1 to {bound.longest}",
        f"{bound.drivers} drivers, {'one after the other' if bound.alone else 'two alive at once'}",
        f"{bound.unknowns} lost answer{'s' if bound.unknowns != 1 else ''}",
    ]
    if bound.ledgers:
        parts.append("the ledger lost once" + (", or rebuilt from the sinks" if bound.reads else ""))
    if bound.damages:
        parts.append(f"the checkpoint once {' or '.join(damage.value for damage in bound.damages)}")
    parts += _source(bound)
    return "; ".join(
        [*parts, *(f"rule off: {rule.value}" for rule in sorted(bound.off, key=lambda off_rule: off_rule.name))]
    )


def _source(bound: Bound) -> Iterator[str]:
    source = bound.source
    if source.files:
        yield "a directory of files" + (", of which one is lost" if bound.loses_files else "")
    if source.begins:
        yield "the source says where it begins"
    if source.stateful:
        yield "the plan keeps state"
    if bound.trims:
        yield "rows of recorded epochs are left out"
    if len(bound.programs) > 1:
        yield " or ".join(f"the program {program.value}" for program in bound.programs)
    if bound.harms:
        yield f"a sink once {' or '.join(harm.value for harm in bound.harms)}"
    if bound.prunes:
        yield "the ledger is pruned instead of lost"
    if bound.leaves_out:
        yield "the program's call leaves a sink out"
    if bound.meanwhile:
        befalls = " or ".join(harm.value for harm in bound.meanwhile)
        yield f"before a command is obeyed another sink may be {befalls}"
    if bound.cuts:
        yield "a command may be killed in its middle"
    if bound.obeys:
        yield f"an operator obeys up to {bound.obeys} printed commands"
    if bound.stages:
        yield "one sink is staged, too"


def lines(exploration: Found) -> Iterator[str]:
    """A report, line by line."""
    yield f"bound: {described(exploration.bound)}"
    yield (
        f"{exploration.states:,} states ({exploration.shared:,} of what outlives drivers), "
        f"{exploration.transitions:,} moves, depth {exploration.depth}, "
        f"{exploration.seconds:.1f} s of processor, {exploration.rate:,} states/s"
    )
    if exploration.violation is not None:
        yield f"{exploration.violation.name}: {exploration.violation.words}; the shortest way there:"
        yield from numbered(exploration.story)
    elif exploration.complete:
        yield "complete: every interleaving, crash and lost answer within the bound; no invariant is violated"
    else:
        yield "incomplete: stopped at its time limit; no violation so far"


def document(name: str, exploration: Found) -> dict[str, Any]:
    """The same as values."""
    return {
        "bound": name,
        "described": described(exploration.bound),
        "states": exploration.states,
        "moves": exploration.transitions,
        "depth": exploration.depth,
        "seconds": exploration.seconds,
        "complete": exploration.complete,
        "anomaly": exploration.violation and str(exploration.violation.name),
        "story": list(exploration.story),
    }


# ---- Breadth-first search: every world within a bound, each invariant in each of them, the shortest way to a
# violation.

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
            first_new = self._worlds.count
            left, reached = self._expander.successors(self._worlds.span(begin, min(begin + _AT_ONCE, last)))
            _, fresh = self._worlds.of(reached)
            self._transitions += len(left)
            self._parents.append((begin + left[fresh]).astype(np.int32))
            at = self._first_broken(first_new)
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
        first_new = len(self._verdicts)
        nothing = self._moves.nothing
        for shared_number in range(first_new, self._expander.shared.count):
            self._verdicts.append(self._judge(self._expander.codes(shared_number, nothing, nothing)))
        return [number for number in range(first_new, len(self._verdicts)) if self._verdicts[number] is not None]

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
        last, path = self._codes(world), [self._codes(world)]
        while (world := int(parents[world])) >= 0:
            path.append(self._codes(world))
        path.reverse()
        steps = [self._words(before, two) for before, two in pairwise(path)]
        return (*steps, *self._lone.story(last, violation), f"{violation.name}: {violation.words}")

    def _words(self, before: Codes, two: Codes) -> str:
        return next(move.words for move in self._moves.all(before) if self._moves.after(before, move) == two)

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
