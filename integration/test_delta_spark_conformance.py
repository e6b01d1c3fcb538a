"""Spark's committer passes the claims in which it could differ from deltalake's; so does a table only Spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from onceonly.protocol import Batch, Estimate
from onceonly.sparkbatch import SparkBatch
from onceonly_sinks.conformance import SinkHarness
from onceonly_sinks.conformance.harness import Claim
from onceonly_sinks.conformance.suite import CLAIMS
from onceonly_sinks.delta import DeltaSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CLUSTERED = "CREATE TABLE delta.`{path}` (id BIGINT, step BIGINT, note STRING) USING delta CLUSTER BY (id)"
"""deltalake reads a clustered table and refuses to commit to it."""

TELLING = [
    claim
    for claim in CLAIMS
    if claim.name
    in {
        "a_lost_answer_to_an_install_is_found_by_installing_again",
        "a_marker_comes_back_exactly",
        "an_empty_epoch_leaves_a_marker",
        "a_zombie_does_not_repeat_what_its_successor_wrote",
        "looking_up_finds_a_commit_whose_answer_was_lost",
        "one_of_racing_commits_lands",
    }
]


class SparkHarness(SinkHarness):
    def __init__(self, spark: SparkSession, path: Path, create: str | None = None, **options: Any) -> None:
        self._spark = spark
        self._path = path
        self._options = options
        if create:
            spark.sql(create.format(path=path))

    def connect(self) -> DeltaSink:
        return DeltaSink(self._path, **self._options)

    def rows(self) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(self._path)):
            return []
        return [row.asDict() for row in self._spark.read.format("delta").load(str(self._path)).collect()]

    def maintain(self) -> None:
        self._spark.sql(f"OPTIMIZE delta.`{self._path}`")

    def batch(self, table: pa.Table, *, duplicate_attempts: bool = False, breaks_off: bool = False) -> Batch:
        frame: DataFrame = self._spark.createDataFrame(table)
        if breaks_off:
            frame = frame.selectExpr("id", "if(id >= 0, raise_error('broken off'), step) step", "note")
        return SparkBatch(frame, Estimate(table.num_rows, table.nbytes))


def _run(claim: Claim, harness: SinkHarness) -> None:
    claim.check(harness, seconds=300)


@pytest.mark.parametrize("claim", TELLING, ids=lambda claim: claim.name)
def test_appending_through_spark(claim: Claim, spark: SparkSession, tmp_path: Path) -> None:
    _run(claim, SparkHarness(spark, tmp_path / "rows", committer="spark"))


@pytest.mark.parametrize("claim", TELLING, ids=lambda claim: claim.name)
def test_merging_through_spark(claim: Claim, spark: SparkSession, tmp_path: Path) -> None:
    _run(claim, SparkHarness(spark, tmp_path / "rows", committer="spark", key="id", sequence="step"))


@pytest.mark.parametrize("claim", TELLING, ids=lambda claim: claim.name)
def test_a_table_that_only_spark_writes(claim: Claim, spark: SparkSession, tmp_path: Path) -> None:
    _run(claim, SparkHarness(spark, tmp_path / "rows", CLUSTERED))
