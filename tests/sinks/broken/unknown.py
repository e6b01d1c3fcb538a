"""Broken sinks that guess what a lost answer was."""

from contextlib import suppress

from tests.sinks.broken.registry import caught_by, marker_of

from onceonly.faults import InjectedFault, Point
from onceonly.protocol import OutcomeUnknown, Prepared
from onceonly.protocol.batch import ArrowRows
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import StoreEntry


@caught_by(
    "a_commit_whose_answer_was_lost_is_unknown_and_there_once",
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "looking_up_a_marker_alone_finds_it",
    "the_next_driver_finds_a_commit_whose_answer_was_lost",
)
class RetriesBlindly(MemorySink):
    """Sends a commit again when its answer is lost."""

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: object = None) -> Receipt:
        try:
            return super().commit(prepared, marker)
        except OutcomeUnknown:
            if isinstance(prepared, ArrowRows):
                self.store.append_foreign(prepared.table)
            return self._receipt(self.store.epochs(self._writer)[-1], marker)


@caught_by(
    "a_lost_answer_is_looked_up_in_each",
    "a_lost_answer_to_an_install_is_found_by_installing_again",
    "a_commit_whose_answer_was_lost_is_unknown_and_there_once",
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "looking_up_a_marker_alone_finds_it",
    "the_next_driver_finds_a_commit_whose_answer_was_lost",
)
class TakesALostAnswerForAYes(MemorySink):
    """What was sent will have arrived."""

    def _answer(self, point: Point) -> None:
        with suppress(OutcomeUnknown):
            super()._answer(point)


@caught_by(
    "a_lost_answer_is_looked_up_in_each",
    "a_lost_answer_to_an_install_is_found_by_installing_again",
    "a_commit_whose_answer_was_lost_is_unknown_and_there_once",
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "looking_up_a_marker_alone_finds_it",
    "the_next_driver_finds_a_commit_whose_answer_was_lost",
)
class TakesALostAnswerForANo(MemorySink):
    """What was not answered has failed."""

    def _answer(self, point: Point) -> None:
        try:
            super()._answer(point)
        except OutcomeUnknown as error:
            raise InjectedFault("failed") from error


@caught_by(
    "a_lost_answer_is_looked_up_in_each",
    "a_lost_answer_to_an_install_is_found_by_installing_again",
    "a_commit_whose_answer_was_lost_is_unknown_and_there_once",
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "looking_up_a_marker_alone_finds_it",
    "the_next_driver_finds_a_commit_whose_answer_was_lost",
)
class PassesNoFaultPoint(MemorySink):
    """Its answers cannot be lost, so what it does about lost answers cannot be shown."""

    def _answer(self, point: Point) -> None:
        pass


@caught_by(
    "a_lost_answer_is_looked_up_in_each",
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "looking_up_a_marker_alone_finds_it",
)
class FindsNothing(MemorySink):
    """Looking up always says that it is not there."""

    def look_up(self, marker: Marker) -> Receipt | None:
        return None


@caught_by(
    "looking_up_finds_a_commit_whose_answer_was_lost",
    "looking_up_what_was_never_sent_finds_nothing",
    "looking_up_is_not_content_with_the_number",
    "looking_up_does_not_take_anothers_epoch_for_ours",
)
class FindsEverything(MemorySink):
    """Looking up always says that it is there."""

    def look_up(self, marker: Marker) -> Receipt | None:
        return self._receipt(StoreEntry(serial=0), marker)


@caught_by("looking_up_is_not_content_with_the_number")
class LooksUpByNumber(MemorySink):
    """Looks an epoch up by its number."""

    def look_up(self, marker: Marker) -> Receipt | None:
        newest = self._newest_entry(marker.fence)
        landed = newest.epoch == marker.epoch.number
        return self._receipt(newest, marker) if landed else None


@caught_by("looking_up_does_not_take_anothers_epoch_for_ours")
class LooksUpWithoutTheFence(MemorySink):
    """Looks an epoch up by its number and chain, whoever wrote it."""

    def look_up(self, marker: Marker) -> Receipt | None:
        for entry in self.store.epochs(self._writer):
            found = marker_of(entry)
            if found and found.epoch == marker.epoch:
                return self._receipt(entry, marker)
        return None


@caught_by("looking_up_a_marker_alone_finds_it")
class LooksUpRowsOnly(MemorySink):
    """Looks for an epoch's rows."""

    def look_up(self, marker: Marker) -> Receipt | None:
        receipt = super().look_up(marker)
        return receipt if receipt and receipt.rows else None
