"""``onceonly lab points``: every fault point and action, and how often schedules passed and struck it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say
from onceonly.faults import Point
from onceonly.lab.fuzzer.aim import aimed
from onceonly.lab.fuzzer.draw import draw
from onceonly.lab.fuzzer.fuzz import Fuzzed, fuzz_all
from onceonly.lab.schedule import NOT_SENT, Action, actions_at

SchedulesOption = Annotated[
    int, typer.Option("--schedules", min=0, metavar="N", help="Random schedules to play, besides those that are aimed.")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the first schedule.")]


def command(schedules: SchedulesOption = 500, seed: SeedOption = 1, output: OutputOption = Output.TABLE) -> None:
    """List the fault points, with how often schedules passed each and how often each action struck there.

    One schedule is aimed at each point and action, others are random. Exit code: 0 every action that applies struck at
    every point, 1 one did not, or something broke.
    """
    fuzzed = fuzz_all(chain((schedule for _, _, schedule in aimed()), map(draw, range(seed, seed + schedules))))
    if output is Output.JSON:
        emit_json({"seed": seed, "schedules": fuzzed.schedules, **_document(fuzzed)})
    else:
        _show(fuzzed)
    raise typer.Exit(1 if fuzzed.unreached or fuzzed.unstruck or fuzzed.failed else 0)


def _document(fuzzed: Fuzzed) -> dict[str, Any]:
    points = [
        {
            "point": point,
            "passed": fuzzed.passed[point],
            "struck": {action: fuzzed.struck[point, action] for action in actions_at(point)},
            "not_applicable": {action: NOT_SENT for action in Action if action not in actions_at(point)},
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
    emit_table(("point", "passed", *Action), _rows(fuzzed))
    say(f"-: {NOT_SENT}")
    if fuzzed.unreached:
        say(f"never passed: {', '.join(fuzzed.unreached)}", style="bold red")
    if fuzzed.unstruck:
        never = ", ".join(f"{point} {action}" for point, action in fuzzed.unstruck)
        say(f"never struck: {never}", style="bold red")
    if fuzzed.shrunk:
        say(f"{fuzzed.shrunk.name}: stopped there; onceonly lab replay tells this schedule:", style="bold red")
        say(fuzzed.shrunk.schedule.text.rstrip())
    if not (fuzzed.unreached or fuzzed.unstruck or fuzzed.failed):
        pairs = sum(len(actions_at(point)) for point in Point)
        say(f"{pairs} of {pairs} points and actions struck in {fuzzed.schedules:,} schedules", style="bold green")


def _rows(fuzzed: Fuzzed) -> Iterator[tuple[object, ...]]:
    """``-`` stands where an action does not apply."""
    for point in Point:
        applicable = actions_at(point)
        struck = (fuzzed.struck[point, action] if action in applicable else "-" for action in Action)
        yield point, fuzzed.passed[point], *struck
