"""Which schedules a job is put through: every point it passes, killed; then what else can go wrong. By seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from onceonly.faults import Point
from onceonly.lab.level import Level
from onceonly.lab.model.parts import Kind
from onceonly.lab.model.spark import Damage
from onceonly.lab.schedule import LEDGER, SENT, Action, Fault, Loss, Schedule

Cell = tuple[Point, Action]
"""A point and what goes wrong there."""

LONGEST_CHAIN = 3
"""Drivers that are killed one after another in a schedule: each restart heals one kill and runs into the next."""

MOMENTS = 6
"""Kills at a random moment in a campaign."""

LATEST_MS = 800
"""The latest random moment after a batch was offered."""

RECOVERING: Mapping[Point, Fault] = {
    Point.LOOK_UP_AFTER: Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER),
    Point.FETCH_AFTER: Fault(1, Point.COMMIT_AFTER, Action.KILL),
    Point.REINDEX_AFTER: Fault(1, Point.COMMIT_AFTER, Action.KILL),
    Point.EXECUTE_AFTER: Fault(1, Point.RETURN_BEFORE, Action.KILL),
}
"""Points that only a driver passes which has something to heal, and what has to go wrong before."""

DAMAGES = (Damage.COMMIT_REMOVED, Damage.ROLLED_BACK, Damage.CUT_OFF, Damage.DELETED)
"""What happens to checkpoints that Spark starts on; the rest it refuses itself."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run without faults showed of a job.

    Attributes:
        job: its place.
        sinks: kinds of its destinations, in the order in which it asked.
        batches: of its input.
        rows: of each.
        passed: how often each point was passed.
        plain: it uses nothing of ours.
        level: how it is run.
    """

    job: str
    sinks: tuple[Kind, ...]
    batches: int
    rows: int
    passed: Mapping[Point, int]
    plain: bool
    level: Level

    @property
    def calm(self) -> Schedule:
        """Nothing goes wrong."""
        return Schedule(self.sinks, self.batches, rows=self.rows, job=self.job)


def draw(facts: Facts, seed: int, *, thorough: bool = False) -> Iterator[Schedule]:
    """The schedules of a campaign, the same ones for the same seed; the first are the ones that tell most.

    Args:
        facts: of the job.
        seed: decides order, moments and company.
        thorough: every action at every point, and not a few of each kind.
    """
    chance = random.Random(seed)
    calm = replace(facts.calm, seed=seed)
    for cell in _telling(facts):
        yield _chained(calm, [cell])
    cells = [cell for cell in _cells(facts, chance, thorough=thorough) if cell not in _telling(facts)]
    chance.shuffle(cells)
    killing = [one for one in cells if one[1] is Action.KILL and one[0] not in RECOVERING]
    alone = [one for one in cells if one not in killing]
    chains = [_chained(calm, part) for part in _parts(killing, min(LONGEST_CHAIN, facts.batches))]
    chains += [_moments(calm, chance, facts) for _ in range(MOMENTS // LONGEST_CHAIN)]
    chains += [_chained(calm, [cell]) for cell in alone]
    chains += [_damaged(calm, damage) for damage in DAMAGES]
    if not facts.plain:
        chains.append(replace(_chained(calm, [(Point.RECORD_AFTER, Action.KILL)]), losses=(Loss(2, LEDGER),)))
    chance.shuffle(chains)
    yield from chains


def _telling(facts: Facts) -> list[Cell]:
    """What a pipeline gets wrong most often: everything is written, and Spark, or another sink, does not know."""
    if facts.level is Level.COLD:
        return [(Point.RETURN_BEFORE if facts.plain else Point.COMMIT_BEFORE, Action.PAUSE)]
    split = [(Point.COMMIT_AFTER, Action.KILL)] if len(facts.sinks) > 1 and not facts.plain else []
    return [(Point.RETURN_BEFORE, Action.KILL), *split]


def _cells(facts: Facts, chance: random.Random, *, thorough: bool) -> list[Cell]:
    points = [point for point in Point if facts.passed.get(point) or _comes_to_pass(point, facts)]
    cells = [(point, Action.KILL) for point in points]
    if not facts.plain:
        cells += [(point, Action.LOSE_ANSWER) for point in points if point in SENT]
        losing = points if thorough else chance.sample(points, min(2, len(points)))
        cells += [(point, Action.LOSE_LEDGER) for point in losing]
    if facts.level is Level.COLD:
        pausing = points if thorough else chance.sample(points, min(4, len(points)))
        cells += [(point, Action.PAUSE) for point in pausing]
    return cells


def _comes_to_pass(point: Point, facts: Facts) -> bool:
    """Whether a point will be passed when something is healed; which jobs keep state only a run can tell."""
    if point not in RECOVERING or facts.plain or point is Point.EXECUTE_AFTER:
        return False
    return point is not Point.FETCH_AFTER or len(facts.sinks) > 1


def _chained(calm: Schedule, cells: list[Cell]) -> Schedule:
    """One driver after another meets one cell each, at the first time it passes the point."""
    faults: list[Fault] = []
    number = 0
    for point, action in cells:
        number += 1
        before = RECOVERING.get(point)
        if before is not None:
            faults.append(replace(before, incarnation=number))
            number += before.action is Action.KILL
        faults.append(Fault(number, point, action))
    return replace(calm, incarnations=number, faults=tuple(faults))


def _moments(calm: Schedule, chance: random.Random, facts: Facts) -> Schedule:
    count = min(LONGEST_CHAIN, facts.batches)
    faults = tuple(
        Fault(number, Point.DISCOVER_AFTER, Action.KILL, ms=chance.randint(1, LATEST_MS))
        for number in range(1, count + 1)
    )
    return replace(calm, incarnations=count, faults=faults)


def _damaged(calm: Schedule, damage: Damage) -> Schedule:
    """A driver dies when batches are through, and the next one finds the checkpoint damaged."""
    hit = min(2, calm.records)
    fault = Fault(1, Point.DISCOVER_AFTER, Action.KILL, hit)
    return replace(calm, faults=(fault,), losses=(Loss(2, damage.value),))


def _parts(cells: list[Cell], length: int) -> Iterator[list[Cell]]:
    for at in range(0, len(cells), length):
        yield cells[at : at + length]
