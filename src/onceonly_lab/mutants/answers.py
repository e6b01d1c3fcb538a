"""M8, M9, M15: a commit whose answer was lost is taken for a yes, for a no, or asked about too early."""

from __future__ import annotations

from onceonly import faults
from onceonly.faults import Point
from onceonly.protocol import Batch, OutcomeUnknown, Prepared, Recorder
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.mutants import raw
from onceonly_lab.mutants.wrapped import Wrapped, held


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
            raw.into(self.place, self._again.table, marker)
            return self.receipt(marker)


class LooksWithoutTheLock(TakesSilenceForNo):
    """M15: whether the epoch is there is read without waiting for the COMMIT that may still be on its way."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """What was read decides, though it changes meanwhile."""
        try:
            return Wrapped.commit(self, prepared, marker)
        except OutcomeUnknown:
            there = raw.newest(self.place) >= marker.epoch.number
            faults.fire(Point.LOOK_UP_AFTER)
            if not there:
                raw.into(self.place, self._again.table, marker)
            return self.receipt(marker)
