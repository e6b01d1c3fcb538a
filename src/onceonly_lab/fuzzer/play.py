"""Plays a schedule: the production runner in a simulated scene, one driver at a time, a clock that counts steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from onceonly import faults
from onceonly.faults import Point
from onceonly_lab.checker import Anomaly
from onceonly_lab.fuzzer.driver import drive
from onceonly_lab.fuzzer.scene import Broken, Killed, Process, Scene, bound_of
from onceonly_lab.fuzzer.turns import Turn
from onceonly_lab.history import History
from onceonly_lab.model.invariants import Violation
from onceonly_lab.model.parts import DROPPED, RESTORED, Harm
from onceonly_lab.model.program import MISUSED
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.sinks import REFUSED_ROW
from onceonly_lab.model.situation import Situation
from onceonly_lab.model.spark import Damage
from onceonly_lab.schedule import LEDGER, SENT, Action, Fault, Schedule


@dataclass(frozen=True, slots=True)
class Played:
    """A run of a schedule.

    Attributes:
        schedule: what was run.
        violation: the first invariant that did not hold; ``None`` if all did.
        steps: what happened, in words.
        passed: fault points with how often they were passed, by incarnation.
        acted: the faults that came to act.
        history: for the checker.
        actors: how often each of those acted who are no driver.
    """

    schedule: Schedule
    violation: Violation | None
    steps: tuple[str, ...]
    passed: Counter[tuple[int, Point]]
    acted: frozenset[Fault]
    history: History
    actors: Counter[str] = field(default_factory=Counter[str])


def play(schedule: Schedule, off: frozenset[Rule] = frozenset()) -> Played:
    """Run a schedule to its end or to the first violation.

    Args:
        schedule: what is run.
        off: rules that are not kept.
    """
    return _Play(schedule, off).run()


@dataclass
class _Paused:
    """A driver that others believe dead, and the step at which it goes on."""

    process: Process
    until: int


class _Play:
    def __init__(self, schedule: Schedule, off: frozenset[Rule]) -> None:
        self._schedule = schedule
        self._scene = Scene(schedule, off, _allowed(schedule))
        self._scene.before_step = self._wake_if_due
        self._scene.suffer = self._suffer
        self._turns: dict[int, Turn] = {}
        self._paused: _Paused | None = None
        self._current: Process | None = None

    def run(self) -> Played:
        scene, violation = self._scene, None
        with self._watching():
            try:
                for incarnation in range(1, self._schedule.incarnations + 1):
                    self._lose(incarnation)
                    self._incarnate(incarnation)
                self._settle()
            except Broken as broken:
                violation = broken.violation
            self._end_paused()
        scene.scribe.final(scene.targets.values(), scene.ledger)
        return Played(
            self._schedule,
            violation,
            tuple(scene.steps),
            scene.passed,
            frozenset(scene.acted),
            scene.scribe.history,
            scene.actors,
        )

    def _settle(self) -> None:
        """Drivers without faults, until one has run alone: one that wakes up may make the engine stop the other."""
        number = self._schedule.incarnations + 1
        while self._paused is not None:
            self._lose(number)
            self._incarnate(number)
            number += 1
            self._wake()
        self._lose(number)
        self._scene.scribe.settle()
        self._scene.vanish()
        last = self._incarnate(number)
        self._scene.land(everything=True)
        if last.refusal == REFUSED_ROW:
            self._scene.actors["a row is refused"] += 1
        self._scene.mend()
        last = self._led_on(last)
        self._scene.scribe.settled(last.refusal)
        if not last.finished and not self._explained(last):
            raise Broken(Violation(Anomaly.STUCK, f"the last driver is refused: {last.refusal}"))

    def _led_on(self, last: Process) -> Process:
        """The driver after the operator has obeyed what was printed, and after what was refused is taken."""
        number = last.number
        for choice in (*self._schedule.obeys, None):
            if last.refusal == REFUSED_ROW or (
                choice is not None and last.stop and self._scene.obey(last.stop, choice)
            ):
                number += 1
                last = self._incarnate(number)
        return last

    def _explained(self, last: Process) -> bool:
        """Whether what a refusal says is so."""
        scene, bound = self._scene, self._scene.bound
        targets = tuple(target for target in scene.targets.values() if target.harm != DROPPED)
        desk = replace(scene.desk, program=self._schedule.program)
        shared = (targets, scene.staging, scene.ledger, scene.checkpoints[last.at], desk)
        return Situation(*shared, last.planned, bound.source, bound.trims).explains(last.refusal)

    # ---- drivers

    def _lose(self, number: int) -> None:
        for loss in self._schedule.losses:
            if loss.before == number and loss.what == LEDGER:
                self._scene.lose_ledger()
            elif loss.before == number and loss.what in set(Harm):
                self._harm(loss.sink, Harm(loss.what))
            elif loss.before == number:
                self._scene.damage(Damage(loss.what))

    def _harm(self, at: int, harm: Harm) -> None:
        if harm in RESTORED and self._paused is not None:  # whoever restores a sink stops every driver before
            self._kill(self._paused.process, "restore")
            self._end_paused()
        self._scene.harm(at, harm)

    def _incarnate(self, number: int) -> Process:
        process = Process(number, len(self._scene.checkpoints) - 1)
        self._turns[number] = Turn(partial(drive, self._scene, process))
        self._scene.scribe.start(number)
        self._scene.steps.append(f"{process.name} starts")
        self._resume(process)
        return process

    def _resume(self, process: Process) -> None:
        """Give a driver its turn, until it ends or pauses."""
        before, self._current = self._current, process
        try:
            self._turns[process.number].resume()
        finally:
            self._current = before

    def _wake_if_due(self, process: Process) -> None:
        if self._paused and self._paused.until <= len(self._scene.steps) and self._paused.process is not process:
            self._wake()

    def _wake(self) -> None:
        """Let the driver that is paused go on, if there is still one."""
        if self._paused is None:
            return
        process, self._paused = self._paused.process, None
        self._scene.steps.append(f"{process.name} goes on")
        self._resume(process)

    def _end_paused(self) -> None:
        """Let a driver that is still paused unwind, without any effect."""
        if self._paused is not None:
            process, self._paused = self._paused.process, None
            process.dead = True
            self._resume(process)

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
        self._watch(point)
        process = self._current
        if process is None:
            return  # a command of the operator's: nobody interrupts it
        self._scene.alive(process)
        due = self._scene.faults(process.number, point)
        if point in SENT:
            process.due = due  # decided where the request is sent, see sink.py
        else:
            self._suffer(process, due)

    def _suffer(self, process: Process, due: tuple[Fault, ...]) -> None:
        for fault in due:
            self._scene.acted.add(fault)
            match fault.action:
                case Action.KILL:
                    self._kill(process, fault.point)
                    raise Killed
                case Action.LOSE_LEDGER:
                    self._scene.lose_ledger()
                case _:
                    self._pause(process, fault)

    def _kill(self, process: Process, why: str) -> None:
        process.dead = True
        self._scene.steps.append(f"{process.name} is killed at {why}")
        self._scene.scribe.kill(process.number, why)

    def _pause(self, process: Process, fault: Fault) -> None:
        if self._paused is not None:  # a third driver does not live
            other = self._paused.process
            self._kill(other, "pause")
            self._end_paused()
        self._paused = _Paused(process, len(self._scene.steps) + fault.steps)
        self._scene.steps.append(f"{process.name} is paused at {fault.point}")
        self._scene.scribe.fault(f"{fault.point}:pause")
        self._turns[process.number].leave()
        self._scene.alive(process)


def _allowed(schedule: Schedule) -> frozenset[str]:
    """Refusals that the history calls right: of wrong calls, and of what does not go on after a damaged checkpoint."""
    called = MISUSED if schedule.program else frozenset[str]()
    damaged = any(loss.what in set(Damage) for loss in schedule.losses)
    return called | (bound_of(schedule).explained if damaged else frozenset())
