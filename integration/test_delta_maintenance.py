"""What Spark does to a Delta table between epochs: maintenance, restores, clones, catalog names, constraints."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from integration.delta_by_spark import SparkHarness

from onceonly.errors import DestinationError, IdentityError
from onceonly_lab.conformance.scenario import PIPELINE, Scenario
from onceonly_sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> SparkHarness:
    return SparkHarness(spark, tmp_path / "rows")


@pytest.mark.slow
def test_spark_maintenance_between_epochs_disturbs_nothing(harness: SparkHarness, spark: SparkSession) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes() for _ in range(3)]
        spark.sql(f"OPTIMIZE delta.`{harness.path}`")
        spark.sql(f"ALTER TABLE delta.`{harness.path}` SET TBLPROPERTIES ('nightly' = 'yes')")
        written.append(driver.writes())
        later = story.driver()
        assert later.position().disturbances == ()
        story.has_rows_of(*written, later.writes())


@pytest.mark.slow
def test_a_restore_by_spark_is_found_although_it_keeps_the_application_version(
    harness: SparkHarness, spark: SparkSession
) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        version = DeltaTable(harness.path).version()
        planned = driver.writes()
        following = driver.plan()
        spark.sql(f"RESTORE TABLE delta.`{harness.path}` TO VERSION AS OF {version}")
        with pytest.raises(IdentityError) as refused:
            driver.tries(following)
        assert refused.value.code == "E209"
        position = story.driver().position()
        assert position.epoch == planned.epoch.number
        assert [(found.kind, found.fatal) for found in position.disturbances] == [("restored", True)]


def test_create_or_replace_is_found_although_it_keeps_the_application_version(
    harness: SparkHarness, spark: SparkSession
) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    columns = "(id BIGINT, step BIGINT, note STRING)"
    spark.sql(f"CREATE TABLE {name} {columns} USING delta LOCATION '{harness.path}'")
    try:
        with Scenario(harness) as story:
            driver = story.driver()
            receipt = driver.tries(driver.plan())
            following = driver.plan()
            spark.sql(f"CREATE OR REPLACE TABLE {name} {columns} USING delta LOCATION '{harness.path}'")
            with pytest.raises(IdentityError) as refused:
                driver.tries(following)
            assert refused.value.code == "E208"
            position = story.driver().position()
            assert position.identity != receipt.identity
            assert {(found.kind, found.fatal) for found in position.disturbances} >= {("recreated", True)}
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.slow
def test_a_clone_is_another_table_than_the_one_that_was_written(
    harness: SparkHarness, spark: SparkSession, tmp_path: Path
) -> None:
    harness.options = {"id": "delta:rows"}
    with Scenario(harness) as story:
        driver = story.driver()
        receipt = driver.tries(driver.plan())
        following = driver.plan()
        clone = tmp_path / "clone"
        spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{harness.path}`")
        harness.path = clone
        pointed = story.driver()
        position = pointed.position()
        assert position.identity != receipt.identity
        assert (position.marker, position.has_rows) == (None, True)
        with pytest.raises(IdentityError) as refused:
            pointed.tries(following)
        assert refused.value.code == "E207"


@pytest.mark.slow
def test_a_named_table_is_found_through_the_catalog_and_later_without_it(spark: SparkSession, tmp_path: Path) -> None:
    name = f"orders{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, step BIGINT, note STRING) USING delta LOCATION '{tmp_path}/t'")
    try:
        sink = DeltaSink(name)
        sink.open(PIPELINE)
        assert sink.id == f"delta:{name}"
        found = DeltaSink.from_address(sink.address)
        assert (found.id, found.address) == (sink.id, sink.address)
        assert str(tmp_path) in sink.address
        with pytest.raises(DestinationError) as refused:
            DeltaSink("no_such_table").open(PIPELINE)
        assert refused.value.code == "E508"
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.slow
def test_generated_columns_are_computed_and_constraints_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    name = f"gen{uuid.uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, step BIGINT, note STRING, twice BIGINT GENERATED ALWAYS AS (id * 2))"
        f" USING delta LOCATION '{tmp_path}/rows'"
    )
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (step > 0)")
    try:
        for committer in ("auto", "spark"):
            harness = SparkHarness(spark, tmp_path / "rows", committer=committer)
            with Scenario(harness) as story:
                driver = story.stranger(1 if committer == "auto" else 2, committer)
                driver.fences()
                driver.writes()
                assert all(row["twice"] == 2 * row["id"] for row in harness.rows())
                bad = pa.table({"id": [1], "step": [0], "note": ["x"]})
                planned = driver.plan()
                with pytest.raises(DestinationError) as refused:
                    driver.commits(planned, driver.sink.prepare(harness.batch(bad), planned.epoch.number))
                assert refused.value.code == "E503", committer
                driver.writes()
    finally:
        spark.sql(f"DROP TABLE {name}")
