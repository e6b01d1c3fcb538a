"""Jobs of users in ``onceonly lab``: run, played again, made smaller; printed, and written for build servers."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onceonly.cli.output import Output, emit_json, say, talk
from onceonly.errors import refuse
from onceonly_lab.chaos import campaign, running
from onceonly_lab.chaos.coverage import Covered, covered
from onceonly_lab.chaos.pipeline import Pipeline, load
from onceonly_lab.chaos.result import SCHEDULE_FILE, Result
from onceonly_lab.checker import Verdict
from onceonly_lab.junit import junit as to_junit
from onceonly_lab.level import Level
from onceonly_lab.schedule import Action, Schedule

BUDGET = "3m"
"""The longest that a job is run, if nobody says otherwise."""

EXIT_CODES = {Verdict.CLEAN: 0, Verdict.ANOMALY: 1, Verdict.INCONCLUSIVE: 2}
_STYLES = {Verdict.CLEAN: "bold green", Verdict.ANOMALY: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}

JobArgument = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="A function under @pipeline: module:name, or path/to/file.py:name."),
]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", metavar="TIME", help=f"Longest time for a job: 90s, 3m. Default {BUDGET}.")
]
OnlyOption = Annotated[Action | None, typer.Option("--only", help="Schedules with this action only.")]
FolderOption = Annotated[
    Path | None,
    typer.Option("--to", metavar="DIR", help="Where input, logs, tables and a failure's schedule go; must be empty."),
]
JunitOption = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit too.")]


def demand_none(given: Mapping[str, object], cause: str) -> None:
    """Refuse options that do not go with the rest.

    Raises:
        ConfigurationError: E110, one of them was given.
    """
    named = ", ".join(name for name, value in given.items() if value is not None)
    if named:
        line = "onceonly lab run --level L3 module:job"
        raise refuse("E110", problem=f"{named} cannot be used here.", cause=cause, next=line)


def demand_job(**options: object) -> None:
    """Refuse options that only a job can have, where there is none; by name.

    Raises:
        ConfigurationError: E110, one of them was given.
    """
    given = {f"--{name}": value for name, value in options.items()}
    demand_none(given, "it is for a job: module:name, or file.py:name")


@dataclass(frozen=True, slots=True)
class Asked:
    """How a job is to be run; see :func:`onceonly_lab.chaos.running.chaos`."""

    budget: str
    seed: int
    level: Level
    only: Action | None = None
    most: int | None = None


def run(job: str, asked: Asked, to: Path | None, junit: Path | None, output: Output) -> int:
    """Run a job and return the exit code."""
    found = found_job(job)
    with folder(to) as at:
        result = running.chaos(
            found, at, asked.budget, seed=asked.seed, level=asked.level, only=asked.only, most=asked.most, told=talk
        )
        return _shown(result, junit, output)


def run_samples(asked: Asked, to: Path | None, output: Output) -> int:
    """Run jobs of our own and return the exit code."""
    with folder(to) as at:
        longest = running.seconds_of(asked.budget)
        return shown_all(covered(asked.level, None, longest, asked.seed, at, told=talk, most=asked.most), output)


def shown_all(real: Covered, output: Output) -> int:
    """Print what jobs went through; the exit code: the worst of theirs, and 2 where a point was never passed."""
    if output is Output.JSON:
        emit_json(real.to_json())
    else:
        for result in real.results:
            for line in result.findings():
                say(line)
        for line in real.matrix.lines():
            say(line)
        say(real.sentence, style=_STYLES[real.verdict])
    return EXIT_CODES[real.verdict]


def replay(schedule: Schedule, level: Level | None, to: Path | None, junit: Path | None, output: Output) -> int:
    """Play a schedule on its job and return the exit code."""
    campaign.check_playable(schedule, level)
    with folder(to) as at:
        return _shown(running.replay(schedule, found_job(schedule.job), at, level, talk), junit, output)


def shrink(schedule: Schedule, to: Path | None, output: Output) -> int:
    """Make a schedule of a job smaller and return the exit code."""
    campaign.check_playable(schedule)
    with folder(None) as at:
        result = running.replay(schedule, found_job(schedule.job), at, None, talk, smaller=True)
    if result.schedule and to:
        to.write_text(result.schedule.text, encoding="utf-8")
    return _shown(result, None, output)


def found_job(place: str) -> Pipeline:
    """Load a job as Python would from here: the working directory comes first."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return load(place)


@contextmanager
def folder(to: Path | None) -> Generator[Path]:
    """Where everything goes. One of our own stays only if there is a failure to look at."""
    if to is not None:
        if to.is_dir() and any(to.iterdir()):
            raise typer.BadParameter(f"{to} is not empty", param_hint="--to")
        yield to.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="onceonly-lab-"))
    try:
        yield made
    finally:
        if not any(made.rglob(SCHEDULE_FILE)):
            shutil.rmtree(made, ignore_errors=True)


def _shown(result: Result, junit: Path | None, output: Output) -> int:
    if junit is not None:
        junit.write_text(to_junit(result.judgement), encoding="utf-8")
    if output is Output.JSON:
        emit_json(result.to_json())
    else:
        *lines, verdict = result.lines()
        for line in lines:
            say(line)
        say(verdict, style=_STYLES[result.verdict])
    return EXIT_CODES[result.verdict]
