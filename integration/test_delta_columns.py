"""Columns on Spark's path into a Delta table: the same are taken, and the same are refused, as on every other path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from integration.delta_by_spark import UNKNOWN, SparkHarness

from onceonly.errors import DestinationError
from onceonly.protocol import Estimate
from onceonly.sparkbatch import SparkBatch
from onceonly_sinks.conformance.story import Driver, Plan, Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WIDE = (
    "CREATE TABLE delta.`{path}` (id BIGINT, small INT, real DOUBLE, exact DECIMAL(20,2), "
    "deep STRUCT<x: VARCHAR(9)>, later STRING) USING delta"
)
WAYS = {
    "append": {"committer": "spark"},
    "merge": {"key": "ID", "committer": "spark"},
    "executors": {},
}
FEW = Estimate(1, 10)


def writes(driver: Driver, planned: Plan, batch: SparkBatch) -> None:
    driver.commits(planned, driver.sink.prepare(batch, planned.epoch.number))


TOLERATED = {
    "SELECT CAST(1 AS SMALLINT) ID, CAST(2 AS TINYINT) SMALL, CAST(0.5 AS FLOAT) real": {"small": 2, "real": 0.5},
    "SELECT 1L ID, 7 exact, 8 real": {"id": 1, "exact": 7, "real": 8.0, "later": None},
    "SELECT 1L ID": {"id": 1, "small": None, "deep": None},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", TOLERATED)
def test_what_loses_nothing_is_taken(spark: SparkSession, tmp_path: Path, way: str, query: str) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", WIDE, **WAYS[way])
    with Story(harness) as story:
        driver = story.driver()
        for _ in range(2):
            planned = driver.plan(rows=1)
            batch = SparkBatch(spark.sql(query), UNKNOWN)
            driver.commits(planned, driver.sink.prepare(batch, planned.epoch.number))
    found = harness.rows()
    assert len(found) == (1 if "key" in WAYS[way] else 2)
    wanted = TOLERATED[query]
    assert [{name: row[name] for name in wanted} for row in found] == [wanted] * len(found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT 1L ID, 1L small", "small is integer in the table and long"),
        ("SELECT 1.5D ID", "ID is long in the table and double"),
        ("SELECT 1L ID, parse_json('1') later", "column later is VARIANT"),
        ("SELECT 1L ID, INTERVAL '1' YEAR later", "column later is interval year"),
    ],
)
def test_what_would_lose_something_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, way: str, query: str, told: str
) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", WIDE, **WAYS[way])
    with Story(harness) as story:
        driver = story.driver()
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(SparkBatch(spark.sql(query), UNKNOWN), 1)
        assert refused.value.code == "E506"
        assert told in str(refused.value)
    assert harness.rows() == []


@pytest.mark.parametrize("estimate", [FEW, UNKNOWN], ids=["few", "many"])
@pytest.mark.parametrize("way", ["append", "merge", "executors"])
def test_a_text_longer_than_its_column_is_refused(
    spark: SparkSession, tmp_path: Path, way: str, estimate: Estimate
) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", WIDE, **WAYS[way])
    with Story(harness) as story:
        driver = story.driver()
        for text, fits in (("too long for it", False), ("nine char", True)):
            planned = driver.plan(rows=1)
            rows = spark.sql(f"SELECT 1L ID, named_struct('x', '{text}') deep")
            if fits:
                writes(driver, planned, SparkBatch(rows, estimate))
                continue
            with pytest.raises(DestinationError, match="E503"):
                writes(driver, planned, SparkBatch(rows, estimate))
    assert [row["deep"]["x"] for row in harness.rows()] == ["nine char"]


def test_no_end_west_of_greenwich_is_read_back_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """'9999-12-31 23:59:59' of a session in New York lies in the year 10000."""
    end: Any = pa.array([253402318799000000, 0, -62135596800000000 - 86_400_000_000], pa.int64())
    rows = pa.table({"id": pa.array([1, 2, 3]), "until": end.cast(pa.timestamp("us", "UTC"))})
    harness = SparkHarness(spark, tmp_path / "rows")
    with Story(harness) as story:
        driver = story.driver()
        for estimate in (FEW, UNKNOWN):
            planned = driver.plan(rows=3)
            frame = spark.createDataFrame(rows)
            driver.commits(planned, driver.sink.prepare(SparkBatch(frame, estimate), planned.epoch.number))
    read = spark.read.format("delta").load(str(tmp_path / "rows"))
    for condition, ids in (
        ("until > timestamp_micros(253402300799000000)", [1, 1]),
        ("until < timestamp_micros(-62135596800000000)", [3, 3]),
        ("until = timestamp_micros(0)", [2, 2]),
    ):
        assert [row.id for row in read.where(condition).select("id").collect()] == ids, condition
