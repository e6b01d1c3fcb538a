"""What the sink does to its table between commits: markers, rows and openings are none the wiser."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from tests.sinks.delta_harness import DeltaHarness

from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario
from onceonly_sinks.delta import log_committer
from onceonly_sinks.delta.log_committer import CHECKPOINT_EVERY, CLEAN_UP_EVERY, COMPACT_EVERY


@pytest.fixture
def harness(tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(tmp_path)


def files(harness: DeltaHarness) -> int:
    return len(DeltaTable(harness.path).file_uris())


def begun(harness: DeltaHarness, driver: Driver, **properties: str) -> PlannedEpoch:
    """The first epoch of a table with properties."""
    plan = driver.writes(rows=1)
    DeltaTable(harness.path).alter.set_table_properties({f"delta.{name}": value for name, value in properties.items()})
    return plan


def is_found(story: Scenario, driver: Driver, newest: PlannedEpoch) -> None:
    """Check that the driver and a later one find the newest epoch, and nothing that endangers it."""
    assert driver.looks_up(newest)
    position = story.driver().position()
    assert (position.marker, position.disturbances) == (driver.marker(newest.epoch), ())


def test_a_long_run_leaves_checkpoints_and_stays_exact(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        plans = [driver.writes(rows=1) for _ in range(2 * CHECKPOINT_EVERY + 3)]
        assert len(list((harness.path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
        story.holds(*plans)


def test_log_files_past_their_retention_go_and_markers_stay(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        first = begun(harness, driver, logRetentionDuration="interval 0 seconds", checkpointInterval="2")
        plans = [first, *(driver.writes(rows=1) for _ in range(2 * CLEAN_UP_EVERY + 1))]
        assert len(list((harness.path / "_delta_log").glob("*.json"))) < CLEAN_UP_EVERY
        story.has_rows_of(*plans)
        is_found(story, driver, plans[-1])


def test_small_files_become_one_in_a_table_that_the_sink_creates(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        plans = [driver.writes(rows=1) for _ in range(COMPACT_EVERY - 1)]
        assert files(harness) == COMPACT_EVERY - 1
        plans.append(driver.writes(rows=1))
        assert files(harness) == 1
        plans += [driver.writes(rows=1) for _ in range(3)]
        assert files(harness) == 4
        story.holds(*plans)
        is_found(story, driver, plans[-1])


def test_small_files_are_left_alone_where_the_owner_says_so(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        begun(harness, driver, **{"autoOptimize.autoCompact": "false"})
        for _ in range(COMPACT_EVERY):
            driver.writes(rows=1)
        assert files(harness) == COMPACT_EVERY + 1


def test_deletion_vectors_are_left_to_spark(harness: DeltaHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes(rows=1)
        DeltaTable(harness.path).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
        for _ in range(COMPACT_EVERY):
            driver.writes(rows=1)
        assert files(harness) == COMPACT_EVERY + 1


def test_a_table_full_of_small_files_is_not_rewritten_within_an_epoch(
    harness: DeltaHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_committer, "MOST", 10_000)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes(rows=1)
        with caplog.at_level(logging.WARNING):
            for _ in range(2 * COMPACT_EVERY):
                driver.writes(rows=1)
        assert files(harness) == 2 * COMPACT_EVERY + 1
        assert caplog.text.count("OPTIMIZE the table once") == 1


def test_only_files_that_have_company_in_their_partition_would_be_rewritten(tmp_path: Path) -> None:
    for parts in (["a"], ["a", "b"], ["b"], ["c"]):
        write_deltalake(
            tmp_path, pa.table({"id": [1] * len(parts), "part": parts}), mode="append", partition_by=["part"]
        )
    sizes = {part: [file.stat().st_size for file in tmp_path.glob(f"part={part}/*")] for part in "abc"}
    assert [len(each) for each in sizes.values()] == [2, 2, 1]
    assert log_committer.rewritten(DeltaTable(tmp_path)) == sum(sizes["a"] + sizes["b"])
    DeltaTable(tmp_path).optimize.compact()
    assert log_committer.rewritten(DeltaTable(tmp_path)) == 0


def test_large_files_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        write_deltalake(tmp_path, pa.table({"id": [1]}), mode="append")
    monkeypatch.setattr(log_committer, "TARGET", 1)
    assert log_committer.rewritten(DeltaTable(tmp_path)) == 0


def test_the_epoch_stands_where_maintenance_fails(harness: DeltaHarness, caplog: pytest.LogCaptureFixture) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes(rows=1)
        next(harness.path.glob("*.parquet")).unlink()
        with caplog.at_level(logging.WARNING):
            for _ in range(COMPACT_EVERY):
                driver.writes(rows=1)
        assert caplog.text.count(" is committed, but not its maintenance") == 1
        later = story.driver()
        assert later.position().epoch == COMPACT_EVERY + 1
        assert later.position().disturbances == ()
