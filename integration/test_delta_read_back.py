"""What Spark reads of what executors and driver wrote to a Delta table."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from integration.delta_by_spark import UNKNOWN, SparkHarness

from onceonly.protocol import Estimate
from onceonly.spark.batch import SparkBatch
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_lab.conformance.scenario import PIPELINE, Scenario, plan
from onceonly_sinks.delta import DeltaSink, DeltaTuning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = """id BIGINT, small TINYINT, i INT, f FLOAT, d DOUBLE, n DECIMAL(20,4), s STRING, b BINARY, flag BOOLEAN, day
DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, tags ARRAY<STRING>, facts MAP<STRING, INT>, nested STRUCT<x: INT, y:
ARRAY<STRUCT<z: DATE>>>"""

ROWS = [
    (
        1, 7, -5, 1.5, math.nan, decimal.Decimal("1234567890123456.7891"), "naïve 🧾", b"\x00\xff", True,
        dt.date(1582, 10, 15), dt.datetime(2024, 2, 29, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 23, 59, 59, 1),
        ["a", None], {"k": 1}, (1, [(dt.date(2020, 1, 1),)]),
    ),
    (2, None, None, None, None, None, None, None, None, None, None, None, None, None, None),
    (
        3, -128, 2**31 - 1, -0.0, math.inf, decimal.Decimal("-0.0001"), "", b"", False,
        dt.date(9999, 12, 31), dt.datetime(1970, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        [], {}, (None, None),
    ),
]  # fmt: skip


@pytest.mark.slow
def test_describe_history_shows_the_marker_whichever_committer_wrote_it(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows")
    with Scenario(harness) as story:
        for committer in ("log", "spark"):
            harness.options = {"tuning": DeltaTuning(committer=committer)}
            driver = story.driver()
            planned = driver.writes()
            shown = spark.sql(f"DESCRIBE HISTORY delta.`{harness.path}` LIMIT 1").collect()[0].userMetadata
            assert json.loads(shown)["marker"] == driver.marker(planned.epoch).to_json()


@pytest.mark.slow
@pytest.mark.parametrize("estimate", [UNKNOWN, Estimate(3, 1000)], ids=["executors", "driver"])
def test_spark_reads_back_every_type_as_it_was_written(spark: SparkSession, tmp_path: Path, estimate: Estimate) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA).repartition(2)
    sink = DeltaSink(tmp_path / "types")
    driver = _Plain(sink)
    driver.writes(SparkBatch(frame, estimate))
    read = spark.read.format("delta").load(str(tmp_path / "types"))
    assert [(f.name, f.dataType) for f in read.schema] == [(f.name, f.dataType) for f in frame.schema]
    assert _texts(read) == _texts(frame)
    assert differing(read, frame, (
        "d > 1e300", "isnan(d)", "f <= 0", "i = 2147483647", "n < 0", "s = ''", "day >= date'9999-01-01'",
        "at >= timestamp'2024-02-29 23:59:59.9999'", "wall < timestamp_ntz'1969-12-31 23:59:59.000002'",
        "wall >= timestamp_ntz'9999-12-31 23:59:59.999999'", "s IS NULL", "small < -100", "nested.x = 1",
    )) == {}  # fmt: skip
    sink.close()


@pytest.mark.slow
def test_spark_finds_the_rows_of_every_partition_that_executors_wrote(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(n, text, day, flag) for n, (text, day, flag) in enumerate(
        [("a b/c=d%", dt.date(2024, 2, 29), True), (None, None, None), ("naïve", dt.date(1582, 10, 15), False)] * 3
    )]  # fmt: skip
    frame = spark.createDataFrame(rows, "id BIGINT, s STRING, day DATE, flag BOOLEAN").repartition(2)
    sink = DeltaSink(tmp_path / "parts", partition_by=["s", "day", "flag"])
    _Plain(sink).writes(SparkBatch(frame, UNKNOWN))
    read = spark.read.format("delta").load(str(tmp_path / "parts"))
    assert _texts(read) == _texts(frame)
    conditions = ("s IS NULL", "s = 'a b/c=d%'", "day < date'1600-01-01'", "flag", "s = 'naïve' AND NOT flag")
    assert differing(read, frame, conditions) == {}
    sink.close()


def test_executors_write_what_lies_with_them_and_the_counts_are_theirs(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows")
    harness.estimate = UNKNOWN
    with Scenario(harness) as story:
        driver = story.driver()
        first = driver.writes(rows=50)
        batch = harness.batch(pa.table({"id": range(1000), "step": [0] * 1000, "note": ["x"] * 1000}))
        prepared = driver.sink.prepare(batch, 2)
        assert prepared.rows == batch.digest().rows == 1000
        story.has_rows_of(first)
        prepared.abandon()
        story.holds(first, driver.writes())


class _Plain:
    """Writes one batch as the first epoch."""

    def __init__(self, sink: DeltaSink) -> None:
        self.sink = sink
        sink.open(PIPELINE)
        sink.install(Fence(1, "me"))

    def writes(self, batch: SparkBatch) -> None:
        marker = Marker(PIPELINE, self.sink.id, Fence(1, "me"), plan(None, self.sink.id).epoch)
        self.sink.commit(self.sink.prepare(batch, 1), marker)


def differing(read: DataFrame, frame: DataFrame, conditions: Sequence[str]) -> dict[str, list[str]]:
    """Conditions that find other rows among those that were read than among those that were written, and which.

    Each is a scan of its own, since Spark looks for files by what it is asked; all of them are one job.
    """
    found = {condition: Counter[str]() for condition in conditions}
    every = []
    for condition in conditions:
        for rows, sign in ((read, 1), (frame, -1)):
            every.append(rows.filter(condition).selectExpr(_TEXT, f"{sign} AS sign", f'"{condition}" AS condition'))
    for text, sign, condition in reduce(lambda one, other: one.unionAll(other), every).collect():
        found[condition][text] += sign
    return {condition: texts for condition, rows in found.items() if (texts := [row for row in rows if rows[row]])}


_TEXT = "to_json(struct(*), map('ignoreNullFields', 'false')) AS text"


def _texts(frame: DataFrame) -> Counter[str]:
    return Counter(row[0] for row in frame.selectExpr(_TEXT).collect())
