"""One stream into three tables: all changes, the newest state, and a copy by day. Every epoch is in all three or none.

python docs/examples/three_sinks.py
"""

from __future__ import annotations

from pathlib import Path

from local import forget_last_commit, onceonly, read, receive, rows, run, session, work_folder
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from onceonly import ExactlyOnce, exactly_once
from onceonly.reading import read_point
from onceonly_sinks.delta import DeltaSink


def wrapped(work: Path) -> ExactlyOnce:
    """Three sinks. A batch is computed once, staged beside the checkpoint, and committed from there in this order."""
    return exactly_once(
        DeltaSink(work / "changes"),
        DeltaSink(work / "state", key="id", sequence="version"),
        DeltaSink(work / "by_day", partition_by="day"),
        transform=lambda batch: batch.withColumn("day", f.to_date("at")),
    )


def main(spark: SparkSession, work: Path) -> None:
    """Two files, then a replay of the last batch, then a third file."""
    inbox, checkpoint = work / "in", work / "checkpoint"
    receive(inbox, "1", {"id": 1, "item": "pen", "version": 1, "at": "2026-01-01T10:00:00Z"})
    receive(inbox, "2", {"id": 1, "item": "red pen", "version": 2, "at": "2026-01-02T10:00:00Z"})
    run(read(spark, inbox), wrapped(work), checkpoint)

    forget_last_commit(checkpoint)
    receive(inbox, "3", {"id": 2, "item": "ink", "version": 1, "at": "2026-01-02T11:00:00Z"})
    run(read(spark, inbox), wrapped(work), checkpoint)

    assert rows(work / "changes", "id", "item") == [(1, "pen"), (1, "red pen"), (2, "ink")]
    assert rows(work / "state", "id", "item") == [(1, "red pen"), (2, "ink")]
    assert len(rows(work / "by_day", "id", "day")) == 3

    # A reader of several tables asks at which version of each they agree.
    point = read_point("orders", 2, ledger=f"{checkpoint}.onceonly.db")
    version = point["delta:state"].at("version")
    assert isinstance(version, int)
    print(f"epoch 2 is version {version} of {work / 'state'}")
    assert rows(work / "state", "item", version=version) == [("red pen",)]
    # Rows of the table by key are replaced and in no count; without the option the exit code says so (3).
    onceonly("audit", "--ledger", f"{checkpoint}.onceonly.db", "--uncounted-ok")


if __name__ == "__main__":
    main(session(), work_folder())
