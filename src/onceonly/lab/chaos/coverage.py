"""How much of the matrix of fault points and actions real drivers went through."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceonly.faults import Point
from onceonly.lab.chaos import samples
from onceonly.lab.chaos.campaign import Campaign
from onceonly.lab.chaos.pipeline import Pipeline, load
from onceonly.lab.chaos.points import PLAYABLE
from onceonly.lab.chaos.result import Result
from onceonly.lab.chaos.running import staged
from onceonly.lab.level import Level
from onceonly.lab.schedule import Action, actions_at


@dataclass(frozen=True, slots=True)
class Covered:
    """What jobs went through.

    Attributes:
        level: how they were run.
        jobs: their places.
        results: of their campaigns.
    """

    level: Level
    jobs: tuple[str, ...]
    results: tuple[Result, ...]

    @property
    def applicable(self) -> frozenset[Action]:
        """Actions that drivers of this level can be given: a warm JVM would wait for a driver that is stopped."""
        return PLAYABLE if self.level is Level.COLD else PLAYABLE - {Action.PAUSE}

    @property
    def cells(self) -> tuple[tuple[Point, Action], ...]:
        """The matrix."""
        return tuple((point, action) for point in Point for action in actions_at(point) if action in self.applicable)

    @property
    def passed(self) -> Counter[Point]:
        """How often each point was passed."""
        return sum((Counter(result.passed) for result in self.results), Counter[Point]())

    @property
    def struck(self) -> Counter[tuple[Point, Action]]:
        """How often each action came to act at each point."""
        return sum((Counter(result.struck) for result in self.results), Counter[tuple[Point, Action]]())

    @property
    def unpassed(self) -> tuple[Point, ...]:
        """Points that no driver passed."""
        return tuple(point for point in Point if not self.passed[point])

    @property
    def failed(self) -> tuple[Result, ...]:
        """Campaigns with an anomaly."""
        return tuple(result for result in self.results if result.judgement.findings)

    @property
    def share(self) -> float:
        """Part of the matrix in which something struck, 0 to 1."""
        return sum(1 for cell in self.cells if self.struck[cell]) / len(self.cells)

    @property
    def sentence(self) -> str:
        """The same in words."""
        count = sum(1 for cell in self.cells if self.struck[cell])
        kills, seconds = sum(one.kills for one in self.results), sum(one.seconds for one in self.results)
        return (
            f"{self.level}: {count} of {len(self.cells)} cells struck ({self.share:.0%}); "
            f"{len(Point) - len(self.unpassed)} of {len(Point)} points passed; {kills} SIGKILLs in {seconds:.0f} s, "
            f"{60 * kills / max(seconds, 1e-9):.1f} a minute"
        )

    def to_json(self) -> dict[str, Any]:
        """The matrix as values."""
        points = [
            {
                "point": point,
                "passed": self.passed[point],
                "struck": {action: self.struck[at, action] for at, action in self.cells if at is point},
            }
            for point in Point
        ]
        return {
            "level": self.level,
            "jobs": list(self.jobs),
            "share": round(self.share, 3),
            "points": points,
            "unpassed": list(self.unpassed),
            "anomalies": sorted({name for result in self.failed for name in result.anomalies}),
        }


def covered(
    level: Level, job: str | None, budget: float, seed: int, told: Callable[[str], None] = lambda _: None
) -> Covered:
    """Put jobs through every action at every point that they pass.

    Args:
        level: how real.
        job: place of a job; ``None``: those of :mod:`~onceonly.lab.chaos.samples`.
        budget: seconds for all of them.
        seed: order and moments.
        told: is told a line of words after each schedule.
    """
    jobs = [load(job)] if job else [getattr(samples, name) for name in samples.ALL]
    results = tuple(_went_through(jobs, level, budget / len(jobs), seed, told))
    return Covered(level, tuple(one.name for one in jobs), results)


def _went_through(
    jobs: list[Pipeline], level: Level, each: float, seed: int, told: Callable[[str], None]
) -> Iterator[Result]:
    for one in jobs:
        with (
            tempfile.TemporaryDirectory(prefix="onceonly-lab-", ignore_cleanup_errors=True) as folder,
            staged(one, Path(folder), level) as stage,
        ):
            yield Campaign(stage, seed, told).run(each, thorough=True)
