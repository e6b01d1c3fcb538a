"""A driver of one epoch of many rows, good or bad, which says how much memory it and its JVM took at most."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from onceonly import Quality, exactly_once
from onceonly.errors import refusal
from onceonly.spark.jars import fast_session
from onceonly_sinks.postgres import PostgresSink


def peak_of_jvm(spark: SparkSession) -> int:
    """Bytes of the JVM at most, as the kernel counts them."""
    jvm: Any = spark.sparkContext._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    [line] = [text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def main(inbox: str, checkpoint: str, dsn: str, expected: str, most: str) -> None:
    spark = fast_session(SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g"))
    spark.sparkContext.setLogLevel("OFF")
    quality = Quality(expect={"expected": expected}, quarantine=PostgresSink(dsn, "rows_bad"), max_bad=json.loads(most))
    write = exactly_once(PostgresSink(dsn, "rows"), name="rows", quality=quality)
    rows = spark.readStream.schema("id bigint, word string").parquet(inbox)
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    started, code = query.start(), ""
    try:
        started.awaitTermination()
    except Exception:  # of whatever class the client makes of it
        told = refusal(started)
        code = told.code if told else "unknown"
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"code": code, "driver": own, "jvm": peak_of_jvm(spark)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
