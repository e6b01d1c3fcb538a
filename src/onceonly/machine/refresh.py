"""Full refresh: a new series replaces all rows before it (RF).

Pure. A refresh is never guessed. It is proven if a lower sibling of the checkpoint still holds the batch of the newest
epoch, or if an operator decided it (``recover refresh``). Any other new start is a lost checkpoint, which other rules
judge.
"""

from __future__ import annotations

from onceonly.machine.facts import BatchFacts, Happening, NewEpoch, Offer, Refusal
from onceonly.machine.source_order import describe
from onceonly_checkpoints.epoch import Epoch, Lineage
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.model import AdoptionKind, SourceOffsets
from onceonly_checkpoints.spark.offsets import PreviousBatch


def refreshed(facts: BatchFacts) -> NewEpoch | Refusal | None:
    """Decide on a batch that begins a full refresh. ``None`` if it begins none."""
    last, offer = facts.last, facts.offer
    if last is None or not begins(last, offer):
        return None
    if last.resume_point.accepts(AdoptionKind.REPLACE_ROWS):
        return _replaces(facts, last)
    if not proven(last, offer):
        return None
    return _replaces(facts, last) if facts.on_refresh == "replace" else _stops(facts, last)


def begins(last: Epoch, offer: Offer) -> bool:
    """Whether a batch is the first one of another query than the newest epoch's. A later one would leave rows out."""
    before = last.resume_point.lineage
    return before is not None and before.query_id != offer.lineage.query_id and offer.lineage.batch_id == 0


def proven(last: Epoch, offer: Offer) -> bool:
    """Whether a lower sibling of the checkpoint still holds the newest epoch's batch."""
    lineage = last.resume_point.lineage
    return lineage is not None and any(still_held(old, lineage, last.reached) for old in offer.earlier_checkpoints)


def still_held(old: PreviousBatch, lineage: Lineage, reached: SourceOffsets) -> bool:
    """Whether a sibling's batch is the newest epoch's: by query and number, by clock, by its end."""
    return (
        (old.lineage.query_id, old.lineage.batch_id) == (lineage.query_id, lineage.batch_id)
        and (old.lineage.batch_timestamp_ms, old.lineage.watermark_ms)
        == (lineage.batch_timestamp_ms, lineage.watermark_ms)
        and old.end == reached
    )


def _replaces(facts: BatchFacts, last: Epoch) -> NewEpoch:
    number = last.number + 1
    what = f"batch {facts.offer.lineage.batch_id} of query id {facts.offer.lineage.query_id} begins a full refresh"
    begun = Happening(EventKind.REPLACED, f"{what}: rows of epochs 1..{last.number} leave with it", number)
    return NewEpoch(number, (begun,), replaces=(1, last.number))


def _stops(facts: BatchFacts, last: Epoch) -> Refusal:
    before, start = last.resume_point.lineage, facts.offer.start
    return Refusal.of(
        "E246",
        pipeline=facts.pipeline,
        offered=facts.offer.lineage.query_id,
        recorded=before.query_id if before else "unknown",
        first=last.series,
        last=last.number,
        sink=facts.sink,
        begins="" if start.unset else describe(start),
    )
