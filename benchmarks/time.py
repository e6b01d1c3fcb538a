"""What ``event_time=`` costs an epoch: the same query with it and without it, in pairs.

``python -m benchmarks.time`` prints a table and puts it into ``results/time.md``. Rows go into Postgres through the
driver, or from executors, into a Delta table, or into both, where they are staged.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import machine, streams
from benchmarks import report as reports
from benchmarks.data import SCHEMAS, Shape, generate
from onceonly import EventTime, Storage, exactly_once
from onceonly.protocol import Sink
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parent / "results"

TIMED = EventTime("at", max_delay="1 hour")

SMALL = Shape("small", 30, 100)
LARGE = Shape("large", 4, 1_000_000, tasks=2)
TINY = Shape("tiny", 4, 100)
"""To see that all of it runs."""

KINDS = ("postgres", "executors", "delta", "staged")

MOST_TIMES = 1.02
"""Of a million rows: in times of the same epoch without it."""

MOST_MS = 1.0
"""Of a hundred rows: milliseconds more."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """One input into one kind of sink.

    Attributes:
        shape: the input.
        settling: epochs at the beginning that are not counted.
        kind: one of :data:`KINDS`.
        plain: of each round, the median epoch without ``event_time=``, ms.
        timed: the same with it.
    """

    shape: Shape
    settling: int
    kind: str
    plain: tuple[float, ...] = ()
    timed: tuple[float, ...] = ()


def main() -> int:
    """Measure all pairs; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="pairs that count, after one that does not")
    parser.add_argument("--only", default="", help="only kinds with this text, or sizes: small, large")
    parser.add_argument("--tiny", action="store_true", help="four epochs of 100 rows, to see that all of it runs")
    asked = parser.parse_args()
    jobs = [Pairs(SMALL, 8, kind) for kind in KINDS] + [Pairs(LARGE, 1, kind) for kind in KINDS]
    if asked.tiny:
        jobs = [Pairs(TINY, 1, kind) for kind in KINDS]
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-time-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        spark = streams.session()
        stack.callback(spark.stop)
        server = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        about = machine.describe(server.dsn, spark.sparkContext._jvm.System.getProperty("java.version"))
        chosen = [job for job in jobs if asked.only in f"{job.shape.name} {job.kind}"]
        measured = [in_pairs(job, asked.rounds, partial(epochs, spark, server.dsn, job), root) for job in chosen]
    text = report(measured, about, asked.rounds)
    print(text)
    if not asked.only and not asked.tiny:
        reports.put(RESULTS / "time.md", text)
    return 0


def in_pairs(job: Pairs, rounds: int, measure: Callable[[bool, Path], float], root: Path) -> Pairs:
    """Measure with and without it by turns, whoever begins, after a round that is not counted."""
    found: Mapping[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 1):
        for timed in (False, True) if number % 2 else (True, False):
            took = measure(timed, root / "run")
            shutil.rmtree(root / "run", ignore_errors=True)
            if number:
                found[timed].append(took)
        print(f"{job.kind}, {job.shape.name} {number}: {[times[-1:] for times in found.values()]}", file=sys.stderr)
    return Pairs(job.shape, job.settling, job.kind, tuple(found[False]), tuple(found[True]))


def epochs(spark: SparkSession, dsn: str, job: Pairs, timed: bool, root: Path) -> float:
    """Write the input once, and return the median of ``durationMs.triggerExecution`` over the epochs that count.

    Raises:
        WrongRows: a sink holds something else.
    """
    sinks = _sinks(job.kind, dsn, root)
    wrapped = exactly_once(*sinks, event_time=TIMED if timed else None, storage=Storage(staging=root / "staging"))
    files = spark.readStream.schema(SCHEMAS[job.shape.kind]).option("maxFilesPerTrigger", 1)
    writer = files.parquet(str(generate(job.shape))).writeStream.trigger(availableNow=True).queryName("orders")
    query = writer.option("checkpointLocation", str(root / "checkpoint")).foreachBatch(wrapped).start()
    query.awaitTermination()
    took = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if "addBatch" in one["durationMs"]]
    for sink in _sinks(job.kind, dsn, root):
        _check(sink, job.shape, timed=timed)
    _remove(dsn)
    return float(median(took[job.settling :]))


def _sinks(kind: str, dsn: str, root: Path) -> list[Sink]:
    if kind == "delta":
        return [DeltaSink(root / "table")]
    if kind == "staged":
        return [PostgresSink(dsn, table="orders"), DeltaSink(root / "table")]
    return [
        PostgresSink(dsn, table="orders", tuning=PostgresTuning(load="executors" if kind == "executors" else "driver"))
    ]


def _check(sink: Sink, shape: Shape, *, timed: bool) -> None:
    sink.open("orders")
    rows = sink.recount() or {}
    said = [marker.epoch.time is not None for marker, _ in sink.history()]
    sink.close()
    if sum(rows.values()) != shape.total or said != [timed] * shape.epochs:
        raise streams.WrongRows(f"{sink.id}: {sum(rows.values())} rows in {len(said)} epochs, {sum(said)} with a time")


def _remove(dsn: str) -> None:
    """All of it goes, so that the next run does not pay for it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("DROP SCHEMA IF EXISTS onceonly CASCADE")
        connection.execute("CHECKPOINT")


def report(measured: Sequence[Pairs], about: dict[str, Any], rounds: int) -> str:
    """The whole page."""
    lines = [
        "# What a time costs an epoch",
        "",
        f"{reports.place(about)} By `python -m benchmarks.time`, {rounds} pairs each.",
        "",
        "| rows per epoch | into | without | with | times | spread | more | spread | limit |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    return "\n".join([*lines, *(line_of(one) for one in measured), "", _ABOUT])


def line_of(pairs: Pairs) -> str:
    """One row of the table: medians, and of the quotients and differences of each round the median and quartiles."""
    both = list(zip(pairs.plain, pairs.timed, strict=True))
    times, more = [timed / plain for plain, timed in both], [timed - plain for plain, timed in both]
    small = pairs.shape.rows < LARGE.rows
    limit = f"{MOST_MS:g} ms more" if small else f"{MOST_TIMES:g} times"
    best = min(_quartiles(more if small else times))  # missed only where the better end of the spread misses
    met = best <= (MOST_MS if small else MOST_TIMES)
    cells = (
        f"{pairs.shape.rows:,}",
        pairs.kind,
        f"{median(pairs.plain):,.0f} ms",
        f"{median(pairs.timed):,.0f} ms",
        f"{median(times):.3f}",
        _spread(times, ".3f"),
        f"{median(more):+.1f} ms",
        _spread(more, "+.1f"),
        limit if met else f"{limit}, missed",
    )
    return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float], form: str) -> str:
    lower, upper = _quartiles(values)
    return f"{lower:{form}} to {upper:{form}}" if len(values) > 1 else ""


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = quantiles(values, n=4)
    return lower, upper


_ABOUT = """- Each figure is the median of Spark's own `durationMs.triggerExecution` over the settled epochs of one
  query; with and without take turns in every round, and who begins, too. Quotients and differences are taken within a
  round, then the median over the rounds; the spread is their quartiles. A limit is missed where the better of them is.
- With it: `event_time=EventTime("at", max_delay="1 hour")`. One Parquet file per epoch. Rows and markers of each sink
  are counted after each run: all epochs have a time, or none.
- `executors`: rows go to Postgres from Spark's tasks. `staged`: Postgres and a Delta table, whose rows are written
  into files once.
"""


if __name__ == "__main__":
    raise SystemExit(main())
