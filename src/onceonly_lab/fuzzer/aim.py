"""Schedules that are aimed: one for each fault point and each action that applies there; none is left to chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onceonly.faults import Point
from onceonly_lab.model.parts import Kind
from onceonly_lab.schedule import Action, Fault, Schedule, actions_at

_BASE = Schedule((Kind.KAFKA, Kind.POSTGRES), records=2, incarnations=2)
"""Kafka first: only its commits can be decided and hidden."""

_LEADS: dict[Point, Schedule] = {
    Point.FETCH_AFTER: replace(_BASE, faults=(Fault(1, Point.COMMIT_AFTER, Action.KILL),)),
    Point.LOOK_UP_AFTER: replace(_BASE, faults=(Fault(1, Point.COMMIT_SENT, Action.LOSE_ANSWER),)),
    Point.EXECUTE_AFTER: replace(_BASE, faults=(Fault(1, Point.RECORD_AFTER, Action.KILL),), stateful=True),
}
"""What must go wrong first, where a run without faults does not pass a point."""

_STEPS = 3


def aimed() -> Iterator[tuple[Point, Action, Schedule]]:
    """Every point and action, with a schedule in which the one comes to act at the other."""
    for point in Point:
        for action in actions_at(point):
            yield point, action, _aimed(point, action)


def _aimed(point: Point, action: Action) -> Schedule:
    lead = _LEADS.get(point, _BASE)
    # A driver that is killed leaves what is aimed at to the next one.
    incarnation = 2 if any(fault.action is Action.KILL for fault in lead.faults) else 1
    return replace(lead, faults=(*lead.faults, Fault(incarnation, point, action, steps=_STEPS)))
