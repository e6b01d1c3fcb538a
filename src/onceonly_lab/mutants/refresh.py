"""Mutants of full refreshes.

The old rows stay in a healed sink (M29), or leave before the new ones come (M30).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from onceonly import faults
from onceonly.faults import Point
from onceonly.machine import commands as c
from onceonly.machine.state import State
from onceonly.protocol import Batch, Prepared, Recorder, ReplacesRows
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_lab.mutants.wrapped import Wrapped
from onceonly_lab.stores.runner import RecordingRunner


class HealsWithoutDeleting(RecordingRunner):
    """M29: what a sink lacks of a refresh is brought to it, and what its marker says of older rows is passed over."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if not (isinstance(command, c.Prepare) and state.work.healing):
            return super()._carry_out(state, command)
        outcome = super()._carry_out(state, replace(command, replaces=None))
        prepared: Any = self._prepared[command.sink]
        prepared.cleared = command.replaces
        return outcome


class ClearsFirst(Wrapped, ReplacesRows):
    """M30: old rows leave in a transaction of their own, before the one that brings the new ones and the marker."""

    def cannot_replace(self, span: tuple[int, int]) -> str:
        """Handed on."""
        return str(self.inner.cannot_replace(span))

    def prepare_replacement(self, batch: Batch, epoch: int, span: tuple[int, int]) -> Prepared:
        """As ever."""
        return self.prepare(batch, epoch)

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """In two steps where rows leave."""
        if marker.epoch.replaces and prepared is not None:
            import psycopg
            from psycopg import sql

            waiting: Any = prepared
            query = sql.SQL("DELETE FROM {} WHERE _epoch BETWEEN %s AND %s").format(sql.Identifier(self.place.table))
            with closing(psycopg.connect(self.place.direct, autocommit=True)) as connection:
                connection.execute(query, marker.epoch.replaces)
            faults.fire(Point.COMMIT_SENT)
            waiting.cleared = marker.epoch.replaces
        return super().commit(prepared, marker, ledger)
