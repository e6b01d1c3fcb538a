"""What must hold in every world, as pure functions over the parts that outlive drivers; named like the checker's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import cast

from onceonly.lab.checker.anomaly import Anomaly
from onceonly.lab.model.parts import Held, SimulatedLedger, StagingArea, Target, records
from onceonly.lab.model.spark import Checkpoint
from onceonly.lab.model.world import Bound, World

ALLOWED = frozenset({"E203", "E204", "E205", "E211"})
"""Refusals of a batch that does not continue the last epoch: right once a checkpoint was damaged, and only then."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, with the evidence in words."""

    name: Anomaly
    words: str


def of_target(target: Target) -> Violation | None:
    """What one target says by itself; the first that is found."""
    for name, words in _complaints(target):
        return Violation(name, f"sink '{target.name}': {words}")
    return None


def _complaints(target: Target) -> Iterator[tuple[Anomaly, str]]:
    if target.lowered:
        yield Anomaly.ZOMBIE, "a fence was replaced by a lower one"
    for held in target.held:
        if held.stale:
            yield Anomaly.ZOMBIE, f"epoch {held.epoch.number} landed under a fence that was not the newest"
    for earlier, later in pairwise(target.held):
        yield from _follows(earlier, later)
    if target.held and target.held[0].epoch.number != 1:
        yield Anomaly.LOSS, f"it begins with epoch {target.held[0].epoch.number}"
    for held in target.held:
        yield from _in_itself(held, newest=held is target.held[-1])


def _follows(earlier: Held, later: Held) -> Iterator[tuple[Anomaly, str]]:
    one, two = earlier.epoch, later.epoch
    (_, before), (after, _) = records(one.slice, one.sources), records(two.slice, two.sources)
    if after < before:
        yield Anomaly.DUP, f"records {after + 1} to {before} are in epoch {one.number} and again in epoch {two.number}"
    if after > before:
        yield Anomaly.LOSS, f"records {before + 1} to {after} are missing before epoch {two.number}"
    if two.number != one.number + 1:
        yield Anomaly.ORDER, f"epoch {two.number} follows epoch {one.number}"


def _in_itself(held: Held, *, newest: bool) -> Iterator[tuple[Anomaly, str]]:
    epoch = held.epoch
    if not held.whole or (held.content is not None and held.content.rows != epoch.digest.rows):
        yield Anomaly.TORN, f"a reader sees part of epoch {epoch.number}"
    if held.content is None and not newest:
        yield Anomaly.LOSS, f"epoch {epoch.number} has a marker and no rows"
    if held.marker is None and not newest:
        yield Anomaly.PHANTOM, f"the rows of epoch {epoch.number} have no marker"


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant: the places of a world that it looks at, and what it says of the parts that stand there."""

    places: tuple[int, ...]
    judge: Callable[[World], Violation | None]


def checks(bound: Bound) -> tuple[Check, ...]:
    """The invariants of a bound. Each looks at few parts, so that one who sees many worlds asks each thing once."""
    targets = range(bound.staging)
    return (
        *(Check((one,), lambda parts: of_target(cast(Target, parts[0]))) for one in targets),
        *(Check(pair, _cross) for pair in combinations(targets, 2)),
        Check((*targets, bound.staging), _behind),
        *(Check((one, bound.ledger), _audit) for one in targets),
        *(Check((one, place), _returned) for place in bound.checkpoints for one in targets),
    )


def of_world(bound: Bound, shared: World) -> Violation | None:
    """What the parts say of each other; the first that is found.

    Args:
        bound: the layout.
        shared: a world, or its parts up to the checkpoints.
    """
    found = (check.judge(tuple(shared[place] for place in check.places)) for check in checks(bound))
    return next((violation for violation in found if violation is not None), None)


def _cross(parts: World) -> Violation | None:
    one, other = cast(tuple[Target, Target], parts)
    known = {held.epoch.number: held for held in reversed(one.held)}
    for held in other.held:
        first = known.get(held.epoch.number, held)
        differ = (first.epoch.chain, first.content) != (held.epoch.chain, held.content)
        if differ and None not in (first.content, held.content):
            return Violation(Anomaly.CROSS, f"sink '{other.name}' holds other rows for epoch {held.epoch.number}")
    return None


def _behind(parts: World) -> Violation | None:
    """A sink may be behind by one epoch, and only while the bytes for it are there."""
    *found, area = parts
    targets, staging = cast(list[Target], found), cast(StagingArea, area)
    lowest = min(len(target.held) for target in targets)
    highest = max(targets, key=lambda target: len(target.held))
    if lowest < len(highest.held) - 1:
        return Violation(Anomaly.GAP, f"a sink is two epochs behind '{highest.name}'")
    if lowest == len(highest.held) or not highest.newest:
        return None
    reference = highest.newest.epoch.manifest
    if reference and staging.holds(reference) is None:
        words = f"a sink is behind, and the bytes of epoch {len(highest.held)} are gone"
        return Violation(Anomaly.STUCK, words)
    return None


def _audit(parts: World) -> Violation | None:
    target, ledger = cast(tuple[Target, SimulatedLedger], parts)
    head = ledger.head
    if head and head.epoch.chain not in {held.epoch.chain for held in target.held}:
        return Violation(Anomaly.AUDIT, f"epoch {head.epoch.number} is recorded and not in sink '{target.name}'")
    return None


def _returned(parts: World) -> Violation | None:
    target, checkpoint = cast(tuple[Target, Checkpoint | None], parts)
    for batch in checkpoint.returned if checkpoint else ():
        if not any(_covers(held, batch.start, batch.end) for held in target.held):
            words = f"batch {batch.batch_id} is logged as done, and sink '{target.name}' does not hold it"
            return Violation(Anomaly.LOSS, words)
    return None


def _covers(held: Held, start: int, end: int) -> bool:
    return held.content is not None and records(held.epoch.slice, held.epoch.sources) == (start, end)
