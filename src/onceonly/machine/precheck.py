"""Refusals by a peek at the sinks, before any fence. Pure.

A refusal here fences out no driver. A peek is stale at once, so it can only refuse. The same rules under the fence
decide the rest. The ledger was read before the sinks. So a running driver cannot make it look ahead of them, and a sink
must hold each epoch that it confirmed to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onceonly.machine import opening as rules
from onceonly.machine.acceptance import Stop, stop_of
from onceonly.machine.facts import Heal, Offer, OpeningFacts, PeekFacts, Proceed, Reading, Refusal
from onceonly.protocol import Peek, Position
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt, receipts_of

_NOBODY = Fence(0, "")


def lacks(sights: Iterable[Peek], recorded: int) -> bool:
    """Whether the ledger lacks more than the newest epoch, so that the sinks must be asked for those between."""
    return max((sight.epoch for sight in sights), default=0) > recorded + 1


def facts(
    pipeline: str, sinks: tuple[str, ...], sights: tuple[Peek, ...], head: EpochRecord | None, *, adopt: bool
) -> OpeningFacts:
    """Return the facts of an opening, as far as the peek shows them."""
    receipts = receipts_of(head)
    readings = []
    for sink, sight in zip(sinks, sights, strict=True):
        receipt = receipts.get(sink)
        identity = sight.identity if sight.identity is not None else receipt.identity if receipt else ""
        position = Position(_NOBODY, sight.marker, sight.epoch, identity, sight.strangers, writers=sight.writers)
        readings.append(Reading(sink, position, receipt, content=sight.content))
    return OpeningFacts(pipeline, tuple(readings), head.epoch if head else None, adopt)


@dataclass(frozen=True, slots=True)
class PeekedSink:
    """Contents of a sink, read without a fence.

    ``history`` has markers with receipts, oldest first. ``disturbances`` are changes by others since the newest
    receipt. For ``content`` see :class:`Reading`.
    """

    sink: str
    history: tuple[tuple[Marker, Receipt], ...]
    disturbances: tuple[ExternalChange, ...] = ()
    content: int | None = None


@dataclass(frozen=True, slots=True)
class OpeningRefusal:
    """Reason why an opening would stop now.

    With ``holds`` the sinks may hold the same rows at another place. With ``staged`` all sinks can get the newest
    epoch: its bytes are staged, or it has no rows.
    """

    stop: Stop
    holds: bool = False
    staged: bool = False


def opening_refusal(
    pipeline: str, peeked_sinks: Sequence[PeekedSink], head: EpochRecord | None
) -> OpeningRefusal | None:
    """Return the refusal of an opening, by its rules, before any start was refused."""
    receipts = receipts_of(head)
    number = head.epoch.number if head else 0
    readings = tuple(_reading(peeked_sink, receipts.get(peeked_sink.sink), number) for peeked_sink in peeked_sinks)
    match rules.decide_opening(OpeningFacts(pipeline, readings, head.epoch if head else None, adopt=True)):
        case Refusal() as refusal:
            details = dict(refusal.details)
            return OpeningRefusal(
                stop_of(refusal, head=number), bool(details.get("holds")), details.get("staged") is not None
            )
        case Heal(sinks, marker):
            lacking = marker.epoch.number
            staged = bool(marker.epoch.manifest or marker.epoch.adoption)
            return OpeningRefusal(Stop("E219", sinks, lacking, lacking, head=number), staged=staged)
        case _:
            return None


def _reading(peeked_sink: PeekedSink, receipt: Receipt | None, head: int) -> Reading:
    marker, newest = peeked_sink.history[-1] if peeked_sink.history else (None, None)
    # An epoch without rows can stand before the target does: only receipts of one epoch can be compared.
    same = newest is not None and (receipt is None or receipt.epoch == newest.epoch)
    current_receipt = newest if same else receipt
    identity = current_receipt.identity if current_receipt else ""
    number = marker.epoch.number if marker else 0
    position = Position(_NOBODY, marker, number, identity, has_rows=False, disturbances=peeked_sink.disturbances)
    ahead = tuple(pair for pair in peeked_sink.history if pair[0].epoch.number > head)
    return Reading(peeked_sink.sink, position, receipt, ahead, peeked_sink.content)


def check_opening(
    opening_facts: OpeningFacts, ahead: tuple[Epoch, ...] | None = None, identities: Sequence[str | None] = ()
) -> PeekFacts | Refusal | None:
    """Return the result of a peek to compare the batch with, or its refusal. ``None`` if only the fence can decide.

    For ``ahead`` see :class:`onceonly.machine.commands.Looked`.
    """
    behind = [
        bool(reading.receipt and reading.position.epoch < reading.receipt.epoch) for reading in opening_facts.readings
    ]
    if any(behind):
        # Set back or replaced: what is still hidden from readers was confirmed, too, so not every sink can tell.
        identified = [identity is not None for identity in identities]
        can_tell = len(identified) == len(behind) and all(
            has_identity or not lacks for has_identity, lacks in zip(identified, behind, strict=True)
        )
        return rules.refused_as_behind(opening_facts) if can_tell else None
    if refusal := rules.refused_by_sight(opening_facts):
        return refusal
    last = rules.newest(opening_facts)
    recorded = opening_facts.head.number if opening_facts.head else 0
    numbers = [reading.position.epoch for reading in opening_facts.readings]
    if last is None and max(numbers, default=0):
        return _aged_out(opening_facts)
    if max([recorded, *numbers]) > (last.number if last else 0):
        return None  # it is in no sink that was asked
    return PeekFacts(last, recorded, ahead)


def _aged_out(opening_facts: OpeningFacts) -> PeekFacts | Refusal | None:
    """Decide if the sinks have only an epoch number. The ledger may know that epoch."""
    match rules.forgotten(opening_facts):
        case Refusal() as refusal:
            return refusal
        case Proceed(Epoch() as last):
            return PeekFacts(last, last.number)
        case _:
            return None


def descent(peek: PeekFacts, offer: Offer, recorded: tuple[Epoch, ...]) -> tuple[Epoch, ...] | None:
    """Return the epochs from the one of the offered batch to the newest in the peek, oldest first.

    Empty if the batch became no epoch. ``None`` if unknown: a hole that no sink fills is there under the fence, too,
    where the rules refuse it. ``recorded`` is the ledger's answer, up to its newest epoch.
    """
    last, now = peek.last, offer.lineage
    if last is None:
        return ()
    if last.number > peek.recorded + 1 and peek.ahead is None:
        before = last.resume_point.lineage
        same = recorded or (before is not None and before.query_id == now.query_id)
        return None if same else ()
    line = {epoch.number: epoch for epoch in (*recorded, *(peek.ahead or ()), last) if epoch.number <= last.number}
    # A sink may be ahead of the ledger by an epoch that this batch became once more: that one is the newest.
    seen_last = sorted((*(peek.ahead or ()), last), key=lambda epoch: epoch.number, reverse=True)
    first = _became(now, seen_last) or (recorded[0].number if recorded else 0)
    return tuple(line[number] for number in sorted(line) if number >= first) if first else ()


def _became(lineage: Lineage, epochs: Iterable[Epoch]) -> int:
    names = (lineage.query_id, lineage.batch_id)
    lineages = ((epoch.number, epoch.lineage) for epoch in epochs if epoch.lineage)
    return next(
        (number for number, epoch_lineage in lineages if (epoch_lineage.query_id, epoch_lineage.batch_id) == names), 0
    )
