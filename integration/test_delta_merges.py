"""Merges into a Delta table by either committer: what they change, remove, add and refuse."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from integration.delta_by_spark import SparkHarness, operations, writes

from onceonly.errors import ConfigurationError, DestinationError
from onceonly_lab.conformance.scenario import Scenario
from onceonly_sinks.delta import DeltaTuning, Merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BY_HAND = (
    Merge("t.id = s.id")
    .when_matched_delete("s.gone AND s.step >= t.step")
    .when_matched_update("NOT s.gone AND s.step >= t.step")
    .when_not_matched_insert("NOT s.gone")
    .leaving_out("gone")
)

MERGES: list[Any] = [{"key": "id", "sequence": "step", "delete_flag": "gone"}, {"merge": BY_HAND}]


@pytest.mark.slow
def test_a_large_merge_goes_through_spark_and_equals_a_dict(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", key="id", sequence="step", driver_limit=0)
    model: dict[int, tuple[int, str]] = {}
    with Scenario(harness) as story:
        driver = story.driver()
        for changes in (
            [(1, 5, "a"), (1, 7, "b"), (2, 1, "c")],
            [(1, 6, "late"), (2, 2, "d"), (3, 1, "e")],
            [(2, 2, "equal"), (3, 0, "old")],
            [],
        ):
            for key, step, note in changes:
                if key not in model or step >= model[key][0]:
                    model[key] = (step, note)
            ids, steps, notes = zip(*changes, strict=True) if changes else ((), (), ())
            rows = pa.table(
                {
                    "id": pa.array(ids, pa.int64()),
                    "step": pa.array(steps, pa.int64()),
                    "note": pa.array(notes, pa.string()),
                }
            )
            planned = driver.plan()
            prepared = driver.sink.prepare(harness.batch(rows), planned.epoch.number)
            driver.commits(planned, prepared)
        assert {row["id"]: (row["step"], row["note"]) for row in harness.rows()} == model
        assert driver.position().epoch == 4
        assert "Apache-Spark" in operations(harness.path)


@pytest.mark.slow
@pytest.mark.parametrize("options", MERGES, ids=["key", "merge"])
def test_both_committers_merge_and_remove_alike(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    epochs = (
        [(1, 5, False), (2, 5, False), (3, 5, False), (4, 5, True)],
        [(1, 4, True), (2, 6, True), (3, 6, False), (4, 6, False)],
        [(1, 9, True), (2, 1, False), (9, 1, True)],
    )
    for committer in ("log", "spark"):
        harness = SparkHarness(spark, tmp_path / committer, committer=committer, **options)
        with Scenario(harness) as story:
            driver = story.driver()
            for changes in epochs:
                ids, steps, gone = zip(*changes, strict=True)
                writes(driver, harness, pa.table({"id": ids, "step": steps, "gone": gone, "no`te": ["x"] * len(ids)}))
            kept = sorted((row["id"], row["step"], row["no`te"]) for row in harness.rows())
            assert kept == [(2, 1, "x"), (3, 6, "x"), (4, 6, "x")]
            assert "gone" not in harness.rows()[0]
            assert driver.position().epoch == 3


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, *MERGES], ids=["append", "key", "merge"])
def test_spark_adds_columns_in_the_version_that_brings_them(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    narrow = pa.table({"id": [1], "step": [1], "gone": [False]})
    wide = pa.table({"id": [2, 1], "step": [2, 2], "gone": [False, False], "x.1": [1.5, 2.5]})
    if not options:
        narrow, wide = narrow.drop_columns("gone"), wide.slice(0, 1).drop_columns("gone")
    harness = SparkHarness(spark, tmp_path / "rows", committer="spark", schema="add_columns", **options)
    with Scenario(harness) as story:
        driver = story.driver()
        writes(driver, harness, narrow)
        before = DeltaTable(harness.path)
        receipt = writes(driver, harness, wide)
        after = DeltaTable(harness.path)
        assert receipt.at("version") == before.version() + 1 == after.version()
        assert after.metadata().id == before.metadata().id
        assert [field.name for field in after.schema().fields] == ["id", "step", "x.1"]
        found = sorted((row["id"], row["x.1"]) for row in harness.rows())
        assert found == [(1, 2.5 if options else None), (2, 1.5)]
        writes(driver, harness, narrow.set_column(1, "step", pa.array([9])).append_column("x.1", pa.array([0.5])))


@pytest.mark.parametrize("options", [MERGES[0], pytest.param(MERGES[1], marks=pytest.mark.slow)], ids=["key", "merge"])
def test_a_missing_package_for_merge_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "delta.tables", None)  # what an environment without delta-spark answers
    harness = SparkHarness(spark, tmp_path / "rows", committer="spark", **options)
    rows = pa.table({"id": [1], "step": [1], "gone": [False]})
    with Scenario(harness) as story:
        driver = story.driver()
        before = sorted(path.name for path in harness.path.rglob("*"))
        with pytest.raises(ConfigurationError, match="E108"):
            writes(driver, harness, rows)
        assert sorted(path.name for path in harness.path.rglob("*")) == before
        monkeypatch.undo()
        writes(driver, harness, rows)
        assert harness.rows() == [{"id": 1, "step": 1}]


@pytest.mark.slow
def test_what_spark_refuses_of_a_merge_is_told_and_the_next_epoch_goes(spark: SparkSession, tmp_path: Path) -> None:
    total = {"step": "t.step + s.step"}
    for on, rows in (("t.id = s.id", 2), ("t.id = s.nothing", 1), ("t.id = = s.id", 1)):
        merge = Merge(on).when_matched_update(None, total).when_not_matched_insert()
        harness = SparkHarness(spark, tmp_path / str(len(on)), committer="spark", key="id")
        with Scenario(harness) as story:
            writes(story.driver(), harness, pa.table({"id": [1], "step": [1]}))
            harness.options = {"tuning": DeltaTuning(committer="spark"), "merge": merge}
            driver = story.driver()
            with pytest.raises(DestinationError) as refused:
                writes(driver, harness, pa.table({"id": [1] * rows, "step": range(rows)}))
            assert refused.value.code == "E520", str(refused.value)
            harness.options = {"merge": BY_HAND}
            writes(story.driver(), harness, pa.table({"id": [1], "step": [7], "gone": [False]}))
            assert harness.rows() == [{"id": 1, "step": 7}]


@pytest.mark.slow
def test_a_merge_leaves_no_settings_behind_that_would_stamp_other_writes(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", key="id", committer="spark")
    other = str(tmp_path / "other")
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        driver.writes()
        for _ in range(2):
            spark.range(3).write.format("delta").mode("append").save(other)
        assert spark.read.format("delta").load(other).count() == 6
        assert DeltaTable(other).transaction_version(driver.sink._open.table.app) is None  # type: ignore[attr-defined]


@pytest.mark.slow
def test_keys_that_no_merge_can_use_are_refused_by_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", key="id", committer="spark")
    found = {}
    with Scenario(harness) as story:
        driver = story.driver()
        for ids, code in (((1, None), "E504"), ((1, 1), "E505")):
            rows = pa.table({"id": pa.array(ids, pa.int64()), "step": [1, 1], "note": ["a", "b"]})
            try:
                driver.sink.prepare(harness.batch(rows), 1)
                found[code] = "nothing"
            except DestinationError as refused:
                found[code] = refused.code
            assert not list((harness.path / "_onceonly_staging").rglob("*.parquet")), code
    assert found == {code: code for code in ("E504", "E505")}
