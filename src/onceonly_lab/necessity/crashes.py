"""Runs variants through every schedule of up to two crashes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from onceonly_lab.necessity.symptoms import Symptom, View, symptoms
from onceonly_lab.necessity.variants import VARIANTS, Variant
from onceonly_lab.necessity.world import RECORDS, TAKEN, Function, World, compute

Crashes = tuple[int, ...]
"""For each attempt but the last, the durable step after which it crashes, from 1."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What the schedules of a variant showed.

    Attributes:
        variant: what was run.
        function: with which F.
        schedules: how many.
        counts: in how many of them each symptom was seen, in the order of the symptoms.
    """

    variant: Variant
    function: Function
    schedules: int
    counts: dict[Symptom, int]

    @property
    def expected(self) -> frozenset[Symptom]:
        """What the variant must show."""
        return self.variant.shows[self.function]

    @property
    def as_expected(self) -> bool:
        """Whether it showed that and nothing else."""
        return frozenset(self.counts) == self.expected


def tallies(variants: tuple[Variant, ...] = VARIANTS) -> tuple[Tally, ...]:
    """Run every variant with every kind of F through every schedule."""
    return tuple(_tally(variant, function) for variant in variants for function in Function)


def _tally(variant: Variant, function: Function) -> Tally:
    schedules = list(_schedules(variant, function))
    seen = Counter(symptom for crashes in schedules for symptom in _run(variant, function, crashes))
    return Tally(variant, function, len(schedules), {one: seen[one] for one in Symptom if seen[one]})


def _schedules(variant: Variant, function: Function) -> Iterator[Crashes]:
    """No crash, one after each step of a run without any, and two, the second counted from the restart."""
    steps = range(1, len(_attempt(variant, function, World(), 0)) + 1)
    yield ()
    yield from product(steps)
    yield from product(steps, steps)


def _run(variant: Variant, function: Function, crashes: Crashes) -> frozenset[Symptom]:
    world = World()
    views: list[View] = []
    for attempt, crash in enumerate((*crashes, None)):
        worlds = _attempt(variant, function, world, attempt)
        lived = worlds[:crash]
        views += map(variant.reader, lived)
        world = lived[-1] if lived else world
        if crash is None or crash > len(worlds):
            break
    return symptoms(views, world, variant.reader(world))


def _attempt(variant: Variant, function: Function, world: World, attempt: int) -> list[World]:
    """The worlds after each durable step of one attempt that nothing stops."""
    take = variant.retaken if attempt else TAKEN
    worlds: list[World] = []
    while world.position < RECORDS:
        for write in variant.design(world, compute(world, function, attempt, take)):
            world = write(world)
            worlds.append(world)
    return worlds
