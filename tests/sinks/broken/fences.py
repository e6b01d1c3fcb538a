"""Broken sinks that let the wrong driver write."""

import time
from dataclasses import replace
from typing import ClassVar
from weakref import WeakKeyDictionary

from tests.sinks.broken.registry import WINDOW, caught_by, marker_of

from onceonly.faults import Point
from onceonly.protocol import Batch, OutcomeUnknown, Position, Prepared, Superseded
from onceonly.protocol.batch import ArrowRows
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import MemoryStore, StoreEntry, Writer


@caught_by(
    "a_newer_fence_in_either_stops_both",
    "position_is_refused_to_a_superseded_driver",
    "a_zombie_fenced_before_it_prepares_writes_nothing",
    "a_zombie_fenced_between_prepare_and_commit_writes_nothing",
    "a_zombie_does_not_repeat_what_its_successor_wrote",
    "a_zombie_with_a_marker_alone_writes_nothing",
    "a_stale_generation_with_a_fresh_handle_writes_nothing",
    "a_rival_of_the_same_generation_writes_nothing",
    "a_lower_generation_is_refused_after_maintenance",
    "a_driver_that_hangs_with_a_preparation_holds_nobody_up",
    "nothing_of_an_older_fence_appears_after_an_install",
    "a_zombie_replaces_nothing",
    "a_sink_stands_elsewhere_under_a_greater_fence_alone",
)
class CommitsWithoutFenceCheck(MemorySink):
    """Whoever continues the chain may commit."""

    def _newest_entry(self, fence: Fence | None) -> StoreEntry:
        newest = self.store.newest(self._writer)
        assert newest is not None
        return newest


@caught_by(
    "a_lower_generation_is_refused",
    "a_lost_answer_to_an_install_is_found_by_installing_again",
    "a_stale_generation_with_a_fresh_handle_writes_nothing",
    "a_lower_generation_is_refused_after_maintenance",
)
class AcceptsLowerGenerations(MemorySink):
    """Whoever installs last owns the sink."""

    def install(self, fence: Fence) -> None:
        newest = self.store.newest(self._writer)
        if newest and newest.fence.generation > fence.generation:
            self.store.add(StoreEntry(self._writer, fence, newest.marker))
        super().install(fence)


@caught_by(
    "an_equal_generation_of_another_owner_is_refused",
    "a_rival_of_the_same_generation_writes_nothing",
    "one_of_racing_installs_owns_the_generation",
)
class IgnoresTheOwner(MemorySink):
    """Compares generations and nothing else."""

    def install(self, fence: Fence) -> None:
        found = self.fence()
        super().install(found if found and found.generation == fence.generation else fence)
        self._fence = fence

    def _newest_entry(self, fence: Fence | None) -> StoreEntry:
        found = self.fence()
        return super()._newest_entry(found if found and fence and found.generation == fence.generation else fence)


@caught_by("reinstalling_our_own_fence_succeeds", "a_lost_answer_to_an_install_is_found_by_installing_again")
class RefusesItsOwnFence(MemorySink):
    """An equal generation is refused, whoever it belongs to."""

    def install(self, fence: Fence) -> None:
        if self.fence() == fence:
            raise Superseded(self.id, fence)
        super().install(fence)


@caught_by("one_of_racing_installs_owns_the_generation")
class InstallsInTwoSteps(MemorySink):
    """Reads the fence, then writes it."""

    def install(self, fence: Fence) -> None:
        newest = self.store.newest(self._writer)
        time.sleep(WINDOW)
        if newest is None or newest.fence.generation < fence.generation:
            self.store.add(StoreEntry(self._writer, fence, newest.marker if newest else None))
        self._fence = fence
        super().install(fence) if newest and newest.fence.generation >= fence.generation else self._answer(
            Point.INSTALL_SENT
        )


@caught_by("one_of_racing_commits_lands", "nothing_of_an_older_fence_appears_after_an_install")
class CommitsInTwoSteps(MemorySink):
    """Reads fence and chain, then writes."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        self._follows(marker_of(self._newest_entry(marker.fence)), marker)
        time.sleep(WINDOW)
        rows = prepared.table if isinstance(prepared, ArrowRows) else None
        count = prepared.rows if prepared else 0
        number, gone = marker.epoch.number, marker.epoch.replaces
        made = StoreEntry(self._writer, marker.fence, marker.text, number, rows, count, self._merge, replaces=gone)
        entry = self.store.add(made)
        self._answer(Point.COMMIT_SENT)
        return self._receipt(entry, marker)


@caught_by(
    "a_fence_leaves_the_newest_marker_standing",
    "a_marker_comes_back_exactly",
    "the_next_driver_finds_a_commit_whose_answer_was_lost",
    "history_lists_each_epoch_once_in_order",
    "the_marker_survives_maintenance",
    "a_look_shows_the_newest_marker",
    "markers_of_replaced_epochs_stand",
    "rows_that_stand_are_not_replaced_again",
)
class FenceHidesTheMarker(MemorySink):
    """A new fence does not repeat the newest marker."""

    def install(self, fence: Fence) -> None:
        super().install(fence)
        newest = self.store._log[-1]
        if newest.writer and not newest.epoch:
            self.store._log[-1] = replace(newest, marker=None)


@caught_by("position_is_refused_to_a_superseded_driver")
class ReadsPositionsOfZombies(MemorySink):
    """The position is read under whatever fence stands."""

    def position(self, since: Receipt | None) -> Position:
        mine, self._fence = self._fence, self.fence()
        try:
            return super().position(since)
        finally:
            self._fence = mine


@caught_by(
    "another_pipeline_sees_nothing_of_ours",
    "a_look_shows_the_newest_marker",
    "two_pipelines_beside_each_other_keep_their_own_epochs",
    "rows_of_another_pipeline_stay_or_the_replacement_is_refused",
    "members_that_the_harness_lists_answer",
)
class OneFenceForAllPipelines(MemorySink):
    """Forgets which pipeline a marker belongs to."""

    @property
    def _writer(self) -> Writer:
        return "", self.id


@caught_by("installing_raises_the_fence")
class CachesTheFence(MemorySink):
    """Reads the newest fence once."""

    _read: Fence | None = None

    def fence(self) -> Fence | None:
        self._read = self._read or super().fence()
        return self._read


@caught_by("a_handle_can_be_opened_again")
class OpensOnce(MemorySink):
    """Keeps the first fence it installed."""

    def install(self, fence: Fence) -> None:
        first = self._fence
        super().install(fence)
        self._fence = first or fence

    def _newest_entry(self, fence: Fence | None) -> StoreEntry:
        return super()._newest_entry(self._fence or fence)


@caught_by("closing_may_repeat_and_the_fence_stays")
class ClosingDropsTheFence(MemorySink):
    """Takes its fence away when it is closed."""

    def close(self) -> None:
        self.store._log = [entry for entry in self.store._log if entry.epoch or entry.fence != self._fence]
        super().close()


@caught_by(
    "a_fresh_target_has_no_fence_and_no_marker",
    "another_pipeline_sees_nothing_of_ours",
    "the_reading_half_needs_no_fence",
)
class FencesWhenOpened(MemorySink):
    """Opening a handle writes."""

    def open(self, pipeline: str) -> None:
        super().open(pipeline)
        if self.fence() is None:
            self.store.add(StoreEntry(self._writer, Fence(0, "opened")))


@caught_by(
    "a_driver_that_hangs_with_a_preparation_holds_nobody_up",
    "a_zombie_fenced_between_prepare_and_commit_writes_nothing",
    and_others=True,
)
class HoldsItsSuccessorUp(MemorySink):
    """Keeps a lock from prepare to commit."""

    _holders: ClassVar[WeakKeyDictionary[MemoryStore, MemorySink]] = WeakKeyDictionary()

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        prepared = super().prepare(batch, epoch)
        self._holders[self.store] = self
        return prepared

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        try:
            return super().commit(prepared, marker)
        finally:
            self._holders.pop(self.store, None)

    def install(self, fence: Fence) -> None:
        if self._holders.get(self.store, self) is not self:
            raise OutcomeUnknown(self.id, "lock timeout")
        super().install(fence)

    def close(self) -> None:
        self._holders.pop(self.store, None)
        super().close()
