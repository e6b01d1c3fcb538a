"""What must hold in every world, as pure functions over the parts that outlive drivers; named like the checker's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from onceonly.lab.checker.anomaly import Anomaly
from onceonly.lab.model.parts import Held, SimulatedLedger, StagingArea, Target, record_at
from onceonly.lab.model.spark import Checkpoint
from onceonly.lab.model.world import Bound, World


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
    before, after = record_at(one.slice.end), record_at(two.slice.start)
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


def of_world(bound: Bound, shared: World) -> Violation | None:
    """What the parts say of each other; the first that is found.

    Args:
        bound: the layout.
        shared: a world, or its parts up to the checkpoints.
    """
    targets = cast(tuple[Target, ...], shared[: bound.staging])
    staging, ledger = cast(tuple[StagingArea, SimulatedLedger], shared[bound.staging : bound.ledger + 1])
    checkpoints = [cast(Checkpoint, shared[place]) for place in bound.checkpoints if shared[place] is not None]
    return (
        next((found for target in targets if (found := of_target(target))), None)
        or _cross(targets)
        or _behind(targets, staging)
        or _audit(targets, ledger)
        or _returned(targets, checkpoints)
    )


def _cross(targets: tuple[Target, ...]) -> Violation | None:
    known: dict[int, Held] = {}
    for target in targets:
        for held in target.held:
            other = known.setdefault(held.epoch.number, held)
            if (other.epoch.chain, other.content) != (held.epoch.chain, held.content) and None not in (
                other.content,
                held.content,
            ):
                return Violation(Anomaly.CROSS, f"sink '{target.name}' holds other rows for epoch {held.epoch.number}")
    return None


def _behind(targets: tuple[Target, ...], staging: StagingArea) -> Violation | None:
    """A sink may be behind by one epoch, and only while the bytes for it are there."""
    numbers = [len(target.held) for target in targets]
    highest = max(targets, key=lambda target: len(target.held))
    if min(numbers) < len(highest.held) - 1:
        return Violation(Anomaly.GAP, f"a sink is two epochs behind '{highest.name}'")
    if min(numbers) == len(highest.held) or not highest.newest:
        return None
    reference = highest.newest.epoch.manifest
    if reference and staging.holds(reference) is None:
        words = f"a sink is behind, and the bytes of epoch {len(highest.held)} are gone"
        return Violation(Anomaly.STUCK, words)
    return None


def _audit(targets: tuple[Target, ...], ledger: SimulatedLedger) -> Violation | None:
    head = ledger.head
    for target in targets if head else ():
        chains = {held.epoch.chain for held in target.held}
        if head and head.epoch.chain not in chains:
            return Violation(Anomaly.AUDIT, f"epoch {head.epoch.number} is recorded and not in sink '{target.name}'")
    return None


def _returned(targets: tuple[Target, ...], checkpoints: list[Checkpoint]) -> Violation | None:
    for checkpoint in checkpoints:
        for batch in checkpoint.returned:
            for target in targets:
                if not any(_covers(held, batch.start, batch.end) for held in target.held):
                    words = f"batch {batch.batch_id} is logged as done, and sink '{target.name}' does not hold it"
                    return Violation(Anomaly.LOSS, words)
    return None


def _covers(held: Held, start: int, end: int) -> bool:
    slice_ = held.epoch.slice
    return held.content is not None and (record_at(slice_.start), record_at(slice_.end)) == (start, end)
