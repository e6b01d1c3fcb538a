"""Measure fault coverage: points and actions that real drivers went through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onceonly.faults import Point
from onceonly_lab.chaos import samples
from onceonly_lab.chaos.campaign import Campaign, staged
from onceonly_lab.chaos.cells import Cell, Matrix
from onceonly_lab.chaos.pipeline import Pipeline, load
from onceonly_lab.chaos.pool import Stage
from onceonly_lab.chaos.result import Result, told_kills
from onceonly_lab.checker import Verdict
from onceonly_lab.schedule import Level

_FIRST_SHARE = 0.65
"""Part of the time that is left which a job may take: the first of several has the most cells to strike."""


@dataclass(frozen=True, slots=True)
class Covered:
    """What jobs went through.

    Attributes:
        level: how they were run.
        jobs: their places.
        results: of their campaigns.
        seconds: wall time of everything.
    """

    level: Level
    jobs: tuple[str, ...]
    results: tuple[Result, ...]
    seconds: float

    @property
    def matrix(self) -> Matrix:
        """What came to act where, in all jobs together."""
        return Matrix.of(result.matrix for result in self.results)

    @property
    def unpassed(self) -> tuple[Point, ...]:
        """Points that no driver passed, and one could have."""
        matrix = self.matrix
        return tuple(dict.fromkeys(point for point, _ in matrix.cells if not matrix.passed.get(point)))

    @property
    def failed(self) -> tuple[Result, ...]:
        """Campaigns with an anomaly."""
        return tuple(result for result in self.results if result.judgement.findings)

    @property
    def verdict(self) -> Verdict:
        """The worst of theirs; jobs that together leave a point unpassed have proven too little."""
        if self.failed:
            return Verdict.ANOMALY
        missing = self.unpassed or any(result.verdict is not Verdict.CLEAN for result in self.results)
        return Verdict.INCONCLUSIVE if missing else Verdict.CLEAN

    @property
    def kills(self) -> int:
        """Drivers that SIGKILL ended."""
        return sum(result.kills for result in self.results)

    @property
    def rate(self) -> float:
        """Kills a minute of the whole run."""
        return 60 * self.kills / max(self.seconds, 1e-9)

    @property
    def sentence(self) -> str:
        """The same in words."""
        return f"{self.verdict}: {self.level}, {told_kills(self.kills, self.seconds)}; {self.matrix.sentence}"

    def to_json(self) -> dict[str, Any]:
        """The same as values."""
        matrix = self.matrix
        points = [
            {
                "point": point,
                "passed": matrix.passed.get(point, 0),
                "struck": {action: matrix.struck.get((at, action), 0) for at, action in matrix.cells if at is point},
            }
            for point in Point
        ]
        return {
            "level": self.level,
            "jobs": list(self.jobs),
            "kills": self.kills,
            "seconds": round(self.seconds, 1),
            "kills_a_minute": round(self.rate, 1),
            "share": round(matrix.share, 3),
            **matrix.to_json(),
            "points": points,
            "unpassed": list(self.unpassed),
            "anomalies": sorted({name for result in self.failed for name in result.anomalies}),
        }


def covered(
    level: Level,
    job: str | None,
    budget: float,
    seed: int,
    folder: Path,
    *,
    progress: Callable[[str], None] = lambda _: None,
    most: int | None = None,
) -> Covered:
    """Put jobs through every action at every point that they pass.

    Args:
        level: how real.
        job: place of a job; ``None``: those of :mod:`~onceonly_lab.chaos.samples`.
        budget: seconds for all of them.
        seed: order and moments.
        folder: for everything that is written.
        progress: is told a line of words after each schedule.
        most: schedules of each job that are played at most.
    """
    jobs = [load(job)] if job else [getattr(samples, name) for name in samples.ALL]
    with staged(jobs[0], folder, level) as stage:
        results = tuple(_went_through(jobs, stage, budget, _Shared(seed, progress, most)))
        return Covered(level, tuple(pipeline.name for pipeline in jobs), results, time.monotonic() - stage.began)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What campaigns on several jobs have in common; see :class:`Campaign`."""

    seed: int
    told: Callable[[str], None]
    most: int | None


def _went_through(jobs: list[Pipeline], stage: Stage, budget: float, shared: _Shared) -> Iterator[Result]:
    """Each job takes its part of the time that is left, and goes first through what those before it have not struck.

    They share JVM and servers: our own jobs ask for the same settings, and a user's job is alone.
    """
    struck, until = frozenset[Cell](), stage.began + budget
    for at, job in enumerate(jobs):
        began = time.monotonic() if at else stage.began
        own = replace(stage, job=job, folder=stage.folder / f"job{at}", began=began)
        campaign = Campaign(own, shared.seed, shared.told, struck, name=f"job{at}_run")
        share = 1.0 if job is jobs[-1] else _FIRST_SHARE
        result = campaign.run((until - began) * share, thorough=True, most=shared.most)
        struck |= {cell for cell, times in result.matrix.struck.items() if times}
        yield result
