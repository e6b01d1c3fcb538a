"""What the kit found, as cells of a table and as a document. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onceonly_lab.necessity.crashes import Tally, tallies
from onceonly_lab.necessity.symptoms import Symptom
from onceonly_lab.necessity.variants import VARIANTS
from onceonly_lab.necessity.world import Function
from onceonly_lab.necessity.zombies import Interleavings, interleavings


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
        crashed = [_surprise(f"{one.variant.name}, {one.function}", one) for one in self.crashed if not one.as_expected]
        return (*crashed, *(_surprise(one.fencing, one) for one in self.interleaved if not one.as_expected))

    @property
    def runs(self) -> int:
        """How many runs were judged."""
        return sum(one.schedules for one in self.crashed) + sum(one.orders for one in self.interleaved)

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the meaning left to the table's heads."""
        crashed = [_document(one, one.schedules, name=one.variant.name, function=one.function) for one in self.crashed]
        zombies = [_document(one, one.orders, name=one.fencing) for one in self.interleaved]
        return {"runs": self.runs, "variants": crashed, "zombies": zombies, "surprises": list(self.surprises)}


def shown() -> Shown:
    """Run the whole kit."""
    return Shown(tallies(), interleavings())


def crash_rows(found: Shown) -> Iterator[tuple[str, ...]]:
    """A row for each variant: name, dropped condition, schedules, and what each kind of F showed."""
    for variant in VARIANTS:
        mine = {one.function: one for one in found.crashed if one.variant is variant}
        schedules = str(mine[Function.DETERMINISTIC].schedules)
        yield variant.name, variant.drops or "none", schedules, *(spelled(mine[one].counts) for one in Function)


def spelled(counts: Mapping[Symptom, int]) -> str:
    """Symptoms with how often each was seen; ``clean`` without any."""
    return ", ".join(f"{symptom} {count}" for symptom, count in counts.items()) or "clean"


def _surprise(name: str, one: Tally | Interleavings) -> str:
    return f"{name}: must show {', '.join(sorted(one.expected)) or 'nothing'}, showed {spelled(one.counts)}"


def _document(one: Tally | Interleavings, runs: int, **named: str) -> dict[str, Any]:
    expected = sorted(one.expected)
    return {**named, "runs": runs, "counts": dict(one.counts), "expected": expected, "as_expected": one.as_expected}
