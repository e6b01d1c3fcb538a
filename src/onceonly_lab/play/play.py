"""Play one schedule: drivers that take turns, and planned faults.

The drivers run the production runner.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from onceonly import faults
from onceonly.faults import InjectedFault, Point
from onceonly_lab.checker import Anomaly
from onceonly_lab.history import History
from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.parts import STOPPING
from onceonly_lab.play.world import Broken, Killed, Process, Running, World
from onceonly_lab.schedule import Action, Fault, Schedule


@dataclass(frozen=True, slots=True)
class Played:
    """A run of a schedule.

    Attributes:
        schedule: what was run.
        history: for the checker.
        steps: what happened, in words.
        passed: how often each incarnation passed each fault point.
        acted: the faults that came to act.
        actors: how often each of those acted who are no driver.
        refusal: why the last driver stopped; empty if it reached the end.
        violation: the first invariant of the world that did not hold; ``None`` if all did.
    """

    schedule: Schedule
    history: History
    steps: tuple[str, ...]
    passed: Counter[tuple[int, Point]]
    acted: frozenset[Fault]
    actors: Counter[str]
    refusal: str
    violation: Violation | None = None

    @property
    def unstruck(self) -> tuple[str, ...]:
        """Faults of the schedule that never came to act, in words."""
        return tuple(fault.line for fault in self.schedule.faults if fault not in self.acted)


def play_in(world: World) -> Played:
    """Run a world's schedule to its end or to the first violation. One at a time in a process: points are global.

    Raises:
        Stuck: a driver hangs.
    """
    return _Play(world).run()


@dataclass
class _Paused:
    """A driver that others believe dead, and the time at which it goes on."""

    driver: Running
    until: int


class _Play:
    def __init__(self, world: World) -> None:
        self._world = world
        self._schedule = world.schedule
        world.before_step = self._wake_if_due
        world.suffer = self._suffer
        self._drivers: dict[int, Running] = {}
        self._by_thread: dict[threading.Thread, Running] = {}
        self._paused: _Paused | None = None

    def run(self) -> Played:
        world, violation, refusal = self._world, None, ""
        with self._watching():
            try:
                for number in range(1, self._schedule.incarnations + 1):
                    self._incarnate(number)
                refusal = self._settle(self._schedule.incarnations + 1).refusal
            except Broken as broken:
                violation = broken.violation
            self._end_paused()
        world.read_all()
        return Played(
            self._schedule,
            world.recorder.history,
            tuple(world.steps),
            world.struck.passed,
            frozenset(world.struck.acted),
            world.actors,
            refusal,
            violation,
        )

    def _settle(self, number: int) -> Process:
        """Drivers without faults, until one has run alone: one that wakes up may make the engine stop the other."""
        while self._paused is not None:
            self._incarnate(number)
            number += 1
            self._wake()
        self._lose(number)
        self._world.recorder.settle()
        self._world.vanish()
        last = self._start(number)
        self._world.land(everything=True)
        self._world.mend(last)
        for choice in (*self._schedule.obeys, None):
            if self._world.obeyed(last, choice):
                last = self._start(last.number + 1)
        self._world.tidy(last)
        self._world.recorder.settled(last.refusal, last.why)
        if not last.finished and not self._world.explained(last):
            raise Broken(Violation(Anomaly.STUCK, f"the last driver is refused: {last.refusal}"))
        return last

    # ---- drivers

    def _incarnate(self, number: int) -> None:
        self._lose(number)
        self._start(number)

    def _lose(self, number: int) -> None:
        self._world.befalls(number)
        for loss in self._schedule.losses:
            if loss.before == number:
                if loss.what in STOPPING:
                    self._kill_paused("restore")  # whoever restores a sink stops every driver before
                self._world.lose(loss)

    def _start(self, number: int) -> Process:
        process = Process(number, len(self._world.checkpoints) - 1)
        driver = self._drivers[number] = self._world.driver(process)
        self._by_thread[driver.thread] = driver
        self._world.recorder.start(number)
        self._world.steps.append(f"{process.name} starts")
        driver.resume()
        return process

    def _wake_if_due(self, process: Process) -> None:
        paused = self._paused
        if paused and paused.until <= self._world.now and paused.driver.process is not process:
            self._wake()

    def _wake(self) -> None:
        """Let the driver that is paused go on, if there is still one."""
        if self._paused is not None:
            driver, self._paused = self._paused.driver, None
            self._world.steps.append(f"{driver.process.name} goes on")
            driver.resume()

    def _kill_paused(self, why: str) -> None:
        if self._paused is not None:
            self._kill(self._paused.driver.process, why)
            self._end_paused()

    def _end_paused(self) -> None:
        """Let a driver that is still paused unwind, without any effect."""
        if self._paused is not None:
            driver, self._paused = self._paused.driver, None
            driver.process.dead = True
            driver.resume()

    # ---- what goes wrong

    @contextmanager
    def _watching(self) -> Generator[None]:
        """Notice every passing of every fault point of the production code."""
        for point in Point:
            self._watch(point)
        try:
            yield
        finally:
            faults.disarm()

    def _watch(self, point: Point) -> None:
        faults.arm(point, partial(self._pass, point))

    def _pass(self, point: Point) -> None:
        self._watch(point)  # a point that was armed acts once
        driver = self._by_thread.get(threading.current_thread())
        if driver is not None:  # else a command of the operator's: nobody interrupts it
            self._world.alive(driver.process)
            self._suffer(driver.process, self._world.passes(driver.process, point))

    def _suffer(self, process: Process, due: tuple[Fault, ...]) -> None:
        for fault in due:
            self._world.struck.acted.add(fault)
            match fault.action:
                case Action.KILL:
                    self._kill(process, fault.point)
                    raise Killed
                case Action.LOSE_LEDGER:
                    self._world.lose_ledger()
                case Action.PAUSE:
                    self._pause(process, fault)
                case _:
                    self._world.recorder.fault(f"{fault.point}:{fault.action}")
                    raise InjectedFault(f"the answer at {fault.point} was lost")

    def _kill(self, process: Process, why: str) -> None:
        process.dead = True
        self._world.steps.append(f"{process.name} is killed at {why}")
        self._world.recorder.kill(process.number, why)

    def _pause(self, process: Process, fault: Fault) -> None:
        self._kill_paused("pause")  # a third driver does not live
        driver = self._drivers[process.number]
        self._paused = _Paused(driver, self._world.now + fault.steps)
        self._world.steps.append(f"{process.name} is paused at {fault.point}")
        self._world.recorder.fault(f"{fault.point}:pause")
        driver.leave()
        self._world.alive(process)
