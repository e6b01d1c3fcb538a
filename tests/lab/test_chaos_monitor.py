"""A driver that ends by itself when it is about to be killed is told by what it said last."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from onceonly_lab.chaos.monitor import DriverMonitor
from onceonly_lab.driver import Driver
from onceonly_lab.schedule import Action

pytestmark = pytest.mark.kill

PROGRAM = """
import json, sys, time
from pathlib import Path
def say(event, **facts): print(json.dumps({"event": event, **facts}), flush=True)
say("due", fault=0, ms=0)
say("reached")
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
say("failed", code="E206")
raise SystemExit(1)
"""


class Run:
    """Lets the driver end between its events and the kill that is due."""

    name, patience = "a job", 60.0

    def __init__(self, go: Path) -> None:
        self.go, self.struck = go, list[int]()
        self.driver: Driver

    def waits(self) -> None:
        """Nothing to do."""

    def told(self, event: dict[str, Any], number: int) -> None:
        """At the event behind which a kill is due, wait for the end."""
        if event["event"] == "reached":
            self.go.touch()
            self.driver.wait(60)

    def strike(self, number: int, at: int) -> Action:
        """Count what came to act."""
        self.struck.append(at)
        return Action.KILL


def test_a_driver_that_ended_before_its_kill_is_told_by_its_code(tmp_path: Path) -> None:
    run = Run(tmp_path / "go")
    with Driver.command([sys.executable, "-c", PROGRAM, run.go], tmp_path / "driver") as run.driver:
        assert DriverMonitor(run, run.driver, 1).attend() == "E206"
    assert run.struck == [], "a fault that did not come to act is not counted"
