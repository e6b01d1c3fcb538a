"""The suite on tables that are partitioned, merged by hand or still grow; what holds once a marker's text is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sinks.delta_harness import DeletingDeltaHarness, DeltaHarness, NarrowDeltaHarness
from tests.sinks.variants import asked_for_what_it_changes

from onceonly.errors import OnceOnlyError
from onceonly_lab.conformance import SinkConformance
from onceonly_lab.conformance.scenario import PlannedEpoch, Scenario, plan
from onceonly_sinks.delta import DeltaTuning, Merge


@asked_for_what_it_changes
class TestDeltaPartitionedWithAnEpochColumn(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, epoch_column="_epoch", partition_by="step")


@asked_for_what_it_changes
class TestDeltaMergeByHand(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, merge=Merge("t.id = s.id").when_matched_update().when_not_matched_insert())


@asked_for_what_it_changes
class TestDeltaMergeWithADeleteColumn(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeletingDeltaHarness(tmp_path, key="id", sequence="step", delete_flag="gone")


@asked_for_what_it_changes
class TestDeltaAddingAColumn(SinkConformance):
    """The table lacks a column of the rows, and any epoch may be the first to add it."""

    @pytest.fixture(
        params=[
            {"tuning": DeltaTuning(driver_limit=0)},
            *(pytest.param(way, marks=pytest.mark.slow) for way in ({}, {"key": "id"})),
        ],
        ids=str,
    )
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> DeltaHarness:
        return NarrowDeltaHarness(tmp_path, **request.param)


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[tuple[Scenario, list[PlannedEpoch]]]:
    """A table with four epochs whose log, and with it the markers' text, has been cleaned away."""
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes() for _ in range(4)]
        harness.maintain()
        harness.maintain()
        harness.forget_log_before_checkpoint()
        yield story, written


def test_an_epoch_follows_the_one_whose_marker_has_aged_out(aged: tuple[Scenario, list[PlannedEpoch]]) -> None:
    story, written = aged
    driver = story.driver()
    position = driver.position()
    assert (position.marker, position.epoch, position.has_rows) == (None, 4, True)
    following = driver.plan(after=written[-1].epoch)
    driver.tries(following)
    story.has_rows_of(*written, following)


def test_any_number_but_the_next_is_refused_where_the_marker_has_aged_out(
    aged: tuple[Scenario, list[PlannedEpoch]],
) -> None:
    # Only the number outlives the log. Which history it belongs to is for the core to compare with the ledger.
    story, written = aged
    driver = story.driver()
    gap = driver.plan(after=driver.plan(after=written[3].epoch).epoch)
    for planned in (written[3], driver.plan(salt=1, after=written[2].epoch), gap, plan(None, driver.sink.id, salt=1)):
        with pytest.raises(OnceOnlyError):
            driver.tries(planned)
    story.has_rows_of(*written)
