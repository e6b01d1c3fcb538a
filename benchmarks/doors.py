"""What an epoch costs by each way in: ``foreachBatch``, Spark Connect and ``format("onceonly")``, side by side.

``python -m benchmarks.doors`` prints a table and writes it to ``results/doors.md``. A process that has a classic
session can have none of Spark Connect, so a client of it is a process of its own, which is asked in its turn. All ways
write the same files into a Delta table each, through the same coordinator.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import onceonly
from benchmarks import streams
from benchmarks.data import SCHEMAS, Shape, generate
from benchmarks.rounds import HEAD, Job, rows
from onceonly_lab.reading import delta_rows
from onceonly_lab.servers.connect import ConnectServer
from onceonly_sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

RESULTS = Path(__file__).parent / "results"

CLASSIC, STAGED, FORMAT = "foreachBatch", "foreachBatch, staged", 'format("onceonly")'
CONNECT, CONNECT_FORMAT = "foreachBatch on Connect", 'format("onceonly") on Connect'
ON_CONNECT = (CONNECT, CONNECT_FORMAT)


JOBS = (
    Job(Shape("100 rows", 30, 100), 8, CLASSIC, {CONNECT: 1.3, FORMAT: 2.0, CONNECT_FORMAT: 2.0}),
    Job(Shape("1,000,000 rows", 4, 1_000_000, tasks=2), 1, STAGED, {FORMAT: 1.3}),
)


def main() -> int:
    """Measure all ways; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doors", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="counted, after one that is not (default %(default)s)")
    parser.add_argument("--client", metavar="URL", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.client:
        return _serve(asked.client)
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-doors-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        server = stack.enter_context(ConnectServer(root / "server", quick_compile=False))
        client = stack.enter_context(Client(server.url))
        spark = streams.session()
        lines = ["# What an epoch costs by each way in", "", *HEAD]
        for job in JOBS:
            lines += rows(job, asked.rounds, partial(_measure, spark, client, job), root)
        text = "\n".join(lines)
        spark.stop()
    print(text)
    (RESULTS / "doors.md").write_text(f"{text}\n\n{_ABOUT}")
    return 0


def measure(spark: SparkSession, way: str, job: Job, root: Path) -> float:
    """Write the input once, and return the median of ``durationMs.triggerExecution`` over the epochs that count.

    Raises:
        WrongRows: the table holds something else.
    """
    name = "orders"
    files = spark.readStream.schema(SCHEMAS[job.shape.kind]).option("maxFilesPerTrigger", 1)
    writer = files.parquet(str(generate(job.shape))).writeStream.trigger(availableNow=True)
    query = _start(writer, way, name, root)
    query.awaitTermination()
    # Not ``numInputRows``, which a client of Spark Connect is not told.
    times = [one["durationMs"] for one in query.recentProgress]
    took = [time["triggerExecution"] for time in times if "addBatch" in time]
    total, checksum = _found(root / "table")
    if (total, checksum) != (job.shape.total, job.shape.checksum):
        raise streams.WrongRows(f"{way}: {total} rows, sum {checksum}")
    return float(median(took[job.settling :]))


def _measure(spark: SparkSession, client: Client, job: Job, way: str, root: Path) -> float:
    return client.measure(way, job, root) if way in ON_CONNECT else measure(spark, way, job, root)


def _start(writer: DataStreamWriter, way: str, name: str, root: Path) -> StreamingQuery:
    table, checkpoint = root / "table", root / "checkpoint"
    if way in (FORMAT, CONNECT_FORMAT):
        writer = writer.format("onceonly").queryName(name).option("checkpointLocation", str(checkpoint))
        return writer.option("to", f"delta:{table}").start()
    staging = root / "staging" if way == STAGED else None
    storage = onceonly.Storage(staging=staging)
    query = onceonly.exactly_once(DeltaSink(str(table)), name=name, checkpoint=checkpoint, storage=storage)
    return onceonly.start(writer, query)


def _found(table: Path) -> tuple[int, int]:
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    ids = delta_rows(DeltaTable(str(table)), ["id"]).column("id")
    return len(ids), int(pc.sum(ids).as_py())


# ---- A client of Spark Connect, asked by lines.


class Client:
    """A process with a session of Spark Connect; a context manager.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Client:
        command = [sys.executable, "-m", "benchmarks.doors", "--client", self._url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def measure(self, way: str, job: Job, root: Path) -> float:
        """As :func:`measure`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([way, JOBS.index(job), str(root)]) + "\n")
        return float(self._process.stdout.readline())


def _serve(url: str) -> int:
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.builder.remote(url).getOrCreate()
    for line in sys.stdin:
        way, job, root = json.loads(line)
        print(measure(spark, way, JOBS[job], Path(root)), flush=True)
    spark.stop()
    return 0


_ABOUT = """- Each figure is the median of Spark's own `durationMs.triggerExecution` over the settled epochs of one
  query; ways took turns in rotating order, each in every round, after a round that is not counted. Times are the median
  over the rounds of the quotient in the same round; the spread is its quartiles.
- One file per epoch into a Delta table of its own, whose rows and sum are compared with the input after each run.
- The server of Spark Connect and the classic session are two JVMs on one machine of two cores, with the same settings.
- By format the rows of an epoch go to Python workers, which hash and write them; from `foreachBatch` the JVM does.
"""


if __name__ == "__main__":
    raise SystemExit(main())
