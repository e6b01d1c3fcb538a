"""What a look at the sinks, before any fence, refuses already. Pure.

Whoever is refused here has disturbed nobody. A look is stale at once, so it is asked only for refusals: whatever it
does not settle is left to the same rules under the fence. The ledger was read before the sinks: a driver that runs
cannot make it look ahead of them, and what a sink has confirmed to it, the sink must hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onceonly.machine import opening as rules
from onceonly.machine.acceptance import Stop, stop_of
from onceonly.machine.facts import Heal, Offer, OpeningFacts, PeekFacts, Proceed, Reading, Refusal
from onceonly.protocol import ExternalChange, Peek, Position
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt, receipts_of

_NOBODY = Fence(0, "")


def lacks(sights: Iterable[Peek], recorded: int) -> bool:
    """Whether the ledger lacks more than the newest epoch, so that sinks have to be asked for those between."""
    return max((sight.epoch for sight in sights), default=0) > recorded + 1


def facts(
    pipeline: str, sinks: tuple[str, ...], sights: tuple[Peek, ...], head: EpochRecord | None, *, adopt: bool
) -> OpeningFacts:
    """What an opening is decided on, as far as it was seen."""
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
    """What a sink tells anybody who asks, without a fence.

    Attributes:
        sink: its id.
        history: its markers with receipts, oldest first.
        disturbances: what others did to it since the newest receipt.
        content: as in :class:`Reading`.
    """

    sink: str
    history: tuple[tuple[Marker, Receipt], ...]
    disturbances: tuple[ExternalChange, ...] = ()
    content: int | None = None


@dataclass(frozen=True, slots=True)
class OpeningRefusal:
    """What stops a pipeline that is opened now.

    Attributes:
        stop: what is named then.
        holds: whether the sinks may hold what they held, at another place.
        staged: whether all sinks can be brought to the newest epoch, by bytes that were staged or by none.
    """

    stop: Stop
    holds: bool = False
    staged: bool = False


def opening_refusal(pipeline: str, told: Sequence[PeekedSink], head: EpochRecord | None) -> OpeningRefusal | None:
    """What would stop a pipeline if it was opened now, by the rules of an opening, before any start was refused."""
    receipts = receipts_of(head)
    number = head.epoch.number if head else 0
    readings = tuple(_reading(one, receipts.get(one.sink), number) for one in told)
    match rules.decide_opening(OpeningFacts(pipeline, readings, head.epoch if head else None, adopt=True)):
        case Refusal() as refusal:
            said = dict(refusal.details)
            return OpeningRefusal(
                stop_of(refusal, head=number), bool(said.get("holds")), said.get("staged") is not None
            )
        case Heal(sinks, marker):
            lacking = marker.epoch.number
            staged = bool(marker.epoch.manifest or marker.epoch.adoption)
            return OpeningRefusal(Stop("E219", sinks, lacking, lacking, head=number), staged=staged)
        case _:
            return None


def _reading(told: PeekedSink, receipt: Receipt | None, head: int) -> Reading:
    marker, newest = told.history[-1] if told.history else (None, None)
    # An epoch without rows can stand before the target does: only receipts of one epoch can be compared.
    same = newest is not None and (receipt is None or receipt.epoch == newest.epoch)
    known = newest if same else receipt
    identity = known.identity if known else ""
    number = marker.epoch.number if marker else 0
    position = Position(_NOBODY, marker, number, identity, has_rows=False, disturbances=told.disturbances)
    ahead = tuple(pair for pair in told.history if pair[0].epoch.number > head)
    return Reading(told.sink, position, receipt, ahead, told.content)


def check_opening(
    found: OpeningFacts, ahead: tuple[Epoch, ...] | None = None, identities: Sequence[str | None] = ()
) -> PeekFacts | Refusal | None:
    """What the batch is compared with, or why it need not be.

    Args:
        found: what was seen.
        ahead: see :class:`onceonly.machine.commands.Looked`.
        identities: what each sink is, where it was asked.

    Returns:
        ``None``: only the fence can tell.
    """
    behind = [bool(reading.receipt and reading.position.epoch < reading.receipt.epoch) for reading in found.readings]
    if any(behind):
        # Set back or replaced: what is still hidden from readers was confirmed, too, so not every sink can tell.
        asked = [identity is not None for identity in identities]
        known = len(asked) == len(behind) and all(one or not lacks for one, lacks in zip(asked, behind, strict=True))
        return rules.refused_as_behind(found) if known else None
    if refusal := rules.refused_by_sight(found):
        return refusal
    last = rules.newest(found)
    recorded = found.head.number if found.head else 0
    numbers = [reading.position.epoch for reading in found.readings]
    if last is None and max(numbers, default=0):
        return _aged_out(found)
    if max([recorded, *numbers]) > (last.number if last else 0):
        return None  # it is in no sink that was asked
    return PeekFacts(last, recorded, ahead)


def _aged_out(found: OpeningFacts) -> PeekFacts | Refusal | None:
    """No sink tells more than a number: the ledger knows that epoch, or nobody does."""
    match rules.forgotten(found):
        case Refusal() as refusal:
            return refusal
        case Proceed(Epoch() as last):
            return PeekFacts(last, last.number)
        case _:
            return None


def descent(seen: PeekFacts, offer: Offer, recorded: tuple[Epoch, ...]) -> tuple[Epoch, ...] | None:
    """The epochs from the one that the offered batch became to the newest that was seen.

    Where the ledger has a hole that no sink fills it has that hole under the fence, too, and the rules say so.

    Args:
        seen: what the look showed.
        offer: the batch.
        recorded: what the ledger answered, up to the newest epoch that it has.

    Returns:
        Oldest first; empty where the batch became none; ``None``: it is not known.
    """
    last, now = seen.last, offer.lineage
    if last is None:
        return ()
    if last.number > seen.recorded + 1 and seen.ahead is None:
        before = last.standing.lineage
        same = recorded or (before is not None and before.query_id == now.query_id)
        return None if same else ()
    line = {epoch.number: epoch for epoch in (*recorded, *(seen.ahead or ()), last) if epoch.number <= last.number}
    # A sink may be ahead of the ledger by an epoch that this batch became once more: that one is the newest.
    seen_last = sorted((*(seen.ahead or ()), last), key=lambda epoch: epoch.number, reverse=True)
    first = _became(now, seen_last) or (recorded[0].number if recorded else 0)
    return tuple(line[number] for number in sorted(line) if number >= first) if first else ()


def _became(lineage: Lineage, epochs: Iterable[Epoch]) -> int:
    """Number of the epoch that a batch became; 0 for none of these."""
    names = (lineage.query_id, lineage.batch_id)
    known = ((epoch.number, epoch.lineage) for epoch in epochs if epoch.lineage)
    return next((number for number, was in known if (was.query_id, was.batch_id) == names), 0)
