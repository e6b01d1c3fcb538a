"""Play a mutant and its unbroken twin under one schedule.

The checker must reach the exact verdict for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from onceonly.errors import refuse
from onceonly_lab.checker import Anomaly, Judgement, Verdict, judge
from onceonly_lab.model.parts import Kind
from onceonly_lab.play.play import Played
from onceonly_lab.schedule import Level, Schedule
from onceonly_lab.stores.places import Servers
from onceonly_lab.stores.world import SHIPPED, Making, Terms, play

GROUP = "onceonly.mutants"
"""Entry-point group whose members are sequences of :class:`Mutant`."""

LEVEL = Level.STORES
"""Every mutant runs on real stores, without Spark."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """Something that is broken on purpose.

    Attributes:
        id: ``M`` and a number.
        broken: what is, in words.
        killer: the schedule, in words.
        expected: what the checker must call it: these anomalies and no other.
        schedule: what is played.
        making: with the broken part.
        terms: what is played besides, for the twin as well.
    """

    id: str
    broken: str
    killer: str
    expected: tuple[Anomaly, ...]
    schedule: Schedule
    making: Making
    terms: Terms

    @property
    def kinds(self) -> frozenset[Kind]:
        """The stores that it needs."""
        return frozenset(self.schedule.sinks)


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a mutant and of its twin.

    Attributes:
        mutant: the mutant.
        judgement: of its history.
        twin: of its twin's.
        unstruck: faults of the schedule that never came to act on the twin.
        histories: the mutant's, and the twin's.
    """

    mutant: Mutant
    judgement: Judgement
    twin: Judgement
    unstruck: tuple[str, ...]
    histories: tuple[Played, Played]

    @property
    def verdict(self) -> tuple[Anomaly, ...]:
        """The anomalies that were found, in their own order."""
        return tuple(anomaly for anomaly in Anomaly if anomaly in self.judgement.anomalies)

    @property
    def killed(self) -> bool:
        """Whether it was called exactly what it is, and its twin is clean."""
        return self.verdict == self.mutant.expected and self.twin.verdict is Verdict.CLEAN

    @property
    def conclusive(self) -> bool:
        """Whether the schedule was played as it is written."""
        return not self.unstruck

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "id": self.mutant.id,
            "broken": self.mutant.broken,
            "killer": self.mutant.killer,
            "level": LEVEL,
            "sinks": list(self.mutant.schedule.sinks),
            "killed": self.killed,
            "verdict": [str(anomaly) for anomaly in self.verdict],
            "expected": [str(anomaly) for anomaly in self.mutant.expected],
            "twin": str(self.twin.verdict),
            "unstruck": list(self.unstruck),
            "schedule": self.mutant.schedule.to_json(),
        }


def mutants() -> tuple[Mutant, ...]:
    """All that are installed, by number.

    Raises:
        ConfigurationError: E110, none are.
    """
    all_mutants: list[Mutant] = []
    for point in entry_points(group=GROUP):
        all_mutants += point.load()
    if not all_mutants:
        raise refuse(
            "E110",
            problem="No mutants are installed.",
            cause=f"nothing is registered under the entry-point group {GROUP}",
            next="install the package again",
        )
    return tuple(sorted(all_mutants, key=lambda mutant: int(mutant.id[1:])))


def chosen(mutant_ids: Sequence[str]) -> tuple[Mutant, ...]:
    """Those that are asked for by id; all if nothing is asked.

    Raises:
        ConfigurationError: E110, there is no such id.
    """
    mutants_by_id = {mutant.id: mutant for mutant in mutants()}
    unknown = [name for name in mutant_ids if name.upper() not in mutants_by_id]
    if unknown:
        cause = f"mutants are {', '.join(mutants_by_id)}"
        raise refuse(
            "E110", problem=f"There is no mutant {unknown[0]!r}.", cause=cause, next="onceonly lab mutants --only M1"
        )
    return (
        tuple(mutants_by_id[name.upper()] for name in dict.fromkeys(mutant_ids))
        if mutant_ids
        else tuple(mutants_by_id.values())
    )


def tried(mutant: Mutant, servers: Servers) -> Trial:
    """Play a mutant, then its twin.

    Raises:
        Stuck: a driver hangs.
    """
    broken = play(mutant.schedule, servers, mutant.making, mutant.terms)
    twin = play(mutant.schedule, servers, SHIPPED, mutant.terms)
    return Trial(mutant, judge(broken.history), judge(twin.history), twin.unstruck, (broken, twin))
