"""The Delta sink passes the whole suite through deltalake: rows held by the driver, files of executors, merges."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Superseded
from onceonly_sinks.conformance import SinkConformance, SinkHarness
from onceonly_sinks.conformance.story import Plan, Story, plan
from onceonly_sinks.delta import DeltaSink


class DeltaHarness(SinkHarness):
    """One table in a directory of its own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._path = folder / "target"
        self._options = {"committer": "log", **options}

    def connect(self) -> DeltaSink:
        return DeltaSink(self._path, **self._options)

    def rows(self) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(self._path)):
            return []
        rows: list[dict[str, Any]] = DeltaTable(self._path).to_pyarrow_table().to_pylist()
        return rows

    def maintain(self) -> None:
        table = DeltaTable(self._path)
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


class TestAppendThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path)


class TestAppendByExecutors(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, driver_limit=0)


class TestMerge(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, key="id")


class TestWithAnEpochColumn(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(tmp_path, epoch_column="_epoch", partition_by="step")


class AgedHarness(DeltaHarness):
    """Maintenance also takes the log before the checkpoint away, and with it the markers' text, as retention does."""

    def maintain(self) -> None:
        super().maintain()
        table = DeltaTable(self._path)
        table.create_checkpoint()
        for entry in (self._path / "_delta_log").glob("*.json"):
            if int(entry.stem) < table.version():
                entry.unlink()


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[tuple[Story, list[Plan]]]:
    """A target with four epochs of generation 3, whose log has been cleaned away."""
    harness = AgedHarness(tmp_path)
    with Story(harness) as story:
        driver = story.driver(3)
        written = [driver.writes() for _ in range(4)]
        harness.maintain()
        yield story, written


def test_the_number_of_the_newest_epoch_outlives_the_log(aged: tuple[Story, list[Plan]]) -> None:
    story, written = aged
    position = story.driver(4).position()
    assert (position.epoch, position.has_rows) == (4, True)
    story.has_rows_of(*written)


def test_the_generation_outlives_the_log(aged: tuple[Story, list[Plan]]) -> None:
    story, _ = aged
    for generation in (2, 3):
        late = story.stranger(generation, "late")
        with pytest.raises(Superseded):
            late.sink.install(late.fence)


def test_an_epoch_follows_the_one_whose_marker_is_gone(aged: tuple[Story, list[Plan]]) -> None:
    story, written = aged
    driver = story.driver(4)
    following = driver.plan(after=written[-1].epoch)
    driver.tries(following)
    story.has_rows_of(*written, following)


def test_another_number_than_the_next_is_refused_where_the_marker_is_gone(aged: tuple[Story, list[Plan]]) -> None:
    # Only the number outlives the log. Which history it belongs to is for the core to compare with the ledger.
    story, written = aged
    driver = story.driver(4)
    gap = driver.plan(after=driver.plan(after=written[3].epoch).epoch)
    for planned in (written[3], driver.plan(salt=1, after=written[2].epoch), gap, plan(None, driver.sink.id, salt=1)):
        with pytest.raises(OnceOnlyError):
            driver.tries(planned)
    story.has_rows_of(*written)
