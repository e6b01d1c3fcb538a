"""``onceonly lab run``: every interleaving within bounds, or many random schedules."""

from __future__ import annotations

from typing import Annotated

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, say
from onceonly.errors import refuse
from onceonly.lab.explorer import report as explored
from onceonly.lab.explorer.bounds import BOUNDS
from onceonly.lab.explorer.search import Found, search
from onceonly.lab.fuzzer import report as played
from onceonly.lab.fuzzer.fuzz import fuzz

SCHEDULES = 5000
"""Random schedules of one run."""

BoundOption = Annotated[
    list[str] | None,
    typer.Option("--bound", metavar="NAME", help=f"Visit every world within it: {', '.join(BOUNDS)}. May repeat."),
]
LimitOption = Annotated[
    float | None,
    typer.Option("--limit", metavar="SECONDS", help="Of processor, after which a search of a bound stops, incomplete."),
]
SchedulesOption = Annotated[
    int | None, typer.Option("--schedules", min=1, metavar="N", help=f"Random schedules; default {SCHEDULES}.")
]
SeedOption = Annotated[int | None, typer.Option("--seed", metavar="S", help="Seed of the first schedule; default 1.")]


def command(
    bound: BoundOption = None,
    limit: LimitOption = None,
    schedules: SchedulesOption = None,
    seed: SeedOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Break the coordinator in a simulated world: random schedules, or with --bound every interleaving.

    Exit code: 0 nothing breaks, 1 something does, 2 a search stopped at its limit, 3 the lab could not do it.
    """
    if bound is None:
        if limit is not None:
            raise _refused(
                "--limit is for a search.",
                "random schedules end by themselves",
                "onceonly lab run --bound pair --limit 60",
            )
        raise typer.Exit(_fuzz(schedules or SCHEDULES, 1 if seed is None else seed, output))
    if schedules is not None or seed is not None:
        raise _refused(
            "A search of a bound draws nothing.", "--bound with --schedules or --seed", "onceonly lab run --bound pair"
        )
    raise typer.Exit(_search(bound, limit, output))


def _refused(problem: str, cause: str, command_line: str) -> Exception:
    return refuse("E110", problem=problem, cause=cause, next=command_line)


def _fuzz(count: int, seed: int, output: Output) -> int:
    fuzzed = fuzz(seed, count)
    if output is Output.JSON:
        emit_json(played.document(seed, fuzzed))
    else:
        for line in played.lines(seed, fuzzed):
            say(line)
    return 1 if fuzzed.failed else 0


def _search(names: list[str], limit: float | None, output: Output) -> int:
    for name in names:
        if name not in BOUNDS:
            raise _refused(f"There is no bound {name!r}.", f"bounds are {', '.join(BOUNDS)}", "--bound sinks")
    searched: dict[str, Found] = {}
    for name in names:
        found = searched[name] = search(BOUNDS[name], limit)
        if output is Output.TABLE:
            say(f"{name}:")
            for line in explored.lines(found):
                say(f"  {line}")
        if found.violation is not None:
            break
    if output is Output.JSON:
        emit_json({"bounds": [explored.document(name, found) for name, found in searched.items()]})
    return _worst(list(searched.values()))


def _worst(searched: list[Found]) -> int:
    """A violation outweighs a search that is incomplete."""
    if any(found.violation is not None for found in searched):
        return 1
    return 0 if all(found.complete for found in searched) else 2
