"""A job that wrote with ``txnAppId`` and ``txnVersion`` becomes a pipeline; the table itself proves where it stands.

python docs/examples/migrate_from_delta_txn.py
"""

from __future__ import annotations

from pathlib import Path

from local import onceonly, read, receive, rows, run, work_folder
from pyspark.sql import DataFrame, SparkSession

from onceonly import exactly_once
from onceonly_sinks.delta import DeltaSink, with_delta


def main(spark: SparkSession, work: Path) -> None:
    """The old job writes two batches under its application id; the new one goes on after them."""
    inbox, table, checkpoint = work / "in", work / "orders", work / "checkpoint"

    def write_orders(batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("delta").mode("append").option("txnAppId", "nightly")
        writer.option("txnVersion", batch_id).save(str(table))

    receive(inbox, "1", {"id": 1, "item": "pen"})
    receive(inbox, "2", {"id": 2, "item": "ink"})
    run(read(spark, inbox), write_orders, checkpoint)

    place = ("--from-checkpoint", checkpoint, "--from-delta-txn", "nightly", "--sink", f"delta:{table}")
    onceonly("recover", "adopt", "orders", *place, "--yes")

    receive(inbox, "3", {"id": 3, "item": "pad"})
    run(read(spark, inbox), exactly_once(DeltaSink(table)), checkpoint)
    assert rows(table, "id", "item") == [(1, "pen"), (2, "ink"), (3, "pad")]


if __name__ == "__main__":
    builder = with_delta(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
    main(builder.getOrCreate(), work_folder())
