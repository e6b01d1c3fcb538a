"""What a look at the sinks, before any fence, refuses already. Pure.

Whoever is refused here has disturbed nobody. A look is stale at once, so it is asked only for refusals: whatever it
does not settle, a hole in the ledger, a sink that was set back, a marker whose text has aged out, is left to the same
rules under the fence. The ledger was read before the sinks: a driver that runs cannot make it look ahead of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from onceonly import recovery
from onceonly.acceptance import Stop, stop_of
from onceonly.facts import Heal, Offer, OpeningFacts, Reading, Refusal, Seen
from onceonly.protocol import Disturbance, Position, Sight
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Marker, Receipt

_NOBODY = Fence(0, "")


def facts(
    pipeline: str, sinks: tuple[str, ...], sights: tuple[Sight, ...], head: EpochRecord | None, *, adopt: bool
) -> OpeningFacts:
    """What an opening is decided on, as far as it was seen."""
    receipts = {receipt.sink: receipt for receipt in head.receipts} if head else {}
    readings = []
    for sink, sight in zip(sinks, sights, strict=True):
        receipt = receipts.get(sink)
        identity = receipt.identity if receipt else ""
        position = Position(_NOBODY, sight.marker, sight.epoch, identity, sight.strangers, writers=sight.writers)
        readings.append(Reading(sink, position, receipt))
    return OpeningFacts(pipeline, tuple(readings), head.epoch if head else None, adopt)


@dataclass(frozen=True, slots=True)
class Told:
    """What a sink tells anybody who asks, without a fence.

    Attributes:
        sink: its id.
        history: its markers with receipts, oldest first.
        disturbances: what others did to it since the newest receipt.
    """

    sink: str
    history: tuple[tuple[Marker, Receipt], ...]
    disturbances: tuple[Disturbance, ...] = ()


def stopped(pipeline: str, told: Sequence[Told], head: EpochRecord | None) -> tuple[Stop, bool] | None:
    """What would stop a pipeline if it was opened now, by the rules of an opening, before any start was refused.

    Returns:
        What it would name, and whether the sinks may hold what they held, at another place; ``None`` for nothing.
    """
    receipts = {receipt.sink: receipt for receipt in head.receipts} if head else {}
    number = head.epoch.number if head else 0
    readings = tuple(_reading(one, receipts.get(one.sink), number) for one in told)
    match recovery.decide_opening(OpeningFacts(pipeline, readings, head.epoch if head else None, adopt=True)):
        case Refusal() as refusal:
            return stop_of(refusal, head=number), bool(dict(refusal.details).get("holds"))
        case Heal(sinks, marker):
            lacking = marker.epoch.number
            return Stop("E219", sinks, lacking, lacking, head=number), False
        case _:
            return None


def _reading(told: Told, receipt: Receipt | None, head: int) -> Reading:
    marker, newest = told.history[-1] if told.history else (None, None)
    # An epoch without rows can stand before the target does: only receipts of one epoch can be compared.
    same = newest is not None and (receipt is None or receipt.epoch == newest.epoch)
    known = newest if same else receipt
    identity = known.identity if known else ""
    number = marker.epoch.number if marker else 0
    position = Position(_NOBODY, marker, number, identity, has_rows=False, disturbances=told.disturbances)
    return Reading(told.sink, position, receipt, tuple(pair for pair in told.history if pair[0].epoch.number > head))


def opening(found: OpeningFacts) -> Seen | Refusal | None:
    """What the batch is compared with, or why it need not be; ``None``: only the fence can tell."""
    if any(one.receipt and one.position.epoch < one.receipt.epoch for one in found.readings):
        return None  # set back or replaced: which of them, a position tells
    if refusal := recovery.refused_by_sight(found):
        return refusal
    last = recovery.newest(found)
    recorded = found.head.number if found.head else 0
    numbers = [one.position.epoch for one in found.readings]
    if max([recorded, *numbers]) > (last.number if last else 0):
        return None  # its text has aged out, or it is in no sink that was asked
    return Seen(last, recorded)


def descent(seen: Seen, offer: Offer, recorded: tuple[Epoch, ...]) -> tuple[Epoch, ...] | None:
    """The epochs from the one that the offered batch became to the newest that was seen; ``None``: it is not known.

    Args:
        seen: what the look showed.
        offer: the batch.
        recorded: what the ledger answered, up to the newest epoch that it has.
    """
    last, now = seen.last, offer.lineage
    if last is None:
        return ()
    was = last.lineage
    if not recorded and was and (was.query_id, was.batch_id) == (now.query_id, now.batch_id):
        return (last,)  # a sink holds it, and the ledger is one step behind
    if not recorded:
        whole = seen.recorded >= last.number - 1
        before = last.standing.lineage
        same = before is not None and before.query_id == now.query_id
        return () if whole or not same else None
    run = recorded if recorded[-1].number == last.number else (*recorded, last)
    return run if all(two.number == one.number + 1 for one, two in pairwise(run)) else None
