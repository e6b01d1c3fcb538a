"""``onceonly lab run``: every interleaving within bounds, many random schedules, or a job of yours on a real Spark."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, say, talk
from onceonly.errors import refuse
from onceonly_lab.checker import Verdict
from onceonly_lab.cli import jobs
from onceonly_lab.cli.levels import LevelOption, level_among
from onceonly_lab.explorer import report as explored
from onceonly_lab.explorer.bounds import BOUNDS, GROUPS
from onceonly_lab.fuzzer import report as played
from onceonly_lab.fuzzer.fuzz import fuzz
from onceonly_lab.level import Level
from onceonly_lab.model.parts import Kind
from onceonly_lab.stores import run as stores
from onceonly_lab.stores.ground import temporary_ground

if TYPE_CHECKING:
    from onceonly_lab.explorer.found import Found

SCHEDULES = {Level.SIMULATED: 5000, Level.STORES: 300}
"""Random schedules of one run."""

_TOLD_EVERY = 20

_BOUNDS = ", ".join((*BOUNDS, *GROUPS))

BoundOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bound", metavar="NAME", help=f"Visit every world within it: {', '.join((*BOUNDS, *GROUPS))}. May repeat."
    ),
]
LimitOption = Annotated[
    float | None,
    typer.Option("--limit", metavar="SECONDS", help="Of processor, after which a search of a bound stops, incomplete."),
]
_DEFAULTS = ", ".join(f"{count} at {level}" for level, count in SCHEDULES.items())
SchedulesOption = Annotated[
    int | None, typer.Option("--schedules", min=1, metavar="N", help=f"At most so many; default {_DEFAULTS}.")
]
KeepOption = Annotated[
    Path | None, typer.Option("--keep", metavar="FILE", help="Write the history that is not clean there.")
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
    to: jobs.FolderOption = None,
    junit: jobs.JunitOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Break the product in a simulated world or on real stores, or a job of yours on a real Spark.

    Without a job, random schedules in a simulated world (L1); with --bound every interleaving (L0), several bounds side
    by side, each in a process of its own. At L2 the same random schedules run on a real Postgres, a real Delta log and
    a real broker, which are started for it.

    With a job, or with jobs of our own (L3, L4), drivers that are really killed, until every cell of the matrix of
    points and actions was struck, --budget is over or --schedules were played; it names what was not struck, and why.
    Exit code: 0 nothing breaks, 1 something does, 2 a search stopped at its limit, or what must be survived was never
    met, 3 the lab could not do it.
    """
    if job is not None or (level is not None and level.runs_jobs):
        simulated = {"--bound": bound, "--limit": limit, "--keep": keep}
        jobs.demand_none(simulated, "schedules of a job are drawn from what it passes, and kept with --to")
        where = level_among(level, Level.WARM, Level.COLD)
        asked = jobs.Asked(budget or jobs.BUDGET, 1 if seed is None else seed, where, only, schedules)
        if job is not None:
            raise typer.Exit(jobs.run(job, asked, to, junit, output))
        jobs.demand_job(only=only, junit=junit)
        raise typer.Exit(jobs.run_samples(asked, to, output))
    jobs.demand_job(budget=budget, only=only, to=to, junit=junit)
    if bound is None:
        if limit is not None:
            raise _refused(
                "--limit is for a search.",
                "random schedules end by themselves",
                "onceonly lab run --bound pair --limit 60",
            )
        where = level_among(level, Level.SIMULATED, Level.STORES)
        raise typer.Exit(_drawn(where, schedules or SCHEDULES[where], 1 if seed is None else seed, keep, output))
    if any(given is not None for given in (schedules, seed, level, keep)):
        raise _refused(
            "A search of a bound draws nothing.",
            "--bound with --schedules, --seed, --level or --keep",
            "onceonly lab run --bound pair",
        )
    raise typer.Exit(_search(bound, limit, output))


def _drawn(level: Level, count: int, seed: int, keep: Path | None, output: Output) -> int:
    return _real(count, seed, keep, output) if level is Level.STORES else _fuzz(count, seed, keep, output)


def _refused(problem: str, cause: str, command_line: str) -> Exception:
    return refuse("E110", problem=problem, cause=cause, next=command_line)


def _fuzz(count: int, seed: int, keep: Path | None, output: Output) -> int:
    fuzzed = fuzz(seed, count)
    if fuzzed.failed and keep is not None:
        fuzzed.failed.history.keep(keep, "run", "--schedules", "1", "--seed", str(fuzzed.failed.schedule.seed))
    if output is Output.JSON:
        emit_json(played.document(seed, fuzzed))
    else:
        for line in played.lines(seed, fuzzed):
            say(line)
    if fuzzed.failed:
        return 1
    return 2 if fuzzed.idle and count >= SCHEDULES[Level.SIMULATED] else 0


def _real(count: int, seed: int, keep: Path | None, output: Output) -> int:
    with temporary_ground(frozenset(Kind)) as ground:
        ran = stores.run(seed, count, ground, lambda so_far: _progress(so_far, count))
    if output is Output.JSON:
        emit_json(stores.document(ran))
    else:
        for line in stores.lines(ran):
            say(line)
        for situation in ran.missing:
            say(f"inconclusive: never reached: {situation}")
    if ran.failed is None:
        return 2 if ran.missing else 0
    played, judgement = ran.failed
    if keep is not None:
        drawn = ("--schedules", "1", "--seed", str(played.schedule.seed))
        played.history.keep(keep, "run", "--level", Level.STORES, *drawn)
    return 1 if judgement.verdict is Verdict.ANOMALY else 2


def _progress(ran: stores.Ran, count: int) -> None:
    if ran.schedules % _TOLD_EVERY == 0:
        talk(f"{ran.schedules} of {count} schedules, {ran.rate:.0f} a minute")


def _search(asked: list[str], limit: float | None, output: Output) -> int:
    names = [name for one in asked for name in (GROUPS.get(one) or (one,))]
    for name in names:
        if name not in BOUNDS:
            raise _refused(f"There is no bound {name!r}.", f"bounds are {_BOUNDS}", "--bound sinks")
    searched: dict[str, Found] = {}
    for name, found in _found(names, limit):
        searched[name] = found
        if output is Output.TABLE:
            say(f"{name}:")
            for line in explored.lines(found):
                say(f"  {line}")
        if found.violation is not None:
            break
    if output is Output.JSON:
        emit_json({"bounds": [explored.document(name, found) for name, found in searched.items()]})
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
    if any(found.violation is not None for found in searched):
        return 1
    return 0 if all(found.complete for found in searched) else 2
