"""Sets a stage for a job and runs a campaign on it: what the fixture ``chaos`` and the command line call."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from onceonly.errors import refuse
from onceonly_lab.chaos.campaign import OWN, Campaign, check_playable
from onceonly_lab.chaos.crew import Crew
from onceonly_lab.chaos.destinations import Servers
from onceonly_lab.chaos.pipeline import Pipeline
from onceonly_lab.chaos.played import Stage
from onceonly_lab.chaos.result import Result
from onceonly_lab.level import Level
from onceonly_lab.schedule import Action, Schedule

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_UNITS = {None: 1, "s": 1, "m": 60, "h": 3600}


def seconds_of(budget: str | float) -> float:
    """Seconds of a budget: ``"90s"``, ``"3m"``, or a number of seconds.

    Raises:
        ConfigurationError: E110, it is none.
    """
    found = _BUDGET.fullmatch(str(budget).strip())
    if found is None:
        raise refuse(
            "E110", problem=f"budget={budget!r} is no time.", cause="a number with s, m or h", next='budget="3m"'
        )
    return float(found[1]) * _UNITS[found[2]]


@contextmanager
def staged(job: Pipeline, folder: Path, level: Level = Level.WARM) -> Generator[Stage]:
    """A stage for a job: its JVM and its servers end with it, its folder stays.

    Args:
        job: what is run.
        folder: must not exist, or be empty.
        level: how real.

    Raises:
        ConfigurationError: E110, jobs do not run at this level.
    """
    if not level.runs_jobs:
        raise refuse(
            "E110", problem=f"A job cannot be run at {level}.", cause="it needs drivers: L3 or L4", next="level L3"
        )
    began = time.monotonic()
    with Servers() as servers, Crew(job, level, folder / "drivers") as crew:
        yield Stage(job, level, folder, crew, servers, began)


def chaos(
    job: Pipeline,
    folder: Path,
    budget: str | float = "3m",
    *,
    seed: int = 1,
    level: Level = Level.WARM,
    only: Action | None = None,
    most: int | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Result:
    """Break a job again and again, and judge what it leaves.

    Args:
        job: a function under :func:`onceonly_lab.pipeline`.
        folder: for everything that is written.
        budget: the longest it may take, beside making a failure smaller: ``"90s"``, ``"3m"``.
        seed: decides which schedules are played in which order.
        level: ``L3``: drivers are killed and their JVM lives on; ``L4``: it dies with them, and drivers are stopped.
        only: schedules with this action only.
        most: schedules that are played at most.
        told: is told a line of words after each schedule.

    Raises:
        ConfigurationError: E110, E117, E118 or E119, the job cannot be judged.
        DriverEnded: a driver died of something else.
    """
    if not isinstance(job, Pipeline):  # pyright: ignore[reportUnnecessaryIsInstance] - users call this
        raise refuse(
            "E110",
            problem=f"chaos() was given a {type(job).__name__}.",
            cause="it takes a function under @pipeline",
            next="decorate it: from onceonly_lab import pipeline",
        )
    longest = seconds_of(budget)
    with staged(job, folder, level) as stage:
        return Campaign(stage, seed, told).run(longest, only, most=most)


def replay(
    schedule: Schedule,
    job: Pipeline,
    folder: Path,
    level: Level | None = None,
    told: Callable[[str], None] = print,
    *,
    smaller: bool = False,
) -> Result:
    """Play one schedule on a job; see :meth:`Campaign.replay`.

    Args:
        schedule: what goes wrong.
        job: a function under :func:`onceonly_lab.pipeline`.
        folder: for everything that is written.
        level: how real; default ``L4`` where a driver is stopped or its JVM dies, else ``L3``.
        told: is told a line of words after each schedule.
        smaller: make it smaller, too, if it fails.

    Raises:
        UnreadableSchedule: it asks for what real drivers cannot be given.
    """
    check_playable(schedule, level)
    own = any(fault.action in OWN for fault in schedule.faults)
    with staged(job, folder, level or (Level.COLD if own else Level.WARM)) as stage:
        campaign = Campaign(stage, schedule.seed or 0, told)
        return campaign.shrink(schedule) if smaller else campaign.replay(schedule)
