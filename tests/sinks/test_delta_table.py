"""What the Delta sink makes of a table that others maintain, change or write to beside it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from tests.sinks.delta_harness import DeltaHarness

from onceonly.errors import DestinationError, IdentityError
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Position, Superseded
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.conformance.scenario import Driver, Scenario, unknown
from onceonly_sinks.delta import Merge, errors


@pytest.fixture
def harness(tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(tmp_path)


def kinds(position: Position) -> list[tuple[str, bool]]:
    return [(found.kind, found.fatal) for found in position.disturbances]


def foreign(path: Path, number: int = 900_000) -> None:
    write_deltalake(path, pa.table({"id": [number], "step": [0], "note": ["foreign"]}), mode="append")


# ---- the log is maintained by others


def test_the_newest_marker_outlives_the_log_it_was_written_to(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes() for _ in range(3)]
        harness.maintain()
        story.driver()
        harness.forget_log_before_checkpoint()
        position = story.driver().position()
        assert position.marker == driver.marker(written[-1].epoch)
        assert kinds(position) == []


def test_once_the_marker_has_aged_out_its_number_still_stands_and_fences(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver(4)
        first = driver.tries(driver.plan())
        foreign(harness.path)
        DeltaTable(harness.path).create_checkpoint()
        harness.forget_log_before_checkpoint()
        assert story.reader().fence() == Fence(4, "")
        late = story.stranger(4, "owner-4")
        with pytest.raises(Superseded):
            late.sink.install(late.fence)
        owner = story.stranger(5, "owner-5")
        owner.sink.install(owner.fence)
        position = owner.sink.position(first)
        assert (position.marker, position.epoch) == (None, 1)
        assert kinds(position) == [("unreadable", True), ("appended", False)]


def test_foreign_commits_between_ours_hide_no_marker(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        written = driver.writes()
        for number in range(30):
            foreign(harness.path, 900_000 + number)
        DeltaTable(harness.path).optimize.compact()
        later = story.driver()
        assert later.position().marker == driver.marker(written.epoch)
        [appended] = later.position().disturbances
        assert (appended.fatal, appended.allowed, appended.added) == (False, True, 30)
        later.writes()


# ---- what others do to the table


def restored(path: Path) -> None:
    DeltaTable(path).restore(DeltaTable(path).version() - 1)


def overwritten(path: Path) -> None:
    write_deltalake(path, pa.table({"id": [1], "step": [0], "note": ["x"]}), mode="overwrite")


def deleted(path: Path) -> None:
    DeltaTable(path).delete("id >= 0")


@pytest.mark.parametrize("mishap", [restored, overwritten, deleted], ids=lambda mishap: mishap.__name__)
def test_a_mishap_is_found_at_the_next_opening(harness: DeltaHarness, mishap: Callable[[Path], None]) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        receipt = driver.tries(driver.plan())
        mishap(harness.path)
        for since in (receipt, None):
            later = story.stranger(story.driver().fence.generation + 1, "later")
            later.sink.install(later.fence)
            assert kinds(later.sink.position(since)) == [(mishap.__name__, True)]
            story._generation += 1


@pytest.mark.parametrize("mishap", [restored, overwritten, deleted], ids=lambda mishap: mishap.__name__)
def test_a_mishap_between_two_epochs_stops_the_second(harness: DeltaHarness, mishap: Callable[[Path], None]) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        mishap(harness.path)
        left = harness.rows()
        with pytest.raises(IdentityError) as refused:
            driver.commits(planned, prepared)
        assert refused.value.code == "E209"
        assert harness.rows() == left


def test_a_known_mishap_is_not_held_against_the_epoch_that_accepts_it(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        first = story.driver()
        first.writes()
        deleted(harness.path)
        accepting = story.driver()
        assert kinds(accepting.position()) == [("deleted", True)]
        accepting.commits(accepting.plan(rows=0), None)
        assert kinds(story.driver().position()) == []


@pytest.mark.parametrize("limit", [0, 1 << 20], ids=["executors", "driver"])
def test_a_mishap_between_check_and_commit_is_found_by_the_next_look(tmp_path: Path, limit: int) -> None:
    # A commit may be put behind foreign ones that came in between; the next look must not begin after it.
    harness = DeltaHarness(tmp_path, driver_limit=limit)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        after_the_check(driver, lambda: deleted(harness.path))
        with suppress(OutcomeUnknown):
            driver.commits(planned, prepared)
        assert kinds(story.driver().position()) == [("deleted", True)]


def after_the_check(driver: Driver, act: Callable[[], object]) -> None:
    """Do something once, between what a commit reads and what it sends."""
    table = driver.sink._open.table  # type: ignore[attr-defined]
    checks = table.check_properties

    def then(*, removes: bool) -> None:
        table.check_properties = checks
        checks(removes=removes)
        act()

    table.check_properties = then


def test_a_table_dropped_and_made_again_has_no_fence_of_ours(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        receipt = driver.tries(driver.plan())
        planned = driver.plan()
        shutil.rmtree(harness.path)
        foreign(harness.path)
        with pytest.raises(DestinationError) as refused:
            driver.tries(planned)
        assert refused.value.code == "E508"
        later = story.driver()
        assert later.sink.position(receipt).identity != receipt.identity
        assert later.sink.position(receipt).epoch == 0


def test_a_dropped_table_is_not_written_to(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        shutil.rmtree(harness.path)
        with pytest.raises(DestinationError) as refused:
            driver.commits(planned, prepared)
        assert refused.value.code == "E508"
        assert not harness.path.exists()


def test_a_table_that_forgets_markers_is_refused(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        table = DeltaTable(harness.path)
        table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
        with pytest.raises(DestinationError) as refused:
            driver.writes()
        assert refused.value.code == "E509"
        late = story.stranger(9, "late")
        with pytest.raises(DestinationError) as refused:
            late.fences()
        assert refused.value.code == "E509"


REPLACING = Merge("t.id = s.id").when_matched_update().when_not_matched_insert()
ADDING = Merge("t.id = s.id").when_not_matched_insert()


@pytest.mark.parametrize("options", [{"key": "id"}, {"merge": REPLACING}], ids=["key", "merge"])
def test_rows_of_a_table_that_only_grows_are_not_replaced(tmp_path: Path, options: dict[str, Any]) -> None:
    harness = DeltaHarness(tmp_path, **options)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        DeltaTable(harness.path).alter.set_table_properties({"delta.appendOnly": "true"})
        for refusing in (driver.writes, story.newcomer().fences):
            version = DeltaTable(harness.path).version()
            with pytest.raises(DestinationError, match=r"delta\.appendOnly is true") as refused:
                refusing()
            assert refused.value.code == "E508"
            assert DeltaTable(harness.path).version() == version


@pytest.mark.parametrize("options", [{}, {"merge": ADDING}], ids=["append", "merge"])
def test_a_table_that_only_grows_takes_rows(tmp_path: Path, options: dict[str, Any]) -> None:
    harness = DeltaHarness(tmp_path, **options)
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes()]
        DeltaTable(harness.path).alter.set_table_properties({"delta.appendOnly": "true"})
        story.holds(*written, driver.writes(), story.driver().writes())


def test_a_commit_that_the_table_does_not_take_is_told_from_one_whose_answer_was_lost(harness: DeltaHarness) -> None:
    """One class of deltalake's stands for both; whether somebody was faster tells them apart."""
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        DeltaTable(harness.path).alter.set_table_properties({"delta.appendOnly": "true"})
        with pytest.raises(CommitFailedError) as raised:
            DeltaTable(harness.path).delete("id >= 0")
        table = driver.sink._open.table  # type: ignore[attr-defined]
        refused = errors.of_commit(table, raised.value, landed=False, held=None, alone=True)
        assert getattr(refused, "code", None) == "E508"
        beaten = errors.of_commit(table, raised.value, landed=False, held=None, alone=False)
        assert isinstance(beaten, OutcomeUnknown)


# ---- commits of drivers that do not know better


def test_a_zombie_between_its_check_and_its_commit_writes_nothing(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        zombie = story.driver(1)
        first = zombie.writes()
        planned = zombie.plan()
        prepared = zombie.prepares(planned)
        after_the_check(zombie, lambda: story.driver(2))
        with pytest.raises(Superseded) as fenced:
            zombie.commits(planned, prepared)
        assert fenced.value.current_fence == Fence(2, "owner-2")
        story.holds(first)


def test_a_commit_of_ours_that_another_handle_made_is_not_repeated(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        twin = story.stranger(driver.fence.generation, driver.fence.owner)
        twin.fences()
        planned = driver.plan()
        twin.tries(planned)
        with pytest.raises(IdentityError) as refused:
            driver.tries(planned)
        assert refused.value.code == "E210"
        story.holds(planned)


def test_giving_up_a_preparation_whose_answer_was_lost_deletes_nothing_that_landed(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=0)
    with Scenario(harness) as story:
        driver = story.driver()
        planned = driver.plan()
        prepared = driver.prepares(planned)
        unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, prepared))
        prepared.abandon()
        assert driver.looks_up(planned) is not None
        story.holds(planned)


def test_a_generation_beyond_the_format_is_refused_before_anything_is_written(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        late = story.stranger(2**23, "late")
        with pytest.raises(DestinationError) as refused:
            late.fences()
        assert refused.value.code == "E512"
        assert not harness.path.exists()


def test_a_second_fence_on_a_table_without_columns_fences_the_first(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        first, second = story.driver(1), story.driver(2)
        planned = second.plan()
        with pytest.raises(Superseded):
            first.tries(planned)
        second.tries(planned)
        story.holds(planned)


def test_a_retention_that_others_set_later_does_not_make_our_version_expire_unseen(harness: DeltaHarness) -> None:
    # A transaction without a time would be ignored at once by a table with a retention.
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        newest = sorted((harness.path / "_delta_log").glob("*.json"))[-1]
        actions = [json.loads(line) for line in newest.read_text().splitlines()]
        [stamp] = [action["txn"]["lastUpdated"] for action in actions if "txn" in action]
        assert abs(stamp - time.time() * 1000) < 600_000
        driver.writes()


def test_a_foreign_application_version_is_no_fence(harness: DeltaHarness) -> None:
    foreign(harness.path)
    DeltaTable(harness.path).create_write_transaction(
        [],
        "append",
        DeltaTable(harness.path).schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction("someone", 5, 1)]),
    )
    with Scenario(harness) as story:
        assert story.reader().fence() is None
