"""What Spark's own windows say to the ten values of Streaming 102, one in each batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.streams import FileStream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.panes import story

from onceonly import exactly_once
from onceonly_lab.demo.streaming102 import COLUMNS, milliseconds
from onceonly_sinks.memory import MemorySink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FLUSH = "12:40:00"
"""A row of this time, of another team, lets the watermark pass all windows."""

Batch = list[int]
"""Totals of the team, by the start of their windows."""

TWO_MINUTES = "window(event_time, '2 minutes')"
SESSIONS = "session_window(event_time, '1 minute')"


def ten() -> list[tuple[int, str]]:
    """The values with when they happened, in the order in which they arrived."""
    found = sorted((record for record in story.records() if record["id"] != "r11"), key=lambda one: one["arrival_a"])
    return [(one["value"], one["event"]) for one in found]


class Scores(FileStream):
    """Values of a team, a file each, then one that flushes."""

    def __init__(self, spark: SparkSession, root: Path, values: Sequence[tuple[int, str]]) -> None:
        super().__init__(spark, root, "native")
        rows = [("TeamX", value, event) for value, event in values]
        for number, (team, value, event) in enumerate([*rows, ("flush", 0, FLUSH)]):
            time = datetime.fromtimestamp(milliseconds(event) / 1000, timezone.utc)
            columns = {"team": [team], "value": [value], "event_time": pa.array([time], pa.timestamp("us", "UTC"))}
            path = self.inbox / f"part-{number:04d}.parquet"
            pq.write_table(pa.table(columns), path)
            # Spark goes by it, and files of one millisecond it takes in any order.
            os.utime(path, (number + 1, number + 1))

    def read(self) -> DataFrame:
        return self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(self.inbox))


def totals(by: str, delay: str) -> Callable[[DataFrame], DataFrame]:
    """The query as anybody would write it."""

    def shape(rows: DataFrame) -> DataFrame:
        grouped = rows.withWatermark("event_time", delay).groupBy("team", f.expr(by).alias("w"))
        return grouped.agg(f.sum("value").alias("total")).select("team", "w.start", "w.end", "total")

    return shape


def run(
    spark: SparkSession, root: Path, by: str, delay: str, mode: str, values: Sequence[tuple[int, str]] | None = None
) -> tuple[list[Batch], bool]:
    """What each batch wrote, and whether Spark dropped rows: of one it counts two."""
    batches: list[Batch] = []

    def collect(rows: DataFrame, _: int) -> None:
        batches.append([row.total for row in rows.where("team <> 'flush'").orderBy("start").collect()])

    query = Scores(spark, root, values or ten()).start(collect, totals(by, delay), mode)
    query.awaitTermination()
    operators = [operator for progress in query.recentProgress for operator in progress["stateOperators"]]
    return batches, any(operator["numRowsDroppedByWatermark"] for operator in operators)


def all_of(batches: Sequence[Batch]) -> Batch:
    return [total for batch in batches for total in batch]


@pytest.mark.parametrize("delay", ["0 seconds", "1 minute", "2 minutes"])
def test_append_with_a_short_delay_writes_each_window_once_and_drops_the_nine(
    spark: SparkSession, tmp_path: Path, delay: str
) -> None:
    batches, dropped = run(spark, tmp_path, TWO_MINUTES, delay, "append")
    assert (all_of(batches), dropped) == ([5, 22, 3, 12], True)


@pytest.mark.parametrize("delay", ["3 minutes", "6 minutes"])
def test_append_with_a_long_delay_writes_the_right_totals_later(
    spark: SparkSession, tmp_path: Path, delay: str
) -> None:
    batches, dropped = run(spark, tmp_path, TWO_MINUTES, delay, "append")
    assert (all_of(batches), dropped) == ([14, 22, 3, 12], False)


def test_one_final_row_for_each_window_is_written_once_under_exactly_once_as_well(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = MemorySink(id="memory:native")
    Scores(spark, tmp_path, ten()).run(exactly_once(sink), shape=totals(TWO_MINUTES, "3 minutes"))
    rows: list[Any] = sorted(sink.rows(), key=lambda row: row["start"])
    assert [row["total"] for row in rows if row["team"] == "TeamX"] == [14, 22, 3, 12]


def test_a_row_is_late_by_the_watermark_of_the_batch_before_and_so_the_eighth_is_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Seconds 0, 1, 2, 0, 5, 6, 8, 3. The eighth row is of a window that the seventh let the watermark pass. For panes,
    which close that window with the seventh row, see tests/panes/test_step.py."""
    values = [(2**place, f"12:00:0{second}") for place, second in enumerate((0, 1, 2, 0, 5, 6, 8, 3))]
    batches, dropped = run(spark, tmp_path, "window(event_time, '5 seconds')", "2 seconds", "append", values)
    eighth = batches[7]
    assert eighth == [1 + 2 + 4 + 8 + 128]
    assert (all_of(batches), dropped) == ([*eighth, 16 + 32 + 64], False)


def test_update_writes_what_changed_in_each_batch_and_neither_number_nor_timing_nor_retraction(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches, dropped = run(spark, tmp_path, TWO_MINUTES, "2 minutes", "update")
    assert (all_of(batches), dropped) == ([5, 7, 10, 14, 3, 22, 3, 11, 12], True)


def test_complete_writes_the_whole_table_in_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    batches, _ = run(spark, tmp_path, TWO_MINUTES, "2 minutes", "complete")
    assert batches[:4] == [[5], [5, 7], [5, 10], [5, 14]]
    assert batches[-1] == [14, 22, 3, 12]


@pytest.mark.parametrize(
    ("delay", "wanted"),
    [
        ("0 seconds", [5, 7, 18, 12]),
        ("1 minute", [5, 25, 12]),
        ("2 minutes", [5, 34, 12]),
        ("6 minutes", [39, 12]),
    ],
)
def test_sessions_that_were_written_too_early_are_split_for_ever(
    spark: SparkSession, tmp_path: Path, delay: str, wanted: list[int]
) -> None:
    batches, _ = run(spark, tmp_path, SESSIONS, delay, "append")
    assert all_of(batches) == wanted


def test_early_results_of_sessions_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"[Uu]pdate"):
        run(spark, tmp_path, SESSIONS, "2 minutes", "update")


def test_windows_with_gaps_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="slide"):
        run(spark, tmp_path, "window(event_time, '1 minute', '2 minutes')", "2 minutes", "append")
