"""A crash at any place of any epoch leaves the same rows; and the two ways to spoil that are seen to spoil it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from tests.panes import story
from tests.panes.drive import World, definition_of, epoch, panes_of, run
from tests.panes.oracle import Epoch, Oracle, Pane, Rules

from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import WindowResult

CASES = story.cases()
LATER = 75
"""Seconds after which a query is there again."""

BY_WALL_CLOCK = {
    "row 3 heuristic": (0, 0),
    "row 3 perfect": (0, 0),
    "row 4 discarding": (9, 10),
    "row 5 accumulating heuristic": (11, 12),
    "row 6 retracting": (9, 10),
    "row 7 order A": (5, 6),
    "row 7 order B": (5, 5),
    "row 9 sessions": (11, 11),
}
"""Crashes after which rows differ where a replay takes the time of day: by brute force, and by the engine. Brute force
looks for timers between two clocks, the engine keeps when they are due; where a clock goes back, these are two things.
"""

IN_TWO_COMMITS = {
    "row 3 heuristic": 4,
    "row 4 discarding": 7,
    "row 5 accumulating heuristic": 8,
    "row 6 retracting": 7,
    "row 9 sessions": 7,
}
"""Crashes after which rows differ where rows are committed before their state: at each epoch that has a pane."""


@dataclass(frozen=True)
class Store:
    """What is durable: how many epochs, their rows, and the state, all of one commit."""

    epochs: int = 0
    rows: tuple[WindowResult, ...] = ()
    world: World = field(default_factory=World)

    def commit(self, number: int, world: World, rows: tuple[WindowResult, ...]) -> Store:
        assert number == self.epochs + 1
        return Store(number, self.rows + rows, world)


def delivered(definition: Definition, store: Store, number: int, said: Epoch, draw: random.Random) -> Store:
    """An epoch that may be there already; then nothing happens."""
    if number <= store.epochs:
        return store
    world, rows, _ = epoch(definition, store.world, said, draw)
    return store.commit(number, world, rows)


@pytest.mark.parametrize("name", CASES)
def test_a_crash_before_or_after_the_commit_of_any_epoch_leaves_the_same_rows_and_state(name: str) -> None:
    seed = random.randrange(2**32)
    draw, epochs, crashes = random.Random(seed), CASES[name].epochs, 0
    definition, stores = definition_of(CASES[name].rules), [Store()]
    for number, said in enumerate(epochs, 1):
        stores.append(delivered(definition, stores[-1], number, said, draw))
    for number, said in enumerate(epochs, 1):
        epoch(definition, stores[number - 1].world, said, draw)  # and the process dies, with all that was computed
        for store in (stores[number - 1], stores[number]):
            for again, one in enumerate(epochs[number - 1 :], number):
                store = delivered(definition, store, again, one, draw)
                assert store == stores[again], f"{number}, seed {seed}"
            crashes += 1
    print(f"seed {seed}: {crashes} crashes, {len(stores[-1].rows)} rows each time")
    assert crashes == 2 * len(epochs)


@pytest.mark.parametrize("name", BY_WALL_CLOCK)
def test_a_replay_that_takes_the_time_of_day_shows_other_panes(name: str) -> None:
    case = CASES[name]
    found = tuple(
        sum(how(case.rules, later(case.epochs, at)) != how(case.rules, case.epochs) for at in range(len(case.epochs)))
        for how in (by_brute_force, by_engine)
    )
    print(f"{found} of {len(case.epochs)} crashes")
    assert found == BY_WALL_CLOCK[name]


@pytest.mark.parametrize("name", IN_TWO_COMMITS)
def test_rows_that_are_committed_before_their_state_are_there_twice(name: str) -> None:
    case, draw = CASES[name], random.Random(0)
    definition, wanted = definition_of(case.rules), [pane for _, pane in case.panes]
    spoiled = 0
    for crash in range(len(case.epochs)):
        world, rows = World(), list[WindowResult]()
        for at, said in enumerate(case.epochs):
            after, shown, _ = epoch(definition, world, said, draw)
            rows += shown
            if at == crash:  # the state is lost, the rows are there: the epoch comes again
                after, shown, _ = epoch(definition, world, said, draw)
                rows += shown
            world = after
        spoiled += list(panes_of(rows)) != wanted
    print(f"{spoiled} of {len(case.epochs)} crashes")
    assert spoiled == IN_TWO_COMMITS[name]


def later(epochs: Sequence[Epoch], at: int) -> list[Epoch]:
    """Epochs of which one was replayed with a clock of its own."""
    return [replace(one, clock=one.clock + LATER * (number == at)) for number, one in enumerate(epochs)]


def by_brute_force(rules: Rules, epochs: Sequence[Epoch]) -> list[Pane]:
    """All panes, whenever they were written."""
    oracle = Oracle(rules)
    return timeless(pane for said in epochs for pane in oracle.epoch(said))


def by_engine(rules: Rules, epochs: Sequence[Epoch]) -> list[Pane]:
    """The same by the engine."""
    return timeless(pane for panes in run(definition_of(rules), epochs).panes for pane in panes)


def timeless(panes: Iterable[Pane]) -> list[Pane]:
    """Panes without their instant: that of a pane on time is the epoch's clock, and differs of course."""
    return [replace(pane, fired_at=0) for pane in panes]
