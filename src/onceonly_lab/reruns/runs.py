"""Random runs of a publication, each judged after every step.

Every record must be there once, and a rerun once. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from onceonly_lab.checker import Anomaly
from onceonly_lab.reruns.designs import AGAIN, Design
from onceonly_lab.reruns.world import World

STEPS = 40
"""Things that happen in a run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The first thing that does not hold in a run.

    Attributes:
        seed: of the run.
        step: which one.
        name: what it is called.
        what: in words.
    """

    seed: int
    step: int
    name: Anomaly
    what: str


def findings(design: Design, runs: int, seed: int) -> Iterator[Finding]:
    """What is found in runs with the seeds ``seed``, ``seed + 1`` and so on: one for each that breaks something."""
    for each in range(seed, seed + runs):
        finding = play(World(design, Random(each)), each)
        if finding is not None:
            yield finding


def play(world: World, seed: int) -> Finding | None:
    """One run; what first does not hold in it, if anything."""
    for step in range(1, STEPS + 1):
        world.step()
        for name, what in _judged(world):
            return Finding(seed, step, name, what)
    return None


def _judged(world: World) -> Iterator[tuple[Anomaly, str]]:
    stand = Counter(world.table.rows)
    if doubled := sorted(row for row, times in stand.items() if times > 1):
        yield Anomaly.DUP, f"records {doubled} stand twice"
    if lacking := sorted(set(range(world.end)) - set(stand)):
        yield Anomaly.LOSS, f"records {lacking} stand nowhere, and the pipeline has taken {world.end}"
    numbers_by_key = dict[str, int]()
    for number, rerun in world.published():
        key = f"{rerun.pipeline.rstrip(AGAIN)} {rerun.chain}"
        if key in numbers_by_key:
            yield Anomaly.DUP, f"epoch {number} publishes what epoch {numbers_by_key[key]} has published"
        numbers_by_key[key] = number
