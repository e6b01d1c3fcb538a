"""Columns on Spark's path into a Delta table: the same are taken, and the same are refused, as on every other path."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from integration.delta_by_spark import UNKNOWN, SparkHarness

from onceonly.errors import DestinationError
from onceonly.protocol import Estimate
from onceonly.spark.batch import SparkBatch
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario
from onceonly_sinks.delta import DeltaTuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WIDE = (
    "CREATE TABLE delta.`{path}` (id BIGINT, small INT, real DOUBLE, exact DECIMAL(20,2), "
    "deep STRUCT<x: VARCHAR(9)>, later STRING) USING delta"
)
WAYS = {
    "append": {"tuning": DeltaTuning(committer="spark")},
    "merge": {"key": "ID", "tuning": DeltaTuning(committer="spark")},
    "executors": {},
}
FEW = Estimate(1, 10)


def ways(*quick: str) -> list[Any]:
    """All ways into a table; those that are not named are slow."""
    return [pytest.param(way, marks=() if way in quick else pytest.mark.slow) for way in WAYS]


def writes(driver: Driver, planned: PlannedEpoch, batch: SparkBatch) -> None:
    driver.commits(planned, driver.sink.prepare(batch, planned.epoch.number))


ALONE = ("SELECT {id}L ID", {"small": None, "real": None, "exact": None, "deep": None, "later": None})
TOLERATED = (
    ALONE,
    (
        "SELECT CAST({id} AS SMALLINT) ID, CAST(2 AS TINYINT) SMALL, CAST(0.5 AS FLOAT) real, 7 exact",
        {"small": 2, "real": 0.5, "exact": 7, "deep": None, "later": None},
    ),
    ("SELECT {id}L ID, 8 real", {"small": None, "real": 8.0, "exact": None, "deep": None, "later": None}),
)
"""What an epoch brings beside its key, and what the table holds then: the first meets an empty table."""


@pytest.mark.parametrize("way", ways("append"))
def test_what_loses_nothing_is_taken(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Each epoch but the first brings a key that is there, without anything beside it, and a new one."""
    harness = SparkHarness(spark, tmp_path / "rows", WIDE, **WAYS[way])
    wanted: list[dict[str, Any]] = []
    with Scenario(harness) as story:
        driver = story.driver()
        for number, (query, row) in enumerate(TOLERATED):
            ids = [number, number + len(TOLERATED)] if number else list(range(len(TOLERATED)))
            if "key" in WAYS[way]:
                wanted = [held for held in wanted if held["id"] not in ids]
            wanted += [{"id": one, **row} for one in ids]
            rows = spark.sql(" UNION ALL ".join(query.format(id=one) for one in ids))
            writes(driver, driver.plan(rows=len(ids)), SparkBatch(rows, UNKNOWN))
    assert by_id(harness.rows()) == by_id(wanted)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"], str(row)))


REFUSED = (
    ("SELECT 1L ID, 1L small", "small is integer in the table and long"),
    ("SELECT 1.5D ID", "ID is long in the table and double"),
    ("SELECT 1L ID, parse_json('1') later", "column later is VARIANT"),
    ("SELECT 1L ID, INTERVAL '1' YEAR later", "column later is interval year"),
)


def test_what_would_lose_something_is_refused_by_name_on_each_way(spark: SparkSession, tmp_path: Path) -> None:
    taken = []
    for way, options in WAYS.items():
        harness = SparkHarness(spark, tmp_path / way, WIDE, **options)
        with Scenario(harness) as story:
            driver = story.driver()
            for query, told in REFUSED:
                try:
                    driver.sink.prepare(SparkBatch(spark.sql(query), UNKNOWN), 1)
                    said = "nothing"
                except DestinationError as refused:
                    said = str(refused)
                if "[ONCE-E506]" not in said or told not in said:
                    taken.append((way, query, said))
        assert DeltaTable(harness.path).file_uris() == [], way
    assert taken == [], "way, rows, and what was said of them"


@pytest.mark.slow
@pytest.mark.parametrize("way", ways("append"))
@pytest.mark.parametrize("estimate", [UNKNOWN, pytest.param(FEW, marks=pytest.mark.slow)], ids=["many", "few"])
def test_a_text_longer_than_its_column_is_refused(
    spark: SparkSession, tmp_path: Path, way: str, estimate: Estimate
) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", WIDE, **WAYS[way])
    with Scenario(harness) as story:
        driver = story.driver()

        def rows(text: str) -> SparkBatch:
            return SparkBatch(spark.sql(f"SELECT 1L ID, named_struct('x', '{text}') deep"), estimate)

        with pytest.raises(DestinationError, match="E503"):
            writes(driver, driver.plan(rows=1), rows("too long for it"))
        writes(driver, driver.plan(rows=1), rows("nine char"))
    assert [(row["id"], row["deep"]["x"]) for row in harness.rows()] == [(1, "nine char")]


@pytest.mark.slow
def test_no_end_west_of_greenwich_is_read_back_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """'9999-12-31 23:59:59' of a session in New York lies in the year 10000."""
    end: Any = pa.array([253402318799000000, 0, -62135596800000000 - 86_400_000_000], pa.int64())
    rows = pa.table({"id": pa.array([1, 2, 3]), "until": end.cast(pa.timestamp("us", "UTC"))})
    harness = SparkHarness(spark, tmp_path / "rows")
    with Scenario(harness) as story:
        driver = story.driver()
        for estimate in (FEW, UNKNOWN):
            planned = driver.plan(rows=3)
            frame = spark.createDataFrame(rows)
            driver.commits(planned, driver.sink.prepare(SparkBatch(frame, estimate), planned.epoch.number))
    read = spark.read.format("delta").load(str(tmp_path / "rows"))
    wanted = {
        "until > timestamp_micros(253402300799000000)": [1, 1],
        "until < timestamp_micros(-62135596800000000)": [3, 3],
        "until = timestamp_micros(0)": [2, 2],
    }
    # A scan for each, since Spark looks for files by what it is asked; one job for all.
    asked = [read.where(condition).selectExpr(f"'{condition}' AS condition", "id") for condition in wanted]
    found = reduce(lambda one, other: one.unionAll(other), asked).collect()
    assert {condition: [row.id for row in found if row.condition == condition] for condition in wanted} == wanted
