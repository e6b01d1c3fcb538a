"""``onceonly lab points``: every fault point and action, and how often random schedules passed and struck it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say
from onceonly.faults import Point
from onceonly.lab.fuzzer.draw import PLAYED
from onceonly.lab.fuzzer.fuzz import Fuzzed, fuzz
from onceonly.lab.schedule import Action, actions_at

SchedulesOption = Annotated[int, typer.Option("--schedules", min=1, metavar="N", help="Random schedules to play.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the first schedule.")]


def command(schedules: SchedulesOption = 500, seed: SeedOption = 1, output: OutputOption = Output.TABLE) -> None:
    """List the fault points, with how often schedules passed each and how often each action struck there.

    Exit code: 0 all that are simulated were passed, 1 one was not, or something broke.
    """
    fuzzed = fuzz(seed, schedules)
    if output is Output.JSON:
        emit_json({"seed": seed, "schedules": fuzzed.schedules, **_document(fuzzed)})
    else:
        _show(fuzzed, seed)
    raise typer.Exit(1 if fuzzed.unreached or fuzzed.failed else 0)


def _document(fuzzed: Fuzzed) -> dict[str, Any]:
    points = [
        {
            "point": point,
            "simulated": point in PLAYED,
            "passed": fuzzed.passed[point],
            "struck": {action: fuzzed.struck[point, action] for action in actions_at(point)},
        }
        for point in Point
    ]
    anomaly = str(fuzzed.shrunk.name) if fuzzed.shrunk else None
    return {"points": points, "unreached": list(fuzzed.unreached), "anomaly": anomaly}


def _show(fuzzed: Fuzzed, seed: int) -> None:
    emit_table(("point", "passed", *Action), _rows(fuzzed))
    others = [point for point in Point if point not in PLAYED]
    say(f"only real drivers pass, the simulated ones do not: {', '.join(others)}")
    if fuzzed.unreached:
        say(f"never passed: {', '.join(fuzzed.unreached)}", style="bold red")
    if fuzzed.shrunk:
        say(f"{fuzzed.shrunk.name}: stopped there; told by: onceonly lab run --seed {seed}", style="bold red")


def _rows(fuzzed: Fuzzed) -> Iterator[tuple[object, ...]]:
    """``-`` stands where an action does not apply."""
    for point in PLAYED:
        applicable = actions_at(point)
        struck = (fuzzed.struck[point, action] if action in applicable else "-" for action in Action)
        yield point, fuzzed.passed[point], *struck
