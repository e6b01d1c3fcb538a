"""Broken sinks that take rows away too early, too late, too often, or somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.sinks.broken.registry import caught_by

from onceonly.protocol import Batch, Prepared
from onceonly.protocol.batch import ArrowRows
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import StoreEntry


class _Removing(MemorySink):
    def _without(self, gone: Callable[[StoreEntry], bool]) -> None:
        with self.store.lock:
            self.store._log = [replace(entry, rows=None) if gone(entry) else entry for entry in self.store._log]

    def _ours(self, span: tuple[int, int]) -> Callable[[StoreEntry], bool]:
        return lambda entry: entry.writer == self._writer and span[0] <= entry.epoch <= span[1]

    def _keep_rows(self, marker: Marker) -> None:
        """Have the newest entry take nothing away."""
        newest = self.store._log[-1]
        assert newest.epoch == marker.epoch.number
        self.store._log[-1] = replace(newest, replaces=None)


@caught_by("an_epoch_that_replaces_takes_the_old_rows_away_and_brings_its_own", and_others=True)
class AddsToWhatItShouldReplace(_Removing):
    """Every epoch adds."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(prepared, marker)
        self._keep_rows(marker)
        return receipt


@caught_by("an_empty_epoch_replaces_too")
class AnEmptyEpochChangesNothing(_Removing):
    """Nothing to write, so nothing is taken away."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(prepared, marker)
        if not (prepared and prepared.rows):
            self._keep_rows(marker)
        return receipt


@caught_by("nothing_leaves_before_an_epoch_that_replaces_is_committed", "a_zombie_replaces_nothing")
class TakesAwayWhenPreparing(_Removing):
    """Makes room before the new rows come."""

    def prepare_replacement(self, batch: Batch, epoch: int, span: tuple[int, int]) -> ArrowRows:
        self._without(self._ours(span))
        return super().prepare_replacement(batch, epoch, span)


@caught_by("a_marker_that_replaces_is_obeyed_however_its_rows_were_prepared")
class ReplacesWhereItWasPreparedFor(_Removing):
    """Goes by how the rows were prepared, not by the marker."""

    prepared_for: object = None

    def prepare_replacement(self, batch: Batch, epoch: int, span: tuple[int, int]) -> ArrowRows:
        self.prepared_for = super().prepare_replacement(batch, epoch, span)
        return self.prepared_for

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(prepared, marker)
        if prepared is not self.prepared_for:
            self._keep_rows(marker)
        return receipt


@caught_by("markers_of_replaced_epochs_stand")
class TakesMarkersAwayToo(_Removing):
    """With the rows of an epoch goes all that is known of it."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(prepared, marker)
        if marker.epoch.replaces:
            gone = self._ours(marker.epoch.replaces)
            self.store._log = [entry for entry in self.store._log if not (entry.epoch and gone(entry))]
        return receipt


@caught_by("rows_that_stand_are_not_replaced_again", "markers_of_replaced_epochs_stand")
class ReplacesAgainUnderANewFence(_Removing):
    """Whoever finds a marker that replaces carries it out."""

    def install(self, fence: Fence) -> None:
        super().install(fence)
        marker = next((marker for marker, _ in reversed(list(self.history()))), None)
        if marker and marker.epoch.replaces:
            self._without(self._ours((1, marker.epoch.number)))


@caught_by("a_zombie_replaces_nothing")
class TakesAwayBeforeItLooksAtTheFence(_Removing):
    """Takes rows away first, then finds that it was fenced out."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        if marker.epoch.replaces:
            self._without(self._ours(marker.epoch.replaces))
        return super().commit(prepared, marker)


@caught_by(
    "rows_of_another_pipeline_stay_or_the_replacement_is_refused",
    "rows_of_a_stranger_stay_or_the_replacement_is_refused",
)
class TakesRowsOfOthersAway(_Removing):
    """The whole table is emptied."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        receipt = super().commit(prepared, marker)
        if marker.epoch.replaces:
            self._without(lambda entry: entry.writer != self._writer)
        return receipt
