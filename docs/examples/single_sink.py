"""One stream into one table. A crash, played by hand, doubles nothing.

python docs/examples/single_sink.py
"""

from __future__ import annotations

from pathlib import Path

from local import forget_last_commit, onceonly, read, receive, rows, run, session, work_folder
from pyspark.sql import SparkSession

from onceonly import exactly_once
from onceonly_sinks.delta import DeltaSink


def main(spark: SparkSession, work: Path) -> None:
    """Write two files, lose Spark's note of the second batch, write a third."""
    inbox, table, checkpoint = work / "in", work / "orders", work / "checkpoint"
    write = exactly_once(DeltaSink(table))
    print(write.explain())

    receive(inbox, "1", {"id": 1, "item": "pen"}, {"id": 2, "item": "ink"})
    receive(inbox, "2", {"id": 3, "item": "pad"})
    run(read(spark, inbox), write, checkpoint)

    # Spark will offer the second batch again. It is proven to be epoch 2, and skipped.
    forget_last_commit(checkpoint)
    receive(inbox, "3", {"id": 4, "item": "cap"})
    run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)

    assert rows(table, "id", "item") == [(1, "pen"), (2, "ink"), (3, "pad"), (4, "cap")]
    onceonly("audit", "--ledger", f"{checkpoint}.onceonly.db")


if __name__ == "__main__":
    main(session(), work_folder())
