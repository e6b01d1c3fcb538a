"""Draw random schedules from a seed.

They are biased to crashes, and aimed at each fault point and action.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from onceonly.faults import Point
from onceonly_lab.model.parts import DRAWN, TRANSACTIONAL, Kind, keeper_of
from onceonly_lab.model.spark import RESTARTED, Damage
from onceonly_lab.model.world import Program
from onceonly_lab.schedule import LEDGER, SENDING, SENT, SIMULATED, Action, Fault, Gets, Loss, Schedule, actions_at

# ---- Schedules that are aimed: one for each fault point and each action that applies there; none is left to chance.

_BASE = Schedule((Kind.KAFKA, Kind.POSTGRES), records=2, incarnations=2)
"""Kafka first: only its commits can be decided and hidden."""

_LEADS: dict[Point, Schedule] = {
    Point.FETCH_AFTER: replace(_BASE, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),)),
    Point.LOOK_UP_AFTER: replace(_BASE, faults=(Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER),)),
    Point.EXECUTE_AFTER: replace(_BASE, faults=(Fault(1, Point.RECORD_AFTER, Action.KILL),), stateful=True),
}
"""What must go wrong first, where a run without faults does not pass a point."""

_AIMED_STEPS = 3


def aimed() -> Iterator[tuple[Point, Action, Schedule]]:
    """Every point and action, with a schedule in which the one comes to act at the other."""
    for point in Point:
        for action in actions_at(point):
            yield point, action, _aimed(point, action)


def _aimed(point: Point, action: Action) -> Schedule:
    lead = _LEADS.get(point, _BASE)
    # A driver that is killed leaves what is aimed at to the next one.
    incarnation = 2 if any(fault.action is Action.KILL for fault in lead.faults) else 1
    return replace(lead, faults=(*lead.faults, Fault(incarnation, point, action, steps=_AIMED_STEPS)))


# ---- Draws a schedule from a seed, biased to crashes: a run without any shows little.

_DAMAGES = tuple(damage.value for damage in RESTARTED)
_MISUSES = tuple(program.value for program in Program if program.misuses)
_STEPS = (0, 1, 2, 3, 5, 8, 13, 20, 40)
"""Of pauses and delays: most races are close ones."""


def draw(seed: int) -> Schedule:
    """The schedule of a seed; the same one each time."""
    chance = random.Random(seed)
    sinks = tuple(chance.sample(TRANSACTIONAL, chance.randint(1, len(TRANSACTIONAL))))
    incarnations = chance.randint(1, 4)
    faults = [_fault(chance, incarnation, len(sinks)) for incarnation in range(1, incarnations + 1)]
    # What a driver leaves behind that went on where others had taken it for dead is worst where it dies for good then.
    woken = [fault.incarnation for fault in faults if fault.action is Action.PAUSE and chance.random() < 0.5]
    faults += [Fault(number, chance.choice(list(Point)), Action.KILL, chance.randint(1, 2)) for number in woken]
    extra = [_fault(chance, chance.randint(1, incarnations), len(sinks)) for _ in range(chance.randint(0, 3))]
    stateful, files, peopled = chance.random() < 0.3, chance.random() < 0.2, chance.random() < 0.4
    records = chance.randint(1, 6)
    drawn = Schedule(
        sinks=sinks,
        records=records,
        cuts=tuple(chance.randint(1, 3) for _ in range(chance.randint(1, 3))),
        rows=chance.randint(1, 3),
        incarnations=incarnations,
        faults=tuple(faults + extra),
        losses=_losses(chance, incarnations) + (_harms(chance, incarnations, len(sinks)) if peopled else ()),
        files=files,
        stateful=stateful,
        begins=chance.random() < 0.5,
        obeys=tuple(chance.randint(0, 2) for _ in range(2)) if peopled else (),
        gone=(chance.randrange(records),) if peopled and files and chance.random() < 0.5 else (),
        trims=not stateful and chance.random() < 0.4,
        stages=chance.random() < 0.3,
        seed=seed,
    )
    return _windowed(
        chance, _repeated(chance, _divided(chance, _paired(chance, _refreshed(chance, _misused(chance, drawn)))))
    )


def draw_alone(seed: int) -> Schedule:
    """The schedule of a seed as real stores play it; many of those that can have windows have them."""
    drawn, chance = draw(seed).alone, random.Random(f"windows of {seed}")
    return drawn if drawn.windows or chance.random() >= _WINDOWED else _windowed(chance, drawn).alone


_WINDOWED = 0.5


def _repeated(chance: random.Random, drawn: Schedule) -> Schedule:
    """With keys of which some come again, and a sink that keeps a catalogue of them."""
    able = keeper_of(drawn.sinks) is not None and not (drawn.peopled or drawn.files or drawn.stateful)
    if not able or chance.random() >= 0.5:
        return drawn
    return replace(drawn, keys=tuple(chance.randint(1, 1 + drawn.records // 2) for _ in range(drawn.records)))


def _windowed(chance: random.Random, drawn: Schedule) -> Schedule:
    """With windows whose state one of the sinks keeps; nobody beside drivers may move the position under them."""
    able = keeper_of(drawn.sinks) is not None and not (drawn.peopled or drawn.stateful or drawn.trims)
    damaged = any(loss.what in _DAMAGES for loss in drawn.losses)
    if not able or damaged or chance.random() >= 0.8:
        return drawn
    return replace(drawn, windows=True)


def _divided(chance: random.Random, drawn: Schedule) -> Schedule:
    """With an output for some sinks, a quarantine among them, or both; the calls of drivers may want other rows."""
    if chance.random() >= 0.35:
        return drawn
    gets = [chance.choice((Gets.ALL, Gets.PICKED)) for _ in drawn.sinks]
    if len(gets) > 1 and chance.random() < 0.6:
        gets[chance.randrange(len(gets))] = Gets.BAD
    if set(gets) == {Gets.ALL}:
        gets[-1] = Gets.PICKED
    calls = chance.randint(1, 3)
    wants, bad = (tuple(chance.randrange(1 << drawn.records) for _ in range(calls)) for _ in range(2))
    return replace(
        drawn, gets=tuple(gets), wants=wants if Gets.PICKED in gets else (), bad=bad if Gets.BAD in gets else ()
    )


def _paired(chance: random.Random, drawn: Schedule) -> Schedule:
    """With a second table of the same Postgres, which commits in the transaction of the first."""
    if Kind.POSTGRES not in drawn.sinks or chance.random() >= 0.3:
        return drawn
    return replace(drawn, sinks=(*drawn.sinks, Kind.POSTGRES))


def _refreshed(chance: random.Random, drawn: Schedule) -> Schedule:
    """With a full refresh where nothing else befalls checkpoint and sinks; a topic cannot replace what it holds."""
    alone = not (drawn.peopled or any(loss.what != LEDGER for loss in drawn.losses))
    if not alone or chance.random() >= 0.2:
        return drawn
    refreshed = Loss(chance.randint(2, drawn.incarnations + 1), Damage.REFRESHED)
    replaces = Kind.KAFKA not in drawn.sinks
    return replace(drawn, losses=(*drawn.losses, refreshed), replaces=replaces)


def _misused(chance: random.Random, drawn: Schedule) -> Schedule:
    """With a program that calls wrongly, or another job of the same name, where one is drawn."""
    if chance.random() < 0.08:
        return replace(drawn, program=chance.choice(_MISUSES))
    damaged = any(loss.what in _DAMAGES for loss in drawn.losses)
    if damaged or chance.random() >= 0.05:
        return drawn
    another = Loss(chance.randint(2, drawn.incarnations + 1), Damage.ANOTHER)
    return replace(drawn, losses=(*drawn.losses, another))


def _fault(chance: random.Random, incarnation: int, sinks: int) -> Fault:
    action = chance.choices(SIMULATED, (6, 3, 2, 2, 2, 1, 1))[0]
    point = chance.choice(sorted(SENT)) if action in SENDING else chance.choice(list(Point))
    steps = chance.choice(_STEPS) if action in (Action.PAUSE, Action.DELAY, Action.HIDE) else 0
    return Fault(incarnation, point, action, chance.randint(1, 2 * sinks), steps)


def _losses(chance: random.Random, incarnations: int) -> tuple[Loss, ...]:
    lost: list[Loss] = []
    if chance.random() < 0.25:
        lost.append(Loss(chance.randint(2, incarnations + 1), LEDGER))
    if chance.random() < 0.2:
        lost.append(Loss(chance.randint(2, incarnations + 1), chance.choice(_DAMAGES)))
    return tuple(lost)


def _harms(chance: random.Random, incarnations: int, sinks: int) -> tuple[Loss, ...]:
    if chance.random() < 0.3:
        return ()
    harm = chance.choice(DRAWN)
    return (Loss(chance.randint(2, incarnations + 1), harm, chance.randrange(sinks)),)
