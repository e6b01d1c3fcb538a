"""The worlds in which a rule that is off may be noticed, the quickest first, and what one of them shows."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass

SCHEDULES = 1000
"""Random schedules that are played for each rule."""

SCENES = "scenes"
RANDOM = "random schedules"

WORLDS = (
    SCENES,
    RANDOM,
    "restored-one",
    "pair",
    "misuse",
    "conflicts",
    "restored",
    "refusing",
    "operator-files",
    "begins",
    "begins-files",
    "checkpoint",
    "sinks",
)
"""Scenes, random schedules, and bounds by name."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One way in which a world shows that a rule is missing.

    Attributes:
        at: the scene, the seed; empty in a bound, of which only the shortest way is told.
        noticed: what was called: ``X-LOSS``, or the name of an error that no user should see.
        words: the evidence.
    """

    at: str
    noticed: str
    words: str

    def to_json(self) -> dict[str, str]:
        """Field names to values."""
        return asdict(self)


def searched(world: str, place: str = "") -> Iterator[Notice]:
    """Everything that a world shows, one after the other; who has enough stops asking.

    Args:
        world: one of :data:`WORLDS`.
        place: the scene or seed to look at; empty: all.
    """
    looks = {SCENES: _scenes, RANDOM: _random}.get(world)
    return looks(place) if looks else _bound(world)


def broke(error: Exception) -> str:
    """Where a machine breaks for want of a rule."""
    where = traceback.extract_tb(error.__traceback__)[-1].name
    return f"{str(error)[:200] or 'breaks'} in {where}"


def _scenes(place: str) -> Iterator[Notice]:
    from onceonly_lab.rulesoff.scenes import played

    for name, wrong in played(place):
        if isinstance(wrong, Exception):
            yield Notice(name, type(wrong).__name__, broke(wrong))
        elif wrong:
            noticed, _, words = wrong.partition(": ")
            yield Notice(name, noticed, words)


def _random(place: str) -> Iterator[Notice]:
    from onceonly_lab.fuzzer.draw import draw
    from onceonly_lab.fuzzer.fuzz import broken
    from onceonly_lab.fuzzer.play import play

    for seed in (int(place),) if place else range(1, SCHEDULES + 1):
        try:
            run = play(draw(seed))
            name = broken(run)
        except Exception as error:  # noqa: BLE001 - a machine that breaks for want of a rule has noticed it
            yield Notice(str(seed), type(error).__name__, broke(error))
            continue
        if name is not None:
            yield Notice(str(seed), str(name), run.violation.words if run.violation else "by its history")


def _bound(world: str) -> Iterator[Notice]:
    from onceonly_lab.explorer.bounds import BOUNDS
    from onceonly_lab.explorer.search import search

    try:
        found = search(BOUNDS[world], 240)
    except Exception as error:  # noqa: BLE001 - as above
        yield Notice("", type(error).__name__, broke(error))
        return
    if found.violation is not None:
        yield Notice("", str(found.violation.name), f"{len(found.story) - 1} steps: {found.violation.words}")
    elif not found.complete:
        yield Notice("", INCOMPLETE, "")


INCOMPLETE = "INCOMPLETE"
"""What is said of a bound that was not searched to its end: nothing."""
