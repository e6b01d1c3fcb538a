"""Broken sinks that share a transaction in name only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from tests.sinks.broken.registry import caught_by

from onceonly.protocol import Batch, Prepared, Sink
from onceonly.protocol.batch import ArrowRows
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import StoreEntry

Beside = Sequence[tuple[Sink, Prepared | None, Marker]]


@caught_by(
    "a_newer_fence_in_either_stops_both", "both_follow_what_stands_in_them", "a_lost_answer_is_looked_up_in_each"
)
class CommitsOneAfterTheOther(MemorySink):
    """Each by itself: the first stands when the second is refused."""

    def commit_joined(self, prepared: Any, marker: Marker, siblings: Beside, ledger: Any = None) -> tuple[Receipt, ...]:
        return (self.commit(prepared, marker), *(sink.commit(rows, one) for sink, rows, one in siblings))


@caught_by(
    "nothing_of_two_sinks_is_seen_until_they_commit_together",
    "what_is_given_up_leaves_nothing_in_either",
    and_others=True,
)
class ShowsWhatIsPreparedBeside(MemorySink):
    """Rows are where everybody sees them before anything is committed."""

    def prepare_joined(self, batch: Batch, epoch: int, siblings: Any, span: Any = None) -> ArrowRows:
        rows = super().prepare_joined(batch, epoch, siblings, span)
        self.store.append_foreign(rows.table)
        return ArrowRows(rows.table.slice(0, 0), offered=rows.rows)


@caught_by("what_is_given_up_leaves_nothing_in_either")
class KeepsWhatIsGivenUp(MemorySink):
    """Writes all that was prepared since the last commit."""

    _kept: tuple[pa.Table, ...] = ()

    def prepare_joined(self, batch: Batch, epoch: int, siblings: Any, span: Any = None) -> ArrowRows:
        rows = super().prepare_joined(batch, epoch, siblings, span)
        self._kept = (*self._kept, rows.table)
        return rows

    def commit_joined(self, prepared: Any, marker: Marker, siblings: Beside, ledger: Any = None) -> tuple[Receipt, ...]:
        whole = [(sink, _all_of(sink, rows), one) for sink, rows, one in siblings]
        return super().commit_joined(prepared, marker, whole, ledger)


def _all_of(sink: Sink, rows: Any) -> Any:
    assert isinstance(sink, KeepsWhatIsGivenUp)
    kept, sink._kept = sink._kept, ()
    return ArrowRows(pa.concat_tables(kept), offered=rows.rows) if kept else rows


class _LooksAtTheFirst(MemorySink):
    """Takes what is said of the others on trust, in one thing."""

    trusting = False

    def commit_joined(self, prepared: Any, marker: Marker, siblings: Beside, ledger: Any = None) -> tuple[Receipt, ...]:
        others = [sink for sink, _, _ in siblings if isinstance(sink, _LooksAtTheFirst)]
        for other in others:
            other.trusting = True
        try:
            return super().commit_joined(prepared, marker, siblings, ledger)
        finally:
            for other in others:
                other.trusting = False


@caught_by("a_newer_fence_in_either_stops_both")
class LooksAtTheFenceOfTheFirst(_LooksAtTheFirst):
    def _newest_entry(self, fence: Any) -> StoreEntry:
        if not self.trusting:
            return super()._newest_entry(fence)
        newest = self.store.newest(self._writer)
        assert newest is not None
        return newest


@caught_by("both_follow_what_stands_in_them")
class LooksAtTheChainOfTheFirst(_LooksAtTheFirst):
    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        if not self.trusting:
            super()._follows(newest, marker)


@caught_by("either_of_two_sinks_may_have_no_rows")
class LeavesOutWhoHasNoRows(MemorySink):
    """Nothing to write, so no marker either."""

    def commit_joined(self, prepared: Any, marker: Marker, siblings: Beside, ledger: Any = None) -> tuple[Receipt, ...]:
        kept = [(sink, rows, one) for sink, rows, one in siblings if rows and rows.rows]
        found = super().commit_joined(prepared, marker, kept, ledger)
        empty = [
            Receipt(one.sink, one.epoch.number, one.epoch.chain, "", (), 0)
            for _, rows, one in siblings
            if not rows.rows
        ]
        return (*found, *empty)


@caught_by("both_follow_what_stands_in_them", "one_that_was_in_a_transaction_of_two_goes_on_alone")
class NeverLetsGoOfTheOther(MemorySink):
    """Whoever was once beside it gets what it writes alone."""

    _partner: MemorySink | None = None

    def commit_joined(self, prepared: Any, marker: Marker, siblings: Beside, ledger: Any = None) -> tuple[Receipt, ...]:
        found = super().commit_joined(prepared, marker, siblings, ledger)
        self._partner = next((sink for sink, _, _ in siblings if isinstance(sink, MemorySink)), None)
        return found

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(prepared, marker)
        if self._partner and isinstance(prepared, ArrowRows):
            self._partner.store.append_foreign(prepared.table)
        return receipt
