"""Rows on their way to a sink that takes its time, or takes no more of them."""

from __future__ import annotations

import threading

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly.protocol import Estimate
from onceonly.spark.batch import SparkBatch
from onceonly.spark.frames import setting

pytestmark = pytest.mark.spark

ROWS = 200_000
"""Of 200 bytes: more than any socket holds."""

SECONDS = 60.0


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS, numPartitions=2).select("id", f.repeat(f.col("id").cast("string"), 32).alias("text"))


def batch(df: DataFrame) -> SparkBatch:
    return SparkBatch(df, Estimate(ROWS, None))


def test_a_sink_that_stands_still_does_not_stop_the_jobs_of_others(spark: SparkSession, rows: DataFrame) -> None:
    slow = batch(rows)
    taken = slow.arrow()
    count = next(taken).num_rows

    other: list[int] = []
    job = threading.Thread(target=lambda: other.append(spark.range(1000).count()), daemon=True)
    job.start()
    job.join(SECONDS)
    assert other == [1000], "Spark schedules nothing while our sink takes no rows"

    count += sum(part.num_rows for part in taken)
    assert count == ROWS
    whole = batch(rows)
    whole.execute()
    assert slow.digest() == whole.digest()


def test_a_sink_that_takes_no_more_leaves_nothing_behind(spark: SparkSession, rows: DataFrame) -> None:
    taken = batch(rows).arrow()
    next(taken)
    taken.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "onceonly-spool"]
    assert sum(part.num_rows for part in batch(rows).arrow()) == ROWS


def test_a_job_that_breaks_says_so_in_sparks_own_words(rows: DataFrame) -> None:
    breaking = rows.withColumn("text", f.when(f.col("id") == ROWS - 1, f.raise_error(f.lit("no such"))).otherwise("a"))
    with pytest.raises(PySparkException, match="no such"):
        list(batch(breaking).arrow())


def test_rows_come_in_pieces_that_no_small_heap_chokes_on(rows: DataFrame) -> None:
    conf = rows.sparkSession.conf
    before = conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    pieces = [part.num_rows for part in batch(rows).arrow()]
    assert 256 <= max(pieces) < 10_000
    assert conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before


def test_a_number_of_rows_that_the_user_said_stands(rows: DataFrame) -> None:
    with setting(rows, "spark.sql.execution.arrow.maxRecordsPerBatch", "54321"):
        assert max(part.num_rows for part in batch(rows).arrow()) == 54321
