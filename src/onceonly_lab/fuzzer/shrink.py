"""Makes a failing schedule smaller while it breaks the same: faults, incarnations, batches, sinks, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from onceonly_lab.model.invariants import Name
from onceonly_lab.model.parts import Harm
from onceonly_lab.schedule import Schedule

MOST_REPLAYS = 200

Fails = Callable[[Schedule], Name | None]
"""Plays a schedule; the invariant that it breaks, or ``None``."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What shrinking came to.

    Attributes:
        schedule: the smallest that was found.
        name: the invariant that it breaks.
        replays: how many schedules were played for it.
    """

    schedule: Schedule
    name: Name
    replays: int


def shrink(schedule: Schedule, name: Name, fails: Fails, most: int = MOST_REPLAYS) -> Shrunk:
    """Take away whatever is not needed; greedy, from the start again after each success.

    Args:
        schedule: breaks ``name``.
        name: what it breaks, and what every smaller one must break, too.
        fails: plays a schedule.
        most: how many may be played.
    """
    replays = 0
    smaller = _smaller(schedule)
    while (candidate := next(smaller, None)) is not None and replays < most:
        replays += 1
        if fails(candidate) is name:
            schedule = candidate
            smaller = _smaller(schedule)
    return Shrunk(schedule, name, replays)


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules with half of their drivers or with one thing less, the most telling first."""
    if schedule.incarnations > 2:
        middle = schedule.incarnations // 2
        yield _between(schedule, 1, middle)
        yield _between(schedule, middle + 1, schedule.incarnations)
    for at in range(len(schedule.losses)):
        yield replace(schedule, losses=_without(schedule.losses, at))
    if schedule.program:
        yield replace(schedule, program="")
    for at in range(len(schedule.faults)):
        yield replace(schedule, faults=_without(schedule.faults, at))
    if schedule.incarnations > 1:
        yield from _fewer_incarnations(schedule)
    if schedule.records > 1:
        yield _fewer_records(schedule, schedule.records // 2)
        yield _fewer_records(schedule, schedule.records - 1)
    if len(schedule.sinks) > 1:
        for at in range(len(schedule.sinks)):
            yield _fewer_sinks(schedule, at)
    if schedule.rows > 1:
        yield replace(schedule, rows=1)
    if schedule.cuts != (1,):
        yield replace(schedule, cuts=(1,))
    for at, fault in enumerate(schedule.faults):
        for steps in {0, fault.steps // 2} - {fault.steps}:
            fewer = replace(fault, steps=steps)
            yield replace(schedule, faults=(*schedule.faults[:at], fewer, *schedule.faults[at + 1 :]))


def _fewer_records(schedule: Schedule, records: int) -> Schedule:
    """With the first ones only, and what becomes of those."""
    return replace(schedule, records=records, gone=tuple(one for one in schedule.gone if one < records))


def _fewer_sinks(schedule: Schedule, gone: int) -> Schedule:
    """Without one of them and what befalls it; those after it move up."""
    losses = (loss for loss in schedule.losses if not (loss.sink == gone and loss.what in set(Harm)))
    moved = tuple(replace(loss, sink=loss.sink - (loss.sink > gone)) for loss in losses)
    return replace(schedule, sinks=_without(schedule.sinks, gone), losses=moved)


def _fewer_incarnations(schedule: Schedule) -> Iterator[Schedule]:
    """Without one of them; those after it move up."""
    for gone in range(schedule.incarnations, 0, -1):
        faults = tuple(
            replace(fault, incarnation=fault.incarnation - (fault.incarnation > gone))
            for fault in schedule.faults
            if fault.incarnation != gone
        )
        losses = tuple(replace(loss, before=loss.before - (loss.before > gone)) for loss in schedule.losses)
        yield replace(schedule, incarnations=schedule.incarnations - 1, faults=faults, losses=losses)


def _between(schedule: Schedule, first: int, last: int) -> Schedule:
    """With these incarnations only, and what is lost before one of them or right after."""
    faults = (fault for fault in schedule.faults if first <= fault.incarnation <= last)
    losses = (loss for loss in schedule.losses if first < loss.before <= last + 1)
    return replace(
        schedule,
        incarnations=last - first + 1,
        faults=tuple(replace(fault, incarnation=fault.incarnation - first + 1) for fault in faults),
        losses=tuple(replace(loss, before=loss.before - first + 1) for loss in losses),
    )


def _without(items: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    return (*items[:at], *items[at + 1 :])
