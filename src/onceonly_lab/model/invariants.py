"""Invariants of the simulated world.

They are pure functions over the parts that outlive drivers, and have the names of the checker's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations, pairwise
from operator import or_
from typing import cast

from onceonly.errors import ConfigurationError, IdentityError
from onceonly.reading.points import ReadPoint, read_point
from onceonly_checkpoints.digests import Digest
from onceonly_lab.checker.finding import Anomaly
from onceonly_lab.model.bench import Bench, BenchLedger
from onceonly_lab.model.keys import alike, doubled
from onceonly_lab.model.parts import (
    DROPPED,
    PIPELINE,
    Desk,
    Harm,
    Held,
    Kind,
    SimulatedLedger,
    StagingArea,
    Target,
    accounted,
    good_of,
    newest_of_each_key,
    records_in,
    records_of,
    spelled,
)
from onceonly_lab.model.spark import Checkpoint
from onceonly_lab.model.world import Bound, World
from onceonly_lab.strenum import StrEnum


class Breach(StrEnum):
    """What a world shows, of people or of sinks at one moment, and no history of reads does."""

    UNNAMED = "X-UNNAMED"
    KILLED = "X-KILLED"
    APART = "X-APART"
    SPLIT = "X-SPLIT"


MUST_HOLD: dict[Breach, str] = {
    Breach.UNNAMED: "Only what an accepted command named is lost or doubled, and every printed command leads on.",
    Breach.KILLED: "Nobody who could have known that he will be refused stops a driver.",
    Breach.APART: "Sinks of one transaction hold the same epochs at any moment.",
    Breach.SPLIT: "Who reads sinks as of a read point sees one epoch, and all records up to it, in each of them.",
}

Name = Anomaly | Breach
"""What an invariant is called."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, with the evidence in words."""

    name: Name
    words: str


def of_target(target: Target, desk: Desk, keys: tuple[int, ...] = ()) -> Violation | None:
    """What one target says by itself; the first that is found.

    Args:
        target: the target.
        desk: what accepted commands have given up.
        keys: of records, where a record is left out whose key came before.
    """
    for name, words in _complaints(target, desk, keys):
        return Violation(name, f"sink '{target.name}': {words}")
    return None


def _complaints(target: Target, desk: Desk, keys: tuple[int, ...]) -> Iterator[tuple[Name, str]]:
    if target.barren and target.stopped_by == target.barren:
        yield Breach.KILLED, f"{target.barren} stopped a driver, and was refused then"
    if target.lowered:
        yield Anomaly.ZOMBIE, "a fence was replaced by a lower one"
    for held in target.held:
        if held.stale:
            yield Anomaly.ZOMBIE, f"epoch {held.epoch.number} landed under a fence that was not the newest"
    yield from _rows(target, desk, keys)
    yield from _older_than_its_marker(target)
    yield from _taken_back(target, desk)
    for earlier, later in pairwise(target.held):
        if later.epoch.number != earlier.epoch.number + 1 and not later.epoch.adoption:
            yield Anomaly.ORDER, f"epoch {later.epoch.number} follows epoch {earlier.epoch.number}"
        if later.epoch.previous_chain != earlier.epoch.chain and not later.epoch.adoption:
            yield Anomaly.CROSS, f"epoch {later.epoch.number} stands on another epoch than the one that it follows"
    if target.held and target.held[0].epoch.number != 1 and not target.held[0].epoch.adoption:
        yield Anomaly.LOSS, f"it begins with epoch {target.held[0].epoch.number}"
    yield from _time(target)
    yield from _windows(target)
    for held in target.held:
        yield from _in_itself(held, target.name, newest=held is target.held[-1], altered=target.harm == Harm.ALTERED)


def _rows(target: Target, desk: Desk, keys: tuple[int, ...]) -> Iterator[tuple[Anomaly, str]]:
    """Each record once, and none left out before another, but for what accepted commands named."""
    records, given_up = 0, desk.given_up(target.name)
    yield from _standing(target)
    for held in target.held:
        if held.epoch.replaces:
            records = 0  # all that stood before has left with it
        # What a marker names, whether its rows are there or not: rows without a marker, or the reverse, are told apart.
        brought = records_of(held.epoch)
        if duplicates := records & brought & ~desk.doubled:
            series = (held_epoch for held_epoch in target.held if held_epoch.epoch.series == held.epoch.series)
            earlier = next(other.epoch.number for other in series if records_of(other.epoch) & duplicates)
            words = f"records {spelled(duplicates)} are in epoch {earlier} and again in epoch {held.epoch.number}"
            yield Anomaly.DUP, words
        before = (1 << brought.bit_length()) - 1
        if lacking := before & ~alike(records | brought | given_up, keys):
            yield Anomaly.LOSS, f"records {spelled(lacking)} are missing before epoch {held.epoch.number}"
        records |= brought
        if duplicates := doubled(records, keys):
            yield Anomaly.AGAIN, f"records {spelled(duplicates)} have a key in common"


def _standing(target: Target) -> Iterator[tuple[Anomaly, str]]:
    """Rows that an epoch replaces leave with its marker: neither later nor before."""
    spans = [
        (held_epoch.epoch.number, held_epoch.epoch.replaces) for held_epoch in target.held if held_epoch.epoch.replaces
    ]
    for held in target.held:
        number = held.epoch.number
        by = next((other for other, (first, last) in spans if first <= number <= last), None)
        if by is not None and records_in(held.content):
            yield Anomaly.DUP, f"rows of epoch {number} stand, which epoch {by} has replaced"
        if by is None and held.replaced:
            yield Anomaly.LOSS, f"rows of epoch {number} have left, and no epoch has replaced them"


def _taken_back(target: Target, desk: Desk) -> Iterator[tuple[Anomaly, str]]:
    """Rows that somebody took back are told of by the next opening, and no epoch stands above the lack of them."""
    given_up = desk.given_up(target.name)
    lacking = [held for held in target.held if held.back and records_of(held.epoch) & ~given_up]
    if lacking and (target.changed is None or not target.held[-1].back):
        yield Anomaly.LOSS, f"rows of epoch {lacking[0].epoch.number} were taken back, and the sink goes on above them"


def _older_than_its_marker(target: Target) -> Iterator[tuple[Anomaly, str]]:
    """Where rows are taken one by one: each key holds the record that the markers say, or one of an epoch to come."""
    if target.kind is not Kind.PUTS:
        return
    marked = 0
    for held in target.held:
        marked |= records_in(held.epoch.digest)
    for key, (expected, current) in enumerate(zip(newest_of_each_key(marked), target.rows, strict=True), start=1):
        if current < expected:
            what = f"record {current}" if current else "nothing"
            yield Anomaly.LOSS, f"key {key} holds {what}, and a marker stands above record {expected}"


def _in_itself(held: Held, sink: str, *, newest: bool, altered: bool) -> Iterator[tuple[Name, str]]:
    epoch, named = held.epoch, held.epoch.digest_in(sink)
    if held.replaced or held.back:
        return
    if epoch.bad and sink not in epoch.bad.sinks and records_in(held.content) & records_in(epoch.bad.digest):
        yield Anomaly.ASIDE, f"bad rows of epoch {epoch.number} stand among good ones"
    bare = held.content == Digest(0) != named
    if bare or (held.content is None and not newest):
        yield Anomaly.LOSS, f"epoch {epoch.number} has a marker and no rows"
    elif not held.whole or (held.content is not None and held.content.rows != named.rows):
        yield Anomaly.TORN, f"a reader sees part of epoch {epoch.number}"
    elif held.content is not None and held.content != named and not altered:
        yield Anomaly.CROSS, f"it holds other rows of epoch {epoch.number} than its marker names"
    if held.marker is None and not newest:
        yield Anomaly.PHANTOM, f"the rows of epoch {epoch.number} have no marker"


def _time(target: Target) -> Iterator[tuple[Anomaly, str]]:
    for held in target.held:
        if not held.epoch.time and not held.epoch.adoption:  # every batch of the lab's pipelines notes time
            yield Anomaly.TIME, f"the rows of epoch {held.epoch.number} are there, and nothing is said of their time"
    for earlier, later in pairwise(target.held):
        previous, now, number = earlier.epoch.time, later.epoch.time, later.epoch.number
        if previous and not now:
            yield Anomaly.TIME, f"epoch {number} says nothing of time, and the one before it did"
        if not previous or not now or now.resets > previous.resets:
            continue  # a new series begins, or numbers come again: another turn, in which all of it begins anew
        for name, old, new in (
            ("noted", previous.complete_until, now.complete_until),
            ("lower", previous.dataset_complete_until, now.dataset_complete_until),
        ):
            if now.resets < previous.resets or (old is not None and (new is None or new < old)):
                yield Anomaly.TIME, f"{name} goes back from {old} to {new} with epoch {number}"


def _windows(target: Target) -> Iterator[tuple[Anomaly, str]]:
    """Open windows hold the good rows that the epochs of their series have brought, each once."""
    brought = 0
    for held in target.held:
        if held.epoch.replaces:
            brought = 0
        brought |= good_of(held.epoch)
        state = held.epoch.windows
        if state and not held.epoch.adoption and (state.open.rows, state.open.high) != (brought.bit_count(), brought):
            text = f"windows hold {state.open.rows} records, {spelled(state.open.high)}"
            yield Anomaly.PANE, f"behind epoch {held.epoch.number} {text}, and {spelled(brought)} came"


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant: the places of a world that it looks at, and what it says of the parts that stand there."""

    places: tuple[int, ...]
    judge: Callable[[World], Violation | None]


def checks(bound: Bound) -> tuple[Check, ...]:
    """The invariants of a bound. Each looks at few parts, so that one who sees many worlds asks each thing once."""
    targets = range(bound.staging)
    return (
        *(
            Check((target, bound.desk), lambda parts: of_target(*cast(tuple[Target, Desk], parts), bound.keys))
            for target in targets
        ),
        *(Check(pair, _cross) for pair in combinations(targets, 2)),
        *([Check(tuple(bound.sinks.index(sink) for sink in bound.group), _apart)] if bound.group else []),
        *(Check((target, bound.ledger), _numbered_again) for target in targets),
        Check((*targets, bound.staging), partial(_behind, deterministic=bound.deterministic)),
        *(Check((target, bound.ledger), partial(_audit, rebuilt=bound.reads)) for target in targets),
        *([Check((*targets, bound.ledger, bound.desk), _split)] if bound.reads else []),
        *(
            Check((target, checkpoint, bound.desk), partial(_returned, keys=bound.keys))
            for checkpoint in bound.checkpoints
            for target in targets
        ),
    )


def of_world(bound: Bound, shared: World) -> Violation | None:
    """What the parts say of each other; the first that is found.

    Args:
        bound: the layout.
        shared: a world, or its parts up to the checkpoints.
    """
    return first_broken(checks(bound), shared)


def first_broken(invariants: Iterable[Check], shared: World) -> Violation | None:
    """The first of some invariants that does not hold; see :func:`of_world`."""
    violations = (check.judge(tuple([shared[index] for index in check.places])) for check in invariants)
    return next((violation for violation in violations if violation is not None), None)


def _cross(parts: World) -> Violation | None:
    target, other = cast(tuple[Target, Target], parts)
    if {DROPPED, Harm.ASTRAY} & {target.harm, other.harm}:
        return None
    altered = Harm.ALTERED in (target.harm, other.harm)
    held_by_number = {held.epoch.number: held for held in reversed(target.held)}
    for held in other.held:
        first = held_by_number.get(held.epoch.number, held)
        comparable = not (altered or first.epoch.output(target.name) or held.epoch.output(other.name))
        differ = first.epoch.chain != held.epoch.chain or (comparable and first.content != held.content)
        if differ and None not in (first.content, held.content):
            what = "another epoch" if comparable and first.content == held.content else "other rows for epoch"
            return Violation(Anomaly.CROSS, f"sink '{other.name}' holds {what} {held.epoch.number}")
    return None


def _apart(parts: World) -> Violation | None:
    """Who reads two sinks of one transaction sees an epoch in both or in neither."""
    targets = cast(tuple[Target, ...], parts)
    if any(target.broken for target in targets):
        return None
    first, *others = ([held.epoch.chain for held in target.held] for target in targets)
    if any(chains != first for chains in others):
        held = ", ".join(f"'{target.name}' {len(target.held)}" for target in targets)
        return Violation(Breach.APART, f"sinks of one transaction hold different epochs: {held}")
    return None


def _behind(parts: World, *, deterministic: bool) -> Violation | None:
    """A sink may be behind by one epoch, and only while the bytes for it are there, or come out the same again."""
    *target_parts, area = parts
    targets, staging = cast(list[Target], target_parts), cast(StagingArea, area)
    if any(target.broken for target in targets):
        return None
    lowest = min(len(target.held) for target in targets)
    highest = max(targets, key=lambda target: len(target.held))
    if lowest < len(highest.held) - 1:
        return Violation(Anomaly.GAP, f"a sink is two epochs behind '{highest.name}'")
    if lowest == len(highest.held) or not highest.newest:
        return None
    reference = highest.newest.epoch.manifest
    if reference and not deterministic and staging.holds(reference) is None:
        words = f"a sink is behind, and the bytes of epoch {len(highest.held)} are gone"
        return Violation(Anomaly.STUCK, words)
    return None


def _audit(parts: World, *, rebuilt: bool) -> Violation | None:
    """What is recorded is there; where a ledger may be rebuilt from sinks at any moment, in those that confirm it."""
    target, ledger = cast(tuple[Target, SimulatedLedger], parts)
    head = ledger.head
    if head and rebuilt and all(receipt.sink != target.name for receipt in head.receipts):
        return None
    if head and not target.broken and head.epoch.chain not in {held.epoch.chain for held in target.held}:
        return Violation(Anomaly.AUDIT, f"epoch {head.epoch.number} is recorded and not in sink '{target.name}'")
    return None


def _numbered_again(parts: World) -> Violation | None:
    """Who has seen an epoch that was set aside is told by the turn that the one of its number is another."""
    target, ledger = cast(tuple[Target, SimulatedLedger], parts)
    aside = {epoch.number: epoch for epoch in ledger.aside}
    for held in target.held:
        before, time = aside.get(held.epoch.number), held.epoch.time
        if before and before.time and time and before.chain != held.epoch.chain and time.resets <= before.time.resets:
            words = f"sink '{target.name}': epoch {held.epoch.number} was set aside, and comes again in the same turn"
            return Violation(Anomaly.TIME, words)
    return None


def _split(parts: World) -> Violation | None:
    """What a reader sees at the newest read point, by the product's own rule, in each sink of it."""
    targets, (ledger, desk) = cast(list[Target], parts[:-2]), cast(tuple[SimulatedLedger, Desk], parts[-2:])
    point = newest_point(targets, ledger)
    if point is None:
        return None
    listed = {sink for record in ledger.records if record.epoch.number == point.epoch for sink, _ in record.epoch.sinks}
    records_by_sink = dict[str, int]()
    for target in (candidate for candidate in targets if candidate.name in listed):
        if all(held.epoch.chain != point.chain for held in target.held):
            if target.broken:
                return None  # its epoch is gone, and the reader is told so
            return Violation(Breach.SPLIT, f"epoch {point.epoch} is a read point, and sink '{target.name}' lacks it")
        records_by_sink[target.name] = shown(target, point.epoch)
    given_up = reduce(or_, map(desk.given_up, records_by_sink), 0)
    if len({records & ~given_up for records in records_by_sink.values()}) > 1:
        text = ", ".join(f"'{name}' records {spelled(records)}" for name, records in records_by_sink.items())
        return Violation(Breach.SPLIT, f"as of epoch {point.epoch} a reader sees different records: {text}")
    return None


def newest_point(targets: Sequence[Target], ledger: SimulatedLedger) -> ReadPoint | None:
    """The newest read point, as the product decides it; ``None`` where nothing is sealed."""
    try:
        return read_point(PIPELINE, ledger=BenchLedger(Bench(targets, ledger)))
    except IdentityError:
        return None
    except ConfigurationError:
        return None  # nothing is on record


def shown(target: Target, epoch: int) -> int:
    """The records that a reader sees in a sink as of an epoch, with those that are not for it."""
    records = 0
    for held in target.held:
        records |= accounted(held, target.name) if held.epoch.number <= epoch and not held.replaced else 0
    return records


def _returned(parts: World, *, keys: tuple[int, ...]) -> Violation | None:
    target, checkpoint, desk = cast(tuple[Target, Checkpoint | None, Desk], parts)
    held = desk.given_up(target.name)
    for held_epoch in target.held:
        held |= accounted(held_epoch, target.name)
        # Of a query that was refreshed what it has brought has left; of the new one it has not.
        ours = checkpoint and held_epoch.epoch.lineage and held_epoch.epoch.lineage.query_id == checkpoint.query
        held |= records_of(held_epoch.epoch) if held_epoch.replaced and ours else 0
    for batch in checkpoint.returned if checkpoint and not target.broken else ():
        if batch.records & ~alike(held, keys):
            words = f"batch {batch.batch_id} is logged as done, and sink '{target.name}' does not hold it"
            return Violation(Anomaly.LOSS, words)
    return None
