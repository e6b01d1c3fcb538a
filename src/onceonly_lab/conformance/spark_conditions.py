"""Evaluate conditions on rows by Spark, as a query with a quarantine does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onceonly.protocol.row_rules import Condition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def evaluate(conditions: Sequence[Condition], rows: pa.Table) -> list[list[bool] | None]:
    """Return whether each row meets each condition. ``None``: Spark cannot evaluate it on these columns."""
    from onceonly.spark import frames

    with _session() as spark:
        frame = frames.of_arrow(spark, rows)
        return [_met(condition, frame) for condition in conditions]


def _met(condition: Condition, rows: DataFrame) -> list[bool] | None:
    from pyspark.sql import functions as f

    from onceonly.quality.spark_row_rules import Demanded

    for reason in Demanded("", None, (condition,)).reasons(rows, f.lit(True)):
        return [not broken for (broken,) in rows.select(reason.applies).collect()]
    return None


@contextmanager
def _session() -> Generator[SparkSession]:
    """Use the running session, or one that ends with the block."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark: SparkSession = running or builder.getOrCreate()
    try:
        yield spark
    finally:
        if not running:
            spark.stop()
