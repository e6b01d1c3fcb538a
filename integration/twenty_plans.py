"""Twenty queries over one small input, each run once: prints the fingerprint of each as JSON. A program for tests.

``python -m integration.twenty_plans 1``: the number moves the ids of expressions, and is a setting of the session.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from integration.streams import FileStream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly import Storage, exactly_once
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink

Shape = Callable[[DataFrame], DataFrame]


def timed(df: DataFrame) -> DataFrame:
    return df.withColumn("at", f.timestamp_seconds("id")).withWatermark("at", "1 minute")


def shapes(spark: SparkSession) -> Mapping[str, tuple[str, Shape]]:
    """Output mode and query, by name."""
    words = spark.createDataFrame([("w1", 1), ("w2", 2)], "word string, rank int")

    @f.udf("bigint")
    def more(value: int) -> int:
        return value + 1

    return {
        "plain": ("append", lambda df: df),
        "filter": ("append", lambda df: df.where("id > 1")),
        "other literal": ("append", lambda df: df.where("id > 2")),
        "two filters": ("append", lambda df: df.where("id > 1").where("word <> 'w3'")),
        "two filters turned": ("append", lambda df: df.where("word <> 'w3'").where("id > 1")),
        "columns": ("append", lambda df: df.select("word", (f.col("id") * 2).alias("twice"))),
        "case": ("append", lambda df: df.withColumn("c", f.when(f.col("id") > 1, "a").otherwise("b"))),
        "draw": ("append", lambda df: df.withColumn("r", f.rand())),
        "uuid": ("append", lambda df: df.withColumn("u", f.expr("uuid()"))),
        "clock": ("append", lambda df: df.withColumn("now", f.current_timestamp())),
        "udf": ("append", lambda df: df.withColumn("m", more("id"))),
        "join": ("append", lambda df: df.join(words, "word")),
        "left join": ("append", lambda df: df.join(words, "word", "left")),
        "map": ("append", lambda df: df.withColumn("m", f.create_map("word", "id"))),
        "explode": ("append", lambda df: df.withColumn("e", f.explode(f.array("id", "id")))),
        "nested": ("append", lambda df: df.select(f.struct("id", "word").alias("s")).select("s.*", "s")),
        "count": ("update", lambda df: df.groupBy((f.col("id") % 2).alias("k")).count()),
        "sum": ("update", lambda df: df.groupBy((f.col("id") % 2).alias("k")).agg(f.sum("id").alias("s"))),
        "windows": ("update", lambda df: timed(df).groupBy(f.window("at", "5 minutes")).count()),
        "distinct": ("append", lambda df: timed(df).dropDuplicatesWithinWatermark(["word"])),
    }


def main(number: int, root: Path) -> dict[str, str]:
    """Run all of them below a directory."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", str(number)).getOrCreate()
    for _ in range(7 * number):
        spark.range(3).withColumn("beside", f.lit(1)).where("id > 1")
    found: dict[str, str] = {}
    for name, (mode, shape) in shapes(spark).items():
        home = root / name.replace(" ", "-")
        ledger = SqlLedger(str(home / "ledger.db"))
        stream = FileStream(spark, home).receive(range(4))
        stream.run(exactly_once(MemorySink(name), storage=Storage(ledger=ledger)), shape=shape, mode=mode)
        [record, *_] = ledger.epochs("orders")
        assert record.epoch.lineage is not None
        assert record.epoch.lineage.plan is not None
        found[name] = record.epoch.lineage.plan.text
        ledger.close()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(main(int(sys.argv[1]), Path(made))))
