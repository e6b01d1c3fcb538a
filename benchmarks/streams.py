"""One query of one variant: started, waited for, counted in its target, removed."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from benchmarks import usage
from benchmarks.data import SCHEMAS, Shape, generate
from benchmarks.destinations import VARIANTS, Counted, TestBed, Variant
from benchmarks.model import Run
from onceonly.spark.jars import fast_options
from onceonly_lab.servers.ports import postgres_jdbc_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SETTLING = 3
"""Epochs of a run that are not timed: the first ones open the sink and make the table."""

_PROGRESS = "10000"


class WrongRows(AssertionError):
    """The target does not hold exactly the rows of the input."""


def session(app: str = "benchmarks") -> SparkSession:
    """A session with Delta, Kafka and the JDBC driver, compiled as in production."""
    return quiet(builder(app).getOrCreate())


def builder(app: str = "benchmarks") -> Any:
    """All settings of the session."""
    from pyspark.sql import SparkSession

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ[name] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    building = SparkSession.builder.master("local[*]").appName(app)
    options = dict(fast_options(kafka=True, quick_compile=False))
    for name in ("spark.driver.extraClassPath", "spark.executor.extraClassPath"):
        options[name] = os.pathsep.join((options[name], str(postgres_jdbc_jar())))
    options |= {
        "spark.driver.memory": "2g",
        # As a driver has that runs for days. Between two short runs Java gives most of a heap back, and a run pays for
        # asking for it again.
        "spark.driver.extraJavaOptions": "-Xms2g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.numRecentProgressUpdates": _PROGRESS,
    }
    for name, value in options.items():
        building = building.config(name, value)
    return building


def quiet(spark: SparkSession) -> SparkSession:
    """The same session, which speaks of errors only."""
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(testbed: TestBed, shape: Shape, variant: str, number: int) -> Run:
    """Write the whole input once.

    Raises:
        WrongRows: the target holds something else.
    """
    name = run_name(shape, variant, number)
    way = VARIANTS[variant]
    testbed.spark.sparkContext._jvm.System.gc()
    before = usage.now(testbed.root)
    query = start(testbed, shape, way, name)
    query.awaitTermination()
    used = usage.now(testbed.root) - before
    try:
        rows = proven(way.count(testbed, name), shape, variant)
        epochs, cpu = _epochs(query)[SETTLING:], (used.client, used.servers)
        return Run(shape.name, variant, number, rows, used.clock, epochs, cpu, used.others)
    finally:
        way.remove(testbed, name)
        shutil.rmtree(testbed.root / name, ignore_errors=True)


def run_name(shape: Shape, variant: str, number: int) -> str:
    """Name of query, table and directory of one run."""
    return f"bench_{shape.name.replace(' ', '_')}_{number}_{sorted(VARIANTS).index(variant)}"


def start(testbed: TestBed, shape: Shape, way: Variant, name: str) -> StreamingQuery:
    """Start a query over a shape's files, one file per epoch."""
    reader = testbed.spark.readStream.schema(SCHEMAS[shape.kind]).option("maxFilesPerTrigger", 1)
    writer = reader.parquet(str(generate(shape))).writeStream.queryName(name).trigger(availableNow=True)
    return way.attach(
        testbed, writer.option("checkpointLocation", str(testbed.root / name / "checkpoint")), name
    ).start()


def _epochs(query: StreamingQuery) -> tuple[float, ...]:
    """``durationMs.triggerExecution`` of every epoch with rows: Spark's own clock, the same for all variants."""
    return tuple(
        float(progress.durationMs["triggerExecution"]) for progress in query.recentProgress if progress.numInputRows
    )


def proven(found: Counted | None, shape: Shape, variant: str) -> int:
    """Rows of the input, after comparing them with what the target holds.

    Raises:
        WrongRows: it holds something else.
    """
    expected = Counted(shape.total, shape.checksum)
    if found is not None and found != expected:
        raise WrongRows(f"{variant}: expected {expected}, found {found}")
    return shape.total
