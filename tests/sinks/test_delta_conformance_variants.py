"""The suite on tables that are partitioned, merged by hand or still grow; what holds once a marker's text is gone."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.memory_harness import with_column

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Batch
from onceonly_sinks.conformance import SinkConformance
from onceonly_sinks.conformance.story import Plan, Story, plan
from onceonly_sinks.delta import Merge

pytestmark = pytest.mark.slow


class TestDeltaPartitionedWithAnEpochColumn(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, epoch_column="_epoch", partition_by="step")


class TestDeltaMergeByHand(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, merge=Merge("t.id = s.id").when_matched_update().when_not_matched_insert())


class DeletingHarness(DeltaHarness):
    """Every row says that it stays."""

    def batch(self, table: pa.Table, **how: bool) -> Batch:
        return super().batch(with_column(table, "gone"), **how)


class TestDeltaMergeWithADeleteColumn(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeletingHarness(tmp_path, key="id", sequence="step", delete="gone")


class TestDeltaAddingAColumn(SinkConformance):
    """The table lacks a column of the rows, and any epoch may be the first to add it."""

    @pytest.fixture(params=[{}, {"driver_limit": 0}, {"key": "id"}], ids=str)
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> DeltaHarness:
        narrow = pa.schema([("id", pa.int64()), ("step", pa.int64())])
        DeltaTable.create(tmp_path / "rows", narrow)
        return DeltaHarness(tmp_path, schema="add_columns", **request.param)


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[tuple[Story, list[Plan]]]:
    """A table with four epochs whose log, and with it the markers' text, has been cleaned away."""
    harness = DeltaHarness(tmp_path)
    with Story(harness) as story:
        driver = story.driver()
        written = [driver.writes() for _ in range(4)]
        harness.maintain()
        harness.maintain()
        harness.forget_log_before_checkpoint()
        yield story, written


def test_an_epoch_follows_the_one_whose_marker_has_aged_out(aged: tuple[Story, list[Plan]]) -> None:
    story, written = aged
    driver = story.driver()
    position = driver.position()
    assert (position.marker, position.epoch, position.has_rows) == (None, 4, True)
    following = driver.plan(after=written[-1].epoch)
    driver.tries(following)
    story.has_rows_of(*written, following)


def test_any_number_but_the_next_is_refused_where_the_marker_has_aged_out(aged: tuple[Story, list[Plan]]) -> None:
    # Only the number outlives the log. Which history it belongs to is for the core to compare with the ledger.
    story, written = aged
    driver = story.driver()
    gap = driver.plan(after=driver.plan(after=written[3].epoch).epoch)
    for planned in (written[3], driver.plan(salt=1, after=written[2].epoch), gap, plan(None, driver.sink.id, salt=1)):
        with pytest.raises(OnceOnlyError):
            driver.tries(planned)
    story.has_rows_of(*written)
