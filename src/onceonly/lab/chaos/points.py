"""The fault points of a driver under test: counts how often each is passed, and strikes where its task says so.

A job that uses nothing of ours passes two points only, the ends of its callback: ``discover.after``, when a batch is
offered and nothing is done, and ``return.before``, when everything is done and Spark does not know it yet.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from onceonly import faults
from onceonly.faults import Point
from onceonly.lab.chaos.task import Task, say
from onceonly.lab.schedule import Action, Fault
from onceonly.lab.warm import is_warm

LEDGER_FILES = ("", "-wal", "-shm", "-journal")
"""What SQLite appends to the name of its files."""


class Points:
    """Arms every point for the life of a process.

    Args:
        task: what goes wrong.

    Attributes:
        callbacks: how often a batch was offered.
    """

    def __init__(self, task: Task) -> None:
        self.callbacks = 0
        self._task = task
        self._passed: Counter[Point] = Counter()
        for point in Point:
            self._arm(point)

    @contextmanager
    def callback(self) -> Generator[None]:
        """Around the job's own function."""
        self.callbacks += 1
        if self._task.plain:
            self._pass(Point.DISCOVER_AFTER)
        before = self._passed.total()
        yield
        if self._passed.total() > before:
            return
        if self._task.plain is None:
            self._pass(Point.DISCOVER_AFTER)
        self._pass(Point.RETURN_BEFORE)

    def _arm(self, point: Point) -> None:
        faults.arm(point, partial(self._fired, point))

    def _fired(self, point: Point) -> None:
        # A point acts once when armed; the next time counts, too.
        self._arm(point)
        self._pass(point)

    def _pass(self, point: Point) -> None:
        self._passed[point] += 1
        say("pass", point=point)
        for number, fault in enumerate(self._task.faults):
            if fault.point is point and fault.hit == self._passed[point]:
                self._strike(number, fault)

    def _strike(self, number: int, fault: Fault) -> None:
        if fault.action is Action.KILL and fault.ms:
            say("due", fault=number, ms=fault.ms)
            return
        if fault.action is Action.LOSE_LEDGER:
            if lose_ledger(self._task.checkpoint):
                say("struck", fault=number)
            return
        say("struck", fault=number)
        _ACTIONS[fault.action]()


def lose_ledger(checkpoint: str) -> bool:
    """Remove the ledger that lies beside a checkpoint; whether there was one."""
    files = [Path(f"{checkpoint}.onceonly.db{end}") for end in LEDGER_FILES]
    found = [file for file in files if file.exists()]
    for file in found:
        file.unlink()
    return bool(found)


def _kill() -> None:
    """SIGKILL; where the JVM is the driver's own, it dies at the same moment."""
    faults.ACTIONS["kill" if is_warm() else "killgroup"]()


_ACTIONS: dict[Action, Callable[[], object]] = {
    Action.KILL: _kill,
    Action.PAUSE: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    Action.LOSE_ANSWER: faults.ACTIONS["raise"],
}
"""What a real driver can suffer; requests are lost and delayed on the wire only."""

PLAYABLE = frozenset({*_ACTIONS, Action.LOSE_LEDGER})
"""Actions that real drivers can be given."""
