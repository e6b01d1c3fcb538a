"""Where changes are cut into epochs decides nothing in random runs, and each rule that is broken is called X-CUT."""

from __future__ import annotations

import random

import pytest

from onceonly_lab.cuts import MUTANTS, NAME, SHIPPED, Design, play

QUICK, MANY = 150, 1500
FIRST = random.SystemRandom().randrange(1_000_000_000)


def findings(design: Design, runs: int) -> list[str]:
    played = {seed: play(design, seed) for seed in range(FIRST, FIRST + runs)}
    return [f"{NAME} {design.id}, seed {seed}: {what}" for seed, what in played.items() if what]


@pytest.mark.lab
def test_the_table_does_not_depend_on_the_cuts() -> None:
    assert findings(SHIPPED, MANY) == []


def test_each_rule_that_is_broken_is_called() -> None:
    assert findings(SHIPPED, QUICK) == []
    missed = [f"{one.id}: {one.broken}" for one in MUTANTS if not findings(one, QUICK)]
    assert missed == [], f"seeds from {FIRST}"
