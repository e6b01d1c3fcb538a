"""Program behind ``prepare``: a short stream in a Spark session.

The session has the given settings. The stream uses all parts that ours use.

Nothing imports it: it runs in a process of its own, with ``python -m``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Attempt, Estimate
from onceonly.spark import input
from onceonly.spark.batch import SparkBatch
from onceonly.spark.detect import engine_for
from onceonly_lab.session.launch import begin, begun, end_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_DELTA = "io.delta"
_ROWS = 100


def main() -> int:
    """Read what to start from stdin, use it, and wait for the end of the JVM."""
    from pyspark.sql import SparkSession

    request = json.load(sys.stdin)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    for name, value in request["options"].items():
        builder = builder.config(name, value)
    session = begun(builder, request["options"], begin(request["options"]), tuple(request["java"]))
    with tempfile.TemporaryDirectory(prefix="onceonly-session-") as directory:
        _use(session, Path(directory))
    return end_jvm(session)


def _use(spark: SparkSession, directory: Path) -> None:
    rows = spark.range(_ROWS).selectExpr("id", "cast(id as string) AS text", "current_timestamp() AS at", "id % 7 AS k")
    rows.write.parquet(str(directory / "in"))
    delta = _DELTA in str(spark.conf.get("spark.sql.extensions", ""))

    def batch(df: DataFrame, batch_id: int) -> None:
        input.see(batch_id, engine_for(df).discover(df))
        held = SparkBatch(df, Estimate(None, None))
        held.write(str(directory / f"staged-{batch_id}"))
        held.reread((str(directory / f"staged-{batch_id}"),), held.schema).on_executors(_count)
        list(held.arrow())
        if delta:
            df.write.format("delta").mode("append").save(str(directory / "table"))

    source = spark.readStream.schema(rows.schema).parquet(str(directory / "in"))
    for name, frame, mode in (("plain", source, "append"), ("counts", source.groupBy("k").count(), "complete")):
        writer = frame.writeStream.queryName(name).outputMode(mode).foreachBatch(batch if mode == "append" else _read)
        writer.option("checkpointLocation", str(directory / name)).trigger(availableNow=True).start().awaitTermination()
    if delta:
        spark.read.format("delta").load(str(directory / "table")).count()


def _read(df: DataFrame, _: int) -> None:
    list(SparkBatch(df, Estimate(None, None)).arrow())


def _count(_: Attempt, batches: Iterator[pa.RecordBatch]) -> Mapping[str, int]:
    return {"rows": sum(batch.num_rows for batch in batches)}


if __name__ == "__main__":
    sys.exit(main())
