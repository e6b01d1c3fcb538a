"""A job with a hand-written table of finished batches becomes a pipeline, and the table can go.

    python docs/examples/migrate_from_batch_table.py

The pattern: look the batch id up; if it is not there, write the rows, then write the id. Rows and id are two
transactions, so a crash between them doubles the batch; and after a deleted checkpoint ids start at 0 and new rows are
taken for old ones.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from local import onceonly, read, receive, rows, run, session, work_folder
from pyspark.sql import DataFrame, SparkSession

from onceonly import exactly_once
from onceonly_sinks.delta import DeltaSink


def main(spark: SparkSession, work: Path) -> None:
    """The old job writes two batches; its table of batches is compared with the checkpoint, then left behind."""
    inbox, table, checkpoint = work / "in", work / "orders", work / "checkpoint"
    finished = work / "finished_batches"

    def write_orders(batch: DataFrame, batch_id: int) -> None:
        if DeltaTable.is_deltatable(str(finished)) and (batch_id,) in rows(finished, "batch_id"):
            return
        write_deltalake(table, batch.toArrow(), mode="append")
        write_deltalake(finished, pa.table({"batch_id": pa.array([batch_id], pa.int64())}), mode="append")

    receive(inbox, "1", {"id": 1, "item": "pen"})
    receive(inbox, "2", {"id": 2, "item": "ink"})
    run(read(spark, inbox), write_orders, checkpoint)

    # The checkpoint says which batch was finished last; the table of batches must say the same.
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    assert max(rows(finished, "batch_id")) == (last,), "start the old job once more until both agree"
    onceonly("recover", "adopt", "orders", "--from-checkpoint", checkpoint, "--sink", f"delta:{table}", "--yes")

    receive(inbox, "3", {"id": 3, "item": "pad"})
    run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)
    assert rows(table, "id", "item") == [(1, "pen"), (2, "ink"), (3, "pad")]


if __name__ == "__main__":
    main(session(), work_folder())
