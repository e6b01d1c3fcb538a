"""Several writers of one dataset in random runs: what ships is clean, and each rule that is off is called X-TIME."""

from __future__ import annotations

import random

import pytest

from onceonly_lab.writers.designs import MUTANTS, SHIPPED
from onceonly_lab.writers.runs import play, tally
from onceonly_lab.writers.world import World

QUICK = 150
MANY = 20_000
FIRST = random.SystemRandom().randrange(1_000_000_000)


def test_what_ships_is_clean() -> None:
    print(f"seeds from {FIRST}")
    assert tally(SHIPPED, QUICK, FIRST).first is None


@pytest.mark.slow
def test_what_ships_is_clean_in_twenty_thousand_runs() -> None:
    print(f"seeds from {FIRST}")
    assert tally(SHIPPED, MANY, FIRST).first is None


def test_each_rule_that_is_off_is_found() -> None:
    print(f"seeds from {FIRST}")
    seeds = range(FIRST, FIRST + QUICK)
    missed = [f"{mutant.id}: {mutant.broken}" for mutant in MUTANTS if not any(play(mutant, seed) for seed in seeds)]
    assert missed == [], f"not found in {QUICK} runs"


def test_a_seed_is_a_run() -> None:
    (broken,) = (one for one in MUTANTS if one.id == "MT1")
    found = tally(broken, 20, 1).first
    assert found is not None
    assert play(broken, found.seed) == found
    assert tally(broken, 20, 1).as_expected


def test_runs_go_through_all_that_can_happen_to_writers() -> None:
    print(f"seeds from {FIRST}")
    seen: set[str] = set()
    for seed in range(FIRST, FIRST + 60):
        world = World(SHIPPED, random.Random(seed))
        for _ in range(30):
            made = world.step()
            seen |= {"put back"} if any(writer.returns for writer in world.writers) else set()
            seen |= {"crashed"} if any(writer.pending for writer in world.writers) else set()
            time = made.timed.time if made else None
            seen |= {"silent"} if time and time.timed_out else set()
            seen |= {"a turn"} if time and time.resets else set()
            seen |= {"complete"} if time and time.dataset_complete_until is not None else set()
    assert seen == {"put back", "crashed", "silent", "a turn", "complete"}
