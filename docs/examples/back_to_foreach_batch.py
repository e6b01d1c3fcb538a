"""Back to a plain ``foreachBatch``, and a return: same table, same checkpoint, every row once.

python docs/examples/back_to_foreach_batch.py
"""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable, write_deltalake
from local import onceonly, read, receive, rows, run, session, work_folder
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from onceonly import exactly_once
from onceonly_sinks.delta import DeltaSink


def main(spark: SparkSession, work: Path) -> None:
    """exactly_once() writes an epoch, a plain callback the next batch; then exactly_once() is to go on."""
    inbox, table, checkpoint = work / "in", work / "orders", work / "checkpoint"

    def write_orders(batch: DataFrame, _: int) -> None:
        write_deltalake(table, batch.toArrow(), mode="append")

    receive(inbox, "1", {"id": 1, "item": "pen"})
    run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)

    # The checkpoint is Spark's own, so the plain callback goes on where the last epoch ended. The table has no column
    # of onceonly's; its log keeps words that no reader asks for, and the ledger lies beside the checkpoint.
    receive(inbox, "2", {"id": 2, "item": "ink"})
    run(read(spark, inbox), write_orders, checkpoint)
    assert DeltaTable(table).schema().to_arrow().names == [field.name for field in read(spark, inbox).schema]

    # The second batch is no epoch, so nothing proves that its rows are there: whoever returns is stopped, and says it.
    receive(inbox, "3", {"id": 3, "item": "pad"})
    refused = ""
    try:
        run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)
    except StreamingQueryException as error:
        refused = str(error)
    assert "ONCE-E229" in refused
    onceonly("recover", "adopt", "orders", "--ledger", f"{checkpoint}.onceonly.db", "--accept-loss", "2..2", "--yes")
    run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)
    assert rows(table, "id", "item") == [(1, "pen"), (2, "ink"), (3, "pad")]


if __name__ == "__main__":
    main(session(), work_folder())
