"""What panes cost, beside Spark's own windowed aggregation with a hand-written upsert, and beside plain rows.

``python -m benchmarks.panes`` prints a table and writes it to ``results/panes.md``. All of it goes into one Postgres.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import machine, panestate, streams
from benchmarks import report as reports
from benchmarks.data import SCHEMAS, Shape, generate
from benchmarks.rounds import HEAD, Job, More, rows
from onceonly import EventTime, Quality, exactly_once
from onceonly.windows import AtCount, AtWatermark, Sum, Tumbling, Windows
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = Path(__file__).parent / "results"

NATIVE, ACCUMULATING, RETRACTING = "Spark, update, upsert by hand", "panes, accumulating", "panes, retracting"
BEHIND = "panes, accumulating, behind a quarantine"
ROWS, FEW = "rows as they come", "panes of these rows"
FEW_BEHIND = "panes of these rows, behind a quarantine"
QUARANTINES = (BEHIND, FEW_BEHIND)

JOBS = (
    Job(Shape("1,000,000 rows", 4, 1_000_000, tasks=2), 1, NATIVE, {ACCUMULATING: 1.2, RETRACTING: 1.6, BEHIND: None}),
    Job(Shape("100 rows", 30, 100), 8, ROWS, {FEW: More(15), FEW_BEHIND: None}),
)
KEYS = 10_000
CLOSING = 1_000_000
"""Windows that close in one epoch."""

SECOND_US = 1_000_000


def main() -> int:
    """Measure all ways; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="counted, after one that is not (default %(default)s)")
    parser.add_argument("--only", default="", help="only what has this text: 100 rows, closing, state")
    asked = parser.parse_args()
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-panes-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        spark = streams.session()
        stack.callback(spark.stop)
        server = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        about = machine.describe(server.dsn, spark.sparkContext._jvm.System.getProperty("java.version"))
        where = f"{reports.place(about)} By `python -m benchmarks.panes`, {asked.rounds} rounds each."
        lines = ["# What panes cost", "", where, "", *HEAD]
        for job in JOBS:
            if asked.only in job.shape.name:
                lines += rows(job, asked.rounds, partial(epochs, spark, server.dsn, job), root)
        if asked.only in "closing":
            lines += ["", closing(spark, server.dsn, root / "closing")]
        if asked.only in "state":
            lines += ["", panestate.touched(server.dsn, asked.rounds).line]
    text = "\n".join(lines)
    print(text)
    if not asked.only:
        (RESULTS / "panes.md").write_text(f"{text}\n\n{_ABOUT}")
    return 0


def shaped(df: DataFrame) -> DataFrame:
    """Rows of so many keys, ten seconds apart for each hundred thousand of them."""
    at = "timestamp_micros(1357000000000000L + id * 100) AS at"
    return df.selectExpr(f"id % {KEYS} AS key", "CAST(quantity AS BIGINT) AS value", at)


def epochs(spark: SparkSession, dsn: str, job: Job, way: str, root: Path) -> float:
    """Write the input once, and return the median of ``durationMs.triggerExecution`` over the epochs that count.

    Raises:
        WrongRows: the table holds another sum.
    """
    files = spark.readStream.schema(SCHEMAS[job.shape.kind]).option("maxFilesPerTrigger", 1)
    df = shaped(files.parquet(str(generate(job.shape))))
    wrapped, mode = _native(dsn) if way == NATIVE else _wrapped(way, dsn), "update" if way == NATIVE else "append"
    df = _windowed(df) if way == NATIVE else df
    writer = df.writeStream.trigger(availableNow=True).queryName("scores").outputMode(mode)
    query = writer.option("checkpointLocation", str(root / "checkpoint")).foreachBatch(wrapped).start()
    query.awaitTermination()
    took = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    held, wanted = _taken(dsn, way), shaped(spark.read.parquet(str(generate(job.shape)))).selectExpr("sum(value)")
    if held != (total := wanted.collect()[0][0]):
        raise streams.WrongRows(f"{way}: {held}, and the input has {total}")
    return float(median(took[job.settling :]))


def panes(accumulation: str, **said: Any) -> Windows:
    """A sum for each key and two minutes, as it changes."""
    given: dict[str, Any] = {
        "key": "key",
        "aggregates": {"total": Sum("value")},
        "time": "at",
        "window": Tumbling("2 minutes"),
        "trigger": AtWatermark(early=AtCount(1), late=AtCount(1)),
        "on_time": "changed",
        "accumulation": accumulation,
    }
    return Windows(**{**given, **said})


def _wrapped(way: str, dsn: str) -> Any:
    given: dict[str, Any] = {"event_time": EventTime("at", max_delay="2 minutes")}
    if way in QUARANTINES:
        given["quality"] = Quality(expect={"value": "value >= 0"}, quarantine=PostgresSink(dsn, table="bad"))
    if way in (ACCUMULATING, BEHIND):
        key = ("key", "window_start", "window_end")
        sink = PostgresSink(dsn, table="scores", key=key, delete_flag="deleted")
        return exactly_once(sink, windows=panes("accumulating", results="upserts"), **given)
    if way == ROWS:
        return exactly_once(PostgresSink(dsn, table="scores"))
    return exactly_once(PostgresSink(dsn, table="scores"), windows=panes("retracting"), **given)


def _windowed(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = df.withWatermark("at", "2 minutes").groupBy(f.window("at", "2 minutes"), "key")
    return grouped.agg(f.sum("value").alias("total")).selectExpr("key", "window.start", "window.end", "total")


def _native(dsn: str) -> Any:
    """What a user writes by hand: the changed results by COPY beside the table, and an upsert."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        columns = "key bigint, window_start timestamptz, window_end timestamptz, total bigint"
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS scores ({columns}, PRIMARY KEY (key, window_start, window_end))"
        )

    def write(df: DataFrame, _: int) -> None:
        with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE came (LIKE scores) ON COMMIT DROP")
            with cursor.copy("COPY came FROM STDIN") as copy:
                for row in df.toArrow().to_pylist():
                    copy.write_row(tuple(row.values()))
            into = "INSERT INTO scores SELECT * FROM came ON CONFLICT (key, window_start, window_end)"
            cursor.execute(f"{into} DO UPDATE SET total = excluded.total")

    return write


def _taken(dsn: str, way: str) -> int:
    """The sum that was written; all of it goes, so that the next run does not pay for it."""
    column = "value" if way == ROWS else "total" if way in (NATIVE, ACCUMULATING, BEHIND) else "total * sign"
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(f"SELECT sum({column}) FROM scores").fetchone()
        connection.execute("DROP TABLE IF EXISTS scores, scores_state, bad")
        connection.execute("DROP SCHEMA IF EXISTS onceonly CASCADE")
        connection.execute("CHECKPOINT")
    return int(row[0]) if row else 0


def closing(spark: SparkSession, dsn: str, root: Path) -> str:
    """One epoch that opens a million windows, and one that closes them: seconds of the second, memory of the driver."""
    root.mkdir(parents=True)
    made = spark.range(CLOSING).selectExpr("id AS key", "1L AS value", "timestamp_millis(1357000020000L) AS at")
    made.repartition(2).write.parquet(str(root / "in" / "first"))
    last = spark.range(1).selectExpr("-1L AS key", "1L AS value", "timestamp_millis(1357000920000L) AS at")

    def run() -> float:
        sink = PostgresSink(dsn, table="scores")
        time_ = EventTime("at", max_delay="0s")
        wrapped = exactly_once(sink, event_time=time_, windows=panes("accumulating", trigger=AtWatermark()))
        stream = spark.readStream.schema(made.schema).parquet(str(root / "in" / "*"))
        writer = stream.writeStream.trigger(availableNow=True).queryName("scores").foreachBatch(wrapped)
        began = time.perf_counter()
        writer.option("checkpointLocation", str(root / "checkpoint")).start().awaitTermination()
        return time.perf_counter() - began

    opened = run()
    last.write.parquet(str(root / "in" / "second"))
    closed = run()
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT count(*), sum(total) FROM scores").fetchone()
    if row is None or tuple(map(int, row)) != (CLOSING, CLOSING):
        raise streams.WrongRows(f"{row} of {CLOSING} windows")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    said = f"{CLOSING:,} windows opened in one epoch: {opened:.0f} s; closed in one epoch: {closed:.0f} s (limit 60)"
    return f"{said}; Python's memory in the driver at most {most:,.0f} MB (limit 2,048)."


_ABOUT = """- Of epochs: the median of Spark's own `durationMs.triggerExecution` over the settled epochs of one query.
  Ways took turns in rotating order, each in every round, after a round that is not counted. Times are the median over
  the rounds of the quotient in the same round; the spread is its quartiles.
- A million rows: 10,000 keys, 100 s of time in an epoch, windows of two minutes; every window that changed is written.
  Spark keeps its state in the memory of the process and in files of its checkpoint, panes in the same Postgres.
- A hundred rows are held to milliseconds more than the same rows as they come, in the same round.
- A limit is missed where the better end of the spread is beyond it.
- Of the state of a million windows: its keeper alone, one commit for each epoch, statistics fresh; rounds as above.
- After each run the sum in the table is compared with the input's.

Where the time of a million windows goes: the step of the driver takes 10 to 12 us of processor for a window that opens
or closes (JSON of key and state is a quarter of it). What Spark, COPY and the ledger take is not divided yet. Partial
results, state and rows are in the driver's memory at once, about 1.8 KB for each window.
"""


if __name__ == "__main__":
    raise SystemExit(main())
