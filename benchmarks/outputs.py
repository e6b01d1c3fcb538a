"""What outputs and a quarantine cost an epoch, and the one pass that makes them a write of files.

``python -m benchmarks.outputs`` prints a table and writes it to ``results/outputs.md``. Sinks are Delta tables, each
with a commit of its own, or tables of one Postgres, which commit together.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psycopg

from benchmarks import streams
from benchmarks.data import SCHEMAS, Shape, generate
from benchmarks.rounds import HEAD, Job, rows
from onceonly import ExactlyOnce, Output, Quality, Storage, exactly_once
from onceonly.lineage import OpenLineage
from onceonly.protocol import Estimate, Sink
from onceonly.quality.spark_outputs import DividedBatch, OutputSpec, ResolvedOutput
from onceonly.spark import frames
from onceonly.spark.batch import SparkBatch
from onceonly_checkpoints import chain
from onceonly_lab.reading import delta_rows
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = Path(__file__).parent / "results"

ONE, STAGED, TWO = "one sink", "one sink, staged", "two sinks"
NONE_BAD, SOME_BAD, OUTPUTS = "a quarantine, no bad row", "a quarantine, 1 % bad", "two outputs beside all rows"
UNKNOWN = Estimate(None, None)
PLAIN_PASS, WIDE_PASS = "files of all rows", "files of all rows and two outputs"

TABLE, TWO_TABLES = "one Postgres table", "two Postgres tables"
LINEAGE = "lineage of the table into a file"
TABLE_NONE_BAD, TABLE_SOME_BAD = "a quarantine beside the table, no bad row", "a quarantine beside the table, 1 % bad"

JOBS = (
    Job(Shape("100 rows", 30, 100), 8, ONE, {STAGED: None, TWO: None, NONE_BAD: 1.03}),
    Job(Shape("1,000,000 rows", 4, 1_000_000, tasks=2), 1, ONE, {STAGED: None, SOME_BAD: 1.4, OUTPUTS: None}),
)
TABLE_JOBS = (
    Job(Shape("100 rows", 30, 100), 8, TABLE, {TWO_TABLES: None, TABLE_NONE_BAD: 1.03, LINEAGE: None}),
    Job(Shape("1,000,000 rows", 4, 1_000_000, tasks=2), 1, TABLE, {TABLE_SOME_BAD: 1.4, LINEAGE: None}),
)
PASS = Job(Shape("600,000 rows", 1, 600_000, tasks=2), 0, PLAIN_PASS, {WIDE_PASS: 1.5})

LARGE, FEW = "amount > 900000", "amount > 990000"
AS_EVENT = ("id AS key", "to_json(struct(*)) AS value")


def main() -> int:
    """Measure all ways; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outputs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="counted, after one that is not (default %(default)s)")
    parser.add_argument("--only", default="", help="only jobs whose size and peer have this text: 100 rows, one P")
    asked = parser.parse_args()
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-outputs-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        spark = streams.session()
        stack.callback(spark.stop)
        lines = ["# What outputs and a quarantine cost", "", *HEAD]
        server = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        ways = [(job, partial(epochs, spark, server.dsn, job)) for job in (*TABLE_JOBS, *JOBS)]
        for job, measure in (*ways, (PASS, partial(one_pass, spark))):
            if asked.only in f"{job.shape.name}, {job.peer}":
                lines += rows(job, asked.rounds, measure, root)
    text = "\n".join(lines)
    print(text)
    if not asked.only:
        (RESULTS / "outputs.md").write_text(f"{text}\n\n{_ABOUT}")
    return 0


def epochs(spark: SparkSession, dsn: str, job: Job, way: str, root: Path) -> float:
    """Write the input once, and return the median of ``durationMs.triggerExecution`` over the epochs that count.

    Raises:
        WrongRows: the sinks hold something else.
    """
    files = spark.readStream.schema(SCHEMAS[job.shape.kind]).option("maxFilesPerTrigger", 1)
    writer = files.parquet(str(generate(job.shape))).writeStream.trigger(availableNow=True).queryName("orders")
    in_postgres = job.peer == TABLE
    wrapped = tables(way, dsn, root) if in_postgres else _wrapped(way, root)
    query = writer.option("checkpointLocation", str(root / "checkpoint")).foreachBatch(wrapped).start()
    query.awaitTermination()
    took = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if "addBatch" in one["durationMs"]]
    if in_postgres:
        held = taken(dsn)
    else:
        held = _count(root / "table") + (_count(root / "bad") if way in (NONE_BAD, SOME_BAD) else 0)
    if held != job.shape.total:
        raise streams.WrongRows(f"{way}: {held} rows")
    return float(median(took[job.settling :]))


def tables(way: str, dsn: str, root: Path) -> ExactlyOnce:
    """The query of a way into tables of one Postgres."""
    table, bad = PostgresSink(dsn, table="orders"), PostgresSink(dsn, table="bad")
    if way == TWO_TABLES:
        return exactly_once(table, PostgresSink(dsn, table="other"))
    if way in (TABLE_NONE_BAD, TABLE_SOME_BAD):
        return exactly_once(table, quality=_quality(bad, some=way == TABLE_SOME_BAD))
    if way == LINEAGE:
        return exactly_once(table, lineage=OpenLineage(root / "events.jsonl", namespace="bench"))
    return exactly_once(table)


def taken(dsn: str) -> int:
    """How many rows were written, good and bad; all of it goes, so that the next run does not pay for it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = 0
        for name in ("orders", "bad"):
            there = connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
            row = connection.execute(f"SELECT count(*) FROM {name}").fetchone() if there and there[0] else None
            found += row[0] if row else 0
        connection.execute("DROP TABLE IF EXISTS orders, bad, other")
        connection.execute("DROP SCHEMA onceonly CASCADE")
        connection.execute("CHECKPOINT")
    return found


def _quality(bad: Sink, *, some: bool) -> Quality:
    expect = {"id": "id % 100 <> 7" if some else "id >= 0", "at": "at IS NOT NULL"}
    return Quality(expect=expect, quarantine=bad, max_bad=0.02)


def _wrapped(way: str, root: Path) -> ExactlyOnce:
    table, other, bad = (DeltaSink(str(root / name)) for name in ("table", "other", "bad"))
    if way == STAGED:
        return exactly_once(table, storage=Storage(staging=root / "staging"))
    if way == TWO:
        return exactly_once(table, other)
    if way in (NONE_BAD, SOME_BAD):
        return exactly_once(table, quality=_quality(bad, some=way == SOME_BAD))
    if way == OUTPUTS:
        few = Output(bad, name="few", where=FEW)
        return exactly_once(table, Output(other, name="events", where=LARGE, select=AS_EVENT), few)
    return exactly_once(table)


def one_pass(spark: SparkSession, way: str, root: Path) -> float:
    """Write the files of an epoch once, with digests; ms."""
    data = spark.read.schema(SCHEMAS[PASS.shape.kind]).parquet(str(generate(PASS.shape)))
    batch = SparkBatch(data, UNKNOWN)
    if way == WIDE_PASS:
        wanted = (OutputSpec("events", ("a",), LARGE, AS_EVENT), OutputSpec("few", ("b",), FEW))
        batch = DividedBatch(data, [_resolved(one, one.of(data)) for one in wanted], UNKNOWN)
    began = time.perf_counter()
    batch.write(str(root))
    took = 1000 * (time.perf_counter() - began)
    if batch.digest().rows != PASS.shape.total:
        raise streams.WrongRows(f"{way}: {batch.digest().rows} rows")
    return took


def _resolved(wanted: OutputSpec, shown: DataFrame) -> ResolvedOutput:
    columns = frames.arrow_schema(shown)
    return ResolvedOutput(wanted, chain.fingerprint(shown.dtypes), columns, frozenset(), wanted.column())


def _count(table: Path) -> int:
    from deltalake import DeltaTable

    return delta_rows(DeltaTable(str(table)), []).num_rows


_ABOUT = """- Each figure of epochs is the median of Spark's own `durationMs.triggerExecution` over the settled
  epochs of one query; of files, one write. Ways took turns in rotating order, each in every round, after a round that
  is not counted. Times are the median over the rounds of the quotient in the same round; the spread is its quartiles.
- One file per epoch into Delta tables, whose rows are counted after each run.
- Of the outputs, one takes a tenth of the rows as JSON, the other a hundredth as they are.
"""


if __name__ == "__main__":
    raise SystemExit(main())
