"""What was broken where, over all runs: fault points by actions, and everything that strikes at no point. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onceonly.faults import Point
from onceonly_lab.history import History, Kind
from onceonly_lab.schedule import PROCESSES, SIMULATED, Action, really_at


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often each action came to act at each point.

    Attributes:
        struck: by point and action.
        elsewhere: faults that name no point and action, by their words: damage to a checkpoint, a restore.
    """

    struck: Counter[tuple[Point, Action]]
    elsewhere: Counter[str]

    @property
    def actions(self) -> tuple[Action, ...]:
        """Columns: what simulated drivers can be given, and deaths of other processes where some died."""
        died = {action for _, action in self.struck} & PROCESSES
        return (*SIMULATED, *(action for action in Action if action in died))

    @property
    def rows(self) -> Iterator[tuple[Point, tuple[int | None, ...]]]:
        """A row for each point, a count for each action; ``None`` where the action does not apply."""
        for point in Point:
            applies = really_at(point)
            yield point, tuple(self.struck[point, action] if action in applies else None for action in self.actions)

    @property
    def reached(self) -> int:
        """Pairs that were struck."""
        return len(self.struck)

    @property
    def pairs(self) -> int:
        """Pairs that there are."""
        return sum(len({*really_at(point)} & {*self.actions}) for point in Point)


def coverage(histories: Iterable[History]) -> Coverage:
    """Count the faults of some runs."""
    struck, elsewhere = Counter[tuple[Point, Action]](), Counter[str]()
    for entry in (entry for history in histories for entry in history.entries if entry.kind is Kind.FAULT):
        words = entry.fault or ""
        pair = pair_of(words)
        if pair is not None:
            struck[pair] += 1
        else:
            elsewhere[f"{words} {entry.sink}" if entry.sink else words or "not named"] += 1
    return Coverage(struck, elsewhere)


def pair_of(fault: str) -> tuple[Point, Action] | None:
    """Point and action of a fault that names both, ``commit.sent:kill``; ``None`` for any other."""
    point, _, action = fault.partition(":")
    known = point in Point.__members__.values() and action in Action.__members__.values()
    return (Point(point), Action(action)) if known else None
