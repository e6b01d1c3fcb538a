"""One query of one variant: started, waited for, counted in its target, removed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import bars
from benchmarks.data import SCHEMA, Shape, generate
from benchmarks.model import Run
from onceonly import exactly_once
from onceonly.lab.jars import fast_options, postgres_jdbc_jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    Attach = Callable[["Ground", DataStreamWriter, str], DataStreamWriter]

SETTLING = 3
"""Epochs of a run that are not timed: the first ones open the sink and make the table."""

_PROGRESS = "10000"


class WrongRows(AssertionError):
    """The target does not hold exactly the rows of the input."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all runs share.

    Attributes:
        spark: the session.
        dsn: of the Postgres server.
        jdbc_url: of the same.
        root: a directory of our own.
    """

    spark: SparkSession
    dsn: str
    jdbc_url: str
    root: Path

    @property
    def tables(self) -> Path:
        """Parent of the Delta tables."""
        return self.root / "tables"


@dataclass(slots=True)
class Counted:
    """What a target holds."""

    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of writing a stream.

    Attributes:
        attach: gives a writer its destination; the text names the run.
        count: what the destination holds; ``None`` where nothing is kept.
        remove: takes it away.
    """

    attach: Attach
    count: Callable[[Ground, str], Counted | None]
    remove: Callable[[Ground, str], None] = field(default=lambda ground, name: None)


def session(app: str = "benchmarks") -> SparkSession:
    """A session with Delta and the JDBC driver, compiled as in production."""
    from pyspark.sql import SparkSession

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ[name] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[*]").appName(app)
    options = dict(fast_options(quick_compile=False))
    for name in ("spark.driver.extraClassPath", "spark.executor.extraClassPath"):
        options[name] = os.pathsep.join((options[name], str(postgres_jdbc_jar())))
    options |= {
        "spark.driver.memory": "2g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.numRecentProgressUpdates": _PROGRESS,
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(ground: Ground, shape: Shape, variant: str, number: int) -> Run:
    """Write the whole input once.

    Raises:
        WrongRows: the target holds something else.
    """
    name = run_name(shape, variant, number)
    way = VARIANTS[variant]
    ground.spark.sparkContext._jvm.System.gc()
    began = time.perf_counter()
    query = start(ground, shape, way, name)
    query.awaitTermination()
    seconds = time.perf_counter() - began
    try:
        rows = proven(way.count(ground, name), shape, variant)
        return Run(shape.name, variant, number, rows, seconds, _epochs(query)[SETTLING:])
    finally:
        way.remove(ground, name)
        shutil.rmtree(ground.root / name, ignore_errors=True)


def run_name(shape: Shape, variant: str, number: int) -> str:
    """Name of query, table and directory of one run."""
    return f"bench_{shape.name}_{number}_{sorted(VARIANTS).index(variant)}"


def start(ground: Ground, shape: Shape, way: Variant, name: str) -> StreamingQuery:
    """Start a query over a shape's files, one file per epoch."""
    reader = ground.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    writer = reader.parquet(str(generate(shape))).writeStream.queryName(name).trigger(availableNow=True)
    return way.attach(ground, writer.option("checkpointLocation", str(ground.root / name / "checkpoint")), name).start()


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


# ---- destinations


def _postgres_count(ground: Ground, name: str) -> Counted:
    with psycopg.connect(ground.dsn) as connection:
        row = connection.execute(f'SELECT count(*), coalesce(sum(id), 0)::bigint FROM "{name}"').fetchone()
    assert row is not None
    return Counted(*row)


def _postgres_remove(ground: Ground, name: str) -> None:
    """Drop the table and flush: the next run must not pay for this one's dirty pages."""
    with psycopg.connect(ground.dsn, autocommit=True) as connection:
        connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        connection.execute("CHECKPOINT")


def _delta_count(ground: Ground, name: str) -> Counted:
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    ids = DeltaTable(str(ground.tables / name)).to_pyarrow_table(columns=["id"]).column("id")
    return Counted(len(ids), pc.sum(ids).as_py() or 0)


def _delta_remove(ground: Ground, name: str) -> None:
    shutil.rmtree(ground.tables / name, ignore_errors=True)


def _nothing(ground: Ground, name: str) -> None:
    return None


# ---- variants


def _noop(ground: Ground, writer: Any, name: str) -> Any:
    def write(df: DataFrame, batch_id: int) -> None:
        df.write.format("noop").mode("append").save()

    return writer.foreachBatch(write)


def _spark_delta(ground: Ground, writer: Any, name: str) -> Any:
    return writer.format("delta").option("path", str(ground.tables / name))


def _jdbc(ground: Ground, writer: Any, name: str, *, rewrite: bool) -> Any:
    url = ground.jdbc_url + ("&reWriteBatchedInserts=true" if rewrite else "")
    properties = {"driver": "org.postgresql.Driver", "batchsize": "10000"}

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.jdbc(url, name, mode="append", properties=properties)

    return writer.foreachBatch(write)


def _postgres(ground: Ground, writer: Any, name: str, *, via: Any) -> Any:
    from onceonly_sinks.postgres import PostgresSink

    return writer.foreachBatch(exactly_once(PostgresSink(ground.dsn, name, via=via)))


def _delta(ground: Ground, writer: Any, name: str) -> Any:
    from onceonly_sinks.delta import DeltaSink

    return writer.foreachBatch(exactly_once(DeltaSink(str(ground.tables / name))))


def _into_postgres(attach: Attach) -> Variant:
    return Variant(attach, _postgres_count, _postgres_remove)


def _into_delta(attach: Attach) -> Variant:
    return Variant(attach, _delta_count, _delta_remove)


VARIANTS: dict[str, Variant] = {
    bars.NOOP: Variant(_noop, _nothing),
    bars.SPARK_DELTA: _into_delta(_spark_delta),
    bars.DELTA: _into_delta(_delta),
    bars.JDBC: _into_postgres(lambda ground, writer, name: _jdbc(ground, writer, name, rewrite=False)),
    bars.JDBC_REWRITE: _into_postgres(lambda ground, writer, name: _jdbc(ground, writer, name, rewrite=True)),
    bars.DRIVER: _into_postgres(lambda ground, writer, name: _postgres(ground, writer, name, via="driver")),
    bars.EXECUTORS: _into_postgres(lambda ground, writer, name: _postgres(ground, writer, name, via="executors")),
    bars.AUTO: _into_postgres(lambda ground, writer, name: _postgres(ground, writer, name, via="auto")),
}
"""Every way of writing, by the name that the table shows."""
