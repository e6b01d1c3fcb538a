"""Mutants of event time.

An epoch's time comes after its rows (M36), or the healer of a sink asks for it again (M37).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onceonly.machine import commands as c
from onceonly.machine.state import State
from onceonly.protocol import OutcomeUnknown, Prepared, Recorder
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.model.untimely import asked_again
from onceonly_lab.mutants.wrapped import Wrapped
from onceonly_lab.stores.runner import RecordingRunner

_LATER = "UPDATE onceonly.epoch SET marker = %s, chain = %s WHERE pipeline = %s AND sink = %s AND epoch = %s"
_HEAD = "UPDATE onceonly.head SET chain = %s WHERE pipeline = %s AND sink = %s"


class SaysTimeAfterwards(Wrapped):
    """M36: rows and marker commit, and what the epoch says of time in a second transaction."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Two transactions, each with a marker whose chain is sound: nobody who starts between them is warned."""
        timeless = chain.linked(replace(marker.epoch, time=None))
        receipt = super().commit(prepared, replace(marker, epoch=timeless))
        try:
            self._say(marker)
        except Exception as lost:
            raise OutcomeUnknown(self.id, type(lost).__name__) from lost
        return replace(receipt, chain=marker.epoch.chain)

    def _say(self, marker: Marker) -> None:
        import psycopg

        store: Any = self.place
        with psycopg.connect(store.direct) as connection:
            where = (PIPELINE, self.id)
            connection.execute(_LATER, (marker.text, marker.epoch.chain, *where, marker.epoch.number))
            connection.execute(_HEAD, (marker.epoch.chain, *where))


class HealsWithAnotherTime(RecordingRunner):
    """M37: whoever brings a sink what it lacks asks once more up to when all is there, and is told of a later time."""

    def _commit(self, state: State, command: c.Commit) -> c.Outcome:
        if state.work.healing:
            command = replace(command, marker=asked_again(command.marker))
        return super()._commit(state, command)
