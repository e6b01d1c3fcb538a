"""Claims about drivers that are killed while they commit: SIGKILL to a process of their own, at many moments."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import TypeVar

from onceonly.protocol import Sink
from onceonly_sinks.conformance.child import Child, Order
from onceonly_sinks.conformance.harness import SHOWS_PARTS, SinkHarness, claims_of
from onceonly_sinks.conformance.story import Driver, Plan, Story, expect, plan

Answer = TypeVar("Answer")

MEASURED = 7
"""How many commits are measured before the first driver is killed in one."""

_ROWS = 20

BEYOND = 1.5
"""Moments are spread over a usual commit and half of another: one may take longer than those that were measured."""

BUDGET_S = 80.0
_MOST_STATEMENTS = 200
_GLANCE_S = 0.002


def a_driver_killed_while_it_commits_leaves_its_epoch_or_nothing(harness: SinkHarness) -> str:
    """A driver that is killed at any moment of a commit leaves the epoch's rows and its marker, or neither."""
    with Story(harness) as story:
        life = _Life(story)
        usual = median(life.commits() for _ in range(MEASURED))
        tried = within_budget(harness.moments, lambda part: life.dies(part * usual * BEYOND))
        life.goes_on()
    return f"killed at {tried} moments of a commit of {usual * 1000:.1f} ms"


def a_driver_killed_in_its_first_commit_leaves_its_epoch_or_nothing(harness: SinkHarness) -> str:
    """A driver that is killed while it commits to a target that is not there yet leaves the epoch, or nothing."""
    usual = median(_first_commit(harness, _Life.commits) for _ in range(MEASURED))
    tried = within_budget(
        harness.moments // 4, lambda part: _first_commit(harness, lambda life: life.dies(part * usual * BEYOND))
    )
    return f"killed at {tried} moments of a first commit of {usual * 1000:.1f} ms"


def a_driver_killed_between_two_statements_leaves_its_epoch_or_nothing(harness: SinkHarness) -> str:
    """A driver that is killed before any of the statements of a commit leaves the epoch, or nothing."""
    with harness.wire() as wire, Story(harness) as story:
        life = _Life(story, wire.connect)
        life.commits()
        number = 1
        while number <= _MOST_STATEMENTS and life.dies_before(number, wire.hold):
            number += 1
        life.goes_on()
    return f"killed before each of {number - 1} statements"


def within_budget(most: int, act: Callable[[float], object], seconds: float = BUDGET_S) -> int:
    """Act at moments that are spread evenly, however many of them there is time for, one at least; return how many."""
    ends, tried = time.monotonic() + seconds, 0
    for part in _spread(most):
        act(part)
        tried += 1
        if time.monotonic() > ends:
            break
    return tried


def _spread(most: int) -> Iterator[float]:
    """Numbers between 0 and 1, each far from those before it (van der Corput's sequence)."""
    for number in range(1, most + 1):
        part, weight = 0.0, 0.5
        while number:
            number, bit = divmod(number, 2)
            part, weight = part + weight * bit, weight / 2
        yield part


def _first_commit(harness: SinkHarness, act: Callable[[_Life], Answer]) -> Answer:
    fresh = harness.another()
    try:
        with Story(fresh) as story:
            life = _Life(story)
            answer = act(life)
            life.goes_on()
            return answer
    finally:
        fresh.close()


class _Life:
    """Drivers in processes of their own, one after the other; after each the target is looked at under a new fence."""

    def __init__(self, story: Story, connect: Callable[[], Sink] | None = None) -> None:
        self._story = story
        self._connect = connect
        self._last: Plan | None = None
        self._next: Driver = story.driver()

    def commits(self) -> float:
        """Have a driver commit; return the seconds that it took."""
        planned = self._planned()
        with self._child(planned) as child:
            child.go()
            seconds = child.ends()
        self._look(planned, "After a commit")
        expect(self._last is planned, f"Epoch {planned.epoch.number} was committed and is not there.")
        return seconds

    def dies(self, seconds: float) -> None:
        """Have a driver commit and kill it after so many seconds."""
        planned = self._planned()
        with self._child(planned) as child:
            child.go()
            time.sleep(seconds)
            child.kill()
        self._look(planned, f"Killed {seconds * 1000:.2f} ms after the commit began")

    def dies_before(self, number: int, hold: Callable[[int, Callable[[], object]], Callable[[], None]]) -> bool:
        """Have a driver commit and kill it before a statement; whether there was such a statement."""
        planned = self._planned()
        with self._child(planned) as child:
            held = threading.Event()
            release = hold(number, held.set)
            try:
                child.go()
                while not held.wait(_GLANCE_S) and not child.ended(0):
                    pass
                child.kill()
            finally:
                release()
        self._look(planned, f"Killed before statement {number} of the commit")
        return held.is_set()

    def goes_on(self) -> None:
        """Have the last driver write an epoch: whatever happened, the chain goes on."""
        self._next.tries(self._planned())

    def _planned(self) -> Plan:
        return plan(self._last.epoch if self._last else None, self._next.sink.id, _ROWS)

    def _child(self, planned: Plan) -> Child:
        fence, harness = self._next.fence, self._story.harness
        # A handle that stays open here would be open in the process, too.
        self._next.sink.close()
        return Child(Order(harness, fence, planned, self._connect))

    def _look(self, planned: Plan, when: str) -> None:
        """Fence, so that nothing is on its way any more, and see that rows and marker are there, or neither."""
        self._next = self._story.driver()
        marker, number = self._next.position().marker, planned.epoch.number
        rows = sum(row["step"] == number for row in self._story.harness.rows())
        landed = marker is not None and marker.epoch == planned.epoch
        wanted = _ROWS if landed else 0
        stands = f"the marker of epoch {number} {'stands' if landed else 'does not stand'}"
        expect(rows == wanted, f"{when}, {stands} and {rows} of its {_ROWS} rows are there.")
        if landed:
            self._last = planned


CLAIMS = claims_of(
    a_driver_killed_while_it_commits_leaves_its_epoch_or_nothing,
    a_driver_killed_in_its_first_commit_leaves_its_epoch_or_nothing,
    a_driver_killed_between_two_statements_leaves_its_epoch_or_nothing,
    transaction=SHOWS_PARTS,
)
