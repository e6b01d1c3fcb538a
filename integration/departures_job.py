"""A driver that tests kill: the flights of 2013 as they took off, into two sinks, with the time of their departure.

``python -m integration.departures_job FLIGHTS DSN TABLE CHECKPOINT``: a directory of Parquet files, a file a day; a
database; a directory for a Delta table.
"""

from __future__ import annotations

import sys

from onceonly import EventTime, exactly_once
from onceonly.spark.jars import fast_session
from onceonly_lab.demo import input
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink

DELAY_HOURS = 3
"""By how much a flight may be behind, and not be late. Of a day, all are."""

DAYS = 15
"""Files of one batch."""

DEPARTURE = "time_hour + make_interval(0, 0, 0, 0, 0, minute) AS departure"
"""When it should have taken off."""


def main(flights: str, dsn: str, table: str, checkpoint: str) -> None:
    """Stream all files."""
    from pyspark.sql import SparkSession

    time = EventTime("departure", max_delay=f"{DELAY_HOURS} hours")
    sinks = PostgresSink(dsn, table="departures"), DeltaSink(table)
    wrapped = exactly_once(*sinks, event_time=time, transform=lambda df: df.selectExpr("*", DEPARTURE))
    spark = fast_session(SparkSession.builder.master("local[2]").appName("departures"), delta=False)
    days = spark.readStream.schema(input.spark_schema()).option("maxFilesPerTrigger", DAYS).parquet(flights)
    writer = days.writeStream.queryName("departures").option("checkpointLocation", checkpoint).foreachBatch(wrapped)
    writer.trigger(availableNow=True).start().awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
