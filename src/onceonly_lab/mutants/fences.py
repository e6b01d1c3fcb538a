"""M3, M4, M16: the fence is missing, goes down, or is looked at in another place than where the commit lands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onceonly.facts import Offer
from onceonly.protocol import Batch, Disturbance, Prepared, Recorder, Sink, Superseded
from onceonly.state import State
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_lab.mutants import raw
from onceonly_lab.mutants.wrapped import Held, Wrapped, held
from onceonly_lab.stores.driver import Driver
from onceonly_lab.stores.places import Place
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.standing import Standing, accepted
from onceonly_sinks.delta.writer import Rows, Writer


class ChecksThenWrites(Wrapped):
    """M3: no fence; whether an epoch is there already is looked up when its rows are prepared."""

    _known = 0

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """The check; rows wait in this process."""
        self._known = raw.newest(self.place)
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """The write, which looks at nothing any more."""
        assert isinstance(prepared, Held)
        if self._known < marker.epoch.number:
            raw.into(self.place, prepared.table, marker)
        return self.receipt(marker)


class TrustsTheLedger(Wrapped):
    """M4: generations are counted in the ledger alone; once it is lost they begin again, and the sink takes them."""

    def fence(self) -> Fence | None:
        """The sink itself is not asked."""
        return None

    def install(self, fence: Fence) -> None:
        """A lower generation is taken like any other."""
        standing = super().fence()
        super().install(Fence(standing.generation + 1, fence.owner) if standing else fence)
        raw.force_fence(self.place, fence.generation, fence.owner)
        self.inner._fence = fence

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Rows wait in this process."""
        return held(batch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Only a *higher* generation keeps one from writing."""
        assert isinstance(prepared, Held)
        standing = super().fence()
        if standing and standing.generation > marker.fence.generation:
            raise Superseded(self.id, standing)
        raw.into(self.place, prepared.table, marker)
        return self.receipt(marker)


class CountsInTheLedger(Driver):
    """M4's driver: the next generation is one more than the ledger's."""

    def opening(self, offer: Offer) -> State:
        """What the sinks say is not asked."""
        self.ledger.open()
        known = [one.generation for one in self.ledger.pipelines()]
        return replace(super().opening(offer), floor=max(known, default=0))


class CommitsByPath(Writer):
    """M16: where the table stands was read on one handle, and the commit goes to the newest version of its path."""

    def _ready(self, marker: Marker) -> tuple[Standing, tuple[Disturbance, ...]]:
        before = accepted(self._need(marker.fence))
        return replace(before, judged=self._table.handle.version()), ()

    def _send(self, prepared: Rows | None, note: Note, before: Standing) -> None:
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


def by_path(place: Place) -> Sink:
    """M16's sink."""
    known: Any = place
    sink: Any = ByPath(known.root, committer="log")
    made: Sink = sink
    return made
