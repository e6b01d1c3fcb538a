"""``onceonly lab replay`` and ``shrink``: one schedule from a file, played again or made smaller."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, say, talk
from onceonly.errors import refuse
from onceonly_lab.cli import jobs
from onceonly_lab.cli.levels import LevelOption, level_among, on_stores
from onceonly_lab.fuzzer.fuzz import broken
from onceonly_lab.fuzzer.play import play
from onceonly_lab.fuzzer.report import of_one, told, unstruck
from onceonly_lab.fuzzer.shrink import MOST_REPLAYS, Shrunk
from onceonly_lab.fuzzer.shrink import shrink as smallest
from onceonly_lab.history import History
from onceonly_lab.level import Level
from onceonly_lab.model.invariants import Name
from onceonly_lab.schedule import Schedule, demand_simulated, load_schedule

ScheduleArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A schedule: one JSON document.")]
KeepOption = Annotated[
    Path | None, typer.Option("--keep", metavar="HISTORY", help="Write the history there, for recheck and report.")
]
SmallerOption = Annotated[
    Path | None, typer.Option("--smaller", metavar="FILE", help="Where the smaller schedule goes. Default: stdout.")
]


def replay(
    file: ScheduleArgument,
    *,
    level: LevelOption = None,
    keep: KeepOption = None,
    to: jobs.FolderOption = None,
    junit: jobs.JunitOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play a schedule and tell it step by step; on real stores, as the lines of its history; of a job, on a real Spark.

    Exit code: 0 nothing breaks, 1 something does, 2 a fault of the schedule never came to act, 3 it cannot be read.
    """
    schedule = load_schedule(file)
    if schedule.job:
        if keep is not None:
            raise refuse(
                "E110",
                problem="A job keeps its history in a folder.",
                cause="--keep with the schedule of a job",
                next=f"onceonly lab replay {shlex.quote(str(file))} --to FOLDER",
            )
        where = level and level_among(level, Level.WARM, Level.COLD)
        raise typer.Exit(jobs.replay(schedule, where, to, junit, output))
    jobs.demand_job(to=to, junit=junit)
    demand_simulated(schedule)

    def kept(history: History) -> None:
        if keep is not None:
            history.keep(keep, "replay", str(file), *(("--level", level) if level else ()))

    if level_among(level, Level.SIMULATED, Level.STORES) is Level.STORES:
        raise typer.Exit(on_stores(schedule, output, kept))
    played = play(schedule)
    kept(played.history)
    name, missed = broken(played), unstruck(played)
    if output is Output.JSON:
        emit_json(of_one(played, name, missed))
    else:
        for line in told(played, name):
            say(line)
        for fault in missed:
            say(f"inconclusive: never came to act: {fault}")
    raise typer.Exit(1 if name else 2 if missed else 0)


def shrink(file: ScheduleArgument, to: SmallerOption = None, output: OutputOption = Output.TABLE) -> None:
    """Make a schedule that breaks something smaller, as long as it breaks the same.

    Exit code: 0 it breaks nothing, 1 it breaks something and was made smaller, 3 it cannot be read.
    """
    schedule = load_schedule(file)
    if schedule.job:
        raise typer.Exit(jobs.shrink(schedule, to, output))
    demand_simulated(schedule)
    name = _broken(schedule)
    smaller = smallest(schedule, name, _broken) if name else None
    if smaller and to:
        to.write_text(smaller.schedule.text, encoding="utf-8")
    if output is Output.JSON:
        emit_json(_document(smaller))
    elif smaller and not to:
        say(smaller.schedule.text.rstrip())
    talk(_said(smaller))
    raise typer.Exit(1 if smaller else 0)


def _broken(schedule: Schedule) -> Name | None:
    return broken(play(schedule))


def _said(smaller: Shrunk | None) -> str:
    if smaller is None:
        return "It breaks nothing, so there is nothing to make smaller."
    stopped = ", the most there are" if smaller.replays >= MOST_REPLAYS else ""
    return f"{smaller.name} after {smaller.replays} replays{stopped}: {smaller.schedule.line}"


def _document(smaller: Shrunk | None) -> dict[str, object]:
    if smaller is None:
        return {"anomaly": None, "replays": 0, "schedule": None}
    return {"anomaly": str(smaller.name), "replays": smaller.replays, "schedule": smaller.schedule.to_json()}
