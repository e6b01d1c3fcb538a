"""The driver program that tests kill: one query through ``format("onceonly")`` to the end of its input.

``python -m integration.datasource_job TASK``: a JSON file with ``options`` of the sink and what is read: ``topic``,
options of the source; or ``inbox`` and ``naps_at``, the id of a row that keeps its task busy for a minute, ``null`` for
none.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from onceonly.spark.jars import fast_session
from onceonly_lab.driver import end_with_parent

SCHEMA = "id bigint, word string"

NAP_MS = 60_000


def rows(spark: SparkSession, inbox: str, naps_at: int | None):
    """The stream, one file per batch. A nap is Java's: a Python function would run in a worker that is killed apart."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(inbox)
    if naps_at is None:
        return files
    nap = f.expr(f"reflect('java.lang.Thread', 'sleep', {NAP_MS}L)")
    return files.where(f.when(f.col("id") == naps_at, nap).otherwise(f.lit("awake")) != "")


def records(spark: SparkSession, topic: dict[str, str]):
    """The stream of a topic that holds numbers, each with its place."""
    read = spark.readStream.format("kafka").options(**topic).load()
    return read.selectExpr("cast(cast(value as string) as bigint) as id", "partition", "offset")


def main(argv: list[str]) -> int:
    """Run the task in ``argv[0]``; prints ``done`` when the query has ended well."""
    end_with_parent()
    task = json.loads(Path(argv[0]).read_text())
    topic = task.get("topic")
    spark = fast_session(SparkSession.builder.master("local[2]").appName("datasource"), delta=False, kafka=bool(topic))
    stream = records(spark, topic) if topic else rows(spark, task["inbox"], task["naps_at"])
    writer = stream.writeStream.format("onceonly").queryName("orders").options(**task["options"])
    writer.trigger(availableNow=True).start().awaitTermination()
    print("done", flush=True)
    # The end of the JVM takes seconds, and nobody waits for what it tidies up.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
