"""Matrix of a job's fault points and actions.

It lists possible cells, impossible ones with the reason, and those in which a fault took effect. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from onceonly.faults import Point
from onceonly_lab.checker.finding import counted
from onceonly_lab.model.parts import Kind
from onceonly_lab.schedule import Action, Level, Schedule, really_at

if TYPE_CHECKING:
    from typing_extensions import Self


Cell = tuple[Point, Action]
"""A point and what goes wrong there."""

ENDS = frozenset({Point.DISCOVER_AFTER, Point.RETURN_BEFORE})
"""What a job passes that uses nothing of ours; see :mod:`onceonly_lab.chaos.program`."""

STAGING = frozenset({Point.STAGE_BEFORE, Point.STAGE_AFTER, Point.FETCH_AFTER})
"""Points of an epoch that is written once for several sinks."""

ON_THE_WIRE = frozenset({Action.LOSE_REQUEST, Action.DELAY, Action.HIDE})
"""What happens to a request between a driver and a server."""

WIRELESS = "a Delta log on a disk has no wire"
DECIDED = "no sink of the job is a topic: only brokers decide first and show later"
WARM = "the one JVM would wait for a driver that is stopped: L4"
PLAIN = "the job uses nothing of ours"
OUTLIVING = "the JVM outlives its drivers: L4"
LOCAL = "executors live in the driver's JVM: a job with workers= has others"
ALONE = "the job has one sink, so nothing is staged"
STATELESS = "the job keeps no state, so no batch that is skipped is executed"
UNKEPT = "no ledger of the job lies beside its checkpoint"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run without faults showed of a job.

    Attributes:
        job: its place.
        sinks: kinds of its destinations, in the order in which it asked.
        batches: of its input.
        rows: of each.
        passed: how often each point was passed.
        plain: it uses nothing of ours.
        level: how it is run.
        stateful: its checkpoint holds state.
        ledger: a ledger lies beside its checkpoint.
        workers: of the cluster that its executors run on; 0: they live in the driver's JVM.
    """

    job: str
    sinks: tuple[Kind, ...]
    batches: int
    rows: int
    passed: Mapping[Point, int]
    plain: bool
    level: Level
    stateful: bool = False
    ledger: bool = True
    workers: int = 0

    @property
    def faultless(self) -> Schedule:
        """Nothing goes wrong."""
        return Schedule(self.sinks, self.batches, rows=self.rows, stateful=self.stateful, job=self.job)


def left_out(facts: Facts) -> dict[Cell, str]:
    """Cells in which nothing can come to act in this job at this level, each with the reason."""
    every = ((point, action) for point in Point for action in really_at(point))
    reasons = ((cell, _impossible(facts, *cell)) for cell in every)
    return {cell: reason for cell, reason in reasons if reason}


def _impossible(facts: Facts, point: Point, action: Action) -> str:
    return next((reason for reason, holds in _obstacles(facts, point, action) if holds), "")


def _obstacles(facts: Facts, point: Point, action: Action) -> Iterator[tuple[str, bool]]:
    warm = facts.level is Level.WARM
    of_ours = action in (Action.LOSE_ANSWER, Action.LOSE_LEDGER, *ON_THE_WIRE)
    yield WARM, warm and action is Action.PAUSE
    yield OUTLIVING, warm and action is Action.KILL_JVM
    yield LOCAL, not facts.workers and action is Action.KILL_EXECUTOR
    yield PLAIN, facts.plain and (of_ours or point not in ENDS)
    yield WIRELESS, action in ON_THE_WIRE and set(facts.sinks) == {Kind.DELTA}
    yield DECIDED, action is Action.HIDE and Kind.KAFKA not in facts.sinks
    yield UNKEPT, not facts.ledger and action is Action.LOSE_LEDGER
    yield ALONE, len(facts.sinks) == 1 and point in STAGING
    yield STATELESS, not facts.stateful and point is Point.EXECUTE_AFTER


@dataclass(frozen=True, slots=True)
class Matrix:
    """What came to act where.

    Attributes:
        left_out: cells in which nothing can come to act, with the reason.
        struck: how often something came to act in each cell.
        passed: how often each point was passed.
        drawn: cells that were part of a schedule that was played.
        damage: how often checkpoint and ledger were damaged between two drivers, by what was done to them.
    """

    left_out: Mapping[Cell, str] = field(default_factory=dict[Cell, str])
    struck: Mapping[Cell, int] = field(default_factory=dict[Cell, int])
    passed: Mapping[Point, int] = field(default_factory=dict[Point, int])
    drawn: frozenset[Cell] = frozenset()
    damage: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, matrices: Iterable[Self]) -> Self:
        """Several jobs: a cell is left out where it is in each of them."""
        several = list(matrices)
        first = several[0].left_out if several else {}
        out = {cell: why for cell, why in first.items() if all(cell in matrix.left_out for matrix in several)}
        struck = sum((Counter(matrix.struck) for matrix in several), Counter[Cell]())
        passed = sum((Counter(matrix.passed) for matrix in several), Counter[Point]())
        drawn = frozenset[Cell]().union(*(matrix.drawn for matrix in several))
        damage = sum((Counter(matrix.damage) for matrix in several), Counter[str]())
        return cls(out, struck, passed, drawn, damage)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell in which something can come to act."""
        every = ((point, action) for point in Point for action in really_at(point))
        return tuple(cell for cell in every if cell not in self.left_out)

    @property
    def unstruck(self) -> tuple[Cell, ...]:
        """Those of them in which nothing did."""
        return tuple(cell for cell in self.cells if not self.struck.get(cell))

    @property
    def share(self) -> float:
        """Part of the cells in which something came to act, 0 to 1."""
        return 1 - len(self.unstruck) / max(1, len(self.cells))

    @property
    def sentence(self) -> str:
        """The same in words."""
        struck = len(self.cells) - len(self.unstruck)
        text = f"{struck} of {counted(len(self.cells), 'cell')} struck ({self.share:.0%})"
        unfired = [cell for cell in self.unstruck if cell in self.drawn]
        return f"{text}; drawn and never fired: {_named(unfired)}" if unfired else text

    def lines(self) -> Iterator[str]:
        """What was damaged, and what did not come to act, by name, and why."""
        if self.damage:
            done = (f"{what} {times}" for what, times in sorted(self.damage.items()))
            yield f"damage before a start: {', '.join(done)}"
        for reason, cells in _by(self.unstruck, self._why_not):
            yield f"not struck, {reason}: {_named(cells)}"
        for reason, cells in _by(self.left_out, self.left_out.__getitem__):
            yield f"left out, {reason}: {_named(cells)}"

    def to_json(self) -> dict[str, Any]:
        """The matrix as values."""
        return {
            "cells": len(self.cells),
            "damage": dict(self.damage),
            "struck": [[*cell, times] for cell, times in self.struck.items()],
            "not_struck": [{"point": cell[0], "action": cell[1], "why": self._why_not(cell)} for cell in self.unstruck],
            "left_out": [{"point": cell[0], "action": cell[1], "why": why} for cell, why in self.left_out.items()],
        }

    def _why_not(self, cell: Cell) -> str:
        if not self.passed.get(cell[0]):
            return "no driver passed the point"
        return (
            "drawn, and that driver did not pass the point"
            if cell in self.drawn
            else "not drawn with this seed in this time"
        )


def _by(cells: Iterable[Cell], reason: Callable[[Cell], str]) -> Iterator[tuple[str, list[Cell]]]:
    """Cells with the same reason together."""
    for why, some in groupby(sorted(cells, key=reason), key=reason):
        yield why, list(some)


def _named(cells: list[Cell]) -> str:
    """By action: the points of one together, and those of whole columns counted."""
    order = list(Action)
    columns = groupby(sorted(cells, key=lambda cell: order.index(cell[1])), key=lambda cell: cell[1])
    return "; ".join(f"{action} at {_points([point for point, _ in some])}" for action, some in columns)


def _points(points: list[Point]) -> str:
    return "every point" if len(points) == len(Point) else ", ".join(points)
