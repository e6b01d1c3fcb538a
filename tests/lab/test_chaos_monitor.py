"""A driver that ends by itself when it is about to be killed is told by what it said last."""

from __future__ import annotations

import sys
import time
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
go, due, ends = sys.argv[1:]
if due == "due":
    say("due", fault=0, ms=0)
say("reached")
while not Path(go).exists():
    time.sleep(0.01)
if ends == "ends":
    say("failed", code="E206")
    raise SystemExit(1)
say("last")
time.sleep(60)
"""


class Run:
    """Lets the driver say its last words, or end, between its events and the kill that is due."""

    name = "a job"

    def __init__(self, folder: Path, patience: float, *program: str) -> None:
        self.patience, self.go = patience, folder / "go"
        self.told_of, self.struck = list[str](), list[int]()
        self.driver = Driver.command([sys.executable, "-c", PROGRAM, self.go, *program], folder / "driver")
        self.ends = "ends" in program
        self._await("reached")

    def waits(self) -> None:
        """Nothing to do."""

    def told(self, event: dict[str, Any], number: int) -> None:
        """At the event behind which it is to be killed, wait for what it does next."""
        self.told_of.append(event["event"])
        if event["event"] == "reached":
            self.go.touch()
            if self.ends:
                self.driver.wait(60)
            else:
                self._await("last")

    def strike(self, number: int, at: int) -> Action:
        """Count what came to act."""
        self.struck.append(at)
        return Action.KILL

    def _await(self, event: str) -> None:
        while f'"{event}"}}\n' not in self.driver.out.read_text():
            time.sleep(0.01)


SOON, LATER = "due", "never due"


@pytest.mark.parametrize(
    ("patience", "program", "ended", "struck"),
    [
        (60.0, (SOON, "ends"), "E206", []),
        (60.0, (SOON, "goes on"), "killed", [0]),
        (0.0, (LATER, "ends"), "E206", []),
        (0.0, (LATER, "goes on"), "silent", []),
    ],
)
def test_a_driver_is_told_by_how_it_ended_and_by_what_it_said_last(
    tmp_path: Path, patience: float, program: tuple[str, str], ended: str, struck: list[int]
) -> None:
    run = Run(tmp_path, patience, *program)
    with run.driver:
        assert DriverMonitor(run, run.driver, 1).attend() == ended
    assert run.struck == struck, "a fault that did not come to act is not counted"
    assert run.told_of[-1] == ("failed" if run.ends else "last")
