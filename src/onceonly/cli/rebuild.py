"""What ``ledger rebuild`` is about to do: which records go, which come, and that the sinks agree on them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from onceonly.audit.line import ranges
from onceonly.cli.places import Place
from onceonly.cli.records import history, merged
from onceonly.errors import refuse
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord, Marker, Receipt
from onceonly_checkpoints.ledger import Event, EventKind, Pipeline


@dataclass(frozen=True, slots=True)
class Plan:
    """A rebuild before it happens.

    Attributes:
        first: records from this epoch on are forgotten.
        records: what is written in their place, oldest first.
        pairs: the plan in words.
    """

    first: int
    records: tuple[EpochRecord, ...]
    pairs: tuple[tuple[str, object], ...]

    @property
    def newest(self) -> int:
        """The newest epoch after the rebuild."""
        return self.records[-1].epoch.number


def plan(place: Place, address: str) -> Plan:
    """Read every sink and compare with the ledger. Writes nothing, and creates no ledger.

    Args:
        place: the pipeline; its ledger may not be there yet.
        address: where the ledger lies or will lie.

    Raises:
        OnceOnlyError: E110 no sink or no marker, E210 markers that contradict each other; what a sink raises.
    """
    if not place.sinks:
        raise refuse(
            "E110",
            problem="The sinks to read from are not known.",
            cause=f'the ledger does not know pipeline "{place.pipeline}"',
            next="name them: --sink KIND:TARGET",
        )
    held = [pair for sink in place.sinks for pair in history(sink, place.pipeline)]
    agree(place.pipeline, held)
    if not held:
        raise refuse(
            "E110",
            problem=f'No sink holds a marker of "{place.pipeline}".',
            cause="the name or the addresses are wrong, or nothing was written yet",
            next=f"onceonly audit --query {shlex.quote(place.pipeline)} --sink KIND:TARGET",
        )
    recorded = tuple(place.ledger.epochs(place.pipeline)) if place.ledger else ()
    return _compare(place, address, recorded, held)


def agree(pipeline: str, held: Iterable[tuple[Marker, Receipt]]) -> None:
    """Demand that every marker is sound and that sinks hold the same chain for an epoch.

    Raises:
        IdentityError: E210.
    """
    chains: dict[int, str] = {}
    for marker, _ in held:
        epoch = marker.epoch
        if not chain.sound(epoch) or chains.setdefault(epoch.number, epoch.chain) != epoch.chain:
            raise refuse("E210", epoch=epoch.number, sink=marker.sink, pipeline=pipeline)


def _compare(place: Place, address: str, recorded: tuple[EpochRecord, ...], held: list[tuple[Marker, Receipt]]) -> Plan:
    first = min(marker.epoch.number for marker, _ in held)
    last = max(marker.epoch.number for marker, _ in held)
    mine = [record for record in recorded if first <= record.epoch.number <= last]
    named = {marker.epoch.number for marker, _ in held}
    records = tuple(one for one in merged(place.pipeline, mine, held) if one.epoch.number in named)
    known = {record.epoch.chain for record in recorded}
    kept = tuple(one.epoch.number for one in records if one.epoch.chain in known)
    new = tuple(one.epoch.number for one in records if one.epoch.chain not in known)
    chains = {one.epoch.chain for one in records}
    gone = tuple(one.epoch.number for one in recorded if one.epoch.number >= first and one.epoch.chain not in chains)
    pairs = (
        ("pipeline", place.pipeline),
        ("ledger", address),
        ("read from", ", ".join(sink.address for sink in place.sinks)),
        ("kept", _words(kept)),
        ("added from markers", _words(new)),
        ("forgotten", _words(gone)),
    )
    return Plan(first, records, pairs)


def _words(numbers: tuple[int, ...]) -> str:
    return f"epochs {ranges(numbers)}" if numbers else "nothing"


def carry_out(place: Place, plan: Plan) -> None:
    """Forget and record. Interrupted in between it can simply be run again: the sinks are not touched.

    Raises:
        LedgerUnavailable: the ledger cannot be written.
    """
    ledger = place.certain_ledger
    if place.entry is None:
        ledger.enter(_entry(place, plan.records[-1]))
    ledger.discard(place.pipeline, plan.first)
    for record in plan.records:
        ledger.record(record)
    reason = f"epochs {plan.first} to {plan.newest} read back from {', '.join(sink.id for sink in place.sinks)}"
    generation = plan.records[-1].fence.generation
    ledger.note(Event(place.pipeline, EventKind.REBUILT, reason, plan.newest, generation))


def _entry(place: Place, newest: EpochRecord) -> Pipeline:
    lineage = newest.epoch.lineage
    return Pipeline(
        name=place.pipeline,
        sinks=tuple((sink.id, sink.address) for sink in place.sinks),
        query_id=lineage.query_id if lineage else "",
        checkpoint=lineage.checkpoint if lineage else "",
        generation=newest.fence.generation,
        opened_ms=0,
    )
