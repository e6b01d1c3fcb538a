"""Play variants through two crashes, or two interleaved drivers.

All schedules of two crashes are played, and all orders of the drivers' steps. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from onceonly_lab.necessity.designs import VARIANTS, Variant
from onceonly_lab.necessity.world import RECORDS, TAKEN, Function, Symptom, View, World, compute, symptoms
from onceonly_lab.strenum import StrEnum

# ---- Two drivers on one epoch, in every order of their steps: what a fence must be to keep the older one out. Pure.

STEPS = 3
"""Of each driver: open (install its fence, read the marker), check the fence, write rows and marker."""

ZOMBIE, SUCCESSOR = 1, 2
"""Generations of the drivers; the older one does not know of the younger."""


class Fencing(StrEnum):
    """What a driver does about the fence."""

    NONE = "no fence: the marker is read, then rows are written"
    CHECKED = "the fence is checked, then rows are written"
    ATOMIC = "the fence is checked in the transaction that writes"


MUST_DOUBLE: dict[Fencing, bool] = {Fencing.NONE: True, Fencing.CHECKED: True, Fencing.ATOMIC: False}
"""Whether some order of the steps must double the epoch; of those without, none may."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink that takes one epoch.

    Attributes:
        fence: highest generation installed.
        marked: whether the marker has the epoch.
        writes: how often its rows were written.
    """

    fence: int = 0
    marked: bool = False
    writes: int = 0


@dataclass(frozen=True, slots=True)
class Writer:
    """A driver.

    Attributes:
        generation: of its fence.
        step: how many of its steps it has taken.
        stopped: whether it has nothing to write, or knows that it was fenced out.
    """

    generation: int
    step: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Interleavings:
    """What all orders of the steps showed.

    Attributes:
        fencing: what drivers do about the fence.
        orders: how many there are.
        doubled: in how many of them the epoch was written twice.
    """

    fencing: Fencing
    orders: int
    doubled: int

    @property
    def counts(self) -> dict[Symptom, int]:
        """The same as of a variant."""
        return {Symptom.DUP: self.doubled} if self.doubled else {}

    @property
    def expected(self) -> frozenset[Symptom]:
        """What must be seen."""
        return frozenset({Symptom.DUP} if MUST_DOUBLE[self.fencing] else ())

    @property
    def as_expected(self) -> bool:
        """Whether that was seen and nothing else."""
        return frozenset(self.counts) == self.expected


def interleavings() -> tuple[Interleavings, ...]:
    """Run every order of the steps with every kind of fencing."""
    return tuple(_interleaved(fencing) for fencing in Fencing)


def _interleaved(fencing: Fencing) -> Interleavings:
    writes = [_run_both(fencing, order) for order in _orders()]
    return Interleavings(fencing, len(writes), sum(count > 1 for count in writes))


def _orders() -> Iterator[tuple[int, ...]]:
    """Who takes each step."""
    for places in combinations(range(2 * STEPS), STEPS):
        yield tuple(ZOMBIE if at in places else SUCCESSOR for at in range(2 * STEPS))


def _run_both(fencing: Fencing, order: tuple[int, ...]) -> int:
    """How often the rows were written."""
    sink = Sink()
    writers = {generation: Writer(generation) for generation in (ZOMBIE, SUCCESSOR)}
    for generation in order:
        sink, writers[generation] = _step(fencing, sink, writers[generation])
    return sink.writes


def _step(fencing: Fencing, sink: Sink, writer: Writer) -> tuple[Sink, Writer]:
    fenced = fencing is not Fencing.NONE
    went, superseded = replace(writer, step=writer.step + 1), fenced and sink.fence > writer.generation
    if writer.stopped:
        return sink, went
    if writer.step == 0:
        opened = replace(sink, fence=max(sink.fence, writer.generation))
        return opened, replace(went, stopped=sink.marked or superseded)
    if writer.step == 1:
        return sink, replace(went, stopped=superseded)
    if fencing is Fencing.ATOMIC and superseded:
        return sink, went
    return replace(sink, marked=True, writes=sink.writes + 1), went


# ---- Runs variants through every schedule of up to two crashes. Pure.

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
    counts = Counter(symptom for crashes in schedules for symptom in _run(variant, function, crashes))
    return Tally(
        variant, function, len(schedules), {symptom: counts[symptom] for symptom in Symptom if counts[symptom]}
    )


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


# ---- What the kit found, as cells of a table and as a document. Pure.


@dataclass(frozen=True, slots=True)
class Shown:
    """What the whole kit showed.

    Attributes:
        crashed: one tally for each variant and kind of F.
        interleaved: one for each kind of fencing.
    """

    crashed: tuple[Tally, ...]
    interleaved: tuple[Interleavings, ...]

    @property
    def surprises(self) -> tuple[str, ...]:
        """Where something else was seen than must be, in words; empty where nothing was."""
        crashed = [
            _surprise(f"{tally.variant.name}, {tally.function}", tally)
            for tally in self.crashed
            if not tally.as_expected
        ]
        return (
            *crashed,
            *(
                _surprise(interleaving.fencing, interleaving)
                for interleaving in self.interleaved
                if not interleaving.as_expected
            ),
        )

    @property
    def runs(self) -> int:
        """How many runs were judged."""
        return sum(tally.schedules for tally in self.crashed) + sum(
            interleaving.orders for interleaving in self.interleaved
        )

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the meaning left to the table's heads."""
        crashed = [
            _document(tally, tally.schedules, name=tally.variant.name, function=tally.function)
            for tally in self.crashed
        ]
        zombies = [
            _document(interleaving, interleaving.orders, name=interleaving.fencing) for interleaving in self.interleaved
        ]
        return {"runs": self.runs, "variants": crashed, "zombies": zombies, "surprises": list(self.surprises)}


def shown() -> Shown:
    """Run the whole kit."""
    return Shown(tallies(), interleavings())


def crash_rows(summary: Shown) -> Iterator[tuple[str, ...]]:
    """A row for each variant: name, dropped condition, schedules, and what each kind of F showed."""
    for variant in VARIANTS:
        mine = {tally.function: tally for tally in summary.crashed if tally.variant is variant}
        schedules = str(mine[Function.DETERMINISTIC].schedules)
        yield (
            variant.name,
            variant.drops or "none",
            schedules,
            *(spelled(mine[function].counts) for function in Function),
        )


def spelled(counts: Mapping[Symptom, int]) -> str:
    """Symptoms with how often each was seen; ``clean`` without any."""
    return ", ".join(f"{symptom} {count}" for symptom, count in counts.items()) or "clean"


def _surprise(name: str, outcome: Tally | Interleavings) -> str:
    return f"{name}: must show {', '.join(sorted(outcome.expected)) or 'nothing'}, showed {spelled(outcome.counts)}"


def _document(outcome: Tally | Interleavings, runs: int, **named: str) -> dict[str, Any]:
    expected = sorted(outcome.expected)
    return {
        **named,
        "runs": runs,
        "counts": dict(outcome.counts),
        "expected": expected,
        "as_expected": outcome.as_expected,
    }
