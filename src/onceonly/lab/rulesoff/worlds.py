"""The worlds in which a rule that is off may be noticed, the quickest first, and what one of them shows."""

from __future__ import annotations

SCHEDULES = 1000
"""Random schedules that are played for each rule."""

RANDOM = "random schedules"

WORLDS = (
    RANDOM,
    "restored-one",
    "restored",
    "refusing",
    "operator-files",
    "pair",
    "begins",
    "begins-files",
    "checkpoint",
    "sinks",
)
"""Random schedules, and bounds by name."""


def searched(world: str) -> dict[str, str]:
    """What a world shows: ``noticed`` (empty: nothing) and ``first``, how it was noticed first."""
    try:
        return _random() if world == RANDOM else _bound(world)
    except Exception as error:  # noqa: BLE001 - a machine that breaks for want of a rule has noticed it
        return {"noticed": type(error).__name__, "first": str(error)[:200]}


def _random() -> dict[str, str]:
    from onceonly.lab.fuzzer.fuzz import broken, fuzz

    fuzzed = fuzz(1, SCHEDULES)
    if fuzzed.failed is None:
        return {"noticed": "", "first": ""}
    return {"noticed": str(broken(fuzzed.failed)), "first": f"seed {fuzzed.failed.schedule.seed}"}


def _bound(world: str) -> dict[str, str]:
    from onceonly.lab.explorer.bounds import BOUNDS
    from onceonly.lab.explorer.search import search

    found = search(BOUNDS[world], 240)
    if found.violation is None:
        return {"noticed": "" if found.complete else "INCOMPLETE", "first": ""}
    return {"noticed": str(found.violation.name), "first": f"{len(found.story) - 1} steps: {found.violation.words}"}
