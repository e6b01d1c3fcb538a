"""Changes of rows, in whatever order they arrive: ``key`` says what a row is, ``sequence`` which change is newer.

python docs/examples/upsert_with_sequence.py
"""

from __future__ import annotations

from pathlib import Path

from local import read, receive, rows, run, session, work_folder
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from onceonly import ExactlyOnce, exactly_once
from onceonly_sinks.delta import DeltaSink


def wrapped(table: Path) -> ExactlyOnce:
    """An order without an item is a cancelled one: its row goes."""
    return exactly_once(
        DeltaSink(table, key="id", sequence="version", delete_flag="cancelled"),
        transform=lambda batch: batch.withColumn("cancelled", f.col("item").isNull()),
    )


def main(spark: SparkSession, work: Path) -> None:
    """Four files, one epoch each; the second brings a change that is older than the one it meets."""
    inbox, table, checkpoint = work / "in", work / "orders", work / "checkpoint"
    receive(inbox, "1", {"id": 1, "item": "pen", "version": 1}, {"id": 2, "item": "ink", "version": 7})
    receive(inbox, "2", {"id": 2, "item": "old ink", "version": 6})
    receive(inbox, "3", {"id": 1, "item": "red pen", "version": 2}, {"id": 1, "item": "blue pen", "version": 3})
    receive(inbox, "4", {"id": 3, "item": "pad", "version": 1}, {"id": 2, "item": None, "version": 8})
    run(read(spark, inbox), wrapped(table), checkpoint)
    print(rows(table, "id", "item", "version"))
    assert rows(table, "id", "item", "version") == [(1, "blue pen", 3), (3, "pad", 1)]


if __name__ == "__main__":
    main(session(), work_folder())
