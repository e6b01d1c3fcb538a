"""Hours under random kills: rows exact, and nothing grows that should not.

``python -m benchmarks.soak`` runs two queries over one topic, each into Delta, Postgres and Kafka. The driver of one is
killed at random and started again, that of the other lives. Every ten seconds it notes memory, handles, connections,
staged files and the ledger, and writes them as a picture, a page and raw figures to ``results/soak-LINE.*``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import plot, topics, usage
from onceonly_lab.reading import delta_rows

if TYPE_CHECKING:
    from typing_extensions import LiteralString

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent

KILLED, LIVES = "killed", "lives"
TABLE, SOURCE = "rows", "source"
EACH, PAUSE_S = 500, 1.0
"""Rows that the source gets, and how often."""

SAMPLE_S, KILLS_S, SETTLED_S, PATIENCE_S = 10.0, 60.0, 15.0, 300.0
"""Between two samples; between two kills on average; a driver's first seconds, which are spared; until the end."""

FLAT = 1.1
"""What the last sixth of the run may be of the third sixth, for what must not grow."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of one query.

    Attributes:
        second: of the run.
        epochs: that the ledger holds.
        python_mb: resident memory of the driver's Python.
        jvm_mb: the same of its JVM.
        handles: open file descriptors of both.
        threads: of both.
        connections: of the query's database.
        staged: files of staged epochs.
        staged_kb: their size.
        ledger_kb: of tables and indices of the ledger and the epochs in Postgres.
        log_files: of the Delta table.
    """

    second: int
    epochs: int
    python_mb: float
    jvm_mb: float
    handles: int
    threads: int
    connections: int
    staged: int
    staged_kb: float
    ledger_kb: float
    log_files: int


MUST_BE_FLAT = ("python_mb", "jvm_mb", "handles", "threads", "connections", "staged", "staged_kb")
SHOWN = (*MUST_BE_FLAT, "ledger_kb", "log_files", "epochs")


@dataclass(frozen=True, slots=True)
class Job:
    """One query: what its driver is told."""

    name: str
    servers: str
    dsn: str
    folder: str

    @property
    def place(self) -> Path:
        """Of checkpoint and Delta table."""
        return Path(self.folder, self.name)


def drive(job: Job) -> None:
    """Run the query until the process is ended."""
    from pyspark.sql import SparkSession

    from onceonly import Storage, exactly_once
    from onceonly.spark.jars import fast_session
    from onceonly_lab.driver import end_with_parent
    from onceonly_sinks.delta import DeltaSink
    from onceonly_sinks.kafka import KafkaSink
    from onceonly_sinks.postgres import PostgresSink

    end_with_parent()
    builder = SparkSession.builder.master("local[2]").appName(job.name).config("spark.driver.memory", "1g")
    spark = fast_session(builder, delta=False, kafka=True)
    spark.sparkContext.setLogLevel("ERROR")
    read = {"kafka.bootstrap.servers": job.servers, "subscribe": SOURCE, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**read).option("maxOffsetsPerTrigger", 20 * EACH).load()
    shaped = rows.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "CAST(value AS STRING) AS value")
    write = exactly_once(
        DeltaSink(job.place / TABLE),
        PostgresSink(job.dsn, table=TABLE),
        KafkaSink(job.servers, job.name),
        storage=Storage(ledger=job.dsn),
    )
    query = shaped.writeStream.queryName(job.name).foreachBatch(write)
    query = query.option("checkpointLocation", str(job.place / "checkpoint")).trigger(processingTime="1 second")
    query.start().awaitTermination()


class Driver:
    """A query's driver: started again after it was killed, and never otherwise."""

    def __init__(self, job: Job, python: str) -> None:
        self.job, self._python = job, python
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start it."""
        self.starts += 1
        self.since = time.monotonic()
        self._log = Path(self.job.folder, f"{self.job.name}-{self.starts}.log")
        with self._log.open("w") as log:
            command = [self._python, "-m", "benchmarks.soak", "--drive", json.dumps(asdict(self.job))]
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL driver and JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        """Raise RuntimeError if it ended by itself."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.job.name} ended by itself:\n{self._log.read_text()[-4000:]}")

    def use(self) -> Mapping[str, Any]:
        """What it holds of the machine."""
        import psutil

        found: dict[str, Any] = {"python_mb": 0.0, "jvm_mb": 0.0, "handles": 0, "threads": 0}
        for process in usage.family(psutil.Process(self.process.pid)):
            with suppress(psutil.NoSuchProcess):  # a worker that has just ended
                side = "jvm_mb" if "java" in process.name() else "python_mb"
                found[side] += process.memory_info().rss / 2**20
                found["handles"] += process.num_fds()
                found["threads"] += process.num_threads()
        return found


class Feed:
    """Puts numbers into the source, each once."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rows = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            for number in range(self.rows, self.rows + EACH):
                self._producer.produce(SOURCE, str(number).encode())
            self.rows += EACH
            self._producer.flush(30)

    def end(self) -> int:
        """Stop, and return how many rows there are."""
        self._over.set()
        self._thread.join()
        return self.rows


_LEDGER_KB = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) / 1024.0
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'onceonly' AND c.relkind = 'r'
"""


class Watch:
    """Notes samples of both queries."""

    def __init__(self, drivers: Sequence[Driver]) -> None:
        import psycopg

        self._drivers = drivers
        self._asking = {driver.job.name: psycopg.connect(driver.job.dsn, autocommit=True) for driver in drivers}
        self.samples: dict[str, list[Sample]] = {driver.job.name: [] for driver in drivers}

    def look(self, second: int) -> None:
        """Take a sample of each."""
        for driver in self._drivers:
            place, name = driver.job.place, driver.job.name
            staged = [_size(file) for file in _files(place / "checkpoint.onceonly.staging")]
            self.samples[name].append(
                Sample(
                    second=second,
                    epochs=self._number(name, "SELECT coalesce(max(epoch), 0) FROM onceonly.epoch"),
                    **driver.use(),
                    connections=self._number(
                        name, "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()"
                    ),
                    staged=len(staged),
                    staged_kb=sum(staged) / 1024,
                    ledger_kb=float(self._number(name, _LEDGER_KB)),
                    log_files=len(list((place / TABLE / "_delta_log").glob("*"))),
                )
            )

    def rows(self, name: str) -> int:
        """Rows in the table, which is written last but one."""
        return self._number(name, "SELECT count(*) FROM rows")

    def _number(self, name: str, question: LiteralString) -> int:
        import psycopg

        try:
            row = self._asking[name].execute(question).fetchone()
        except psycopg.errors.UndefinedTable:
            return 0
        return int(row[0]) if row else 0


def _files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


# ---- What the sinks hold at the end.


def wrong(job: Job, rows: int) -> Mapping[str, str]:
    """What each sink lacks or has twice; nothing for an exact one."""
    held = {"delta": _in_delta(job), "postgres": _in_postgres(job), "kafka": _in_kafka(job)}
    found: dict[str, str] = {}
    for sink, counted in held.items():
        wanted = Counter(range(rows))
        missing, extra = (wanted - counted).total(), (counted - wanted).total()
        if missing or extra:
            found[sink] = f"{missing} of {rows} rows missing, {extra} too many"
    return found


def _in_delta(job: Job) -> Counter[int]:
    from deltalake import DeltaTable

    ids: list[Any] = delta_rows(DeltaTable(job.place / TABLE), ["id"]).column("id").to_pylist()
    return Counter(ids)


def _in_postgres(job: Job) -> Counter[int]:
    import psycopg

    with psycopg.connect(job.dsn) as connection:
        return Counter(row[0] for row in connection.execute("SELECT id FROM rows"))


def _in_kafka(job: Job) -> Counter[int]:
    return Counter(int(message.value() or b"-1") for message in topics.committed(job.servers, job.name, 1))


# ---- The page.


def medians(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """Of the third sixth of the run, and of the last."""
    sixth = len(samples) // 6
    parts = samples[2 * sixth : 3 * sixth], samples[-sixth:]
    before, after = (median(float(getattr(one, name)) for one in part) for part in parts)
    return before, after


def growth(samples: Sequence[Sample], name: str) -> float | None:
    """Median of the last sixth of the run by that of the third. ``None``: both are 0."""
    before, after = medians(samples, name)
    if not before:
        return math.inf if after else None
    return after / before


def page(found: Mapping[str, Any], samples: Mapping[str, Sequence[Sample]]) -> str:
    """What was run, and what came of it."""
    command = f"python -m benchmarks.soak --line {found['line']} --minutes {found['minutes']:g} --seed {found['seed']}"
    lines = [
        f"# Soak on Spark {found['line']}",
        "",
        f"{found['date']}; {found['cores']} cores ({found['cpu']}), {found['memory_gb']} GB. By `{command}`.",
        "",
        f"{found['rows']:,} rows, {EACH} a second, from a topic into Delta, Postgres and Kafka, by two queries with a",
        f"trigger of a second. One driver was killed {found['kills']} times, the other never.",
        "",
        "| query | epochs | Delta | Postgres | Kafka |",
        "|---|--:|---|---|---|",
    ]
    for name in (KILLED, LIVES):
        cells = (found["wrong"][name].get(sink, "exact") for sink in ("delta", "postgres", "kafka"))
        lines.append(f"| {name} | {samples[name][-1].epochs:,} | {' | '.join(cells)} |")
    lines += ["", "| of the driver that lives | third sixth | last sixth | growth | |", "|---|--:|--:|--:|---|"]
    for name in SHOWN:
        before, after = medians(samples[LIVES], name)
        grown = growth(samples[LIVES], name)
        verdict = "" if name not in MUST_BE_FLAT or grown is None else "flat" if grown <= FLAT else "**grows**"
        lines.append(
            f"| {name} | {before:,.1f} | {after:,.1f} | {'' if grown is None else f'{grown:.2f}'} | {verdict} |"
        )
    lines += ["", f"![The driver that lives](soak-{found['line']}.svg)", "", _ABOUT]
    return "\n".join(lines)


_ABOUT = f"""- Exact: each number of the source once, by what is read from each sink at the end.
- Flat: the median of the last sixth of the run is at most {FLAT} times that of the third. Ledger and Delta's log keep
  every epoch, and grow with them.
- Times between kills are drawn, {KILLS_S:g} s on average; a driver's first {SETTLED_S:g} s are spared.
"""


def main() -> int:
    """Run it; 1 if a sink is not exact or something grows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="how long rows come (default %(default)g)")
    parser.add_argument("--line", default="", help="a line of Spark with an environment of its own, such as 3.5")
    parser.add_argument("--seed", type=int, default=0, help="of the kills (default %(default)s)")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.drive:
        drive(Job(**json.loads(asked.drive)))
        return 0
    if asked.minutes * 60 < 6 * SAMPLE_S:
        parser.error("--minutes: at least 1, for six samples")
    from scripts import lines

    line = asked.line or lines.main_line()
    found, samples = run(line, str(lines.environment(line)), asked.minutes, asked.seed)
    text = page(found, samples)
    print(text)
    raw = {**found, "samples": {name: [asdict(one) for one in held] for name, held in samples.items()}}
    (RESULTS / f"soak-{line}.json").write_text(json.dumps(raw) + "\n")
    (RESULTS / f"soak-{line}.svg").write_text(
        plot.picture(samples[LIVES], SHOWN, f"{asked.minutes:g} minutes on Spark {line}")
    )
    (RESULTS / f"soak-{line}.md").write_text(text)
    grows = [name for name in MUST_BE_FLAT if (growth(samples[LIVES], name) or 0) > FLAT]
    return int(any(found["wrong"].values()) or bool(grows))


def run(line: str, python: str, minutes: float, seed: int) -> tuple[dict[str, Any], Mapping[str, Sequence[Sample]]]:
    """Start servers and drivers, kill, sample, and compare.

    Raises:
        RuntimeError: a driver ended by itself, or did not reach the end of the source.
    """
    from benchmarks import machine
    from onceonly_lab.servers.kafka import EmbeddedKafka
    from onceonly_lab.servers.postgres import EmbeddedPostgres

    draw = random.Random(seed)
    root = Path(tempfile.mkdtemp(prefix="onceonly-soak-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        postgres = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        kafka = stack.enter_context(EmbeddedKafka(root / "kafka", java_options=["-Xmx1g"]))
        for topic in (SOURCE, KILLED, LIVES):
            kafka.topic(topic)
        about = machine.describe(postgres.dsn, None)
        drivers = [
            Driver(Job(name, kafka.servers, postgres.database(name), str(root)), python) for name in (KILLED, LIVES)
        ]
        for driver in drivers:
            stack.callback(driver.kill)
        victim, watch, feed = drivers[0], Watch(drivers), Feed(kafka.servers)
        began, kills = time.monotonic(), 0
        next_kill, next_look = draw.expovariate(1 / KILLS_S), SAMPLE_S
        while (now := time.monotonic() - began) < minutes * 60:
            for driver in drivers:
                driver.check()
            if now >= next_look:
                watch.look(int(now))
                next_look += SAMPLE_S
            if now >= next_kill and time.monotonic() - victim.since > SETTLED_S:
                victim.kill()
                kills += 1
                victim.start()
                next_kill = now + draw.expovariate(1 / KILLS_S)
                print(f"{now:.0f} s: kill {kills}, {feed.rows} rows, {watch.samples[LIVES][-1:]}", file=sys.stderr)
            time.sleep(0.2)
        rows = feed.end()
        deadline = time.monotonic() + PATIENCE_S
        while any(watch.rows(driver.job.name) < rows for driver in drivers):
            for driver in drivers:
                driver.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"of {rows} rows came {[watch.rows(driver.job.name) for driver in drivers]}")
            time.sleep(1)
        watch.look(int(time.monotonic() - began))
        time.sleep(5)  # the third sink of the last epoch
        for driver in drivers:
            driver.check()
        found = {driver.job.name: wrong(driver.job, rows) for driver in drivers}
    return (
        {**about, "line": line, "minutes": minutes, "seed": seed, "rows": rows, "kills": kills, "wrong": found},
        watch.samples,
    )


if __name__ == "__main__":
    raise SystemExit(main())
