"""A driver that tests kill: the flights of 2013 into a table, late ones into another, odd ones into a quarantine.

``python -m integration.flights_job FLIGHTS DSN TABLE CHECKPOINT``: a directory of CSV files, a database for flights and
quarantine, a directory for a Delta table of alerts.
"""

from __future__ import annotations

import sys

from onceonly import ExactlyOnce, Output, Quality, exactly_once
from onceonly.protocol import Sink
from onceonly.spark.jars import fast_session
from onceonly_lab.demo import input
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink

EXPECT = {
    "a time of a clock": "coalesce(dep_time, 0) < 2400 AND coalesce(arr_time, 0) < 2400",
    "air time, if it arrived": "arr_time IS NULL OR air_time IS NOT NULL",
}
"""What some flights of that year break: midnight as 24:00, diverted flights. One without a number the table refuses."""

COLUMNS = {"INT": "integer", "STRING": "text", "TIMESTAMP": "timestamptz"}


def table() -> str:
    """The table of flights, made as its owner would: an aircraft has a number."""
    columns = [column.split() for column in input.spark_schema().split(", ")]
    kinds = [f"{name} {COLUMNS[kind]}{' NOT NULL' if name == 'tailnum' else ''}" for name, kind in columns]
    return f"CREATE TABLE flights ({', '.join(kinds)}, _epoch bigint)"


LATE = "dep_delay > 120"
ALERT = ["row", "concat(carrier, flight) AS flight", "dep_delay"]


def sinks(dsn: str, alerts: str) -> tuple[Sink, Sink, Sink]:
    """For good flights and odd ones two tables of one Postgres, and a Delta table for alerts between them."""
    flights = PostgresSink(dsn, table="flights")
    return flights, DeltaSink(alerts), flights.table("flights_odd")


def wrapped(dsn: str, alerts: str) -> ExactlyOnce:
    """What the query calls."""
    flights, late, odd = sinks(dsn, alerts)
    quality = Quality(expect=EXPECT, quarantine=odd, max_bad=0.05)
    return exactly_once(flights, Output(late, name="alerts", where=LATE, select=ALERT), quality=quality)


def main(flights: str, dsn: str, alerts: str, checkpoint: str) -> None:
    """Stream all files, one a batch."""
    from pyspark.sql import SparkSession

    spark = fast_session(SparkSession.builder.master("local[2]").appName("flights"), delta=False)
    files = spark.readStream.schema(input.spark_schema()).options(**input.spark_options())
    writer = files.option("maxFilesPerTrigger", 1).csv(flights).writeStream.queryName("flights")
    query = writer.option("checkpointLocation", checkpoint).foreachBatch(wrapped(dsn, alerts))
    query.trigger(availableNow=True).start().awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
