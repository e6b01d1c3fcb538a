"""How latency and throughput go with the trigger's interval: a topic that fills steadily, read by one query.

``python -m benchmarks.intervals`` prints a table and writes it to ``results/intervals.md``. The latency of a row is the
time from its record's timestamp to the end of the batch that holds it, by the batch's own progress; so it is told for
Spark's writer and for ours in the same way. Rows come at a rate that every variant keeps up with.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import Producer

from benchmarks import bars, machine, report, streams, topics
from benchmarks.destinations import VARIANTS, TestBed
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.postgres import EmbeddedPostgres

RESULTS = Path(__file__).parent / "results"
INTERVALS_S = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Seconds between two triggers; 0: each batch right after the one before."""

JOBS = (bars.SPARK_DELTA, bars.DELTA, bars.AUTO)
_RATE = 5_000
_SECONDS = 30.0
_SETTLING_S = 8.0
"""Epochs that begin in the first seconds open the sink and make the table; their rows are not counted."""

_TICK_S = 0.02
_VALUE = "x" * 100


@dataclass(frozen=True, slots=True)
class Measured:
    """One query.

    Attributes:
        job: who wrote.
        interval_s: seconds between two triggers.
        epochs: batches with rows that were counted.
        rows_per_epoch: rows of one, on average.
        busy: share of the time in which a batch ran.
        p50_ms: latency that half of the rows do not exceed.
        p99_ms: latency that 99 of 100 do not exceed.
    """

    job: str
    interval_s: float
    epochs: int
    rows_per_epoch: float
    busy: float
    p50_ms: float
    p99_ms: float


class Feeder:
    """Fills a topic at a steady rate, and knows when each record was made."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 2})
        self._topic = topic
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self.made_ms: dict[int, dict[int, int]] = {}

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _fill(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._done.wait(_TICK_S):
            for number in range(sent, int((time.monotonic() - began) * _RATE)):
                self._producer.produce(self._topic, _VALUE, str(number), on_delivery=self._noted)
                sent = number + 1
            self._producer.poll(0)
        self._producer.flush()

    def _noted(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.made_ms.setdefault(message.partition(), {})[message.offset()] = message.timestamp()[1]


def main() -> int:
    """Measure all jobs at all intervals; always 0, for nothing is judged."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals", description=__doc__)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of each query (default %(default)s)")
    asked = parser.parse_args()
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-intervals-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        root.chmod(0o755)  # as root the server runs as another user
        server = stack.enter_context(EmbeddedPostgres(root / "postgres", {"max_connections": "200"}))
        broker = stack.enter_context(EmbeddedKafka(root / "kafka", java_options=("-Xmx1g",)))
        testbed = TestBed(streams.session(), server.dsn, server.jdbc_url, broker.servers, root)
        found = [_measure(testbed, job, interval, asked.seconds) for interval in INTERVALS_S for job in JOBS]
        about = machine.describe(server.dsn, testbed.spark.sparkContext._jvm.System.getProperty("java.version"))
        testbed.spark.stop()
    text = _table(found, about)
    print(text)
    (RESULTS / "intervals.md").write_text(text)
    return 0


def _measure(testbed: TestBed, job: str, interval_s: float, seconds: float) -> Measured:
    name = f"interval_{int(interval_s * 1000)}_{JOBS.index(job)}"
    topics.make(testbed.servers, f"in_{name}")
    options = {"kafka.bootstrap.servers": testbed.servers, "subscribe": f"in_{name}", "startingOffsets": "earliest"}
    rows = testbed.spark.readStream.format("kafka").options(**options).load()
    rows = rows.selectExpr("CAST(CAST(key AS string) AS bigint) AS id", "CAST(value AS string) AS note")
    writer = rows.writeStream.queryName(name).trigger(processingTime=f"{int(interval_s * 1000)} milliseconds")
    writer = writer.option("checkpointLocation", str(testbed.root / name / "checkpoint"))
    way = VARIANTS[job]
    with Feeder(testbed.servers, f"in_{name}") as feeder:
        query = way.attach(testbed, writer, name).start()
        began = time.time()
        time.sleep(seconds)
        query.stop()
    progresses = [one for one in query.recentProgress if one.numInputRows]
    way.remove(testbed, name)
    return _judged(job, interval_s, progresses, feeder, began + _SETTLING_S)


def _judged(job: str, interval_s: float, progresses: list[Any], feeder: Feeder, since: float) -> Measured:
    latencies: list[float] = []
    counted: list[tuple[float, float, int]] = []
    for progress in progresses:
        start = datetime.fromisoformat(progress.timestamp).timestamp()
        took = progress.durationMs["triggerExecution"] / 1000
        if start < since:
            continue
        [source] = progress.sources
        for partition, (first, last) in _ranges(source).items():
            made = feeder.made_ms[partition]
            latencies += [(start + took) * 1000 - made[offset] for offset in range(first, last)]
        counted.append((start, took, progress.numInputRows))
    cuts = quantiles(latencies, n=100)
    whole = counted[-1][0] + counted[-1][1] - counted[0][0]
    busy = sum(took for _, took, _ in counted) / whole
    per_epoch = sum(rows for _, _, rows in counted) / len(counted)
    return Measured(job, interval_s, len(counted), per_epoch, busy, cuts[49], cuts[98])


def _ranges(source: Any) -> dict[int, tuple[int, int]]:
    """First offset and the one behind the last, by partition."""
    [ends] = json.loads(source.endOffset).values()
    starts = next(iter(json.loads(source.startOffset).values())) if source.startOffset else {}
    return {int(partition): (starts.get(partition, 0), end) for partition, end in ends.items()}


def _table(found: list[Measured], about: dict[str, Any]) -> str:
    lines = [
        "# Latency by the trigger's interval",
        "",
        f"{report.place(about)} {_RATE:,} rows a second from a topic of two partitions, 100 characters each.",
        "",
        "| interval | job | rows per epoch | a batch runs | latency p50 | p99 |",
        "|--:|---|--:|--:|--:|--:|",
    ]
    for one in found:
        interval = f"{one.interval_s:g} s" if one.interval_s else "none"
        said = (
            f"{one.rows_per_epoch:,.0f}",
            f"{one.busy:.0%} of the time",
            f"{one.p50_ms:,.0f} ms",
            f"{one.p99_ms:,.0f} ms",
        )
        lines.append(f"| {interval} | {one.job} | {' | '.join(said)} |")
    return "\n".join([*lines, "", _ABOUT])


_ABOUT = """- Latency: from a record's timestamp to the end of the batch that holds it, over the rows of batches that
  began 8 s after the query.
- One query of 20 s or more each, one after the other in one JVM, from the top: the first of them met a JVM that
  was not warm.
- A topic that fills steadily on the machine that also runs Spark, brokers and Postgres: other machines give other
  figures.
"""


if __name__ == "__main__":
    raise SystemExit(main())
