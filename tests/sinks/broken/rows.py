"""Broken sinks that tear rows and marker apart, or count wrongly."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.sinks.broken.registry import WINDOW, ReplacesNothing, caught_by, marker_of

from onceonly.faults import Point
from onceonly.protocol import Attempt, Batch, Prepared
from onceonly.protocol.batch import ArrowRows
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import StoreEntry


@caught_by(
    "one_of_racing_commits_lands",
    "rows_and_marker_appear_together",
    "members_that_the_harness_lists_answer",
)
class RowsThenMarker(ReplacesNothing):
    """Rows in one step, the marker in a second."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        assert prepared is None or isinstance(prepared, ArrowRows)
        self._follows(marker_of(self._newest_entry(marker.fence)), marker)
        rows = prepared.table if prepared else None
        if rows is not None:
            self.store.append_foreign(rows)
        time.sleep(WINDOW)
        entry = self.store.add(
            StoreEntry(self._writer, marker.fence, marker.text, marker.epoch.number, None, len(rows or ()))
        )
        self._answer(Point.COMMIT_SENT)
        return self._receipt(entry, marker)

    def recount(self) -> Mapping[int, int]:
        return {entry.epoch: entry.count for entry in self.store.epochs(self._writer)}


@caught_by(
    "a_receipt_says_what_was_committed",
    "a_commit_whose_answer_was_lost_is_unknown_and_there_once",
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "the_next_driver_finds_a_commit_whose_answer_was_lost",
    "recount_equals_the_committed_rows",
    "rows_and_marker_appear_together",
    "a_target_that_was_set_back_stands_at_the_epoch_of_its_rows_and_gets_the_later_ones",
    "a_sink_stands_elsewhere_under_a_greater_fence_alone",
    "members_that_the_harness_lists_answer",
)
class MarkerThenRows(ReplacesNothing):
    """The marker in one step, rows in a second."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(None, marker)
        time.sleep(WINDOW)
        if isinstance(prepared, ArrowRows):
            self.store.append_foreign(prepared.table)
        return replace(receipt, rows=prepared.rows if prepared else 0)


@caught_by(
    "an_empty_epoch_leaves_a_marker",
    "a_receipt_says_what_was_committed",
    "recount_equals_the_committed_rows",
    "a_position_names_identity_and_rows",
    "an_empty_epoch_replaces_too",
)
class NoMarkerForEmptyEpoch(MemorySink):
    """Nothing to write, so nothing is committed."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        if prepared is not None and not prepared.rows:
            return self._receipt(StoreEntry(serial=0), marker)
        return super().commit(prepared, marker)


@caught_by(
    "a_marker_alone_can_be_committed",
    "a_zombie_with_a_marker_alone_writes_nothing",
    "looking_up_a_marker_alone_finds_it",
)
class NoMarkerAlone(MemorySink):
    """Without a preparation nothing is committed."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        if prepared is None:
            return self._receipt(StoreEntry(serial=0), marker)
        return super().commit(prepared, marker)


@caught_by(
    "nothing_is_visible_before_the_commit",
    "an_abandoned_preparation_leaves_nothing",
    "a_zombie_fenced_between_prepare_and_commit_writes_nothing",
    and_others=True,
)
class WritesWhenPreparing(MemorySink):
    """Rows are in the table from the moment they are prepared."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        self.store.append_foreign(prepared.table)
        return ArrowRows(prepared.table.slice(0, 0))


@caught_by("a_batch_that_breaks_off_leaves_nothing")
class WritesWhilePreparing(MemorySink):
    """Rows are in the table as they arrive, and are taken out again before the commit, unless the batch breaks off."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        before = list(self.store._log)
        for rows in batch.arrow():
            self.store.append_foreign(pa.Table.from_batches([rows]))
        self.store._log = before
        return super().prepare(batch, epoch)


@caught_by("duplicate_attempts_are_counted_once", "a_zombie_cannot_sweep_its_successor_away")
class CountsDuplicateAttempts(MemorySink):
    """Takes the rows of every attempt, not of those that won."""

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        received: list[pa.RecordBatch] = []

        def receive(attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
            received.extend(rows)
            return {}

        batch.on_executors(receive)
        return ArrowRows(pa.Table.from_batches(received, batch.schema))


@caught_by("a_marker_comes_back_exactly")
class LossyMarkerText(MemorySink):
    """Stores markers in an encoding that cannot hold them."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(prepared, marker)
        entry = self.store._log[-1]
        text = marker.text.encode("ascii", "replace").decode()
        self.store._log[-1] = replace(entry, marker=text)
        return receipt
