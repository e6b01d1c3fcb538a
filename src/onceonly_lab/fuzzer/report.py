"""What schedules showed, in words for a terminal and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onceonly.faults import Point
from onceonly_lab.explorer.found import numbered
from onceonly_lab.fuzzer.fuzz import ACTORS, Fuzzed, broken, fingerprint
from onceonly_lab.fuzzer.play import Played
from onceonly_lab.model.invariants import Name


def told(played: Played, name: Name | None) -> Iterator[str]:
    """A run step by step, and what it broke."""
    yield played.schedule.line
    yield from numbered(played.steps)
    if played.violation is not None:
        yield f"{played.violation.name}: {played.violation.words}"
    yield f"history {fingerprint(played.history)[:16]}: {name or 'every invariant holds'}"


def lines(seed: int, fuzzed: Fuzzed) -> Iterator[str]:
    """A report on many, line by line."""
    yield (
        f"{fuzzed.schedules:,} schedules from seed {seed}, {fuzzed.steps:,} steps, "
        f"{fuzzed.seconds:.1f} s of processor, {fuzzed.rate:,} schedules/s"
    )
    yield "acted: " + ", ".join(f"{action} {times:,}" for action, times in fuzzed.acted.most_common())
    yield "beside drivers: " + ", ".join(f"{actor} {fuzzed.actors[actor]:,}" for actor in ACTORS)
    if fuzzed.idle:
        yield "inconclusive: never acted: " + ", ".join(fuzzed.idle)
    yield f"points passed: {len(Point) - len(fuzzed.unreached)} of {len(Point)}"
    if fuzzed.unreached:
        yield "never passed: " + ", ".join(fuzzed.unreached)
    if fuzzed.failed is None or fuzzed.shrunk is None:
        yield "every invariant holds, and the checker finds nothing"
        return
    smaller = fuzzed.shrunk
    yield f"{smaller.name} with seed {fuzzed.failed.schedule.seed}; made smaller in {smaller.replays} replays:"
    yield smaller.schedule.text
    yield from told(fuzzed.failed, broken(fuzzed.failed))


def document(seed: int, fuzzed: Fuzzed) -> dict[str, Any]:
    """The same as values."""
    smaller = fuzzed.shrunk
    return {
        "seed": seed,
        "schedules": fuzzed.schedules,
        "steps": fuzzed.steps,
        "seconds": fuzzed.seconds,
        "acted": dict(fuzzed.acted),
        "actors": dict(fuzzed.actors),
        "idle": list(fuzzed.idle),
        "unreached": list(fuzzed.unreached),
        "anomaly": smaller and str(smaller.name),
        "schedule": fuzzed.failed and fuzzed.failed.schedule.to_json(),
        "shrunk": smaller and smaller.schedule.to_json(),
    }


def of_one(played: Played, name: Name | None, unstruck: tuple[str, ...]) -> dict[str, Any]:
    """One run as values."""
    return {
        "schedule": played.schedule.to_json(),
        "anomaly": name and str(name),
        "violation": played.violation and played.violation.words,
        "unstruck": list(unstruck),
        "steps": list(played.steps),
        "history": fingerprint(played.history),
    }


def unstruck(played: Played) -> tuple[str, ...]:
    """Faults of the schedule that never came to act, in words."""
    missed = (fault for fault in played.schedule.faults if fault not in played.acted)
    return tuple(fault.line for fault in missed)
