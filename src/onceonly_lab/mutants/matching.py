"""M5, M6, M7, M21: a batch is taken for written, or for new, by something that does not prove it."""

from __future__ import annotations

from dataclasses import replace

from onceonly.facts import Offer
from onceonly.state import State
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.slices import Slice
from onceonly_lab.model.parts import PIPELINE, record_at
from onceonly_lab.stores.driver import Driver


class Remembering(Driver):
    """A driver that decides by what the ledger remembers of the pipeline."""

    def recorded(self) -> list[EpochRecord]:
        """All epochs, oldest first."""
        self.ledger.open()
        return list(self.ledger.epochs(PIPELINE))


class SkipsByBatchId(Remembering):
    """M5: a batch whose id was an epoch before is skipped."""

    def taken(self, offer: Offer) -> Offer | None:
        """The id alone decides."""
        known = {one.epoch.lineage.batch_id for one in self.recorded() if one.epoch.lineage}
        if offer.lineage.batch_id in known:
            return None
        return _continued(self.recorded(), offer)


class SkipsByEndOffset(Remembering):
    """M7: a batch that ends where an epoch ended is skipped whole; one that goes further is written whole."""

    def taken(self, offer: Offer) -> Offer | None:
        """Nothing is left out of it."""
        recorded = self.recorded()
        if recorded and record_at(offer.slice.end) <= record_at(recorded[-1].epoch.slice.end):
            return None
        return _continued(recorded, offer)


class SkipsByText(Remembering):
    """M21: a slice that is spelled like an epoch's is skipped, whichever checkpoint it is spelled in."""

    def taken(self, offer: Offer) -> Offer | None:
        """The spelling alone decides."""
        known = {one.epoch.slice.text for one in self.recorded()}
        return None if offer.slice.text in known else offer


class NamedByQueryId(Driver):
    """M6: the marker's key contains Spark's query id, which a new checkpoint changes."""

    def opening(self, offer: Offer) -> State:
        """A new query is a new pipeline, and takes the target as it stands."""
        state = super().opening(offer)
        return replace(state, pipeline=f"{state.pipeline}-{offer.lineage.query_id}", adopt="here")


def _continued(recorded: list[EpochRecord], offer: Offer) -> Offer:
    """The offer, as if it began where the last epoch ended: who matches by other means never looks."""
    if not recorded:
        return offer
    last = recorded[-1].epoch
    said = replace(offer.lineage, query_id=last.lineage.query_id) if last.lineage else offer.lineage
    batch = max(one.epoch.lineage.batch_id for one in recorded if one.epoch.lineage) + 1
    return replace(offer, slice=Slice(last.slice.end, offer.slice.end), lineage=replace(said, batch_id=batch))
