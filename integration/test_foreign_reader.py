"""Rows as Spark reads them where the zone is not UTC: each type, plain and as a partition, by each committer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from integration.delta_by_spark import UNKNOWN, SparkHarness
from tests.sinks.broken.foreign import LeavesTheZoneOut

from onceonly.protocol import Estimate
from onceonly.spark.batch import SparkBatch
from onceonly_lab.conformance.scenario import Driver, Scenario
from onceonly_sinks.delta import DeltaTuning, Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FEW = Estimate(1, 10)
TIME_ZONE, ZONE = "spark.sql.session.timeZone", "America/New_York"

VALUES = {
    "ts": ("timestamp", "2026-02-03 04:05:06.123456Z", "1500-01-01 00:00:00Z", "9999-12-31 23:00:00Z"),
    "night": ("timestamp", "2025-11-02 05:30:00Z", "2025-11-02 06:30:00Z", "1883-11-18 17:00:00Z"),
    "ntz": ("timestamp_ntz", "2026-03-08 02:30:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "day": ("date", "1582-10-04", "0001-01-01", "1582-10-10"),
    "dec": ("decimal(38,10)", "-0.0000000001", "9999999999999999999999999999.9999999999", "1000000000000"),
    "dbl": ("double", "NaN", "-0.0", "1e300"),
    "flt": ("float", "-Infinity", "1e-30", "0.1"),
    "bin": ("binary", "abc", "%", "ü"),
    "txt": ("string", "a/b%c d=:", "ü\x01", " "),
    "flag": ("boolean", "true", "false", "true"),
    "byte": ("tinyint", "-128", "127", "0"),
    "long": ("bigint", "-9223372036854775808", "9223372036854775807", "0"),
}
"""Of each type what is at an edge, as texts that Spark casts; the last row of a table is null throughout."""


@pytest.fixture
def in_new_york(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(TIME_ZONE)
    spark.conf.set(TIME_ZONE, ZONE)
    yield spark
    spark.conf.set(TIME_ZONE, str(before))


def truth(spark: SparkSession) -> DataFrame:
    """Each type as it is and under ``p_``, to partition by."""
    rows = [(at, *(texts[at] if at < 3 else None for _, *texts in VALUES.values())) for at in range(4)]
    texts = spark.createDataFrame(rows, f"id bigint, {', '.join(f'{name} string' for name in VALUES)}").coalesce(1)
    cast = [f"CAST({name} AS {kind}) {prefix}{name}" for prefix in ("", "p_") for name, (kind, *_) in VALUES.items()]
    return texts.selectExpr("id", *cast, "0 v")


PARTITIONS = [f"p_{name}" for name in VALUES]


def as_texts(rows: DataFrame) -> dict[int, dict[str, Any]]:
    """Rows by id, with texts that differ where values do: of a night in which clocks go back, local time does not."""
    to_text = {"timestamp": "unix_micros({})", "binary": "hex({})"}
    texts = [f"{to_text.get(kind, 'CAST({} AS string)').format(name)} {name}" for name, kind in rows.dtypes]
    listed = [row.asDict() for row in rows.selectExpr(*texts).collect()]
    found = {int(row["id"]): row for row in listed}
    assert len(found) == len(listed), "a row is there twice"
    return found


def differing(read: DataFrame, wanted: DataFrame) -> dict[str, list[int]]:
    """Columns that Spark reads otherwise than they were given, each with the ids of the rows."""
    left, right = as_texts(wanted), as_texts(read)
    assert left.keys() == right.keys()
    pairs = {name: [at for at, row in left.items() if row[name] != right[at][name]] for name in wanted.columns}
    return {name: ids for name, ids in pairs.items() if ids}


def table(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("delta").load(str(path))


def writes(driver: Driver, rows: DataFrame, estimate: Estimate) -> None:
    planned = driver.plan(rows=rows.count())
    driver.commits(planned, driver.sink.prepare(SparkBatch(rows, estimate), planned.epoch.number))


WAYS: dict[str, tuple[Estimate, dict[str, Any]]] = {
    "few": (FEW, {}),
    "many": (UNKNOWN, {}),
    "spark": (FEW, {"tuning": DeltaTuning(committer="spark")}),
}


@pytest.mark.parametrize("way", ["few", *(pytest.param(one, marks=pytest.mark.slow) for one in ("many", "spark"))])
def test_spark_reads_each_type_as_it_was(in_new_york: SparkSession, tmp_path: Path, way: str) -> None:
    rows, (estimate, options) = truth(in_new_york), WAYS[way]
    with Scenario(SparkHarness(in_new_york, tmp_path, partition_by=PARTITIONS, **options)) as story:
        writes(story.driver(), rows, estimate)
    assert differing(table(in_new_york, tmp_path), rows) == {}
    # Neither statistics nor values of partitions make Spark pass over the file of a row.
    literals = [f"{name} = CAST('{texts[0]}' AS {kind})" for name, (kind, *texts) in VALUES.items()]
    where = " AND ".join([*literals, *(f"p_{literal}" for literal in literals)])
    assert table(in_new_york, tmp_path).where(where).count() == 1


@pytest.mark.slow
def test_a_sink_that_leaves_the_zone_out_is_called_by_the_column(in_new_york: SparkSession, tmp_path: Path) -> None:
    """And by no other."""
    rows = truth(in_new_york).where("id < 2")
    harness = SparkHarness(
        in_new_york, tmp_path / "rows", sink=LeavesTheZoneOut, partition_by=["p_ts", "p_ntz", "p_txt"]
    )
    with Scenario(harness) as story:
        writes(story.driver(), rows, FEW)
    assert differing(table(in_new_york, tmp_path / "rows"), rows) == {"p_ts": [0, 1]}


MADE = {"plain": [], "of texts": ["p_txt"], "of all": PARTITIONS}
"""How Spark partitioned its table."""


@pytest.mark.slow
@pytest.mark.parametrize("made", MADE)
def test_what_spark_wrote_stays_what_it_was_beside_a_row_that_is_updated(
    in_new_york: SparkSession, tmp_path: Path, made: str
) -> None:
    in_new_york.conf.set(TIME_ZONE, "UTC")  # in the other one Spark makes one partition of two instants of a night
    truth(in_new_york).write.format("delta").partitionBy(*MADE[made]).save(str(tmp_path / "rows"))
    in_new_york.conf.set(TIME_ZONE, ZONE)
    with Scenario(SparkHarness(in_new_york, tmp_path / "rows", key="id")) as story:
        writes(story.driver(), in_new_york.sql("SELECT 1L id, 1 v"), FEW)
    wanted = truth(in_new_york).selectExpr("*", "IF(id = 1, 1, 0) w").drop("v").withColumnRenamed("w", "v")
    assert differing(table(in_new_york, tmp_path / "rows"), wanted) == {}


FILLED = """
CREATE TABLE delta.`{path}` (
    id bigint, tier int DEFAULT 7, kind string NOT NULL DEFAULT 'x', note string, seen timestamp,
    day date GENERATED ALWAYS AS (CAST(seen AS DATE)), half double GENERATED ALWAYS AS (id / 2),
    number bigint GENERATED ALWAYS AS IDENTITY
) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')
"""
GENERATED = """
CREATE TABLE delta.`{path}` (id bigint, seen timestamp, day date GENERATED ALWAYS AS (CAST(seen AS DATE))) USING delta
"""
SEEN = "timestamp'2026-02-03 02:05:06Z' seen"  # on the day before, in New York
INTO: dict[str, dict[str, Any]] = {
    "append": {},
    "merge": {"key": "id"},
    "merge of one's own": {
        "merge": Merge("t.id = s.id").when_not_matched_insert(None, {"id": "s.id", "seen": "s.seen"})
    },
    "append that grows": {"schema": "add_columns"},
}


@pytest.mark.slow
@pytest.mark.parametrize("into", INTO)
@pytest.mark.parametrize("create", [FILLED, GENERATED], ids=["filled", "generated"])
def test_a_column_that_a_row_does_not_have_is_as_in_spark_s_own_append(
    in_new_york: SparkSession, tmp_path: Path, into: str, create: str
) -> None:
    row = f"SELECT 1L id, {SEEN}" + (", 5 extra" if "grows" in into else "")
    with Scenario(SparkHarness(in_new_york, tmp_path / "ours", create, **INTO[into])) as story:
        writes(story.driver(), in_new_york.sql(row), FEW)
    in_new_york.sql(create.format(path=tmp_path / "own"))
    own = in_new_york.sql(row).write.format("delta").mode("append").option("mergeSchema", "true")
    own.save(str(tmp_path / "own"))
    found = [table(in_new_york, tmp_path / name).collect() for name in ("ours", "own")]
    assert found[0] == found[1]
    assert str(found[0][0]["day"]) == "2026-02-02"
