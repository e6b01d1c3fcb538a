"""A driver whose executors live on a cluster: files go into a topic, ``python -m integration.cluster_driver JSON``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession

from onceonly import exactly_once
from onceonly.spark.jars import fast_session
from onceonly_sinks.kafka import KafkaSink, KafkaTuning


@dataclass(frozen=True, slots=True)
class Work:
    """One query over all files that are there.

    Attributes:
        options: Spark's, its master among them.
        folder: with the files in ``in``, the checkpoint and the ledger.
        key: of a record, as SQL; empty for none.
        slow: each of these ids takes a second: in a task that has sent others before, if no shuffle comes between.
        pad: spaces behind each id, so that sending takes a while.
    """

    options: dict[str, str]
    folder: str
    servers: str
    topic: str
    load: Literal["driver", "executors"] = "executors"
    key: str = "CAST(id AS STRING)"
    slow: tuple[int, ...] = ()
    pad: int = 0

    @property
    def command(self) -> list[str]:
        """What runs it."""
        return [sys.executable, "-m", "integration.cluster_driver", json.dumps(asdict(self))]


def run(work: Work) -> str:
    """Write all files, and return who filled the transactions."""
    builder = SparkSession.builder.appName("tasks")
    for name, value in work.options.items():
        builder = builder.config(name, value)
    spark = fast_session(builder, delta=False, kafka=True)
    print(f"application {spark.sparkContext.applicationId}", flush=True)
    sink = KafkaSink(work.servers, work.topic, tuning=KafkaTuning(load=work.load))
    sleeps = "coalesce(nullif(java_method('java.lang.Thread', 'sleep', 1000L), 'null'), '')"
    slow = f"IF(id IN ({', '.join(map(str, work.slow or [-1]))}), {sleeps}, '')"
    value = f"concat(CAST(id AS STRING), {slow}, repeat(' ', {work.pad}))"
    rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 2).parquet(f"{work.folder}/in")
    shaped = rows.selectExpr(f"{value} AS value", *([f"{work.key} AS key"] if work.key else []))
    query = (
        shaped.writeStream.queryName("tasks")
        .foreachBatch(exactly_once(sink))
        .option("checkpointLocation", str(Path(work.folder, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sink.capabilities.committer


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(run(Work(**{**given, "slow": tuple(given["slow"])})), flush=True)
