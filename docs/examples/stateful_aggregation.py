"""A running sum per item, kept in Spark's state, written as an upsert. A replay brings state and table to agree again.

python docs/examples/stateful_aggregation.py
"""

from __future__ import annotations

from pathlib import Path

from local import forget_last_commit, read, receive, rows, run, session, work_folder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly import exactly_once
from onceonly_sinks.delta import DeltaSink


def totals(orders: DataFrame) -> DataFrame:
    """Sum per item. Integers: a sum of floats would depend on the order of its rows, and could not be compared."""
    return orders.groupBy("item").agg(f.sum("amount").alias("total"))


def main(spark: SparkSession, work: Path) -> None:
    """Two files; Spark forgets that it finished the second; a third."""
    inbox, table, checkpoint = work / "in", work / "totals", work / "checkpoint"
    receive(inbox, "1", {"item": "pen", "amount": 5}, {"item": "ink", "amount": 1})
    receive(inbox, "2", {"item": "pen", "amount": 7})
    run(totals(read(spark, inbox)), exactly_once(DeltaSink(table, key="item")), checkpoint, "update")

    # The batch is run again, so that Spark's state goes on; what it writes is proven to be there, and skipped.
    forget_last_commit(checkpoint)
    receive(inbox, "3", {"item": "ink", "amount": 1})
    run(totals(read(spark, inbox)), exactly_once(DeltaSink(table, key="item")), checkpoint, "update")
    print(rows(table, "item", "total"))
    assert rows(table, "item", "total") == [("ink", 2), ("pen", 12)]


if __name__ == "__main__":
    main(session(), work_folder())
