"""The digest of a batch: one and the same whichever way its rows go, and another one for any other rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly.frames import of_arrow
from onceonly.protocol import Estimate
from onceonly.sparkbatch import SparkBatch
from onceonly_checkpoints.epoch import Digest

pytestmark = pytest.mark.spark


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Every kind of type, with nulls at every depth."""
    some = f.when(f.col("id") % 3 != 0, f.col("id"))
    number = f.when(f.col("id") % 5 == 0, float("nan")).otherwise(-f.col("id") * 0.0)
    return spark.range(0, 500, 1, 4).select(
        some.alias("number"),
        number.alias("ratio"),
        number.cast("float").alias("a.b"),
        some.cast("string").alias("text"),
        some.cast("string").cast("binary").alias("raw"),
        some.cast("decimal(20,4)").alias("price"),
        f.date_from_unix_date(some.cast("int")).alias("day"),
        f.timestamp_micros(some * 1_000_003).alias("seen"),
        f.timestamp_micros(some * 1_000_003).cast("timestamp_ntz").alias("clock"),
        f.array(some, f.lit(None)).alias("list"),
        f.struct(some.alias("x"), f.struct(number.alias("y")).alias("z")).alias("record"),
        f.create_map(f.lit("b"), some, f.lit("a"), f.lit(1)).alias("map"),
    )


def driver(df: DataFrame) -> Digest:
    batch = SparkBatch(df, Estimate(None, None))
    assert sum(part.num_rows for part in batch.arrow()) == batch.digest().rows
    return batch.digest()


def executors(df: DataFrame) -> Digest:
    batch = SparkBatch(df, Estimate(None, None))
    batch.on_executors(lambda attempt, parts: {"rows": sum(part.num_rows for part in parts)})
    return batch.digest()


def nowhere(df: DataFrame) -> Digest:
    return SparkBatch(df, Estimate(None, None)).execute()


def test_a_batch_has_one_digest_whichever_way_it_goes(rows: DataFrame, tmp_path) -> None:
    staged = SparkBatch(rows, Estimate(None, None))
    staged.write(str(tmp_path / "staged"))
    assert driver(rows) == executors(rows) == nowhere(rows) == staged.digest()
    assert driver(rows).rows == 500


@pytest.mark.parametrize("partitions", [1, 7])
def test_rows_in_another_order_or_partition_have_the_same_digest(rows: DataFrame, partitions: int) -> None:
    again = rows.repartition(partitions).sortWithinPartitions(f.desc("number"))
    assert driver(again) == driver(rows)
    assert nowhere(again) == driver(rows)


def test_no_rows_have_a_digest(rows: DataFrame) -> None:
    assert driver(rows.limit(0)) == nowhere(rows.limit(0)) == Digest(0)


@pytest.mark.parametrize("way", [driver, nowhere])
@pytest.mark.parametrize(
    ("given", "other"),
    [
        ("(1, 2)", "(1, 3)"),
        ("(1, null)", "(null, 1)"),
        ("(1, 1), (2, 2)", "(1, 2), (2, 1)"),
        ("(1, 1), (1, 1)", "(2, 2), (2, 2)"),
        ("(1, 1)", "(1, 1), (1, 1), (1, 1)"),
    ],
)
def test_other_rows_have_another_digest(spark: SparkSession, given: str, other: str, way) -> None:
    one, two = (spark.sql(f"SELECT * FROM VALUES {values} AS t(a, b)") for values in (given, other))
    assert way(one) != way(two)


def test_rows_that_were_not_taken_to_the_last_have_no_digest(rows: DataFrame) -> None:
    batch = SparkBatch(rows, Estimate(None, None))
    with pytest.raises(RuntimeError):
        batch.digest()
    parts = batch.arrow()
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError):
        batch.digest()


def test_rows_behind_an_empty_piece_of_a_table_are_not_lost(spark: SparkSession) -> None:
    pieces = [pa.table({"id": pa.array(ids, pa.int64())}) for ids in ([1, 2], [], [3])]
    assert sorted(row["id"] for row in of_arrow(spark, pa.concat_tables(pieces)).collect()) == [1, 2, 3]


def test_a_stage_holds_rows_and_nothing_else(rows: DataFrame, tmp_path: Path) -> None:
    SparkBatch(rows, Estimate(None, None)).write(str(tmp_path / "staged"))
    assert {path.suffix for path in (tmp_path / "staged").iterdir()} == {".parquet"}


def test_a_file_system_that_the_user_chose_writes_the_stage(rows: DataFrame, tmp_path: Path) -> None:
    hadoop = rows.sparkSession.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    try:
        SparkBatch(rows, Estimate(None, None)).write(str(tmp_path / "staged"))
    finally:
        hadoop.unset("fs.file.impl")
    assert ".crc" in {path.suffix for path in (tmp_path / "staged").iterdir()}
