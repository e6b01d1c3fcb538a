"""``onceonly lab mutants``: sinks, runners and readers broken on purpose, and what the checker calls each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_table, say, talk
from onceonly_lab.mutation import LEVEL, Mutant, Trial, chosen, tried
from onceonly_lab.stores.ground import temporary_ground

OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", metavar="ID", help="This mutant alone, as M5. May repeat.")
]
KeepOption = Annotated[
    Path | None, typer.Option("--keep", metavar="DIR", help="Write the history of each, and of its twin, there.")
]


def command(only: OnlyOption = None, keep: KeepOption = None, output: OutputOption = Output.TABLE) -> None:
    """Break sinks, runners and readers on purpose, one at a time, and see that the checker calls each by its name.

    Runs on a real Postgres, a real Delta log and a real broker, which are started for it. Each mutant plays the
    schedule that kills it, and its unbroken twin the same one. Exit code: 0 each is called exactly what it is and its
    twin is clean, 1 one is not, 2 a fault of a schedule never came to act, 3 there is no such mutant or a server is
    missing.
    """
    wanted = chosen(only or ())
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    trials = _all_tried(wanted, keep)
    if output is Output.JSON:
        found = [trial.to_json() for trial in trials]
        emit_json({"level": LEVEL, "killed": sum(one.killed for one in trials), "mutants": found})
    else:
        _show(trials)
    raise typer.Exit(_code(trials))


def _all_tried(wanted: Sequence[Mutant], keep: Path | None) -> list[Trial]:
    trials: list[Trial] = []
    with temporary_ground(frozenset(kind for one in wanted for kind in one.kinds)) as ground:
        for mutant in wanted:
            talk(f"{mutant.id}: {mutant.broken}")
            trial = tried(mutant, ground)
            trials.append(trial)
            if keep is not None:
                for name, played in zip((mutant.id, f"{mutant.id}-twin"), trial.histories, strict=True):
                    played.history.keep(keep / f"{name}.jsonl", "mutants", "--only", mutant.id)
    return trials


def _code(trials: Sequence[Trial]) -> int:
    if any(one.conclusive and not one.killed for one in trials):
        return 1
    return 0 if all(one.conclusive for one in trials) else 2


def _show(trials: Sequence[Trial]) -> None:
    heads = ("", "broken on purpose", "killer schedule", "on", "called", "must be called", "twin")
    emit_table(heads, map(_row, trials))
    for one in trials:
        for fault in one.unstruck:
            say(f"{one.mutant.id} is inconclusive: never came to act: {fault}", style="bold yellow")
    killed = sum(one.killed for one in trials)
    style = "bold green" if killed == len(trials) else "bold red"
    say(f"{killed}/{len(trials)} are called exactly what they are, and their twins are clean", style=style)


def _row(trial: Trial) -> tuple[object, ...]:
    mutant = trial.mutant
    called, expected = (", ".join(names) for names in (trial.verdict, mutant.expected))
    on = ", ".join(mutant.schedule.sinks)
    return mutant.id, mutant.broken, mutant.killer, on, called or "nothing", expected, trial.twin.verdict
