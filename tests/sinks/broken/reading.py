"""Broken sinks that read, keep or sweep wrongly."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Self
from weakref import WeakKeyDictionary

from tests.sinks.broken.registry import caught_by, marker_of

from onceonly.protocol import Batch, OutcomeUnknown, Position, Prepared
from onceonly.protocol.batch import ArrowRows
from onceonly.protocol.capabilities import Span
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import MemoryStore, StoreEntry


@caught_by("history_lists_each_epoch_once_in_order", "history_names_the_fence_that_wrote", and_others=True)
class HistoryRepeatsFences(MemorySink):
    """History lists the markers that fences repeat."""

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        for entry in self.store._log:
            marker = marker_of(entry) if entry.writer == self._writer else None
            if marker and marker.epoch.number > after:
                yield marker, self._receipt(entry, marker)


@caught_by(
    "a_receipt_says_what_was_committed",
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "history_lists_each_epoch_once_in_order",
)
class HistoryIgnoresAfter(MemorySink):
    """History always begins with the first epoch."""

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        return super().history()


@caught_by("a_marker_comes_back_exactly", "history_names_the_fence_that_wrote")
class HistoryUnderTheStandingFence(MemorySink):
    """History names the fence that stands, not the one that wrote."""

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        for marker, receipt in super().history(after):
            yield replace(marker, fence=self.fence() or marker.fence), receipt


@caught_by("the_reading_half_needs_no_fence", "the_address_finds_the_target_again", and_others=True)
class HistoryNeedsTheFence(MemorySink):
    """Reads only for the driver that fenced."""

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        self._newest_entry(self._fence)
        return super().history(after)


@caught_by("a_driver_is_not_held_up_by_readers")
class HistoryHoldsDriversUp(MemorySink):
    """Keeps a lock while history is being read."""

    _readers: ClassVar[WeakKeyDictionary[MemoryStore, int]] = WeakKeyDictionary()

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        self._readers[self.store] = self._readers.get(self.store, 0) + 1
        yield from super().history(after)
        self._readers[self.store] -= 1

    def install(self, fence: Fence) -> None:
        if self._readers.get(self.store):
            raise OutcomeUnknown(self.id, "lock timeout")
        super().install(fence)


@caught_by("recount_equals_the_committed_rows", "markers_of_replaced_epochs_stand")
class RecountsMarkers(MemorySink):
    """Recounts what it prepared, not what lies in the store."""

    _prepared: ClassVar[WeakKeyDictionary[MemoryStore, dict[int, int]]] = WeakKeyDictionary()

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        self._prepared.setdefault(self.store, {})[epoch] = prepared.rows
        return prepared

    def recount(self) -> Mapping[int, int]:
        return self._prepared.get(self.store, {})


@caught_by("a_receipt_says_what_was_committed", "a_position_names_identity_and_rows")
class AnIdentityPerHandle(MemorySink):
    """The target is another one for every handle."""

    def position(self, since: Receipt | None) -> Position:
        return replace(super().position(since), identity=str(id(self)))


@caught_by("another_pipeline_sees_nothing_of_ours", "a_position_names_identity_and_rows")
class SeesNoRows(MemorySink):
    """The position never says that there are rows."""

    def position(self, since: Receipt | None) -> Position:
        return replace(super().position(since), has_rows=False)


@caught_by("our_own_doings_are_no_disturbance")
class DisturbedByItself(MemorySink):
    """Reports its own fences as somebody else's doing."""

    def position(self, since: Receipt | None) -> Position:
        position = super().position(since)
        own = [
            entry
            for entry in self.store._log
            if entry.writer and not entry.epoch and entry.serial > self._judged_until(since)
        ]
        mishaps = tuple(ExternalChange("overwritten", f"entry {entry.serial}", fatal=True) for entry in own)
        return replace(position, disturbances=mishaps)


@caught_by("our_own_doings_are_no_disturbance")
class TellsOfItself(MemorySink):
    """Tells a reader of its own epochs as somebody else's doing."""

    def external_changes(self, since: Receipt | None) -> tuple[ExternalChange, ...]:
        ours = self.store.epochs(self._writer)
        return tuple(ExternalChange("overwritten", f"entry {entry.serial}", fatal=True) for entry in ours)


@caught_by("the_address_finds_the_target_again")
class LeadsElsewhere(MemorySink):
    """Its address leads to a new target."""

    @classmethod
    def from_address(cls, address: str) -> Self:
        return cls()


@caught_by("the_marker_survives_maintenance")
class MaintenanceLosesTheMarker(MemorySink):
    """Keeps its marker in a log that is cleaned up."""

    @staticmethod
    def after_maintenance(entry: StoreEntry) -> StoreEntry | None:
        return replace(entry, marker=None)


@caught_by("a_lower_generation_is_refused_after_maintenance", "the_marker_survives_maintenance")
class MaintenanceLosesTheFence(MemorySink):
    """Keeps its fence in a log that is cleaned up."""

    @staticmethod
    def after_maintenance(entry: StoreEntry) -> StoreEntry | None:
        return replace(entry, fence=Fence(0, "")) if entry.epoch else None


@caught_by("what_a_lost_driver_prepared_never_appears", "sweeping_leaves_what_was_committed")
class SweepsWhatWasCommitted(MemorySink):
    """Takes rows of older generations for staging."""

    def sweep(self) -> None:
        self.store._log = [
            replace(entry, rows=None) if entry.fence.generation < self._generation else entry
            for entry in self.store._log
        ]

    @property
    def _generation(self) -> int:
        return self._fence.generation if self._fence else 0


@caught_by("a_zombie_cannot_sweep_its_successor_away")
class SweepsWhatItsSuccessorPrepared(MemorySink):
    """Takes everything that is prepared for staging of its own."""

    _staging: ClassVar[WeakKeyDictionary[MemoryStore, list[ArrowRows]]] = WeakKeyDictionary()

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        self._staging.setdefault(self.store, []).append(prepared)
        return prepared

    def sweep(self) -> None:
        for prepared in self._staging.pop(self.store, []):
            prepared._table = prepared.table.slice(0, 0)


@caught_by(
    "a_driver_that_hangs_with_a_preparation_holds_nobody_up",
    "what_a_lost_driver_prepared_never_appears",
    "a_zombie_cannot_sweep_its_successor_away",
)
class OpensWhatALostDriverPrepared(MemorySink):
    """Its sweep commits what a lost driver had prepared."""

    _staging: ClassVar[WeakKeyDictionary[MemoryStore, list[ArrowRows]]] = WeakKeyDictionary()

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        self._staging.setdefault(self.store, []).append(prepared)
        return prepared

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        self._staging.pop(self.store, None)
        return super().commit(prepared, marker)

    def sweep(self) -> None:
        for prepared in self._staging.pop(self.store, []):
            with suppress(RuntimeError):
                self.store.append_foreign(prepared.table)


@caught_by("members_that_the_harness_lists_answer")
class GivesNoRowsBack(MemorySink):
    """Answers by the default of its base class: a reader cannot tell it from a sink that never could."""

    def read_by_epoch(self, span: Span) -> None:
        return None
