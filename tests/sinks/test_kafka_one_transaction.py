"""One transaction, many producers: every interleaving of two drivers, their tasks and the brokers, and what breaks it.

The brokers are a model: a coordinator with the epoch of one transactional id, and partitions that number records by
epoch. It follows Kafka since 3.6, whose leaders ask whether a partition belongs to the transaction (KIP-890). A
driver can be followed by another at any step, which is all that its death is to the
brokers, and a task can be lost and yet go on sending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest

pytestmark = pytest.mark.pure

PARTITIONS = 2

ROWS = ("a", "b")
TASKS = (((0, ("a",)), (1, ("b",))), ((1, ("a", "b")),))
"""Partition and rows of each task of a job. Another job may give rows without keys to other partitions."""

MARKERS, MARKER = PARTITIONS, "marker"
"""The partition of markers, which the driver alone writes, and what it writes there."""

Stage = Literal["fence", "start", "fill", "mark", "commit", "done"]


@dataclass(frozen=True)
class Rules:
    """What keeps it exact. Each can be switched off."""

    waits_for_tasks: bool = True
    fences_after_failure: bool = True
    own_ids: bool = True
    verified: bool = True


@dataclass(frozen=True)
class Brokers:
    """``open``: partitions of the ongoing transaction. ``logs``: per partition, undecided rows by producer epoch."""

    epoch: int = 0
    open: frozenset[int] = frozenset()
    undecided: tuple[tuple[tuple[int, str], ...], ...] = ((),) * (PARTITIONS + 1)
    visible: tuple[str, ...] = ()
    numbered: frozenset[tuple[int, int]] = frozenset()
    """Partitions that have records of an epoch, by which a second producer's first number is out of order."""

    def ends(self, *, commit: bool) -> Brokers:
        """Decide what the open partitions hold."""
        shown = tuple(row for at in sorted(self.open) for _, row in self.undecided[at])
        left = tuple(() if at in self.open else rows for at, rows in enumerate(self.undecided))
        visible = tuple(sorted((*self.visible, *shown))) if commit else self.visible
        return replace(self, open=frozenset(), undecided=left, visible=visible)

    def fenced(self) -> Brokers:
        return replace(self.ends(commit=False), epoch=self.epoch + 1)

    def takes(self, epoch: int, at: int, row: str, *, joined: bool, verified: bool) -> Brokers | None:
        """Append a record. ``joined``: its producer has added the partition before. ``None``: it is refused."""
        brokers = self
        if not joined:
            if epoch != self.epoch or (epoch, at) in self.numbered:
                return None
            brokers = replace(self, open=self.open | {at}, numbered=self.numbered | {(epoch, at)})
        elif verified and (epoch != self.epoch or at not in self.open):
            return None
        undecided = list(brokers.undecided)
        undecided[at] = (*undecided[at], (epoch, row))
        return replace(brokers, undecided=tuple(undecided))


@dataclass(frozen=True)
class Task:
    """An attempt of a job, under a producer epoch. Without a driver that waits for it, it goes on all the same."""

    job: tuple[int, int]
    epoch: int
    partition: int
    rows: tuple[str, ...]
    sent: int = 0
    heard: bool = True


@dataclass(frozen=True)
class Driver:
    """``epoch`` of its producer; ``ended``: tasks of its job."""

    stage: Stage = "fence"
    epoch: int = 0
    failures: int = 0
    ended: int = 0
    failed: bool = False


@dataclass(frozen=True)
class World:
    """Everything. ``claimed``: the driver with the newest claim; an older one finds it before it fences again."""

    brokers: Brokers = Brokers()
    drivers: tuple[Driver, ...] = (Driver(), Driver())
    tasks: tuple[Task, ...] = ()
    losses: int = 0
    claimed: int = -1

    def of(self, at: int, driver: Driver, brokers: Brokers | None = None) -> World:
        drivers = tuple(driver if n == at else other for n, other in enumerate(self.drivers))
        return replace(self, drivers=drivers, brokers=brokers or self.brokers)

    def told(self, task: Task, *, failed: bool) -> World:
        """Its driver hears of the end of a task, if it still waits."""
        at, failures = task.job
        driver = self.drivers[at]
        if not task.heard or (driver.stage, driver.failures) != ("fill", failures):
            return self
        return self.of(at, replace(driver, ended=driver.ended + (not failed), failed=driver.failed or failed))

    def without(self, at: int, *instead: Task) -> World:
        return replace(self, tasks=tuple(sorted((*self.tasks[:at], *self.tasks[at + 1 :], *instead), key=repr)))


MOST_LOSSES, MOST_FAILURES = 1, 1


def steps(world: World, rules: Rules) -> Iterator[World]:
    for at, driver in enumerate(world.drivers):
        if driver.stage != "done":
            yield from _drives(world, rules, at, driver)
    for at, task in enumerate(world.tasks):
        yield from _sends(world, rules, at, task)


def _drives(world: World, rules: Rules, at: int, driver: Driver) -> Iterator[World]:
    brokers = world.brokers
    match driver.stage:
        case "fence" if driver.epoch and world.claimed != at:
            yield world.of(at, replace(driver, stage="done"))
        case "fence":
            brokers = brokers.fenced()
            following: Stage = "done" if MARKER in brokers.visible else "start"
            yield replace(world, claimed=at).of(at, replace(driver, stage=following, epoch=brokers.epoch), brokers)
        case "start":
            epoch = driver.epoch if rules.own_ids else brokers.epoch
            started = tuple(Task((at, driver.failures), epoch, *part) for part in _parts(at, driver))
            waiting = replace(driver, stage="fill", ended=0, failed=False)
            yield replace(world, tasks=tuple(sorted((*world.tasks, *started), key=repr))).of(at, waiting)
        case "fill" if driver.failed:
            # A second attempt refuses, so the job has failed.
            ours = driver.epoch == brokers.epoch
            again: Stage = "fence" if rules.fences_after_failure else "start"
            again = "done" if driver.failures == MOST_FAILURES else again
            failed = replace(driver, stage=again, failures=driver.failures + 1)
            yield world.of(at, failed, brokers.ends(commit=False) if ours else brokers)
        case "fill":
            if driver.ended == len(_parts(at, driver)) or not rules.waits_for_tasks:
                yield world.of(at, replace(driver, stage="mark"))
        case "mark":
            taken = brokers.takes(driver.epoch, MARKERS, MARKER, joined=False, verified=True)
            yield world.of(at, replace(driver, stage="commit" if taken else "done"), taken)
        case "commit" if driver.epoch != brokers.epoch:
            yield world.of(at, replace(driver, stage="done"))
        case "commit":
            yield world.of(at, replace(driver, stage="done"), brokers.ends(commit=True))


def _parts(at: int, driver: Driver) -> tuple[tuple[int, tuple[str, ...]], ...]:
    return TASKS[(at + driver.failures) % len(TASKS)]


def _sends(world: World, rules: Rules, at: int, task: Task) -> Iterator[World]:
    if task.heard and world.losses < MOST_LOSSES:
        lost = world.without(at, replace(task, heard=False))
        yield replace(lost.told(task, failed=True), losses=world.losses + 1)
    if task.sent == len(task.rows):
        yield world.without(at).told(task, failed=False)
        return
    row, joined = task.rows[task.sent], task.sent > 0
    taken = world.brokers.takes(task.epoch, task.partition, row, joined=joined, verified=rules.verified)
    if taken is None:
        yield world.without(at).told(task, failed=True)
    else:
        yield replace(world.without(at, replace(task, sent=task.sent + 1)), brokers=taken)


def wrong(world: World) -> str:
    """What readers of committed records must never see."""
    visible = world.brokers.visible
    wanted = (*ROWS, MARKER) if MARKER in visible else ()
    if visible != wanted:
        return f"{visible} can be seen, and not {wanted}"
    after = world.brokers.fenced()
    if any(after.undecided):
        return f"a fence leaves {after.undecided} undecided, which holds readers back for ever"
    return ""


@dataclass
class Search:
    """All worlds that can be reached."""

    rules: Rules
    seen: set[World] = field(default_factory=set)
    committed: int = 0

    def run(self) -> str:
        """Return the first thing that is wrong."""
        waiting = deque([World()])
        while waiting:
            world = waiting.popleft()
            if world in self.seen:
                continue
            self.seen.add(world)
            if found := wrong(world):
                return found
            self.committed += MARKER in world.brokers.visible
            waiting += steps(world, self.rules)
        return ""


def test_every_interleaving_is_exact() -> None:
    search = Search(Rules())
    assert search.run() == ""
    assert search.committed, "no epoch was ever committed"
    print(f"{len(search.seen)} states")


@pytest.mark.parametrize("rule", ["waits_for_tasks", "fences_after_failure", "own_ids", "verified"])
def test_without_this_rule_it_is_not(rule: str) -> None:
    found = Search(Rules(**{rule: False})).run()
    print(found)
    assert found
