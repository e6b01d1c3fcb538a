"""Mutants of window state.

It is committed after its epoch (M38), or was read before the fence (M39) or from an older version (M40).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onceonly.machine import commands as c
from onceonly.machine.state import State
from onceonly.protocol import Batch, Prepared, Sink
from onceonly.protocol.batch import ArrowBatch, AsOf, Bound, Paned
from onceonly.protocol.capabilities import StateRow, StateWanted
from onceonly.runtime.ledger_sync import LedgerAttachment
from onceonly_checkpoints.digests import STATE
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.epoch_time import END
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.mutants.wrapped import held
from onceonly_lab.stores.runner import RecordingRunner
from onceonly_lab.stores.windowed import WindowedTable

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES = ("key", "start", "stop", "body", "wake_clock", "wake_time", "bucket", "_epoch")
_WRITE = "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (key, start, stop) DO UPDATE SET {}"


class WritesStateAfterwards(RecordingRunner):
    """M38: results, markers and heads commit, those of state as well, and the rows of state in a second transaction."""

    _late: pa.Table | None = None

    def _prepared_in(self, sink: Sink, batch: Batch, command: c.Prepare) -> Prepared:
        if command.output != STATE:
            return super()._prepared_in(sink, batch, command)
        self._late = held(batch).table
        prepared: Any = super()._prepared_in(sink, ArrowBatch(self._late.slice(0, 0)), command)
        prepared.rows = self._late.num_rows
        return prepared  # type: ignore[no-any-return]

    def _committed_in(self, sink: Sink, command: c.Commit, recorder: LedgerAttachment | None) -> tuple[Receipt, ...]:
        receipts = super()._committed_in(sink, command, recorder)
        if self._late is not None:
            self._write(command.marker.epoch.number, self._late)
            self._late = None
        return receipts

    def _write(self, epoch: int, rows: pa.Table) -> None:
        """What ships never removes a row here: these windows do not close."""
        import psycopg
        from psycopg import sql

        store: Any = self._world.wire(self._all[-1].id)
        names = [sql.Identifier(name) for name in _NAMES]
        write = sql.SQL(_WRITE).format(
            sql.Identifier(f"{store.table}_state"),
            sql.SQL(", ").join(names),
            sql.SQL(", ").join(map(sql.Placeholder, _NAMES)),
            sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in names),
        )
        with psycopg.connect(store.direct) as connection, connection.cursor() as cursor:
            cursor.executemany(write, [{**row, "_epoch": epoch} for row in rows.to_pylist()])


class ReadsStateEarly(RecordingRunner):
    """M39: the state is read before the first fence is installed, and the opening's first epoch goes on from that."""

    _early: Sequence[StateRow] | None = None
    _begins = True

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        if isinstance(command, c.Install) and self._early is None:
            keeper: Any = self._all[-1]
            self._early = keeper.read_windows(StateWanted(wake_time=END), AsOf(1, END, 0, PIPELINE))
        return super()._carry_out(state, command)

    def _stepped(self, state: State, command: c.Stage, to: Bound, rows: Batch) -> Paned:
        if self._early is not None and self._begins and isinstance(rows, WindowedTable):
            rows = rows.kept_by(_Remembered(self._early))
            self._begins = False
        return super()._stepped(state, command, to, rows)


class ReadsAnOlderVersion(RecordingRunner):
    """M40: the state is read on a handle that does not see what this driver has committed since it was opened."""

    _opened: Sequence[StateRow] | None = None

    def _stepped(self, state: State, command: c.Stage, to: Bound, rows: Batch) -> Paned:
        if isinstance(rows, WindowedTable):
            keeper: Any = self._all[-1]
            everything = StateWanted(wake_time=END)
            self._opened = keeper.read_windows(everything, to.as_of) if self._opened is None else self._opened
            rows = rows.kept_by(_Remembered(self._opened or ()))
        return super()._stepped(state, command, to, rows)


class _Remembered:
    """Answers by what it was told once."""

    def __init__(self, rows: Sequence[StateRow]) -> None:
        self._rows = rows

    def read_windows(self, request: StateWanted, as_of: AsOf) -> Sequence[StateRow]:
        """All of it: an epoch may be shown more than it asks for."""
        return self._rows
