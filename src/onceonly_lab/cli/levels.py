"""The option ``--level`` of the lab, and one schedule on real stores, for ``onceonly lab replay``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from onceonly.cli.output import Output, emit_json, say
from onceonly.errors import refuse
from onceonly_lab.checker import Verdict, judge
from onceonly_lab.history import History
from onceonly_lab.level import Level
from onceonly_lab.schedule import Schedule, demand_alone
from onceonly_lab.stores.ground import temporary_ground
from onceonly_lab.stores.play import play

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
    with temporary_ground(frozenset(schedule.sinks)) as ground:
        played = play(schedule, ground)
    keep(played.history)
    judgement = judge(played.history)
    missed = [one for one in schedule.faults if one not in played.acted]
    unstruck = [one.line for one in missed]
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
