"""Broken sinks that take epochs out of order."""

from dataclasses import replace

from tests.sinks.broken.registry import caught_by, marker_of

from onceonly.errors import IdentityError, refuse
from onceonly.protocol import Prepared, Superseded
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.memory import MemorySink


def _unlisted(marker: Marker) -> Marker:
    """The marker of an epoch that does not say which one is the sink's first."""
    return replace(marker, epoch=replace(marker.epoch, sinks=()))


@caught_by("another_epoch_under_a_committed_number_is_refused", "an_older_epoch_is_refused")
class SkipsByNumber(MemorySink):
    """An epoch whose number is not higher than the newest is taken for written already."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        newest = marker_of(self._newest_entry(marker.fence))
        if newest and newest.epoch.number >= marker.epoch.number:
            return self._receipt(self.store.epochs(self._writer)[-1], marker)
        return super().commit(prepared, marker)


@caught_by("an_older_epoch_is_refused")
class SkipsOlderNumbers(MemorySink):
    """An epoch whose number is lower than the newest is taken for written already."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        newest = marker_of(self._newest_entry(marker.fence))
        if newest and newest.epoch.number > marker.epoch.number:
            return self._receipt(self.store.epochs(self._writer)[-1], marker)
        return super().commit(prepared, marker)


@caught_by("a_wrong_previous_chain_is_refused")
class OrdersByNumberAlone(MemorySink):
    """The next number will do, whatever chain it continues."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        if newest and newest.epoch.number + 1 == marker.epoch.number:
            return
        super()._follows(newest, marker)


@caught_by("a_gap_is_refused")
class AcceptsGaps(MemorySink):
    """Any higher number will do."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        if newest and newest.epoch.number + 1 < marker.epoch.number:
            return
        super()._follows(newest, marker)


@caught_by("a_first_epoch_with_another_number_is_refused")
class AcceptsAnyFirstEpoch(MemorySink):
    """Without a marker any epoch will do."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        if newest:
            super()._follows(newest, marker)


@caught_by("a_sink_can_join_a_running_pipeline", "a_sink_can_join_again_above_what_it_holds")
class BeginsWithOneOnly(MemorySink):
    """Without a marker only epoch 1 will do, also for a sink that joins later."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        super()._follows(newest, _unlisted(marker))


@caught_by("a_sink_can_join_again_above_what_it_holds")
class JoinsOnceOnly(MemorySink):
    """A sink that holds an epoch takes none but the next."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        super()._follows(newest, _unlisted(marker) if newest else marker)


@caught_by(
    "both_follow_what_stands_in_them",
    "a_replayed_epoch_writes_nothing",
    "the_marker_survives_maintenance",
    "one_of_racing_commits_lands",
    "rows_that_stand_are_not_replaced_again",
)
class WritesReplaysAgain(MemorySink):
    """The epoch that stands already is written once more."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        if newest is None or newest.epoch != marker.epoch:
            super()._follows(newest, marker)


@caught_by(
    "both_follow_what_stands_in_them",
    "a_replayed_epoch_writes_nothing",
    "another_epoch_under_a_committed_number_is_refused",
    "an_older_epoch_is_refused",
    "a_wrong_previous_chain_is_refused",
    "a_gap_is_refused",
    "a_first_epoch_with_another_number_is_refused",
    "the_marker_survives_maintenance",
    "rows_that_stand_are_not_replaced_again",
)
class CallsAWrongEpochSuperseded(MemorySink):
    """Refuses a wrong epoch as though another driver had fenced."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        try:
            super()._follows(newest, marker)
        except Exception as error:
            raise Superseded(self.id, self.fence() or Fence(0, "")) from error


@caught_by(
    "another_epoch_under_a_committed_number_is_refused",
    "an_older_epoch_is_refused",
    "a_wrong_previous_chain_is_refused",
    "a_gap_is_refused",
    "a_first_epoch_with_another_number_is_refused",
)
class CallsAWrongEpochAChangeByOthers(MemorySink):
    """Refuses a wrong epoch with the code, and so with the remedy, of another event."""

    def _follows(self, newest: Marker | None, marker: Marker) -> None:
        try:
            super()._follows(newest, marker)
        except IdentityError as error:
            event = "it does not hold the epoch before"
            before = marker.epoch.number - 1
            raise refuse("E209", sink=self.id, epoch=before, event=event, pipeline=self.pipeline) from error
