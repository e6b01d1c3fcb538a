"""Plays schedules from one seed after the other until one fails or there are enough."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from onceonly.faults import Point
from onceonly_lab.checker import Verdict, judge
from onceonly_lab.fuzzer.draw import draw
from onceonly_lab.fuzzer.play import Played, play
from onceonly_lab.fuzzer.shrink import Shrunk, shrink
from onceonly_lab.history import History
from onceonly_lab.model.invariants import Name
from onceonly_lab.model.parts import Harm
from onceonly_lab.model.program import Program
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.spark import RESTARTED, Damage
from onceonly_lab.schedule import Action, Schedule, actions_at

ACTORS = (
    "the operator",
    "a batch is trimmed",
    "a source says where it begins",
    "a file is gone",
    "a row is refused",
    *map(str, Harm),
    *(f"the checkpoint is {damage}" for damage in (*RESTARTED, Damage.ANOTHER)),
    *(f"a program {program}" for program in Program if program.misuses),
)
"""Those who are no driver, and what befalls the world without one: each must come to act in a run."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What many schedules showed.

    Attributes:
        schedules: how many were played.
        steps: steps in all of them.
        seconds: processor time.
        passed: how often each point was passed.
        struck: how often each action came to act at each point.
        actors: how often each of those acted who are no driver.
        failed: the first one that failed; ``None`` if none did.
        shrunk: the same, made smaller.
    """

    schedules: int
    steps: int
    seconds: float
    passed: Counter[Point]
    struck: Counter[tuple[Point, Action]]
    actors: Counter[str]
    failed: Played | None = None
    shrunk: Shrunk | None = None

    @property
    def rate(self) -> int:
        """Schedules a second."""
        return int(self.schedules / max(self.seconds, 1e-9))

    @property
    def acted(self) -> Counter[Action]:
        """How often each action came to act anywhere."""
        acted: Counter[Action] = Counter()
        for (_, action), times in self.struck.items():
            acted[action] += times
        return acted

    @property
    def idle(self) -> tuple[str, ...]:
        """Those who are no driver and never acted."""
        return tuple(actor for actor in ACTORS if not self.actors[actor])

    @property
    def unreached(self) -> tuple[Point, ...]:
        """Points that no schedule passed."""
        return tuple(point for point in Point if not self.passed[point])

    @property
    def unstruck(self) -> tuple[tuple[Point, Action], ...]:
        """Actions that came to act nowhere at a point where they apply."""
        pairs = ((point, action) for point in Point for action in actions_at(point))
        return tuple(pair for pair in pairs if not self.struck[pair])


def fuzz(first: int, count: int, off: frozenset[Rule] = frozenset(), *, checked: bool = True) -> Fuzzed:
    """Play the schedules of seeds from ``first`` on; see :func:`fuzz_all`.

    Args:
        first: seed.
        count: how many.
        off: rules that are not kept.
        checked: whether the checker judges each history, too.
    """
    return fuzz_all(map(draw, range(first, first + count)), off, checked=checked)


def fuzz_all(schedules: Iterable[Schedule], off: frozenset[Rule] = frozenset(), *, checked: bool = True) -> Fuzzed:
    """Play schedules, and shrink the first that fails.

    Args:
        schedules: one after the other, until one fails.
        off: rules that are not kept.
        checked: whether the checker judges each history, too.
    """
    began = time.process_time()
    passed: Counter[Point] = Counter()
    struck: Counter[tuple[Point, Action]] = Counter()
    actors: Counter[str] = Counter()
    steps = done = 0
    failed: Played | None = None
    for schedule in schedules:
        played = play(schedule, off)
        done += 1
        steps += len(played.steps)
        for (_, point), times in played.passed.items():
            passed[point] += times
        struck.update((fault.point, fault.action) for fault in played.acted)
        actors.update(played.actors)
        if broken(played, checked=checked):
            failed = played
            break
    shrunk = _shrunk(failed, off, checked=checked) if failed else None
    return Fuzzed(done, steps, time.process_time() - began, passed, struck, actors, failed, shrunk)


def broken(played: Played, *, checked: bool = True) -> Name | None:
    """What a run broke, by the invariants of the world or by the checker's judgement; ``None``: nothing."""
    if played.violation is not None:
        return played.violation.name
    judgement = judge(played.history) if checked and not played.schedule.peopled else None
    if judgement is None or judgement.verdict is not Verdict.ANOMALY:
        return None
    return judgement.findings[0].anomaly


def _shrunk(failed: Played, off: frozenset[Rule], *, checked: bool) -> Shrunk:
    name = broken(failed, checked=checked)
    assert name is not None

    def fails(schedule: Schedule) -> Name | None:
        return broken(play(schedule, off), checked=checked)

    return shrink(failed.schedule, name, fails)


def fingerprint(history: History) -> str:
    """Hash of a history, 64 hex digits: equal for equal runs."""
    return hashlib.sha256(history.text.encode()).hexdigest()
