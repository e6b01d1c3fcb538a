"""What the runs of one job share, and what one run left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly_lab.chaos.cells import Cell
from onceonly_lab.chaos.crew import Crew
from onceonly_lab.chaos.destinations import Destination, Servers
from onceonly_lab.chaos.pipeline import Pipeline
from onceonly_lab.history import History
from onceonly_lab.level import Level
from onceonly_lab.schedule import Loss, Schedule


@dataclass(frozen=True, slots=True)
class Stage:
    """What the runs of one job share.

    Attributes:
        job: what is run.
        level: how real.
        folder: everything lies here.
        crew: drivers.
        servers: databases and brokers.
        began: when it was begun to be set, by the monotonic clock.
    """

    job: Pipeline
    level: Level
    folder: Path
    crew: Crew
    servers: Servers
    began: float

    def checkpoint(self, name: str) -> Path:
        """Where the checkpoint of a run lies."""
        return self.folder / name / "checkpoint"


@dataclass(slots=True)
class Played:
    """One run.

    Attributes:
        schedule: what was to happen.
        file: the recorded history.
        history: the same, read.
        sinks: destinations that the job asked for.
        struck: places of faults that came to act.
        operated: losses that came to act.
        passed: how often each point was passed.
        drivers: how many were started.
        kills: drivers that SIGKILL ended, each followed by a look at every sink.
        split: whether a driver died between the commits of two sinks.
        woken: drivers that were stopped, and woke up when others had gone on.
        callbacks: batches that the last driver was offered.
        ended: how the last driver ended: ``done`` or the code of its refusal.
        words: what it said then.
        seconds: wall time.
    """

    schedule: Schedule
    file: Path
    history: History | None = None
    sinks: list[Destination] = field(default_factory=list[Destination])
    struck: set[int] = field(default_factory=set[int])
    operated: set[Loss] = field(default_factory=set[Loss])
    passed: Counter[Point] = field(default_factory=Counter[Point])
    drivers: int = 0
    kills: int = 0
    split: bool = False
    woken: int = 0
    callbacks: int = 0
    ended: str = ""
    words: str = ""
    seconds: float = 0.0

    @property
    def unstruck(self) -> tuple[str, ...]:
        """What of the schedule never came to act, in words."""
        faults = (fault.line for at, fault in enumerate(self.schedule.faults) if at not in self.struck)
        losses = (f"{loss.what} before {loss.before}" for loss in self.schedule.losses if loss not in self.operated)
        return (*faults, *losses)


def unpolled(job: str, sink: str, reason: str) -> Exception:
    """The refusal to judge what nobody can read."""
    cause = "the job writes elsewhere, or other columns than the lab was told"
    return refuse("E118", sink=sink, job=job, reason=reason, cause=cause)


def cut_to(schedule: Schedule, drivers: int) -> Schedule | None:
    """The first drivers of a schedule, and what is lost before the one after them; ``None`` without any."""
    if drivers >= schedule.incarnations:
        return schedule
    faults = tuple(fault for fault in schedule.faults if fault.incarnation <= drivers)
    losses = tuple(loss for loss in schedule.losses if loss.before <= drivers + 1)
    return replace(schedule, incarnations=drivers, faults=faults, losses=losses) if faults else None


def struck_cells(played: Played) -> Iterator[Cell]:
    """Points and actions that came together in a run."""
    for at in played.struck:
        yield played.schedule.faults[at].point, played.schedule.faults[at].action
