"""Claims: drivers killed during a commit.

Some write rows one by one, and are killed between them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from statistics import median
from typing import TypeVar

from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.epoch import Epoch
from onceonly_lab.conformance.child_process import Child, Order
from onceonly_lab.conformance.harness import SHOWS_PARTS, NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario, expect, plan

# ---- Claims about drivers that are killed while they commit: SIGKILL to a process of their own, at many moments.

Answer = TypeVar("Answer")

_MEASURED, _LEAST_MEASURED = 7, 3
"""How many commits are measured before the first driver is killed in one; fewer where few are killed."""

_ROWS = 20

BEYOND = 1.5
"""Moments are spread over a usual commit and half of another: one may take longer than those that were measured."""

BUDGET_S = 80.0
_MOST_STATEMENTS = 200
_GLANCE_S = 0.002


def a_driver_killed_while_it_commits_leaves_its_epoch_or_nothing(harness: SinkHarness) -> str:
    """A driver that is killed at any moment of a commit leaves the epoch's rows and its marker, or neither."""
    with Scenario(harness) as story:
        life = Life(story)
        usual = usual_seconds(life.commits, harness.moments)
        tried = within_budget(harness.moments, lambda part: life.dies(part * usual * BEYOND))
        life.goes_on()
    return f"killed at {tried} moments of a commit of {usual * 1000:.1f} ms"


def a_driver_killed_in_its_first_commit_leaves_its_epoch_or_nothing(harness: SinkHarness) -> str:
    """A driver that is killed while it commits to a target that is not there yet leaves the epoch, or nothing."""
    usual = usual_seconds(lambda: _first_commit(harness, Life.commits), harness.moments)
    tried = within_budget(
        harness.moments // 4, lambda part: _first_commit(harness, lambda life: life.dies(part * usual * BEYOND))
    )
    return f"killed at {tried} moments of a first commit of {usual * 1000:.1f} ms"


def a_driver_killed_between_two_statements_leaves_its_epoch_or_nothing(harness: SinkHarness) -> str:
    """A driver that is killed before any of the statements of a commit leaves the epoch, or nothing."""
    with harness.wire() as wire, Scenario(harness) as story:
        life = Life(story, wire.connect)
        life.commits()
        number = life.dies_before_each(wire.hold)
        life.goes_on()
    return f"killed before each of {number} statements"


def usual_seconds(commits: Callable[[], float], moments: int) -> float:
    """How long a commit usually takes, by a few of them.

    Args:
        commits: has a driver commit; the seconds that it took.
        moments: at how many moments drivers are to be killed.
    """
    return median(commits() for _ in range(min(_MEASURED, max(_LEAST_MEASURED, moments // 4))))


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


def _first_commit(harness: SinkHarness, act: Callable[[Life], Answer]) -> Answer:
    fresh = harness.another()
    try:
        with Scenario(fresh) as story:
            life = Life(story)
            answer = act(life)
            life.goes_on()
            return answer
    finally:
        fresh.close()


class Life:
    """Drivers in processes of their own, one after the other; after each the target is looked at under a new fence.

    Attributes:
        story: of the target.
        last: the newest epoch that landed; ``None`` before the first.
        next: who fenced the target last; the process that commits next goes by its owner token.
    """

    def __init__(self, story: Scenario, connect: Callable[[], Sink] | None = None) -> None:
        self.story = story
        self._connect = connect
        self.last: PlannedEpoch | None = None
        self.next: Driver = story.driver()

    def commits(self) -> float:
        """Have a driver commit; return the seconds that it took."""
        planned = self.planned()
        with self._child(planned) as child:
            child.go()
            seconds = child.ends()
        self.look(planned, "After a commit")
        expect(self.last is planned, f"Epoch {planned.epoch.number} was committed and is not there.")
        return seconds

    def dies(self, seconds: float) -> None:
        """Have a driver commit and kill it after so many seconds."""
        planned = self.planned()
        with self._child(planned) as child:
            child.go()
            time.sleep(seconds)
            child.kill()
        self.look(planned, f"Killed {seconds * 1000:.2f} ms after the commit began")

    def dies_before_each(self, hold: Callable[[int, Callable[[], object]], Callable[[], None]]) -> int:
        """Have drivers commit, kill one before its first statement, one before its second; how many there were."""
        number = 1
        while number <= _MOST_STATEMENTS and self._dies_before(number, hold):
            number += 1
        return number - 1

    def _dies_before(self, number: int, hold: Callable[[int, Callable[[], object]], Callable[[], None]]) -> bool:
        planned = self.planned()
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
        self.look(planned, f"Killed before statement {number} of the commit")
        return held.is_set()

    def goes_on(self) -> None:
        """Have the last driver write an epoch: whatever happened, the chain goes on."""
        self.next.tries(self.planned())

    def planned(self) -> PlannedEpoch:
        """The epoch to commit next."""
        return plan(self.last.epoch if self.last else None, self.next.sink.id, _ROWS)

    def _child(self, planned: PlannedEpoch) -> Child:
        fence, harness = self.next.fence, self.story.harness
        # A handle that stays open here would be open in the process, too.
        self.next.sink.close()
        return Child(Order(harness, fence, planned, self._connect))

    def look(self, planned: PlannedEpoch, when: str) -> None:
        """Fence, so that nothing is on its way any more, and see that rows and marker are there, or neither."""
        number = planned.epoch.number
        landed = self.landed(planned)
        rows = sum(row["step"] == number for row in self.story.harness.rows())
        expected = _ROWS if landed else 0
        marker_state = f"the marker of epoch {number} {'stands' if landed else 'does not stand'}"
        expect(rows == expected, f"{when}, {marker_state} and {rows} of its {_ROWS} rows are there.")

    def landed(self, planned: PlannedEpoch) -> bool:
        """Whether the marker of an epoch stands, asked under a new fence: then it is the last."""
        self.next = self.story.driver()
        marker = self.next.position().marker
        if marker is None or marker.epoch != planned.epoch:
            return False
        self.last = planned
        return True


CLAIMS = claims_of(
    a_driver_killed_while_it_commits_leaves_its_epoch_or_nothing,
    a_driver_killed_in_its_first_commit_leaves_its_epoch_or_nothing,
    a_driver_killed_between_two_statements_leaves_its_epoch_or_nothing,
    transaction=SHOWS_PARTS,
)


# ---- Claims about sinks that take rows one by one: drivers are killed amid their rows, and their epochs replayed.


_ROUNDS = 3
_PUT_ROWS = 120
"""Of each epoch, so that a driver that is killed at any moment most likely dies amid them."""

_NEW_KEYS = 40
"""Of the rows of an epoch; the others replace rows of earlier epochs."""


def a_marker_never_stands_before_all_of_its_rows(harness: SinkHarness) -> str:
    """A marker never stands before all rows of its epoch do, at whatever moment its driver is killed by a SIGKILL."""
    with Scenario(harness) as story:
        life = _PuttingLife(story)
        return _killed(harness.moments, life.commits, life.dies)


def a_cut_off_epoch_that_is_replayed_leaves_each_key_once_with_its_newest_row(harness: SinkHarness) -> str:
    """An epoch cut off by a SIGKILL at any moment, and replayed, leaves each key once with its newest row."""
    with Scenario(harness) as story:
        life = _PuttingLife(story)

        def dies(seconds: float) -> bool:
            cut_off = life.dies(seconds)
            life.holds_the_newest()
            return cut_off

        return _killed(harness.moments, life.commits, dies)


def rows_of_a_cut_off_first_epoch_are_not_called_a_strangers(harness: SinkHarness) -> str:
    """Rows that a first epoch left when it was cut off by a SIGKILL are not called a stranger's; its replay lands."""
    return _killed(
        harness.moments // 2,
        lambda: _on_a_fresh_target(harness, _PuttingLife.commits),
        lambda seconds: _on_a_fresh_target(harness, lambda life: life.dies(seconds)),
    )


def _on_a_fresh_target(harness: SinkHarness, act: Callable[[_PuttingLife], Answer]) -> Answer:
    with closing(harness.another()) as fresh, Scenario(fresh) as story:
        return act(_PuttingLife(story))


def _killed(moments: int, commits: Callable[[], float], dies: Callable[[float], bool]) -> str:
    """Kill drivers at moments that are spread over a usual commit; return how.

    Args:
        moments: how many.
        commits: has a driver commit; the seconds that it took.
        dies: has one commit and kills it after so many seconds; whether its epoch was cut off.

    Raises:
        NotTested: no epoch was cut off between its first row and its marker, in several rounds: a machine that is
            faster than it was when a commit was measured is measured again.
    """
    died: list[bool] = []
    summary = ""
    ends = time.monotonic() + BUDGET_S
    for _ in range(_ROUNDS):
        usual = usual_seconds(commits, moments)
        tried = within_budget(moments, _at_parts_of(usual, dies, died), ends - time.monotonic())
        summary = f"killed at {len(died)} moments of a commit of {usual * 1000:.1f} ms, {sum(died)} epochs were cut off"
        if any(died):
            return summary
        if tried < moments:
            break
    raise NotTested(f"No driver died between the first row of its epoch and its marker: {summary}.")


def _at_parts_of(usual: float, dies: Callable[[float], bool], died: list[bool]) -> Callable[[float], object]:
    return lambda part: died.append(dies(part * usual * BEYOND))


class _PuttingLife:
    """Drivers in processes of their own, one after the other; what is cut off is replayed by the next one."""

    def __init__(self, story: Scenario) -> None:
        self._story = story
        self._last: PlannedEpoch | None = None
        self._next: Driver = story.driver()
        self._newest: dict[int, int] = {}

    def commits(self) -> float:
        """Have a driver commit; return the seconds that it took."""
        planned = self._planned()
        with self._child(planned) as child:
            child.go()
            seconds = child.ends()
        landed, _ = self._looks(planned)
        expect(landed, f"Epoch {planned.epoch.number} was committed and is not there.")
        return seconds

    def dies(self, seconds: float) -> bool:
        """Have a driver commit, kill it after so many seconds, look, and have its epoch replayed if it is not there.

        Returns:
            Whether rows of the epoch stood, and its marker did not.
        """
        planned = self._planned()
        with self._child(planned) as child:
            child.go()
            time.sleep(seconds)
            child.kill()
        landed, rows = self._looks(planned)
        if not landed:
            self._next.tries(planned)
        return bool(rows) and not landed

    def holds_the_newest(self) -> None:
        """Check that each key that was ever written is there once, with the row of its newest epoch."""
        actual = Counter((row["id"], row["step"]) for row in self._story.harness.rows())
        expected = Counter(self._newest.items())
        short, surplus = (expected - actual).total(), (actual - expected).total()
        expect(
            actual == expected, f"Of {len(expected)} keys {short} lack their newest row; {surplus} rows are too many."
        )

    def _planned(self) -> PlannedEpoch:
        planned = _replacing(self._last.epoch if self._last else None, self._next.sink.id)
        self._last = planned
        self._newest.update(dict.fromkeys(planned.ids, planned.epoch.number))
        return planned

    def _child(self, planned: PlannedEpoch) -> Child:
        fence, harness = self._next.fence, self._story.harness
        # A handle that stays open here would be open in the process, too.
        self._next.sink.close()
        return Child(Order(harness, fence, planned))

    def _looks(self, planned: PlannedEpoch) -> tuple[bool, int]:
        """Whether the marker of an epoch stands, and then all rows with it; and how many of its rows do."""
        self._next = self._story.driver()
        position, number = self._next.position(), planned.epoch.number
        marker = position.marker
        there = {row["id"] for row in self._story.harness.rows() if row["step"] == number}
        landed = marker is not None and marker.epoch == planned.epoch
        words = f"The marker of epoch {number} stands and {len(there)} of its {_PUT_ROWS} rows are there."
        expect(not landed or len(there) == _PUT_ROWS, words)
        if marker is None:
            strange = position.has_rows or self._story.reader().look().strangers
            expect(not strange, f"{len(there)} rows of a first epoch that was cut off are called somebody else's.")
        return landed, len(there)


def _replacing(after: Epoch | None, sink: str) -> PlannedEpoch:
    """The next epoch, most of whose rows replace rows of earlier ones."""
    import pyarrow as pa

    planned = plan(after, sink, _PUT_ROWS)
    first = planned.epoch.number * _NEW_KEYS
    index = planned.table.schema.get_field_index("id")
    table = planned.table.set_column(index, "id", pa.array(range(first, first + _PUT_ROWS), pa.int64()))
    return PlannedEpoch(linked(replace(planned.epoch, digest=ArrowBatch(table).digest())), table)


PUT_CLAIMS = claims_of(
    a_cut_off_epoch_that_is_replayed_leaves_each_key_once_with_its_newest_row,
    a_marker_never_stands_before_all_of_its_rows,
    rows_of_a_cut_off_first_epoch_are_not_called_a_strangers,
)
