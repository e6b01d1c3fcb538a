"""Where schedules are played, and one of them on real stores, for ``onceonly lab run`` and ``replay``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from onceonly.cli.output import Output, emit_json, say
from onceonly.lab.checker import Verdict, judge
from onceonly.lab.schedule import Schedule
from onceonly.lab.stores.ground import temporary_ground
from onceonly.lab.stores.play import play


class Level(StrEnum):
    """A level of the lab at which random schedules are played."""

    SIMULATED = "L1"
    STORES = "L2"


LevelOption = Annotated[
    Level | None, typer.Option("--level", help="In the simulated world (L1, the default) or on real stores (L2).")
]


def on_stores(schedule: Schedule, output: Output) -> int:
    """Play a schedule on real stores and judge it; the exit code."""
    with temporary_ground(frozenset(schedule.sinks)) as ground:
        played = play(schedule, ground)
    judgement = judge(played.history)
    missed = [one for one in schedule.faults if one not in played.acted]
    unstruck = [f"{one.incarnation}:{one.point}#{one.hit} {one.action}" for one in missed]
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
