"""``onceonly lab run``, ``replay`` and ``shrink``.

They play interleavings, random schedules, or one schedule from a file.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, say, talk
from onceonly.errors import refuse
from onceonly_lab.checker import Verdict, judge
from onceonly_lab.cli import jobs
from onceonly_lab.explorer import search as explored
from onceonly_lab.explorer.bounds import BOUNDS, GROUPS
from onceonly_lab.fuzzer.world import fuzz, play
from onceonly_lab.history import History
from onceonly_lab.model.invariants import Name
from onceonly_lab.model.parts import Kind
from onceonly_lab.play.many import MOST_REPLAYS, Report, Shrunk, broken, document, lines, of_one, told
from onceonly_lab.play.many import shrink as smallest
from onceonly_lab.schedule import Level, Schedule, demand_alone, demand_simulated, load_schedule
from onceonly_lab.stores.places import temporary_servers
from onceonly_lab.stores.world import play as play_on_stores
from onceonly_lab.stores.world import run as run_on_stores

if TYPE_CHECKING:
    from onceonly_lab.explorer.search import Found


# ---- The option ``--level`` of the lab, and one schedule on real stores, for ``onceonly lab replay``.

LevelOption = Annotated[
    Level | None,
    typer.Option(
        "--level",
        help="L1: in a simulated world. L2: on real stores. L3: a job, whose drivers are killed; their JVM lives on. "
        "L4: a job in cold processes, with zombies.",
    ),
]


def level_among(level: Level | None, *fit: Level) -> Level:
    """The level that was asked for; the first that fits where none was.

    Raises:
        ConfigurationError: E110, it is none of those that fit.
    """
    if level is None:
        return fit[0]
    if level not in fit:
        raise refuse(
            "E110",
            problem=f"--level {level} cannot be used here.",
            cause=f"this goes at {' or '.join(fit)}; a job is run at L3 and L4, and nothing else is",
            next="onceonly lab run --level L3 module:job",
        )
    return level


def on_stores(schedule: Schedule, output: Output, keep: Callable[[History], None]) -> int:
    """Play a schedule on real stores, keep its history and judge it; the exit code."""
    demand_alone(schedule)
    with temporary_servers(frozenset(schedule.sinks)) as servers:
        played = play_on_stores(schedule, servers)
    keep(played.history)
    judgement = judge(played.history)
    unstruck = list(played.unstruck)
    if output is Output.JSON:
        emit_json({"schedule": schedule.to_json(), "unstruck": unstruck, "judgement": judgement.to_json()})
    else:
        say(schedule.line)
        for entry in played.history.entries:
            say(entry.text)
        for finding in judgement.findings:
            say(f"{finding.anomaly}: {finding.what}, lines {', '.join(map(str, finding.lines))}", style="bold red")
        for fault in unstruck:
            say(f"inconclusive: never came to act: {fault}")
        say(judgement.sentence)
    if judgement.verdict is Verdict.ANOMALY:
        return 1
    return 2 if unstruck or judgement.verdict is Verdict.INCONCLUSIVE else 0


# ---- ``onceonly lab replay`` and ``shrink``: one schedule from a file, played again or made smaller.

ScheduleArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A schedule: one JSON document.")]
KeepPlayedOption = Annotated[
    Path | None,
    typer.Option("--keep", metavar="HISTORY", help="Write the history to this file, for recheck and report."),
]
SmallerOption = Annotated[
    Path | None, typer.Option("--smaller", metavar="FILE", help="Where the smaller schedule goes. Default: stdout.")
]


def replay(
    file: ScheduleArgument,
    *,
    level: LevelOption = None,
    keep: KeepPlayedOption = None,
    to: jobs.FolderOption = None,
    junit: jobs.JunitOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play a schedule and print each step; on real stores, the lines of its history; of a job, on a real Spark.

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
    name, missed = broken(played), played.unstruck
    if output is Output.JSON:
        emit_json(of_one(played, name))
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


# ---- ``onceonly lab run``: every interleaving within bounds, many random schedules, or a job of yours on a real
# Spark.

SCHEDULES = {Level.SIMULATED: 5000, Level.STORES: 300}
"""Random schedules of one run."""

_TOLD_EVERY = 20

_BOUNDS = ", ".join((*BOUNDS, *GROUPS))

BoundOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bound",
        metavar="NAME",
        help=f"Search every world that this bound allows: {', '.join((*BOUNDS, *GROUPS))}. May be given "
        "more than once.",
    ),
]
LimitOption = Annotated[
    float | None,
    typer.Option(
        "--limit", metavar="SECONDS", help="Processor time after which the search of a bound stops, incomplete."
    ),
]
_DEFAULTS = ", ".join(f"{count} at {level}" for level, count in SCHEDULES.items())
SchedulesOption = Annotated[
    int | None,
    typer.Option("--schedules", min=1, metavar="N", help=f"Play at most this many schedules; default {_DEFAULTS}."),
]
KeepOption = Annotated[
    Path | None,
    typer.Option("--keep", metavar="FILE", help="Write the history of the schedule that broke something to this file."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", metavar="S", help="Seed of the first schedule; default 1.")]


def command(
    job: jobs.JobArgument = None,
    *,
    level: LevelOption = None,
    bound: BoundOption = None,
    limit: LimitOption = None,
    schedules: SchedulesOption = None,
    seed: SeedOption = None,
    keep: KeepOption = None,
    budget: jobs.BudgetOption = None,
    only: jobs.OnlyOption = None,
    at_least: jobs.LeastOption = None,
    to: jobs.FolderOption = None,
    junit: jobs.JunitOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Break the product in a simulated world or on real stores, or a job of yours on a real Spark.

    Without a job, random schedules in a simulated world (L1); with --bound every interleaving (L0), several bounds at
    once, each in its own process. At L2 the same random schedules run on a real Postgres, a real Delta log and
    a real broker, which are started for it.

    With a job, or with jobs of our own (L3, L4), drivers that are really killed, until every cell of the matrix of
    points and actions was struck, --budget is over or --schedules were played; the report names the cells that were not
    struck, and why. Exit code: 0 nothing breaks, 1 something does, 2 a search stopped at its limit, a situation
    that must be survived never occurred, or less than --at-least was gone through, 3 the lab could not do it.
    """
    if job is not None or (level is not None and level.runs_jobs):
        simulated = {"--bound": bound, "--limit": limit, "--keep": keep}
        jobs.demand_none(simulated, "schedules of a job are drawn from what it passes, and kept with --to")
        where = level_among(level, Level.WARM, Level.COLD)
        request = jobs.Asked(budget or jobs.BUDGET, 1 if seed is None else seed, where, only, schedules, at_least)
        if job is not None:
            raise typer.Exit(jobs.run(job, request, to, junit, output))
        jobs.demand_job(only=only, junit=junit, **{"at-least": at_least})
        raise typer.Exit(jobs.run_samples(request, to, output))
    jobs.demand_job(budget=budget, only=only, to=to, junit=junit, **{"at-least": at_least})
    if bound is None:
        if limit is not None:
            raise _refused(
                "--limit is for a search.",
                "random schedules end by themselves",
                "onceonly lab run --bound pair --limit 60",
            )
        where = level_among(level, Level.SIMULATED, Level.STORES)
        raise typer.Exit(_drawn(where, schedules or SCHEDULES[where], 1 if seed is None else seed, keep, output))
    if any(option is not None for option in (schedules, seed, level, keep)):
        raise _refused(
            "A search of a bound draws nothing.",
            "--bound with --schedules, --seed, --level or --keep",
            "onceonly lab run --bound pair",
        )
    raise typer.Exit(_search(bound, limit, output))


def _drawn(level: Level, count: int, seed: int, keep: Path | None, output: Output) -> int:
    report = fuzz(seed, count) if level is Level.SIMULATED else _real(seed, count)
    if output is Output.JSON:
        emit_json(document(seed, report))
    else:
        for line in lines(seed, report):
            say(line)
        for situation in report.missing if level is Level.STORES else ():
            say(f"inconclusive: never reached: {situation}")
    if report.failed is not None:
        if keep is not None:
            real = ("--level", Level.STORES) if level is Level.STORES else ()
            drawn = ("--schedules", "1", "--seed", str(report.failed.schedule.seed))
            report.failed.history.keep(keep, "run", *real, *drawn)
        return 2 if report.judgement and report.judgement.verdict is Verdict.INCONCLUSIVE else 1
    if level is Level.STORES:
        return 2 if report.missing else 0
    return 2 if report.idle and count >= SCHEDULES[level] else 0


def _real(seed: int, count: int) -> Report:
    with temporary_servers(frozenset(Kind)) as servers:
        return run_on_stores(seed, count, servers, lambda so_far: _progress(so_far, count))


def _refused(problem: str, cause: str, command_line: str) -> Exception:
    return refuse("E110", problem=problem, cause=cause, next=command_line)


def _progress(report: Report, count: int) -> None:
    if report.schedules % _TOLD_EVERY == 0:
        talk(f"{report.schedules} of {count} schedules, {60 * report.rate:.0f} a minute")


def _search(bounds: list[str], limit: float | None, output: Output) -> int:
    names = [name for bound in bounds for name in (GROUPS.get(bound) or (bound,))]
    for name in names:
        if name not in BOUNDS:
            raise _refused(
                f"There is no bound {name!r}.", "each bound has its own name", f"--bound with one of: {_BOUNDS}"
            )
    searched: dict[str, Found] = {}
    for name, exploration in _found(names, limit):
        searched[name] = exploration
        if output is Output.TABLE:
            say(f"{name}:")
            for line in explored.lines(exploration):
                say(f"  {line}")
        if exploration.violation is not None:
            break
    if output is Output.JSON:
        emit_json({"bounds": [explored.document(name, ended_search) for name, ended_search in searched.items()]})
    return _worst(list(searched.values()))


def _found(names: list[str], limit: float | None) -> Iterator[tuple[str, Found]]:
    """Search each bound; each answer as soon as those before it are there."""
    from onceonly_lab.explorer.search import search

    if len(names) == 1:
        yield names[0], search(BOUNDS[names[0]], limit)
        return
    several = min(len(names), os.cpu_count() or 1)
    with ProcessPoolExecutor(several, multiprocessing.get_context("spawn")) as pool:
        yield from zip(names, pool.map(search, [BOUNDS[name] for name in names], [limit] * len(names)), strict=True)


def _worst(searched: list[Found]) -> int:
    """A violation outweighs a search that is incomplete."""
    if any(exploration.violation is not None for exploration in searched):
        return 1
    return 0 if all(exploration.complete for exploration in searched) else 2
