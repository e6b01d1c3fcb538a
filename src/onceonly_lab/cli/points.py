"""``onceonly lab points``: every fault point and action, and how often schedules passed and struck it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say, talk
from onceonly.faults import Point
from onceonly_lab.chaos.cells import Matrix
from onceonly_lab.chaos.coverage import Covered, covered
from onceonly_lab.chaos.running import seconds_of
from onceonly_lab.cli import jobs
from onceonly_lab.cli.levels import LevelOption, level_among
from onceonly_lab.fuzzer.aim import aimed
from onceonly_lab.fuzzer.draw import draw
from onceonly_lab.fuzzer.fuzz import Fuzzed, fuzz_all
from onceonly_lab.level import Level
from onceonly_lab.schedule import NOT_SENT, SIMULATED, Action, actions_at

BUDGET = "20m"
"""The longest that the jobs of one matrix may take."""

SCHEDULES = 500
"""Random schedules in the simulated world."""

BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help=f"Longest time for jobs (L3, L4): 90s, 3m. Default {BUDGET}."),
]
SchedulesOption = Annotated[
    int | None,
    typer.Option(
        "--schedules",
        min=0,
        metavar="N",
        help=f"Random schedules to play at L1, besides those that are aimed; default {SCHEDULES}.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the first schedule.")]


def command(
    job: jobs.JobArgument = None,
    *,
    level: LevelOption = None,
    budget: BudgetOption = None,
    schedules: SchedulesOption = None,
    seed: SeedOption = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the fault points, with how often schedules passed each and how often each action struck there.

    One schedule is aimed at each point and action, others are random. Exit code: 0 every action that applies struck at
    every point, 1 one did not, or something broke.

    At L3 and L4 on a real Spark: of a job, or of jobs of our own that together pass all points. Exit code: 0 every
    point that can be passed was, 1 something broke, 2 a point was not passed, 3 the lab could not do it.
    """
    fit = (Level.WARM, Level.COLD) if job is not None else (Level.SIMULATED, Level.WARM, Level.COLD)
    where = level_among(level, *fit)
    if where.runs_jobs:
        jobs.demand_none({"--schedules": schedules}, "schedules of a job are drawn from what it passes")
        with jobs.folder(None) as at:
            raise typer.Exit(_show_real(covered(where, job, seconds_of(budget or BUDGET), seed, at, told=talk), output))
    jobs.demand_job(budget=budget)
    random = map(draw, range(seed, seed + (SCHEDULES if schedules is None else schedules)))
    fuzzed = fuzz_all(chain((schedule for _, _, schedule in aimed()), random))
    if output is Output.JSON:
        emit_json({"seed": seed, "schedules": fuzzed.schedules, **_document(fuzzed)})
    else:
        _show(fuzzed)
    raise typer.Exit(1 if fuzzed.unreached or fuzzed.unstruck or fuzzed.failed else 0)


def _show_real(real: Covered, output: Output) -> int:
    if output is Output.TABLE:
        matrix = real.matrix
        shown = sorted({action for _, action in matrix.cells})
        emit_table(("point", "passed", *shown), _real_rows(matrix, shown))
    return jobs.shown_all(real, output)


def _real_rows(matrix: Matrix, shown: list[Action]) -> Iterator[tuple[object, ...]]:
    """``-`` stands where nothing can come to act."""
    cells = frozenset(matrix.cells)
    for point in Point:
        struck = (matrix.struck.get((point, one), 0) if (point, one) in cells else "-" for one in shown)
        yield point, matrix.passed.get(point, 0), *struck


def _document(fuzzed: Fuzzed) -> dict[str, Any]:
    points = [
        {
            "point": point,
            "passed": fuzzed.passed[point],
            "struck": {action: fuzzed.struck[point, action] for action in actions_at(point)},
            "not_applicable": {action: NOT_SENT for action in SIMULATED if action not in actions_at(point)},
        }
        for point in Point
    ]
    return {
        "points": points,
        "unreached": list(fuzzed.unreached),
        "unstruck": [list(pair) for pair in fuzzed.unstruck],
        "anomaly": str(fuzzed.shrunk.name) if fuzzed.shrunk else None,
        "schedule": fuzzed.shrunk and fuzzed.shrunk.schedule.to_json(),
    }


def _show(fuzzed: Fuzzed) -> None:
    emit_table(("point", "passed", *SIMULATED), _rows(fuzzed))
    say(f"-: {NOT_SENT}")
    if fuzzed.unreached:
        say(f"never passed: {', '.join(fuzzed.unreached)}", style="bold red")
    if fuzzed.unstruck:
        never = ", ".join(f"{point} {action}" for point, action in fuzzed.unstruck)
        say(f"never struck: {never}", style="bold red")
    if fuzzed.shrunk:
        say(
            f"{fuzzed.shrunk.name}: stopped there; for onceonly lab replay (as a file):",
            style="bold red",
        )
        say(fuzzed.shrunk.schedule.text.rstrip())
    if not (fuzzed.unreached or fuzzed.unstruck or fuzzed.failed):
        pairs = sum(len(actions_at(point)) for point in Point)
        say(f"{pairs} of {pairs} points and actions struck in {fuzzed.schedules:,} schedules", style="bold green")


def _rows(fuzzed: Fuzzed) -> Iterator[tuple[object, ...]]:
    """``-`` stands where an action does not apply."""
    for point in Point:
        applicable = actions_at(point)
        struck = (fuzzed.struck[point, action] if action in applicable else "-" for action in SIMULATED)
        yield point, fuzzed.passed[point], *struck
