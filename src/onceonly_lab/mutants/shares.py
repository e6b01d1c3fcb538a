"""Mutants of quarantine and outputs (M32 to M35).

Rows are withheld, healed, written or counted in contradiction to the marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.machine import commands as c
from onceonly.machine.state import State
from onceonly.protocol import Batch, Prepared, Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.shared_transaction import InMemory
from onceonly_checkpoints.digests import BAD
from onceonly_lab.mutants.wrapped import held, into
from onceonly_lab.stores.divided import DividedTable
from onceonly_lab.stores.runner import RecordingRunner

if TYPE_CHECKING:
    import pyarrow as pa


class WithholdsFromOneSink(RecordingRunner):
    """M32: a bad row is kept from the last sink of good ones alone, as if only that one refused it."""

    def _prepared_in(self, sink: Sink, batch: Batch, command: c.Prepare) -> Prepared:
        if command.output is not None or command.sink != next(iter(self._sinks)):
            return super()._prepared_in(sink, batch, command)
        prepared = super()._prepared_in(sink, ArrowBatch(_narrow(self._staged)), command)
        return _believed(prepared, batch.digest().rows)


class HealsByTheCall(RecordingRunner):
    """M33: a sink that is behind gets what the call makes of the staged rows, and not what the marker says of them."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        import pyarrow as pa

        outcome = super()._carry_out(state, command)
        if isinstance(command, c.Fetch) and isinstance(self._batch, DividedTable):
            divided_table = DividedTable(_narrow(self._staged), self._batch.division)
            wide = pa.Table.from_batches(list(divided_table.arrow()), divided_table.schema)
            self._staged = InMemory(wide, divided_table.digest(), divided_table.outputs())
        return outcome


class WritesWhatItFinds(RecordingRunner):
    """M34: bad rows go into the quarantine when they are found, before the transaction that brings its marker."""

    def _prepared_in(self, sink: Sink, batch: Batch, command: c.Prepare) -> Prepared:
        if command.output != BAD:
            return super()._prepared_in(sink, batch, command)
        rows = held(batch).table
        into(self._world.places[command.sink], rows)
        prepared = super()._prepared_in(sink, ArrowBatch(rows.slice(0, 0)), command)
        return _believed(prepared, rows.num_rows)


class CountsWhatIsWanted(RecordingRunner):
    """M35: rows that no output wants are left out before anybody has counted them."""

    def _rows(self, state: State) -> Batch:
        import pyarrow as pa

        batch = super()._rows(state)
        assert isinstance(batch, DividedTable)
        mask = [bool(batch.division.wanted >> record & 1) for record in batch.records]
        return DividedTable(batch.narrow.filter(pa.array(mask, pa.bool_())), batch.division)


def _believed(prepared: Prepared, rows: int) -> Prepared:
    """The same, saying how many rows there should be."""
    believed: Any = prepared
    believed.rows = rows
    return prepared


def _narrow(staged: Any) -> pa.Table:
    """All staged rows, good and bad, in their own columns."""
    import pyarrow as pa

    wide = pa.Table.from_batches(list(staged.arrow()), staged.schema)
    return wide.select([field.name for field in wide.schema if not pa.types.is_struct(field.type)])
