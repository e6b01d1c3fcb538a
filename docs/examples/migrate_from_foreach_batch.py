"""A plain ``foreachBatch`` becomes a pipeline: same table, same checkpoint, a proven starting point.

python docs/examples/migrate_from_foreach_batch.py
"""

from __future__ import annotations

from pathlib import Path

from deltalake import write_deltalake
from local import forget_last_commit, onceonly, read, receive, rows, run, session, work_folder
from pyspark.sql import DataFrame, SparkSession

from onceonly import exactly_once
from onceonly_sinks.delta import DeltaSink


def main(spark: SparkSession, work: Path) -> None:
    """The old job writes two batches; then it is stopped, taken over, and goes on with exactly_once()."""
    inbox, table, checkpoint = work / "in", work / "orders", work / "checkpoint"

    def write_orders(batch: DataFrame, _: int) -> None:
        write_deltalake(table, batch.toArrow(), mode="append")

    receive(inbox, "1", {"id": 1, "item": "pen"})
    receive(inbox, "2", {"id": 2, "item": "ink"})
    run(read(spark, inbox), write_orders, checkpoint)

    onceonly("recover", "adopt", "orders", "--from-checkpoint", checkpoint, "--sink", f"delta:{table}", "--yes")

    receive(inbox, "3", {"id": 3, "item": "pad"})
    run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)

    # From here on a replay is harmless; with write_orders it would have doubled the third order.
    forget_last_commit(checkpoint)
    run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)
    assert rows(table, "id", "item") == [(1, "pen"), (2, "ink"), (3, "pad")]


if __name__ == "__main__":
    main(session(), work_folder())
