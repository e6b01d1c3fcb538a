"""Two committers of one Delta table, the log's and Spark's: interleaved, fenced, swept, never out of step."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from integration.delta_by_spark import CLUSTERED, SparkHarness, operations

from onceonly import exactly_once
from onceonly.faults import Point
from onceonly.protocol import OutcomeUnknown, Superseded
from onceonly_lab.conformance.scenario import Scenario, unknown
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.delta.spark_committer import SparkCommitter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> SparkHarness:
    return SparkHarness(spark, tmp_path / "rows")


def test_both_committers_interleaved_on_one_table_stay_exact_and_fence_each_other(harness: SparkHarness) -> None:
    with Scenario(harness) as story:
        written = []
        for mine, theirs in (("log", "spark"), ("spark", "log")):
            harness.options = {"tuning": DeltaTuning(committer=mine)}
            zombie = story.driver()
            written.append(zombie.writes(rows=0 if mine == "spark" else 5))
            planned = zombie.plan()
            prepared = zombie.prepares(planned)
            harness.options = {"tuning": DeltaTuning(committer=theirs)}
            owner = story.driver()
            with pytest.raises(Superseded):
                zombie.commits(planned, prepared)
            written.append(owner.writes(rows=3))
        story.holds(*written)
        assert {"delta-rs", "Apache-Spark"} <= set(operations(harness.path))
        recounted = story.reader().recount() or {}
        assert {epoch: rows for epoch, rows in recounted.items() if rows} == {1: 5, 2: 3, 4: 3}


@pytest.mark.slow
def test_spark_skips_a_stale_commit_without_a_word_and_is_found_out(harness: SparkHarness, spark: SparkSession) -> None:
    harness.options = {"tuning": DeltaTuning(committer="spark")}
    with Scenario(harness) as story:
        zombie = story.driver()
        first = zombie.writes()
        planned = zombie.plan()
        prepared = zombie.prepares(planned)
        table = zombie.sink._open.table  # type: ignore[attr-defined]
        checks = table.check_properties

        def then_overtake(*, removes: bool) -> None:
            table.check_properties = checks
            checks(removes=removes)
            story.driver()

        table.check_properties = then_overtake
        with pytest.raises(Superseded):
            zombie.commits(planned, prepared)
        story.holds(first)


@pytest.mark.slow
def test_a_table_that_only_spark_writes_is_written_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    harness = SparkHarness(spark, tmp_path / "rows", CLUSTERED)
    with Scenario(harness) as story:
        driver = story.driver()
        written = [driver.writes(), driver.writes(rows=0)]
        planned = driver.plan()
        prepared = driver.prepares(planned)
        unknown(Point.COMMIT_SENT, lambda: driver.commits(planned, prepared))
        prepared.abandon()
        assert driver.looks_up(planned) is not None
        absent = driver.plan()
        assert driver.looks_up(absent) is None
        story.holds(*written, planned, driver.writes())
        assert set(operations(harness.path)) == {"Apache-Spark"}


@pytest.mark.slow
def test_staging_of_lower_generations_is_swept_and_nothing_else(harness: SparkHarness) -> None:
    harness.options = {"tuning": DeltaTuning(committer="spark")}
    with Scenario(harness) as story:
        lost = story.driver()
        lost.prepares(lost.plan())
        owner = story.driver()
        prepared = owner.prepares(planned := owner.plan())
        staged = set((harness.path / "_onceonly_staging").glob("*/*"))
        owner.sink.sweep()
        kept = set((harness.path / "_onceonly_staging").glob("*/*"))
        assert [path.name.split("-")[0] for path in staged - kept] == ["g1"]
        owner.commits(planned, prepared)
        assert not set((harness.path / "_onceonly_staging").glob("*/*"))
        story.holds(planned)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"key": "id", "tuning": DeltaTuning(driver_limit=0)},
        pytest.param({"tuning": DeltaTuning(committer="spark")}, marks=pytest.mark.slow),
        pytest.param({"tuning": DeltaTuning(driver_limit=0)}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_streaming_query_reaches_the_table_whichever_way(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    name = f"way{uuid.uuid4().hex[:8]}"
    for number in range(3):
        spark.range(number * 10, number * 10 + 10).write.mode("append").parquet(str(tmp_path / "source"))
        query = (
            spark.readStream.schema("id BIGINT")
            .parquet(str(tmp_path / "source"))
            .writeStream.queryName(name)
            .foreachBatch(exactly_once(DeltaSink(tmp_path / "rows", **options)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    read = spark.read.format("delta").load(str(tmp_path / "rows"))
    assert sorted(row.id for row in read.collect()) == list(range(30))
    by_spark = "Apache-Spark" in operations(tmp_path / "rows")
    assert by_spark == ("key" in options or options["tuning"].committer == "spark")


@pytest.mark.slow
def test_no_commit_is_called_absent_while_the_jvm_may_still_be_at_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scenario(SparkHarness(spark, tmp_path / "rows", CLUSTERED)) as story:
        driver = story.driver()
        planned = driver.plan()
        assert driver.looks_up(planned) is None
        monkeypatch.setattr(SparkCommitter, "_busy", {driver.sink._open.table.app})  # type: ignore[attr-defined]
        with pytest.raises(OutcomeUnknown):
            driver.looks_up(planned)
