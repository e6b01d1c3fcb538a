"""Plays a schedule on real stores: drivers that take turns, and what goes wrong where the schedule says."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from onceonly import commands as c
from onceonly import faults
from onceonly.faults import InjectedFault, Point
from onceonly_lab.history import Entry, Header, History, Kind, Op, Promise
from onceonly_lab.model.world import ALLOWED
from onceonly_lab.proxy.strikes import Strike
from onceonly_lab.schedule import LEDGER, SENDING, SENT, Action, Fault, Schedule
from onceonly_lab.stores.driver import Driver
from onceonly_lab.stores.ground import Ground
from onceonly_lab.stores.places import Place
from onceonly_lab.stores.scribe import Scribe
from onceonly_lab.stores.source import Source
from onceonly_lab.stores.told import Crash
from onceonly_lab.stores.world import Making, World

READS = frozenset({Point.REINDEX_AFTER, Point.COMMIT_AFTER})
"""Where readers look while drivers are at work."""

MOST_DRIVERS = 40
"""Drivers that are started to bring a run to its end, before the lab gives up."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What is run besides the schedule.

    Attributes:
        reads: points after which every sink is read.
        random: see :class:`Source`, as for ``files``.
        files: the same.
        ordered: whether rows of one key are promised to stand in the order of the input.
        speculative: executors write, and every task runs twice.
        begins: the source says where a checkpoint's first batch begins.
        parts: in how many calls the program hands each batch over.
        refusals: codes that are a right answer to what is done besides.
        before: what else goes wrong before an incarnation.
    """

    reads: Collection[Point] = READS
    random: bool = False
    files: bool = False
    ordered: bool = False
    speculative: bool = False
    begins: bool = False
    parts: int = 1
    refusals: frozenset[str] = frozenset()
    before: tuple[tuple[int, Callable[[World], None]], ...] = ()


ORDINARY = Terms()
SHIPPED = Making()


@dataclass(frozen=True, slots=True)
class Played:
    """A run of a schedule.

    Attributes:
        schedule: what was run.
        history: for the checker.
        passed: how often each point was passed.
        acted: the faults that came to act.
        refusal: why the last driver stopped; empty if it reached the end.
    """

    schedule: Schedule
    history: History
    passed: Counter[Point]
    acted: frozenset[Fault]
    refusal: str


def play(schedule: Schedule, ground: Ground, making: Making = SHIPPED, terms: Terms = ORDINARY) -> Played:
    """Run a schedule. One at a time in a process: fault points are global.

    Args:
        schedule: what is run.
        ground: the servers.
        making: how the parts are made.
        terms: the rest.

    Raises:
        Stuck: a driver hangs.
    """
    run = _Play(schedule, ground, making, terms)
    run.listen()
    try:
        return run.to_the_end()
    finally:
        faults.disarm()
        run.release(everything=True)


class _Play:
    def __init__(self, schedule: Schedule, ground: Ground, making: Making, terms: Terms) -> None:
        self._schedule, self._terms = schedule, terms
        folder, places = ground.places(schedule.sinks)
        for place in places:
            place.executors = terms.speculative
        source = Source(
            schedule.records,
            schedule.rows,
            terms.random,
            terms.files,
            terms.speculative,
            terms.begins,
            tuple(range(terms.parts)),
        )
        damage = any(loss.what != LEDGER for loss in schedule.losses)
        self._allowed = terms.refusals | (ALLOWED if damage else frozenset[str]())
        promises = tuple(Promise(place.id, ordered=terms.ordered) for place in places)
        header = Header(
            promises,
            schedule.line,
            schedule.seed,
            deterministic=not terms.random,
            refusals=tuple(sorted(self._allowed)),
        )
        self._scribe = Scribe(header, source)
        self._world = World(folder, source, {place.id: place for place in places}, self._scribe, making)
        self._drivers: dict[threading.Thread, Driver] = {}
        self._paused: tuple[Driver, int] | None = None
        self._passed: Counter[Point] = Counter()
        self._hits: Counter[tuple[int, Point]] = Counter()
        self._acted: set[Fault] = set()
        self._struck: tuple[Fault, Strike] | None = None
        self._held: list[tuple[int, Strike]] = []
        self._steps = self._cuts = 0

    # ---- incarnations

    def to_the_end(self) -> Played:
        for number in range(1, self._schedule.incarnations + 1):
            self._incarnate(number)
        last = self._settle(self._schedule.incarnations)
        self.release(everything=True)
        kind = Kind.OK if last.finished else Kind.FAIL
        self._scribe.append(Entry("judge", kind, Op.SETTLE, code=last.refusal or None, note=last.why))
        self._world.read(final=True)
        self._world.read_ledger()
        acted = frozenset(self._acted)
        return Played(self._schedule, self._scribe.history, self._passed, acted, last.refusal)

    def _settle(self, number: int) -> Driver:
        """Drivers without faults, until one has run alone: one that wakes up may make the engine stop the other."""
        for extra in range(1, MOST_DRIVERS):
            alone = self._paused is None
            if alone:
                self._scribe.append(Entry("judge", Kind.INVOKE, Op.SETTLE))
            driver = self._incarnate(number + extra)
            if alone:
                return driver
            if self._paused is not None:
                self._wake()
        raise RuntimeError(f"no driver ran alone in {MOST_DRIVERS} starts")

    def _incarnate(self, number: int) -> Driver:
        for before, act in self._terms.before:
            if before == number:
                act(self._world)
        for loss in self._schedule.losses:
            if loss.before == number:
                self._world.lose(loss.what)
        making = self._world.making
        driver = (making.driver or Driver)(number, self._world, self, self._cut)
        self._drivers[driver.thread] = driver
        self._scribe.append(Entry("driver", Kind.START, incarnation=number))
        driver.start()
        return driver

    def _cut(self, ways: int) -> int:
        self._cuts += 1
        return min(self._schedule.cuts[(self._cuts - 1) % len(self._schedule.cuts)], ways)

    def _wake(self) -> None:
        assert self._paused is not None
        driver, self._paused = self._paused[0], None
        driver.resume()

    # ---- points

    def listen(self) -> None:
        """Hear of every point that is passed."""
        for point in Point:
            faults.arm(point, partial(self._heard, point))

    def _heard(self, point: Point) -> None:
        # A point that was armed acts once. Drivers take turns, so none passes between the two.
        faults.arm(point, partial(self._heard, point))
        driver = self._drivers.get(threading.current_thread())
        if driver is not None:
            self._pass(driver, point)

    def _pass(self, driver: Driver, point: Point) -> None:
        self._steps += 1
        self._passed[point] += 1
        if point not in SENT:
            self._hits[driver.number, point] += 1
        self.release()
        if point in self._terms.reads:
            self._world.read()
        if self._paused is not None and self._paused[1] <= self._steps and self._paused[0] is not driver:
            self._wake()
        for fault in self._due(driver.number, point):
            if fault.action not in SENDING or self._without_wire(fault):
                self._suffer(driver, fault)

    def _due(self, number: int, point: Point) -> list[Fault]:
        at = (number, point, self._hits[number, point])
        faults_here = [one for one in self._schedule.faults if (one.incarnation, one.point, one.hit) == at]
        return [one for one in faults_here if one not in self._acted]

    def _without_wire(self, fault: Fault) -> bool:
        """Whether an answer is to be lost where there is no wire to lose it on: the process loses it then."""
        return fault.action is Action.LOSE_ANSWER and self._struck is None

    def _suffer(self, driver: Driver, fault: Fault) -> None:
        self._acted.add(fault)
        if fault.action is Action.KILL:
            self._scribe.kill(driver.number, fault.point)
            raise Crash
        if fault.action is Action.LOSE_LEDGER:
            self._world.lose(LEDGER)
        elif fault.action is Action.PAUSE:
            self._pause(driver, fault)
        else:
            self._scribe.fault(f"{fault.point}:{fault.action}")
            raise InjectedFault(f"the answer at {fault.point} was lost")

    def _pause(self, driver: Driver, fault: Fault) -> None:
        if self._paused is not None:
            other = self._paused[0]
            self._paused = None
            self._scribe.kill(other.number, "pause")
            other.kill()
        self._scribe.fault(f"{fault.point}:pause")
        self._paused = (driver, self._steps + fault.steps)
        driver.pause()

    # ---- requests

    def sending(self, number: int, place: Place, command: c.Install | c.Commit) -> None:
        """A request is about to be sent: what the schedule says of it is put in force on its wire."""
        point = Point.INSTALL_SENT if isinstance(command, c.Install) else Point.COMMIT_SENT
        self._hits[number, point] += 1
        for fault in self._due(number, point):
            strike = place.strike(fault.action) if fault.action in SENDING else None
            if strike is not None:
                self._struck = (fault, strike)
                self._held += [(self._steps + fault.steps, strike)] if fault.action is Action.DELAY else []

    def sent(self, number: int) -> None:
        """It was answered, or the driver gave up."""
        struck, self._struck = self._struck, None
        if struck is None:
            return
        fault, strike = struck
        if strike.hit:
            self._acted.add(fault)
            self._scribe.fault(f"{fault.point}:{fault.action}")
        if fault.action is not Action.DELAY or not strike.hit:
            strike.end()

    def release(self, *, everything: bool = False) -> None:
        """Let what was delayed land once its time has come."""
        for one in [one for one in self._held if everything or (one[0] <= self._steps and one[1].hit)]:
            self._held.remove(one)
            one[1].end()
