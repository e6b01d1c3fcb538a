"""Draws a schedule from a seed, biased to crashes: a run without any shows little."""

from __future__ import annotations

import random

from onceonly.faults import Point
from onceonly.lab.model.parts import Kind
from onceonly.lab.model.spark import REFUSALS, Damage
from onceonly.lab.schedule import LEDGER, SENDING, SENT, Action, Fault, Loss, Schedule

PLAYED = (
    Point.DISCOVER_AFTER,
    Point.PROBE_AFTER,
    Point.RECALL_AFTER,
    Point.INSTALL_BEFORE,
    Point.INSTALL_SENT,
    Point.INSTALL_AFTER,
    Point.READ_AFTER,
    Point.REINDEX_AFTER,
    Point.STAGE_BEFORE,
    Point.STAGE_AFTER,
    Point.FETCH_AFTER,
    Point.COMMIT_BEFORE,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.LOOK_UP_AFTER,
    Point.RECORD_BEFORE,
    Point.RECORD_AFTER,
    Point.RETURN_BEFORE,
)
"""Points that a driver of the simulated world passes. What only it can see (intents, preparations) it does in passing;
a skipped batch is executed only by stateful queries, which are not simulated."""

_DAMAGES = tuple(damage.value for damage in Damage if damage not in REFUSALS)
_MOST_STEPS = 40


def draw(seed: int) -> Schedule:
    """The schedule of a seed; the same one each time."""
    chance = random.Random(seed)
    sinks = tuple(chance.sample(list(Kind), chance.randint(1, len(Kind))))
    incarnations = chance.randint(1, 4)
    faults = [_fault(chance, incarnation, len(sinks)) for incarnation in range(1, incarnations + 1)]
    extra = [_fault(chance, chance.randint(1, incarnations), len(sinks)) for _ in range(chance.randint(0, 3))]
    return Schedule(
        sinks=sinks,
        records=chance.randint(1, 6),
        cuts=tuple(chance.randint(1, 3) for _ in range(chance.randint(1, 3))),
        rows=chance.randint(1, 3),
        incarnations=incarnations,
        faults=tuple(faults + extra),
        losses=_losses(chance, incarnations),
        seed=seed,
    )


def _fault(chance: random.Random, incarnation: int, sinks: int) -> Fault:
    action = chance.choices(list(Action), (6, 3, 2, 2, 2, 1, 1))[0]
    point = chance.choice(sorted(SENT)) if action in SENDING else chance.choice(PLAYED)
    steps = chance.randint(0, _MOST_STEPS) if action in (Action.PAUSE, Action.DELAY, Action.HIDE) else 0
    return Fault(incarnation, point, action, chance.randint(1, 2 * sinks), steps)


def _losses(chance: random.Random, incarnations: int) -> tuple[Loss, ...]:
    lost: list[Loss] = []
    if chance.random() < 0.25:
        lost.append(Loss(chance.randint(2, incarnations + 1), LEDGER))
    if chance.random() < 0.2:
        lost.append(Loss(chance.randint(2, incarnations + 1), chance.choice(_DAMAGES)))
    return tuple(lost)
