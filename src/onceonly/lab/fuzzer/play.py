"""Plays a schedule in the simulated world: one thread, one clock that counts steps, no chance of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from onceonly import commands as c
from onceonly import coordinator
from onceonly.faults import Point
from onceonly.lab.checker import Anomaly
from onceonly.lab.explorer.lone import ALLOWED
from onceonly.lab.explorer.moves import Move, MoveTable
from onceonly.lab.explorer.table import Codes
from onceonly.lab.fuzzer.scribe import Scribe
from onceonly.lab.history import History
from onceonly.lab.model import invariants
from onceonly.lab.model.invariants import Violation
from onceonly.lab.model.parts import Kind, SimulatedLedger, Target
from onceonly.lab.model.rules import Rule
from onceonly.lab.model.sinks import Fate
from onceonly.lab.model.spark import Checkpoint, Damage, damaged
from onceonly.lab.model.world import Bound, Driver
from onceonly.lab.schedule import LEDGER, Action, Fault, Schedule

_POINTS: dict[type, tuple[Point | None, Point | None]] = {
    c.Probe: (None, Point.PROBE_AFTER),
    c.Recall: (None, Point.RECALL_AFTER),
    c.Install: (Point.INSTALL_BEFORE, Point.INSTALL_AFTER),
    c.Read: (None, Point.READ_AFTER),
    c.Index: (None, Point.REINDEX_AFTER),
    c.Stage: (Point.STAGE_BEFORE, Point.STAGE_AFTER),
    c.Fetch: (None, Point.FETCH_AFTER),
    c.Commit: (Point.COMMIT_BEFORE, Point.COMMIT_AFTER),
    c.LookUp: (None, Point.LOOK_UP_AFTER),
    c.Record: (Point.RECORD_BEFORE, Point.RECORD_AFTER),
    c.Recollect: (None, None),
    c.Return: (Point.RETURN_BEFORE, None),
}
_SENT: dict[type, Point] = {c.Install: Point.INSTALL_SENT, c.Commit: Point.COMMIT_SENT}
_FATES = {
    Action.LOSE_ANSWER: Fate.ANSWER_LOST,
    Action.LOSE_REQUEST: Fate.REQUEST_LOST,
    Action.DELAY: Fate.IN_FLIGHT,
    Action.HIDE: Fate.HIDDEN,
}
_LONGEST = 5000


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
    """

    schedule: Schedule
    violation: Violation | None
    steps: tuple[str, ...]
    passed: Counter[tuple[int, Point]]
    acted: frozenset[Fault]
    history: History


@lru_cache(maxsize=64)
def _table(kinds: tuple[Kind, ...], records: int, longest: int, off: frozenset[Rule]) -> MoveTable:
    """Moves are the same for all schedules of one size, so what was computed for one serves the others."""
    bound = Bound(kinds, records, longest, drivers=0, off=off, fine=True)
    return MoveTable(bound)


def play(schedule: Schedule, off: frozenset[Rule] = frozenset()) -> Played:
    """Run a schedule to its end or to the first violation.

    Args:
        schedule: what is run.
        off: rules that are not kept.
    """
    table = _table(schedule.sinks, schedule.records, max(schedule.cuts), off)
    return _Play(schedule, table).run()


class _Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.words)
        self.violation = violation


class _Play:
    def __init__(self, schedule: Schedule, table: MoveTable) -> None:
        self._schedule = schedule
        self._table = table
        self._bound = table.bound
        self._codes = table.start
        self._steps: list[str] = []
        self._passed: Counter[tuple[int, Point]] = Counter()
        self._acted: set[Fault] = set()
        self._paused: tuple[int, int] | None = None
        self._landings: list[int] = []
        self._cuts = 0
        self._at = 0
        self._last: Driver | None = None
        damage = any(loss.what != LEDGER for loss in schedule.losses)
        self._allowed = ALLOWED if damage else frozenset[str]()
        self._scribe = Scribe(schedule, self._bound, self._allowed)

    def run(self) -> Played:
        violation = None
        try:
            for incarnation in range(1, self._schedule.incarnations + 1):
                self._incarnate(incarnation)
            self._settle()
        except _Broken as broken:
            violation = broken.violation
        self._scribe.final(self._table.parts.decode(self._codes))
        return Played(
            self._schedule,
            violation,
            tuple(self._steps),
            self._passed,
            frozenset(self._acted),
            self._scribe.history,
        )

    def _settle(self) -> None:
        """Drivers without faults, until one has run alone: one that wakes up may make the engine stop the other."""
        number = self._schedule.incarnations
        while True:
            number += 1
            self._lose(number)
            alone = self._paused is None
            if alone:
                self._scribe.settle()
            self._start(number)
            self._drive(number)
            if alone:
                break
            if self._paused is not None:
                self._wake()
        self._land(everything=True)
        self._judge_end()

    def _judge_end(self) -> None:
        ended = self._last
        assert ended is not None
        self._scribe.settled(ended)
        if not ended.finished and ended.refusal not in self._allowed:
            raise _Broken(Violation(Anomaly.STUCK, f"the last driver is refused: {ended.refusal}"))

    # ---- drivers

    def _incarnate(self, number: int) -> None:
        self._lose(number)
        self._start(number)
        self._drive(number)

    def _start(self, number: int) -> None:
        older, newer = self._bound.slots
        codes = list(self._codes)
        # A driver that is started may find one that is paused; a third one does not live.
        free = newer if codes[older] != self._table.nothing else older
        codes[free] = self._table.parts.number(Driver(number, self._at))
        self._codes = tuple(codes)
        self._scribe.start(number)
        self._steps.append(f"{Driver(number, 0).name} starts")

    def _slot(self, number: int) -> int | None:
        for slot in self._bound.slots:
            driver = cast(Driver | None, self._table.parts.values[self._codes[slot]])
            if driver is not None and driver.number == number:
                return slot
        return None

    def _drive(self, number: int) -> None:
        while (slot := self._slot(number)) is not None:
            if self._paused is not None and self._paused[1] <= len(self._steps):
                self._wake()
                continue
            if len(self._steps) > _LONGEST:
                raise _Broken(Violation(Anomaly.STUCK, f"no end after {_LONGEST} steps"))
            if not self._step(number, slot):
                return

    def _wake(self) -> None:
        assert self._paused is not None
        number, self._paused = self._paused[0], None
        self._steps.append(f"{Driver(number, 0).name} goes on")
        self._drive(number)

    def _kill(self, number: int, why: str) -> None:
        slot = self._slot(number)
        if slot is not None:
            self._codes = self._table.after(self._codes, Move("", ((slot, self._table.nothing),), frees=True))
            self._steps.append(f"{Driver(number, 0).name} is killed at {why}")
            self._scribe.kill(number, why)

    # ---- one step

    def _step(self, number: int, slot: int) -> bool:
        """Take one step; whether the driver goes on."""
        driver = cast(Driver, self._table.parts.values[self._codes[slot]])
        before, sent, after = _points(driver)
        if driver.memory is None and before and not self._pass(number, before):
            return False
        moves = self._table.of_driver(self._codes, slot)
        sends = sent is not None and any(move.fate is not Fate.ANSWERED for move in moves)
        fault = self._faults(number, sent) if sends and sent else ()
        move = self._chosen(moves, fault)
        self._scribe.before(driver)
        self._take(move)
        now = move.ended or self._now(number)
        assert now is not None
        self._last = now
        self._scribe.after(driver, now, move.fate)
        self._look()
        alive = all(self._suffers(number, one) for one in fault if one.action not in _FATES)
        if not alive or move.ended is not None:
            return False
        return now.memory is not None or after is None or self._pass(number, after)

    def _now(self, number: int) -> Driver | None:
        slot = self._slot(number)
        return None if slot is None else cast(Driver, self._table.parts.values[self._codes[slot]])

    def _chosen(self, moves: tuple[Move, ...], faults: tuple[Fault, ...]) -> Move:
        for fault in faults:
            fate = _FATES.get(fault.action)
            found = next((move for move in moves if move.fate is fate), None)
            if found is not None:
                self._acted.add(fault)
                self._scribe.fault(f"{fault.point}:{fault.action}")
                if fault.action in (Action.DELAY, Action.HIDE):
                    self._landings.append(len(self._steps) + fault.steps)
                return found
        answered = [move for move in moves if move.fate is Fate.ANSWERED]
        if len(answered) > 1:
            self._cuts += 1
            cut = self._schedule.cuts[(self._cuts - 1) % len(self._schedule.cuts)]
            return answered[min(cut, len(answered)) - 1]
        return answered[0]

    def _take(self, move: Move) -> None:
        codes = list(self._table.after(self._codes, move))
        place = self._bound.unknowns_left
        codes[place] = self._table.start[place]  # how much may go wrong, the schedule says
        self._changed(tuple(codes))
        self._steps.append(move.words)
        self._land()

    def _changed(self, codes: Codes) -> None:
        was, self._codes = self._codes, codes
        for place in range(self._bound.staging):
            if was[place] != codes[place]:
                earlier, later = (cast(Target, self._table.parts.values[one[place]]) for one in (was, codes))
                if earlier.held != later.held:
                    self._scribe.read(later)

    def _land(self, *, everything: bool = False) -> None:
        """What was delayed lands once its time has come, if it still can."""
        due = [when for when in self._landings if everything or when <= len(self._steps)]
        for when in due:
            self._landings.remove(when)
            move = next((move for move in self._table.of_events(self._codes) if move.words.startswith("late")), None)
            if move is not None:
                self._changed(self._table.after(self._codes, move))
                self._steps.append(move.words)
                self._look()

    def _look(self) -> None:
        violation = invariants.of_world(self._bound, self._table.parts.decode(self._codes[: self._bound.slots[0]]))
        if violation is not None:
            raise _Broken(violation)

    # ---- what goes wrong

    def _faults(self, number: int, point: Point) -> tuple[Fault, ...]:
        self._passed[number, point] += 1
        hit = self._passed[number, point]
        found = (one for one in self._schedule.faults if (one.incarnation, one.point, one.hit) == (number, point, hit))
        return tuple(found)

    def _pass(self, number: int, point: Point) -> bool:
        """Pass a point; whether the driver goes on."""
        return all(self._suffers(number, fault) for fault in self._faults(number, point))

    def _suffers(self, number: int, fault: Fault) -> bool:
        self._acted.add(fault)
        if fault.action is Action.KILL:
            self._kill(number, fault.point)
            return False
        if fault.action is Action.LOSE_LEDGER:
            self._lost(LEDGER)
            return True
        if self._paused is not None:
            self._kill(self._paused[0], "pause")
        self._paused = (number, len(self._steps) + fault.steps)
        self._steps.append(f"{Driver(number, 0).name} is paused at {fault.point}")
        self._scribe.fault(f"{fault.point}:pause")
        return False

    def _lose(self, number: int) -> None:
        for loss in self._schedule.losses:
            if loss.before == number:
                self._lost(loss.what)

    def _lost(self, what: str) -> None:
        codes, parts = list(self._codes), self._table.parts
        first, second = self._bound.checkpoints
        if what == LEDGER:
            codes[self._bound.ledger] = parts.number(SimulatedLedger())
            self._scribe.ledger_lost()
        else:
            old = cast(Checkpoint, parts.values[codes[first]])
            after = damaged(old, Damage(what))
            if after is None or self._at:
                return
            codes[first], codes[second] = parts.number(replace(old, gone=what != Damage.COPIED)), parts.number(after)
            self._at = 1
            self._scribe.fault(f"checkpoint: {what}")
        self._codes = tuple(codes)
        self._steps.append(f"lost: {what}")


def _points(driver: Driver) -> tuple[Point | None, Point | None, Point | None]:
    if not driver.running or driver.state is None:
        return None, None, Point.DISCOVER_AFTER
    command = coordinator.next(driver.state)
    before, after = _POINTS[type(command)]
    return before, _SENT.get(type(command)), after
