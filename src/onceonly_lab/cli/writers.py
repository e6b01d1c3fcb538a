"""``onceonly lab writers``: random runs with several writers of one dataset.

Also switches the rules about time off, one by one.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say
from onceonly.errors import refuse
from onceonly_lab.writers.designs import MUTANTS, SHIPPED, Design
from onceonly_lab.writers.runs import MUST_HOLD, NAME, Tally, tallies

RUNS = 20_000
"""Runs of each design."""

RunsOption = Annotated[int, typer.Option("--runs", min=1, metavar="N", help="Random runs of each design.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the first run; each has the next one.")]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ID", help="Play only this design, as MT1. May be given more than once."),
]


def writers(
    *, runs: RunsOption = RUNS, seed: SeedOption = 1, only: OnlyOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Let several writers of one dataset commit, poll late, crash, fall idle and be reset, in random runs.

    Each run is judged by X-TIME, first with the rules that ship, then with one of them off at a time. Exit code: 0
    what ships is clean and each mutant is found, 1 something differs, 3 there is no such design.
    """
    all_tallies = list(tallies(runs, seed, _chosen(only or ())))
    if output is Output.JSON:
        emit_json({"seed": seed, "must_hold": MUST_HOLD, "designs": [_json(tally) for tally in all_tallies]})
    else:
        say(f"{NAME}: {MUST_HOLD}")
        emit_table(("design", "broken on purpose", "runs", "found in", "first after", "as"), map(_row, all_tallies))
        good = sum(tally.as_expected for tally in all_tallies)
        style = "bold green" if good == len(all_tallies) else "bold red"
        say(f"{good} of {len(all_tallies)} designs are called what they are, seed {seed}", style=style)
    raise typer.Exit(0 if all(tally.as_expected for tally in all_tallies) else 1)


def _chosen(only: list[str] | tuple[str, ...]) -> tuple[Design, ...]:
    designs_by_id = {design.id: design for design in (SHIPPED, *MUTANTS)}
    for name in only:
        if name not in designs_by_id:
            cause, line = f"designs are {', '.join(designs_by_id)}", "onceonly lab writers --only MT1"
            raise refuse("E110", problem=f"There is no design {name!r}.", cause=cause, next=line)
    return tuple(designs_by_id[name] for name in only) or tuple(designs_by_id.values())


def _row(tally: Tally) -> tuple[object, ...]:
    first = f"{tally.took} runs" if tally.took else "never"
    return (
        tally.design.id,
        tally.design.broken or "-",
        tally.runs,
        tally.findings,
        first,
        tally.first.what if tally.first else "",
    )


def _json(tally: Tally) -> dict[str, Any]:
    first = tally.first
    return {
        "design": tally.design.id,
        "broken": tally.design.broken,
        "runs": tally.runs,
        "findings": tally.findings,
        "took": tally.took or None,
        "first": {"seed": first.seed, "step": first.step, "what": first.what} if first else None,
        "as_expected": tally.as_expected,
    }
