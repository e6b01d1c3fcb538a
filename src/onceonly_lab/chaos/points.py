"""The fault points of a driver under test: counts how often each is passed, and strikes where its task says so.

A job that uses nothing of ours passes two points only, the ends of its callback: ``discover.after``, when a batch is
offered and nothing is done, and ``return.before``, when everything is done and Spark does not know it yet.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

from onceonly import faults
from onceonly.faults import Point
from onceonly_lab.chaos.cells import ON_THE_WIRE
from onceonly_lab.chaos.task import ARMED, OVER, Task, say, wire_file
from onceonly_lab.cluster import kill_executor
from onceonly_lab.schedule import SENDS, SENT, Action, Fault
from onceonly_lab.warm import is_warm

LEDGER_FILES = ("", "-wal", "-shm", "-journal")
"""What SQLite appends to the name of its files."""

_POLL_S = 0.005


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
        self._on_the_wire: int | None = None
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
        if self._on_the_wire is not None and point not in SENT:
            number, self._on_the_wire = self._on_the_wire, None
            self._ask("over", number, OVER)
        for number, fault in enumerate(self._task.faults):
            wired = fault.action in ON_THE_WIRE
            at = SENDS[fault.point] if wired else fault.point
            if at is not point or fault.hit != self._passed[point]:
                continue
            if wired:
                self._on_the_wire = number
                self._ask("wire", number, ARMED)
            else:
                self._strike(number, fault)

    def _ask(self, event: str, number: int, what: str) -> None:
        """Have the harness do something between two steps of this driver, and wait until it is done."""
        say(event, fault=number)
        answer = wire_file(Path(self._task.sinks), self._task.incarnation, number, what)
        while not answer.exists():
            time.sleep(_POLL_S)

    def _strike(self, number: int, fault: Fault) -> None:
        if fault.action is Action.KILL and fault.ms:
            say("due", fault=number, ms=fault.ms)
            return
        if fault.action is Action.LOSE_LEDGER:
            if lose_ledger(self._task.checkpoint):
                say("struck", fault=number)
            return
        if fault.action is Action.KILL_EXECUTOR:
            Timer(fault.ms / 1000, partial(_kill_executor, number)).start()
            return
        say("struck", fault=number)
        _ACTIONS[fault.action]()


def lose_ledger(checkpoint: str) -> bool:
    """Remove the ledger that lies beside a checkpoint; whether there was one."""
    found = _ledger_files(checkpoint)
    for file in found:
        file.unlink()
    return bool(found)


def has_ledger(checkpoint: str) -> bool:
    """Whether a ledger lies beside a checkpoint."""
    return bool(_ledger_files(checkpoint))


def _ledger_files(checkpoint: str) -> list[Path]:
    files = [Path(f"{checkpoint}.onceonly.db{end}") for end in LEDGER_FILES]
    return [file for file in files if file.exists()]


def _kill() -> None:
    """SIGKILL; where the JVM is the driver's own, it dies at the same moment."""
    faults.ACTIONS["kill" if is_warm() else "killgroup"]()


def _kill_jvm() -> None:
    """SIGKILL of a driver's own JVM: Python lives on for a while, in the middle of what it was doing."""
    os.kill(_context()._gateway.proc.pid, signal.SIGKILL)


def _kill_executor(number: int) -> None:
    if kill_executor(_context().applicationId):
        say("struck", fault=number)


def _context() -> Any:
    from pyspark import SparkContext

    class_: Any = SparkContext
    return class_._active_spark_context


_ACTIONS: dict[Action, Callable[[], object]] = {
    Action.KILL: _kill,
    Action.KILL_JVM: _kill_jvm,
    Action.PAUSE: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    Action.LOSE_ANSWER: faults.ACTIONS["raise"],
}
"""What a real driver does to itself."""
