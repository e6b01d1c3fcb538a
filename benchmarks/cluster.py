"""What a row costs executors, on one worker and on two: each worker an executor with a core of its own.

``python -m benchmarks.cluster`` prints a table and writes it to ``results/cluster.md``. The servers share the machine,
so more workers are hardly faster here: what is compared is processor time of executors by row, which must not grow.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import topics, usage
from benchmarks.data import SCHEMAS, Shape, generate
from onceonly_lab.reading import delta_rows

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent

KAFKA, POSTGRES, DELTA = "KafkaSink", "PostgresSink", "DeltaSink"
WORKERS = (1, 2)
SETTLING = 10
"""Epochs that are not counted: executors compile meanwhile."""

LIMIT = 1.1
"""CPU of executors by row on two workers, by that on one."""

PARTITIONS, PATIENCE_S = 4, 300.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a driver is told.

    Attributes:
        sink: one of :data:`KAFKA`, :data:`POSTGRES`, :data:`DELTA`.
        options: Spark's.
        rows: of an epoch.
        target: of the sink.
    """

    sink: str
    options: dict[str, str]
    epochs: int
    rows: int
    target: str
    folder: str

    @property
    def shape(self) -> Shape:
        """The input."""
        return Shape("cluster", self.epochs, self.rows, 4, "messages" if self.sink == KAFKA else "orders")


@dataclass(frozen=True, slots=True)
class Ran:
    """One run.

    Attributes:
        seconds: of the epochs that count.
        cpu: seconds of the executors for them, with their Python workers.
        driver: the same of the driver.
    """

    seconds: float
    cpu: float
    driver: float


# ---- The driver.


def drive(work: Work) -> None:
    """Write the input once; stop where executors are to be looked at, until a line comes."""
    from pyspark.sql import SparkSession

    from onceonly import exactly_once
    from onceonly.spark.jars import fast_session

    builder = SparkSession.builder.appName("cluster")
    for name, value in work.options.items():
        builder = builder.config(name, value)
    spark = fast_session(builder, delta=False, kafka=True, quick_compile=False)
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.schema(SCHEMAS[work.shape.kind]).option("maxFilesPerTrigger", 1)
    shaped = rows.parquet(str(generate(work.shape)))
    if work.sink == KAFKA:
        shaped = shaped.select("key", "value")
    write = exactly_once(sink_of(work))

    def noticed(df: Any, batch: int) -> None:
        if batch == SETTLING:
            tell(spark.sparkContext.applicationId)
        write(df, batch)

    query = shaped.writeStream.queryName("cluster").foreachBatch(noticed)
    query = query.option("checkpointLocation", f"{work.folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    tell("done")


def tell(what: str) -> None:
    """Print a line, and wait for one."""
    os.write(1, f"{what}\n".encode())
    sys.stdin.readline()


def sink_of(work: Work) -> Any:
    """The sink, whose rows executors write."""
    from onceonly_sinks.delta import DeltaSink, DeltaTuning
    from onceonly_sinks.kafka import KafkaSink, KafkaTuning
    from onceonly_sinks.postgres import PostgresSink, PostgresTuning

    if work.sink == KAFKA:
        return KafkaSink(*work.target.split(" "), tuning=KafkaTuning(load="executors"))
    if work.sink == POSTGRES:
        return PostgresSink(work.target, table="orders", tuning=PostgresTuning(load="executors"))
    return DeltaSink(work.target, tuning=DeltaTuning(driver_limit=1))


# ---- A run.


def run(work: Work) -> Ran:
    """Start a driver and look at its executors.

    Raises:
        RuntimeError: it ended before its input did, or lost an executor.
    """
    log = Path(work.folder, "driver.log")
    with log.open("w") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster", "--drive", json.dumps(asdict(work))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        application = _said(driver, log)
        own = usage.family(psutil.Process(driver.pid))
        (before, cpu), driven, began = executors_of(application), usage.seconds(own), time.perf_counter()
        _answer(driver)
        _said(driver, log)
        ended = time.perf_counter()
        after, used = executors_of(application)
        if before != after or len(before) != int(work.options["spark.cores.max"]):
            raise RuntimeError(f"executors were {sorted(before)}, and are {sorted(after)}")
        found = Ran(ended - began, used - cpu, usage.seconds(own) - driven)
        _answer(driver)
        driver.wait(PATIENCE_S)
        return found
    finally:
        driver.kill()


def _said(driver: subprocess.Popen[str], log: Path) -> str:
    assert driver.stdout
    while line := driver.stdout.readline():
        if line.startswith(("app-", "done")):
            return line.strip()
    raise RuntimeError(f"the driver ended:\n{log.read_text()[-3000:]}")


def _answer(driver: subprocess.Popen[str]) -> None:
    assert driver.stdin
    driver.stdin.write("\n")
    driver.stdin.flush()


def executors_of(application: str) -> tuple[frozenset[int], float]:
    """Executors of an application, and the seconds of processor of all, with their Python workers."""
    from onceonly_lab.servers.spark import executors

    processes = executors(application)
    used = sum(usage.seconds(usage.family(process)) for process in processes)
    return frozenset(process.pid for process in processes), used


def pin(folder: Path, workers: int) -> None:
    """Give each worker, and so its executor, a core of its own."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            for number in range(workers):
                if "deploy.worker.Worker" in command and str(folder / f"worker{number}") in command:
                    for thread in process.threads():  # a process takes after the thread that starts it
                        os.sched_setaffinity(thread.id, {number % (os.cpu_count() or 1)})


def page(found: Mapping[tuple[str, int], Sequence[Ran]], rows: int, rounds: int, about: Mapping[str, Any]) -> str:
    """What was found."""
    lines = [
        "# On a cluster",
        "",
        f"{about['date']}; {about['cores']} cores ({about['cpu']}); pyspark {about['pyspark']}.",
        f"By `python -m benchmarks.cluster`, {rounds} rounds.",
        "",
        "| sink, by executors | workers | seconds | rows/s | CPU s by 1M rows | of the driver | by one worker |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for sink in (KAFKA, POSTGRES, DELTA):
        for workers in WORKERS:
            ran = found[sink, workers]
            pairs = [two.cpu / one.cpu for one, two in zip(found[sink, WORKERS[0]], ran, strict=True)]
            ratio = f"**{median(pairs):.2f}** ({min(pairs):.2f}..{max(pairs):.2f})" if workers > 1 else ""
            seconds = median(one.seconds for one in ran)
            cells = (
                sink,
                str(workers),
                f"{seconds:.1f}",
                f"{rows / seconds:,.0f}",
                f"{median(one.cpu for one in ran) / rows * 1e6:.1f}",
                f"{median(one.driver for one in ran) / rows * 1e6:.1f}",
                ratio,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _ABOUT.format(rows=rows)])


_ABOUT = f"""- Each worker of a standalone cluster has an executor with a core of its own. Driver, broker and Postgres
  run on the same cores: rows/s say little about a cluster of machines.
- {{rows:,}} rows count in each run; {SETTLING} epochs before them do not. Sinks take turns, and so do one worker and
  two.
- By one worker: CPU of executors on two workers by that on one, in the same round. The bar is {LIMIT}.
- Each row is counted by its id after each run: none missing or twice.
"""


def main() -> int:
    """Measure all sinks; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--rows", type=int, default=200_000, help="of an epoch (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="with those that do not count (default %(default)s)")
    parser.add_argument("--only", default="", help="only sinks whose name contains this; writes no page")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.drive:
        drive(Work(**json.loads(asked.drive)))
        return 0
    from benchmarks import machine
    from onceonly_lab.servers.kafka import EmbeddedKafka
    from onceonly_lab.servers.postgres import EmbeddedPostgres
    from onceonly_lab.servers.spark import StandaloneCluster

    root = Path(tempfile.mkdtemp(prefix="onceonly-cluster-"))
    found: dict[tuple[str, int], list[Ran]] = {}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        postgres = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        kafka = stack.enter_context(EmbeddedKafka(root / "kafka", java_options=["-Xmx1g"]))
        about = machine.describe(postgres.dsn, None)
        for number in range(asked.rounds):
            for workers in WORKERS[:: -1 if number % 2 else 1]:
                name = f"{number}_{workers}"
                with StandaloneCluster(root / name, workers) as cluster:
                    pin(root / name, workers)
                    for sink in (KAFKA, POSTGRES, DELTA):
                        if asked.only not in sink:
                            continue
                        folder = root / name / sink
                        folder.mkdir()
                        if sink == KAFKA:
                            target = f"{kafka.servers} {kafka.topic(f'rows-{name}', PARTITIONS)}"
                        else:
                            target = postgres.database(f"rows_{name}") if sink == POSTGRES else str(folder / "table")
                        work = Work(sink, cluster.options, asked.epochs, asked.rows, target, str(folder))
                        ran = run(work)
                        exact(work)
                        print(f"round {number}, {workers} workers, {sink}: {ran}", file=sys.stderr)
                        found.setdefault((sink, workers), []).append(ran)
                        shutil.rmtree(folder, ignore_errors=True)
    if asked.only:
        return 0
    text = page(found, asked.rows * (asked.epochs - SETTLING), asked.rounds, about)
    print(text)
    (RESULTS / "cluster.md").write_text(text)
    return 0


def exact(work: Work) -> None:
    """Raise RuntimeError unless each row of the input is there once."""
    total = work.shape.total
    counted = {KAFKA: _in_kafka, POSTGRES: _in_postgres, DELTA: _in_delta}[work.sink](work.target)
    if counted != (total, total):
        raise RuntimeError(f"{work.sink}: {counted[0]} rows, {counted[1]} of them different, of {total}")


def _in_postgres(dsn: str) -> tuple[int, int]:
    import psycopg

    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone()
    assert row
    return row[0], row[1]


def _in_delta(path: str) -> tuple[int, int]:
    from deltalake import DeltaTable

    ids: list[Any] = delta_rows(DeltaTable(path), ["id"]).column("id").to_pylist()
    return len(ids), len({*ids})


def _in_kafka(target: str) -> tuple[int, int]:
    servers, topic = target.split(" ")
    keys = [message.key() for message in topics.committed(servers, topic, PARTITIONS)]
    return len(keys), len({*keys})


if __name__ == "__main__":
    raise SystemExit(main())
