"""What findings of time print as the next command answers."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from tests.audit.histories import PIPELINE, ledger_of, sink_of
from tests.audit.world import World
from tests.cli.conftest import Run

from onceonly.audit import Facts, judge
from onceonly.audit.page import commands_in
from onceonly_checkpoints.epoch_time import EpochTime, WriterProgress


def at(noted: int, lower: int, observed: str = "", *, late: int = 0) -> EpochTime:
    marks = (WriterProgress(observed, 1, 7, 0),) if observed else ()
    rows = {"earliest": 3, "late_before": 9, "late_rows": late} if late else {}
    return EpochTime("integer", noted, lower, 12, writers=marks, **rows)


def test_the_commands_that_findings_of_time_print_answer(run: Run, tmp_path: Path) -> None:
    world = World(tmp_path)
    for time in (at(9, 12), at(7, 12, "app", late=2), at(7, 7, "web"), None, at(9, 9)):
        world.write(3, time=time)
    sink = world.sink.id
    ledger = replace(ledger_of(world.line, (sink,)), address=world.ledger.address)
    found = judge(Facts(PIPELINE, (sink_of(world.line, sink),), ledger)).findings
    assert {one.code for one in found} == {"A168", "A169", "A170", "A171", "A172"}
    commands = {command for one in found for command in commands_in(one.remedy)}
    assert len(commands) == 2
    for command in commands:
        result = run(*shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
        assert "late" in result.stdout or "complete until" in result.stdout
    world.ledger.close()
