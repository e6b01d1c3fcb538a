"""Mutants of fences, lost answers and batch matching.

Some match batches by facts that prove nothing. These are M3-M9, M15, M16, M21.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onceonly import faults
from onceonly.faults import Point
from onceonly.machine.facts import Offer
from onceonly.machine.state import State
from onceonly.protocol import Batch, OutcomeUnknown, Prepared, Recorder, Sink, Superseded
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.epoch import EpochRecord, Fence, Marker, Receipt
from onceonly_checkpoints.model import Slice
from onceonly_lab.model.parts import PIPELINE, record_at
from onceonly_lab.mutants import wrapped
from onceonly_lab.mutants.wrapped import Held, Wrapped, held
from onceonly_lab.play.driver import Driver
from onceonly_lab.stores.places import Place
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.delta.head import SinkState, accepted
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.prepared import Rows
from onceonly_sinks.delta.writer import TableWriter

# ---- M8, M9, M15: a commit whose answer was lost is taken for a yes, for a no, or asked about too early.


class TakesSilenceForYes(Wrapped):
    """M8: no answer is good news."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Nobody looks it up."""
        try:
            return super().commit(prepared, marker)
        except OutcomeUnknown:
            return Receipt(self.id, marker.epoch.number, marker.epoch.chain, "", (), prepared.rows if prepared else 0)


class TakesSilenceForNo(Wrapped):
    """M9: no answer means that it has to be done again."""

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """The rows are kept for another try."""
        self._again = held(batch)
        return super().prepare(batch, epoch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """The second try looks at nothing."""
        try:
            return super().commit(prepared, marker)
        except OutcomeUnknown:
            wrapped.into(self.place, self._again.table, marker)
            return self.receipt(marker)


class LooksWithoutTheLock(TakesSilenceForNo):
    """M15: whether the epoch is there is read without waiting for the COMMIT that may still be on its way."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """What was read decides, though it changes meanwhile."""
        try:
            return Wrapped.commit(self, prepared, marker)
        except OutcomeUnknown:
            there = wrapped.newest(self.place) >= marker.epoch.number
            faults.fire(Point.LOOK_UP_AFTER)
            if not there:
                wrapped.into(self.place, self._again.table, marker)
            return self.receipt(marker)


# ---- M3, M4, M16: the fence is missing, goes down, or is looked at in another place than where the commit lands.


class ChecksThenWrites(Wrapped):
    """M3: no fence; whether an epoch is there already is looked up when its rows are prepared."""

    _known = 0

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """The check; rows wait in this process."""
        self._known = wrapped.newest(self.place)
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """The write, which looks at nothing any more."""
        assert isinstance(prepared, Held)
        if self._known < marker.epoch.number:
            wrapped.into(self.place, prepared.table, marker)
        return self.receipt(marker)


class TrustsTheLedger(Wrapped):
    """M4: generations are counted in the ledger alone; once it is lost they begin again, and the sink takes them."""

    def fence(self) -> Fence | None:
        """The sink itself is not asked."""
        return None

    def install(self, fence: Fence) -> None:
        """A lower generation is taken like any other."""
        newest_fence = super().fence()
        super().install(Fence(newest_fence.generation + 1, fence.owner) if newest_fence else fence)
        wrapped.force_fence(self.place, fence.generation, fence.owner)
        self.inner._fence = fence

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Rows wait in this process."""
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Only a *higher* generation keeps one from writing."""
        assert isinstance(prepared, Held)
        newest_fence = super().fence()
        if newest_fence and newest_fence.generation > marker.fence.generation:
            raise Superseded(self.id, newest_fence)
        wrapped.into(self.place, prepared.table, marker)
        return self.receipt(marker)


class CountsInTheLedger(Driver):
    """M4's driver: the next generation is one more than the ledger's."""

    def opening(self, offer: Offer) -> State:
        """What the sinks say is not asked."""
        self.ledger.open()
        generations = [pipeline.generation for pipeline in self.ledger.pipelines()]
        state = super().opening(offer)
        proposed = Fence(max(generations, default=0), state.job.owner)
        return replace(state, opening=replace(state.opening, fence=proposed))


class CommitsByPath(TableWriter):
    """M16: where the table stands was read on one handle, and the commit goes to the newest version of its path."""

    def _ready(self, marker: Marker) -> tuple[SinkState, tuple[ExternalChange, ...]]:
        before = accepted(self._need(marker.fence))
        return replace(before, judged=self._table.handle.version()), ()

    def _send(self, prepared: Rows | None, note: Note, before: SinkState) -> None:
        self._table.reopen()
        super()._send(prepared, note, before)


class ByPath(DeltaSink):
    """The sink with that writer."""

    def open(self, pipeline: str) -> None:
        """As ever, and with the other writer."""
        super().open(pipeline)
        opened = self._open
        writer = CommitsByPath(opened.table, self._settings, lambda: None, free=False)
        self._opened = replace(opened, writer=writer)


def by_path(store: Place) -> Sink:
    """M16's sink."""
    delta_store: Any = store
    sink: Any = ByPath(delta_store.root, tuning=DeltaTuning(committer="log"))
    made: Sink = sink
    return made


# ---- M5, M6, M7, M21: a batch is taken for written, or for new, by something that does not prove it.


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
        batch_ids = {record.epoch.lineage.batch_id for record in self.recorded() if record.epoch.lineage}
        if offer.lineage.batch_id in batch_ids:
            return None
        return _continued(self.recorded(), offer)


class SkipsByEndOffset(Remembering):
    """M7: a batch that ends where an epoch ended is skipped whole; one that goes further is written whole."""

    def taken(self, offer: Offer) -> Offer | None:
        """Nothing is left out of it."""
        recorded = self.recorded()
        if recorded and record_at(offer.slice.end) <= record_at(recorded[-1].epoch.written.end):
            return None
        return _continued(recorded, offer)


class SkipsByText(Remembering):
    """M21: a slice that is spelled like an epoch's is skipped, whichever checkpoint it is spelled in."""

    def taken(self, offer: Offer) -> Offer | None:
        """The spelling alone decides."""
        texts = {record.epoch.written.text for record in self.recorded()}
        return None if offer.slice.text in texts else offer


class NamedByQueryId(Driver):
    """M6: the marker's key contains Spark's query id, which a new checkpoint changes."""

    def opening(self, offer: Offer) -> State:
        """A new query is a new pipeline, and takes the target as it stands."""
        state = super().opening(offer)
        named = f"{state.job.pipeline}-{offer.lineage.query_id}"
        return replace(state, job=replace(state.job, pipeline=named, adopt="here"))


def _continued(recorded: list[EpochRecord], offer: Offer) -> Offer:
    """The offer, as if it began where the last epoch ended: who matches by other means never looks."""
    if not recorded:
        return offer
    last = recorded[-1].epoch
    lineage = replace(offer.lineage, query_id=last.lineage.query_id) if last.lineage else offer.lineage
    batch = max(record.epoch.lineage.batch_id for record in recorded if record.epoch.lineage) + 1
    return replace(offer, slice=Slice(last.written.end, offer.slice.end), lineage=replace(lineage, batch_id=batch))
