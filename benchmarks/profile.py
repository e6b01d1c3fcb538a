"""Where an epoch's time goes, by sink and way: Spark, its jobs and plans, calls of its JVM, stores, ledger, our Python.

``python -m benchmarks.profile`` prints a table and writes it to ``results/profile.md``. pyinstrument samples the stack
of the thread that runs the epoch; of jobs, and of what it does around the callback, Spark keeps records.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import psycopg
from py4j.clientserver import ClientServerConnection
from pyinstrument import Profiler
from pyinstrument.session import Session

from benchmarks import bars, machine, outputs, report, streams
from benchmarks.data import Shape
from benchmarks.destinations import VARIANTS, TestBed, Variant
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.postgres import EmbeddedPostgres

RESULTS = Path(__file__).parent / "results"

WAYS = (
    bars.NOOP,
    bars.DELTA,
    bars.STAGED,
    bars.DRIVER,
    bars.EXECUTORS,
    bars.KAFKA_DRIVER,
    bars.KAFKA,
    bars.TOGETHER,
    outputs.TWO_TABLES,
    outputs.TABLE_NONE_BAD,
)
SHAPES = (
    Shape("few messages", 30, 100, kind="orders for Kafka, too"),
    Shape("messages", 10, 100_000, tasks=2, kind="orders for Kafka, too"),
)
SETTLING = {"few messages": 10, "messages": 4}
"""Epochs that are not counted."""

SPARK, JOBS, PLANS, CALLS = "Spark around", "jobs", "plans", "calls"
POSTGRES, DELTA, KAFKA = "Postgres", "Delta", "Kafka"
LEDGER, FSYNC, WAITS, PYTHON = "ledger", "fsync", "waits", "Python"
PARTS = (SPARK, JOBS, PLANS, CALLS, POSTGRES, DELTA, KAFKA, LEDGER, FSYNC, WAITS, PYTHON)

_INTERVAL_S = 0.0005
_JVM = "JVM"
_PLACES = (
    ("fsync\x00<built-in>", FSYNC),
    ("/py4j/", _JVM),
    ("/psycopg/", POSTGRES),
    ("/deltalake/", DELTA),
    ("/confluent_kafka/", KAFKA),
    ("/onceonly_sinks/kafka/transactions.py", KAFKA),
    ("/onceonly_sinks/kafka/marker_reader.py", KAFKA),
    ("/onceonly_sinks/kafka/cluster.py", KAFKA),
    ("/concurrent/futures/", WAITS),
    ("/threading.py", WAITS),
)
"""The innermost frame that is listed tells what a stack waits for or does."""


@dataclass(slots=True)
class Epochs:
    """What was seen of the epochs of one query, in the order in which they ran.

    Attributes:
        sessions: samples of each.
        counted: calls of the JVM, statements of Postgres and ``os.fsync`` of each, by any thread.
    """

    sessions: list[Session] = field(default_factory=list)
    counted: list[Counter[str]] = field(default_factory=list)

    def sampled(self, write: Callable[[Any, int], None], counter: Counter[str]) -> Callable[[Any, int], None]:
        """The same writer, whose epochs are kept here."""

        def sampling(df: Any, epoch: int) -> None:
            profiler, before = Profiler(_INTERVAL_S, async_mode="disabled"), Counter(counter)
            profiler.start()
            try:
                write(df, epoch)
            finally:
                self.sessions.append(profiler.stop())
                self.counted.append(counter - before)

        return sampling


class Sampled:
    """A ``DataStreamWriter`` that samples what it is given."""

    def __init__(self, writer: Any, epochs: Epochs, counter: Counter[str]) -> None:
        self._writer, self._epochs, self._counter = writer, epochs, counter

    def foreachBatch(self, write: Callable[[Any, int], None]) -> Any:  # noqa: N802  Spark's name
        return self._writer.foreachBatch(self._epochs.sampled(write, self._counter))


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count what an epoch asks others for."""
    counter: Counter[str] = Counter()
    kept = (ClientServerConnection.send_command, psycopg.Connection.wait, os.fsync)
    call, wait, fsync = kept

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def one(*arguments: Any, **named: Any) -> Any:
            counter[name] += 1
            return function(*arguments, **named)

        return one

    ClientServerConnection.send_command = counted(CALLS, call)
    psycopg.Connection.wait = counted(POSTGRES, wait)  # type: ignore[method-assign]
    os.fsync = counted(FSYNC, fsync)
    try:
        yield counter
    finally:
        ClientServerConnection.send_command, psycopg.Connection.wait, os.fsync = kept  # type: ignore[method-assign]


def part_of(stack: Sequence[str]) -> str:
    """What a stack of frames, each ``function, file, line`` and the innermost last, spends its time on."""
    if any("/onceonly_checkpoints/ledger/" in frame for frame in stack):
        return LEDGER
    for frame in reversed(stack):
        if part := next((part for place, part in _PLACES if place in frame), ""):
            return part
        if "/onceonly" in frame:
            break
    return PYTHON


def sampled_parts(session: Session) -> dict[str, float]:
    """Milliseconds of each part of an epoch, by its samples."""
    found: dict[str, float] = defaultdict(float)
    for stack, seconds in session.frame_records:
        found[part_of(stack)] += seconds * 1000
    return found


def split(jvm: float, waits: float, jobs: float, calls: int, call_ms: float) -> dict[str, float]:
    """Time in the JVM as jobs, calls and the rest: analysing, planning and compiling; ms.

    A job that lasted longer was asked for by another thread, for which this one waited.
    """
    here = min(jobs, jvm)
    elsewhere = min(jobs - here, waits)
    short = min(calls * call_ms, jvm - here)
    return {JOBS: here + elsewhere, CALLS: short, PLANS: jvm - here - short, WAITS: waits - elsewhere}


def jobs_of(spark: Any) -> list[tuple[float, float]]:
    """When each job that Spark remembers was submitted and ended, seconds of the wall."""
    store = spark.sparkContext._jsc.sc().statusStore()
    found = store.jobsList(None)
    jobs = [found.apply(at) for at in range(found.size())]
    ended = [job for job in jobs if job.completionTime().isDefined()]
    return [(job.submissionTime().get().getTime() / 1000, job.completionTime().get().getTime() / 1000) for job in ended]


def call_ms(spark: Any) -> float:
    """Of a call of the JVM that does nothing."""
    clock, calls = spark.sparkContext._jvm.java.lang.System.nanoTime, 300
    clock()
    began = time.perf_counter()
    for _ in range(calls):
        clock()
    return (time.perf_counter() - began) * 1000 / calls


@dataclass(frozen=True, slots=True)
class Profile:
    """Epochs of one way.

    Attributes:
        way: who wrote them.
        rows: of an epoch.
        whole: median of ``durationMs.triggerExecution``.
        parts: mean of each part, ms.
        counts: mean of what was counted.
        first: the same clock for the first epochs, which do not count.
    """

    way: str
    rows: int
    whole: float
    parts: Mapping[str, float]
    counts: Mapping[str, float]
    first: tuple[float, ...]


def profile(testbed: TestBed, shape: Shape, way: str, counter: Counter[str], tree: bool) -> Profile:
    """Write the input once, sampled."""
    epochs, name = Epochs(), f"profile_{uuid4().hex[:8]}"
    query = streams.start(testbed, shape, _variant(way, epochs, counter), name)
    query.awaitTermination()
    took = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    jobs, per_call = jobs_of(testbed.spark), call_ms(testbed.spark)
    found: list[dict[str, float]] = []
    for whole, session, counted in zip(took, epochs.sessions, epochs.counted, strict=True):
        parts, began = sampled_parts(session), session.start_time
        # Spark notes whole milliseconds.
        ran = sum(end - start for start, end in jobs if began - 0.001 <= start <= began + session.duration) * 1000
        parts |= split(parts.pop(_JVM, 0.0), parts.get(WAITS, 0.0), ran, counted[CALLS], per_call)
        found.append(parts | {SPARK: whole - session.duration * 1000})
    settling = SETTLING[shape.name]
    if tree:
        print(f"{way}, the first epoch, then all that count:")
        _print_tree(epochs.sessions[:1])
        _print_tree(epochs.sessions[settling:])
    shutil.rmtree(testbed.root / name, ignore_errors=True)
    if way in VARIANTS:
        streams.proven(VARIANTS[way].count(testbed, name), shape, way)
        VARIANTS[way].remove(testbed, name)
    elif outputs.taken(testbed.dsn) != shape.total:
        raise streams.WrongRows(way)
    print(f"{way}, {shape.rows} rows: {[f'{one:.0f}' for one in took]} ms", file=sys.stderr)
    return Profile(
        way,
        shape.rows,
        median(took[settling:]),
        _means(PARTS, found[settling:]),
        _means((CALLS, POSTGRES, FSYNC), epochs.counted[settling:]),
        tuple(took[:settling]),
    )


def _variant(way: str, epochs: Epochs, counter: Counter[str]) -> Variant:
    def attach(testbed: TestBed, writer: Any, name: str) -> Any:
        sampled: Any = Sampled(writer, epochs, counter)
        if way in VARIANTS:
            return VARIANTS[way].attach(testbed, sampled, name)
        return sampled.foreachBatch(outputs.tables(way, testbed.dsn, testbed.root))

    return Variant(attach, lambda testbed, name: None)


def _means(names: Sequence[str], found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one.get(name, 0.0) for one in found) / len(found) for name in names}


def _print_tree(sessions: Sequence[Session]) -> None:
    together = sessions[0]
    for session in sessions[1:]:
        together = Session.combine(together, session)
    shown = Profiler(_INTERVAL_S)
    shown._last_session = together
    print(shown.output_text(show_all=True, timeline=False))


def line_of(found: Profile) -> str:
    """One row of the table."""
    cells = [f"{found.rows:,}", found.way, f"{found.whole:,.0f}"]
    for part in PARTS:
        ms, count = found.parts[part], found.counts.get(part, 0.0)
        times = f" ({count:.0f})" if count >= 0.5 else ""
        cells.append(f"{ms:,.1f}{times}" if ms >= 0.05 or times else "")
    return f"| {' | '.join(cells)} | {', '.join(f'{one:,.0f}' for one in found.first[:3])} |"


def main() -> int:
    """Profile all ways; always 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--only", default="", help="only ways whose name contains this")
    parser.add_argument("--rows", type=int, choices=[shape.rows for shape in SHAPES], help="only epochs of so many")
    parser.add_argument("--tree", action="store_true", help="print calls as a tree, too")
    asked = parser.parse_args()
    ways = [way for way in WAYS if asked.only in way]
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="onceonly-profile-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        root.chmod(0o755)
        server = stack.enter_context(EmbeddedPostgres(root / "postgres"))
        broker = stack.enter_context(EmbeddedKafka(root / "kafka", java_options=("-Xmx1g",)))
        testbed = TestBed(streams.session("profile"), server.dsn, server.jdbc_url, broker.servers, root)
        stack.callback(testbed.spark.stop)
        counter = stack.enter_context(counting())
        about = machine.describe(server.dsn, None)
        lines: list[str] = []
        for shape in SHAPES:
            if asked.rows in (None, shape.rows):
                for way in ways:  # once without being counted: Spark compiles
                    profile(testbed, shape, way, counter, tree=False)
                lines += [line_of(profile(testbed, shape, way, counter, asked.tree)) for way in ways]
    text = "\n".join([*_head(about), *lines, "", _ABOUT])
    print(text)
    if not asked.only and asked.rows is None:
        (RESULTS / "profile.md").write_text(text)
    return 0


def _head(about: dict[str, Any]) -> Iterator[str]:
    yield from ("# Where the time of an epoch goes", "", f"{report.place(about)} By `make profile`.", "")
    yield f"| rows | way | epoch, ms | {' | '.join(PARTS)} | first three |"
    yield f"|--:|---|--:|{'--:|' * len(PARTS)}---|"


_ABOUT = """- The epoch is the median of Spark's own `durationMs.triggerExecution`, parts are means over these.
  In parentheses: calls of the JVM, statements and `os.fsync` in an epoch, by any thread.
- Spark around: what Spark does before and after the callback, of which its two logs are most. Plans: what the JVM does
  for a call while no job runs, but for the cost of the call itself. Waits: for another thread of the epoch.
- Postgres, Delta and Kafka: waiting for the store, or in its client. Delta writes its files there, too.
- Sampling each 0.5 ms costs some of what it shows.
"""


if __name__ == "__main__":
    raise SystemExit(main())
