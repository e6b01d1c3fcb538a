"""A rerun is published in random runs: what ships is clean, and each rule that is off is called what it is."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from onceonly_lab.reruns.designs import MUTANTS, SHIPPED, Design
from onceonly_lab.reruns.runs import findings, play
from onceonly_lab.reruns.world import World

QUICK = 400
RUNS = 2_000
FIRST = random.SystemRandom().randrange(1_000_000_000)


@pytest.mark.parametrize("runs", [QUICK, pytest.param(RUNS, marks=pytest.mark.lab)])
def test_what_ships_is_clean_in_runs_that_go_through_all_that_can_happen(runs: int) -> None:
    print(f"seeds from {FIRST}")
    happened = Counter[str]()
    for seed in range(FIRST, FIRST + runs):
        world = World(SHIPPED, random.Random(seed))
        assert play(world, seed) is None
        happened.update(world.happened)
    assert set(happened) == {"E240", "E241", "E242", "cut back", "killed", "published", "stopped", "went on"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_rule_that_is_off_is_found(mutant: Design) -> None:
    print(f"seeds from {FIRST}")
    found = next((finding for finding in findings(mutant, RUNS, FIRST) if finding.name is mutant.called), None)
    assert found is not None, f"{mutant.broken}: not called {mutant.called} in {RUNS} runs"
    again = play(World(mutant, random.Random(found.seed)), found.seed)
    assert again == found
