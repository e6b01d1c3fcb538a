"""Draw chaos schedules for a job from a seed.

Chains of kills go through every cell of the job's matrix. Damage follows.

A start, a database and a last look cost as much as several kills, so one run takes many: each driver meets one cell and
dies of it, or after it, and the next one heals what it left before it meets its own.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from onceonly.faults import Point
from onceonly_lab.chaos.cells import ON_THE_WIRE, Cell, Facts, left_out
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.spark import Damage
from onceonly_lab.schedule import LEDGER, SENDING, SENDS, SENT, Action, Fault, Level, Loss, Schedule

LONGEST_CHAIN = 12
"""Cells of a schedule. A failure is looked for in all of them when it is made smaller."""

TRIES = 2
"""Schedules in which a cell is drawn that does not come to act: what happens at random moments may pass it by."""

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

_UNWRITTEN = frozenset(list(Point)[: list(Point).index(Point.COMMIT_BEFORE)]) - {*RECOVERING}
"""Points of an epoch of which no sink has anything yet: it is written again as if nothing had been."""

_UNOPENED = frozenset({Point.DISCOVER_AFTER, Point.PROBE_AFTER})
"""Points that are passed before the ledger is opened: the first driver of all finds none there."""

_KINDS = [
    Action.KILL,
    Action.LOSE_ANSWER,
    Action.LOSE_LEDGER,
    Action.KILL_EXECUTOR,
    Action.LOSE_REQUEST,
    Action.HIDE,
    Action.DELAY,
    Action.KILL_JVM,
    Action.PAUSE,
]
"""What is drawn, in this order."""

_DEADLY = frozenset({Action.KILL, Action.KILL_JVM})
"""What no driver survives."""

_LATEST_IN_A_TASK_MS = 300
"""The latest death of an executor: what comes after the point has it at work by then."""

_BATCHES_A_DAMAGE = 2
"""Batches that are written, at most, until a checkpoint is found damaged: one for each driver that dies before."""

_LATEST_STEPS = 24
"""The latest landing of what was delayed: about as many points as a driver passes that heals what it finds."""

_LOST_MS = 100
"""The latest death of a driver that lost its ledger: left alone it finds out soon, and stops by itself."""

_HELD_MS = 1500
"""How long a driver waits for an answer before it is killed."""

_NEXT = Fault(1, Point.DISCOVER_AFTER, Action.KILL, 2)
"""Death between two epochs, which leaves nothing to heal."""


def draw(
    facts: Facts,
    seed: int,
    *,
    struck: Container[Cell] = frozenset(),
    elsewhere: Container[Cell] = frozenset(),
    thorough: bool = False,
) -> Iterator[Schedule]:
    """The schedules of a campaign, the same ones for the same seed and outcomes; the first are the ones that tell most.

    Args:
        facts: of the job.
        seed: decides order, moments and company.
        struck: cells in which something came to act already; looked at again for each schedule.
        elsewhere: cells in which something did in other jobs; those that tell most must be seen in this one, too.
        thorough: every action at every point, and not a few of each kind; and nothing has a schedule to itself.
    """
    chance = random.Random(seed)
    faultless = replace(facts.faultless, seed=seed)
    first = _telling(facts)
    drawn = _in_order(first, _cells(facts, chance, thorough=thorough), chance)
    cells = [cell for cell in drawn if cell in first or cell not in elsewhere]
    for attempt in range(TRIES):
        left = cells
        if not thorough and not attempt:
            yield _chained(faultless, first[:1], chance)
            left = [cell for cell in cells if cell not in first[:1]]
        while left := [cell for cell in left if cell not in struck]:
            part, left = _part(left, facts)
            yield _chained(faultless, part, chance)
        if not attempt:
            yield from _damages(facts, faultless, chance)


def _telling(facts: Facts) -> list[Cell]:
    """What a pipeline gets wrong most often: everything is written, and Spark, or another sink, does not know."""
    if facts.level is Level.COLD:
        return [(Point.RETURN_BEFORE if facts.plain else Point.COMMIT_BEFORE, Action.PAUSE)]
    split = [(Point.COMMIT_AFTER, Action.KILL)] if len(facts.sinks) > 1 and not facts.plain else []
    return [(Point.RETURN_BEFORE, Action.KILL), *split]


def _cells(facts: Facts, chance: random.Random, *, thorough: bool) -> list[Cell]:
    out = left_out(facts)
    points = [point for point in Point if facts.passed.get(point) or point in RECOVERING]
    samples = {Action.LOSE_LEDGER: 2, Action.PAUSE: 4, Action.KILL_JVM: 2, Action.KILL_EXECUTOR: 3}

    def at(action: Action) -> list[Cell]:
        where = [point for point in points if action not in SENDING or point in SENT]
        fit = [(point, action) for point in where if (point, action) not in out]
        some = len(fit) if thorough else min(samples.get(action, len(fit)), len(fit))
        return fit if some == len(fit) else chance.sample(fit, some)

    return [cell for action in _KINDS for cell in at(action)]


def _in_order(first: list[Cell], cells: list[Cell], chance: random.Random) -> list[Cell]:
    """Kills, then what a driver survives, then those that are stopped; at random among themselves."""
    rest = [cell for cell in cells if cell not in first]
    chance.shuffle(rest)
    early = {(point, Action.LOSE_LEDGER) for point in _UNOPENED}
    return [*first, *sorted(rest, key=lambda cell: (_KINDS.index(cell[1]), cell in early))]


def _part(cells: list[Cell], facts: Facts) -> tuple[list[Cell], list[Cell]]:
    """Cells of one schedule, and the rest: as many of one kind as its batches last for.

    A driver that is stopped is in the way of all that come after it until it wakes up, so it has a schedule of its own.
    """
    first = cells[0]
    longest = 1 if first[1] is Action.PAUSE else LONGEST_CHAIN
    part, rest, batches = [first], list[Cell](), facts.batches - 1 - _spends(first)
    for cell in cells[1:]:
        same = (cell[1] in _DEADLY) == (first[1] in _DEADLY) and cell[1] is not Action.PAUSE
        if same and len(part) < longest and batches >= _spends(cell):
            part.append(cell)
            batches -= _spends(cell)
        else:
            rest.append(cell)
    return part, rest


def _spends(cell: Cell) -> int:
    """How many batches are written for good when the drivers of a cell are dead: none, or one."""
    return 0 if cell[0] in _UNWRITTEN else 1


def _chained(faultless: Schedule, cells: Iterable[Cell], chance: random.Random) -> Schedule:
    """One driver after another meets one cell each, at the first time it passes the point."""
    faults: list[Fault] = []
    number = 0
    for point, action in cells:
        if (point, action) in {(unopened_point, Action.LOSE_LEDGER) for unopened_point in _UNOPENED} and not number:
            number += 1
            faults.append(_NEXT)
        number += 1
        before = RECOVERING.get(point)
        if before is not None:
            faults.append(replace(before, incarnation=number))
            number += before.action is Action.KILL
        if action in ON_THE_WIRE:
            faults += _on_the_wire(faultless, Fault(number, point, action), chance)
            continue
        late = _LATEST_IN_A_TASK_MS if action is Action.KILL_EXECUTOR else 0
        faults.append(Fault(number, point, action, ms=chance.randint(0, late)))
        if action is Action.LOSE_LEDGER:
            faults.append(Fault(number, point, Action.KILL, ms=chance.randint(1, _LOST_MS)))
        elif action not in _DEADLY and action is not Action.PAUSE:
            faults.append(replace(_closing(point), incarnation=number))
    return replace(faultless, incarnations=max(1, number), faults=tuple(faults))


def _on_the_wire(faultless: Schedule, fault: Fault, chance: random.Random) -> Iterator[Fault]:
    """At the first sink that has a wire. Who waits for what is delayed is killed, and others find it landing."""
    first = next((at for at, kind in enumerate(faultless.sinks, 1) if kind is not Kind.DELTA), 1)
    if fault.action is not Action.DELAY:
        yield replace(fault, hit=first)
        yield replace(_closing(fault.point), incarnation=fault.incarnation)
        return
    yield replace(fault, hit=first, steps=chance.randint(0, _LATEST_STEPS))
    yield Fault(fault.incarnation, SENDS[fault.point], Action.KILL, first, ms=_HELD_MS)


def _closing(point: Point) -> Fault:
    """What ends a driver that survived what it met, so that the next one has a whole epoch before it."""
    return Fault(1, Point.COMMIT_BEFORE, Action.KILL) if point in _UNWRITTEN else _NEXT


def _damages(facts: Facts, faultless: Schedule, chance: random.Random) -> Iterator[Schedule]:
    """Drivers die at a random moment and between two epochs, the next one finds damage, and dies while it heals."""
    what = [damage.value for damage in DAMAGES if damage is not Damage.DELETED]
    if not facts.plain and facts.ledger:
        what.append(LEDGER)
    chance.shuffle(what)
    # Whoever finds no checkpoint at all may refuse to go on, and nothing that comes later would come to act.
    what.append(Damage.DELETED.value)
    several = max(1, (facts.batches - 1) // _BATCHES_A_DAMAGE)
    for at in range(0, len(what), several):
        yield _damaged(faultless, what[at : at + several], chance)


def _damaged(faultless: Schedule, what: list[str], chance: random.Random) -> Schedule:
    faults, losses, hit = list[Fault](), list[Loss](), min(_NEXT.hit, faultless.records)
    for number, damage in enumerate(what):
        first = 2 * number + 1
        faults += [_moment(first, chance), replace(_NEXT, incarnation=first + 1, hit=hit)]
        losses.append(Loss(first + 2, damage))
    last = 2 * len(what) + 1
    return replace(faultless, incarnations=last, faults=(*faults, _moment(last, chance)), losses=tuple(losses))


def _moment(number: int, chance: random.Random) -> Fault:
    return Fault(number, Point.DISCOVER_AFTER, Action.KILL, ms=chance.randint(1, LATEST_MS))
