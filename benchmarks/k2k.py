"""From topic to topic with a commit each second or so: ours and Flink exactly once, Spark's own sink at least once.

``python -m benchmarks.k2k`` prints a table and writes it to ``results/k2k.md``. Each peer is a process of its own that
has started before its time begins. A watcher asks the broker every 60 ms how many records readers of committed records
see. It needs a JDK, and fetches Flink once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks import streams
from benchmarks.machine import cpu as cpu_name
from onceonly.spark.jars import Artifact, cache_directory, find_java, run_ivy

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent

FLINK, CONNECTOR = "2.2.1", "5.0.0-2.2"
ROWS, BYTES, PARTITIONS, MOST_ROWS = 2_000_000, 200, 2, 300_000
TUNED = {"batch.size": "524288", "linger.ms": "20", "buffer.memory": "67108864"}

OURS, OURS_DRIVER = "KafkaSink", "KafkaSink by the driver"
FLINK_USUAL, FLINK_TUNED = "Flink", "Flink, tuned producer"
SPARK, SPARK_TUNED = "Spark's sink", "Spark's sink, tuned producer"
PEERS = (OURS, OURS_DRIVER, FLINK_USUAL, FLINK_TUNED, SPARK, SPARK_TUNED)
ONCE = (OURS, OURS_DRIVER, FLINK_USUAL, FLINK_TUNED)

_EVERY_S, _SETTLED_S, _DEADLINE_S = 0.06, 2.0, 180.0


@dataclass(frozen=True, slots=True)
class Copied:
    """One run of a peer.

    Attributes:
        seconds: from its beginning until readers of committed records saw all.
        second_half: rows per second of the second half.
        gap: the longest time without a record that became visible, in seconds.
        cpu: seconds of processor of the peer.
        broker: the same of the broker.
    """

    seconds: float
    second_half: float
    gap: float
    cpu: float
    broker: float


def main() -> int:
    """Measure all peers; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.k2k", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted, after one that is not (default %(default)s)")
    parser.add_argument("--rows", type=int, default=ROWS, help="records (default %(default)s)")
    parser.add_argument("--only", default="", help="only peers whose name contains this")
    parser.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peer:
        return by_spark(*asked.peer)
    peers = [name for name in PEERS if asked.only in name]
    with ExitStack() as stack:
        # Here, as a child that copies needs none.
        from onceonly_lab.servers.kafka import EmbeddedKafka

        root = Path(tempfile.mkdtemp(prefix="onceonly-k2k-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        kafka = stack.enter_context(EmbeddedKafka(root / "kafka", java_options=["-Xmx1g"]))
        fill(kafka.servers, kafka.topic("in", PARTITIONS), asked.rows)
        admin = AdminClient({"bootstrap.servers": kafka.servers})
        found: dict[str, list[Copied]] = {name: [] for name in peers}
        for number in range(asked.rounds + 1):
            for at, name in enumerate(peers[number % len(peers) :] + peers[: number % len(peers)]):
                out = kafka.topic(f"out-{number}-{at}", PARTITIONS)
                copied = measured(kafka.servers, name, out, root, asked.rows)
                admin.delete_topics([out])[out].result(30)
                print(f"{number} {name}: {copied}", file=sys.stderr)
                if number:
                    found[name].append(copied)
    text = page(found, asked.rows, asked.rounds)
    print(text)
    if not asked.only and asked.rows == ROWS:
        (RESULTS / "k2k.md").write_text(text)
    return 0


def fill(servers: str, topic: str, rows: int) -> None:
    """Write the input: keys are the numbers of the records, as text."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1_000_000})
    value = b"x" * (BYTES - 8)
    for number in range(rows):
        while True:
            try:
                producer.produce(topic, value, b"%d" % number)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(60)


def measured(servers: str, name: str, out: str, root: Path, rows: int) -> Copied:
    """Let a peer copy all records into an empty topic, and end it.

    Raises:
        WrongRows: the topic holds something else.
        TimeoutError: it was not done in time.
    """
    with started(name, servers, out, root / out) as peer:
        family = [peer, *peer.children(recursive=True)]
        brokers = [
            each for each in psutil.process_iter(["cmdline"]) if str(root) in " ".join(each.info["cmdline"] or ())
        ]
        brokers = [each for each in brokers if each.pid not in {member.pid for member in family}]
        before = _cpu_s(family), _cpu_s(brokers)
        ends = _watched(servers, out, rows, go=lambda: _tell(peer))
        family = [peer, *peer.children(recursive=True)]
        used = _cpu_s(family) - before[0], _cpu_s(brokers) - before[1]
    if (held := numbers(servers, out, rows)) != rows:
        raise streams.WrongRows(f"{name}: {held} different records of {rows}")
    half = next(at for at, count in ends if count >= rows / 2)
    last = ends[-1][0]
    gap = max(after - at for at, after in pairwise([0.0, *(at for at, _ in ends)]))
    return Copied(last, rows / 2 / max(last - half, _EVERY_S), gap, *used)


def _watched(servers: str, out: str, rows: int, go: Callable[[], None]) -> list[tuple[float, int]]:
    """Begin, and return when how many records were visible, at each change, until all were."""
    settled = Consumer({"bootstrap.servers": servers, "group.id": "watch", "isolation.level": "read_committed"})
    settled.get_watermark_offsets(TopicPartition(out, 0), timeout=10)
    go()
    began, ends = time.perf_counter(), list[tuple[float, int]]()
    while time.perf_counter() - began < _DEADLINE_S:
        # For a reader of committed records the end is that of the last decided one. Markers of transactions count, too:
        # they are fewer than the records of the last commit, which nothing follows.
        offsets = [settled.get_watermark_offsets(TopicPartition(out, at), timeout=10)[1] for at in range(PARTITIONS)]
        at, count = time.perf_counter() - began, sum(offsets)
        if count > (ends[-1][1] if ends else 0):
            ends.append((at, count))
        elif ends and ends[-1][1] >= rows and at - ends[-1][0] > _SETTLED_S:
            settled.close()
            return ends
        time.sleep(_EVERY_S)
    raise TimeoutError(f"{out}: {ends[-1:]} of {rows} records")


def numbers(servers: str, topic: str, rows: int) -> int:
    """How many different records of the input a topic holds, or -1 if it holds one twice. By a reader of its own.

    Raises:
        ValueError: a record is not one of the input.
    """
    seen, count = np.zeros(rows, bool), 0
    settings = {"bootstrap.servers": servers, "group.id": f"count-{topic}", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
    left = PARTITIONS
    while left:
        for message in consumer.consume(10_000, timeout=5):
            if message.error():
                left -= 1
            else:
                seen[int(message.key() or b"")] = True
                count += 1
    consumer.close()
    found = int(seen.sum())
    return found if found == count else -1


# ---- peers, each a process of its own


@contextmanager
def started(name: str, servers: str, out: str, place: Path) -> Generator[psutil.Popen]:
    """A peer that has said that it is ready, killed at the end."""
    place.mkdir(parents=True)
    if name in (FLINK_USUAL, FLINK_TUNED):
        options = [f"{key}={value}" for key, value in TUNED.items()] if name == FLINK_TUNED else []
        command = [*flink(), servers, "in", out, str(place / "checkpoints"), *options]
    else:
        command = [sys.executable, "-m", "benchmarks.k2k", "--peer", name, servers, out, str(place)]
    with (place / "log").open("w") as log:
        process = psutil.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)
    try:
        while (line := process.stdout.readline()) != b"ready\n":
            if not line:
                raise RuntimeError(f"{name} did not start: {(place / 'log').read_text()[-2000:]}")
        yield process
    finally:
        for each in [*process.children(recursive=True), process]:
            each.kill()
        process.wait()
        shutil.rmtree(place, ignore_errors=True)


def _tell(peer: psutil.Popen) -> None:
    peer.stdin.write(b"go\n")
    peer.stdin.flush()


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())


def flink() -> Sequence[str]:
    """The command of the Flink job, compiled and with its jars fetched where they are missing."""
    folder = cache_directory() / f"flink-{FLINK}"
    if not folder.is_dir():
        names = ("flink-clients", "flink-streaming-java", "flink-connector-base")
        artifacts = [Artifact("org.apache.flink", name, FLINK, with_dependencies=True) for name in names]
        artifacts.append(Artifact("org.apache.flink", "flink-connector-kafka", CONNECTOR, with_dependencies=True))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            run_ivy(artifacts, Path(work), folder)
            (Path(work) / "lib").replace(folder)
    java = Path(find_java() or "java").resolve()
    made = folder / "made"
    if not made.is_dir():
        source = Path(__file__).parent / "java" / "FlinkCopy.java"
        compiler = java.with_name("javac")
        subprocess.run([compiler, "-cp", f"{folder}/*", "-d", made, source], check=True)
    opened = "--add-opens=java.base/java.util=ALL-UNNAMED"
    return (str(java), "-Xmx700m", opened, "-cp", f"{made}:{folder}/*", "FlinkCopy")


def by_spark(name: str, servers: str, out: str, place: str) -> int:
    """Copy by Spark until somebody ends this process."""
    from onceonly import exactly_once
    from onceonly_sinks.kafka import KafkaSink, KafkaTuning

    spark = streams.session("k2k")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "in")
    limited = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", MOST_ROWS)
    writer = limited.load().select("key", "value").writeStream.queryName("k2k")
    writer = writer.option("checkpointLocation", f"{place}/checkpoint")
    if name in ONCE:
        tuning = KafkaTuning(load="driver" if name == OURS_DRIVER else "executors")
        options = {"kafka.linger.ms": TUNED["linger.ms"]}
        sink = KafkaSink(servers, out, options=options, tuning=tuning)
        writer = writer.foreachBatch(exactly_once(sink))
    else:
        options = {f"kafka.{key}": value for key, value in TUNED.items()} if name == SPARK_TUNED else {}
        writer = writer.format("kafka").options(**options).option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", out)
    print("ready", flush=True)
    sys.stdin.readline()
    writer.start().awaitTermination()
    return 0


# ---- the page


def page(found: Mapping[str, Sequence[Copied]], rows: int, rounds: int) -> str:
    """What was found, as a table."""
    memory = round(psutil.virtual_memory().total / 2**30)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{now}; {os.cpu_count()} cores ({cpu_name()}), {memory} GB; pyspark {version('pyspark')}"
    lines = [
        "# From Kafka to Kafka",
        "",
        f"{machine}, Flink {FLINK} with connector {CONNECTOR}. {_BY}, {rounds} rounds.",
    ]
    lines += ["", f"{rows:,} records of {BYTES} B, from a topic of {PARTITIONS} partitions into another. {_WHERE}", ""]
    lines += [
        "| peer | commits | seconds | rows/s | second half | longest wait | CPU s per 1M | of the broker | ours is |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, runs in ((name, runs) for name, runs in found.items() if runs):
        seconds, half, gap = (
            median(map(of, runs)) for of in (_seconds, lambda run: run.second_half, lambda run: run.gap)
        )
        cpu, broker = (median(part) * 1e6 / rows for part in zip(*((run.cpu, run.broker) for run in runs), strict=True))
        times = [other.seconds / own.seconds for other, own in zip(runs, found.get(OURS, ()), strict=False)]
        ratio = f"{median(times):.2f}x as fast ({min(times):.2f}..{max(times):.2f})" if times and name != OURS else ""
        promise = "exactly once" if name in ONCE else "at least once"
        speed = f"{seconds:.1f} | {rows / seconds:,.0f} | {half:,.0f} | {gap:.1f} s"
        lines.append(f"| {name} | {promise} | {speed} | {cpu:.1f} | {broker:.1f} | {ratio} |")
    return "\n".join([*lines, "", _ABOUT])


def _seconds(run: Copied) -> float:
    return run.seconds


_BY, _WHERE = "By `python -m benchmarks.k2k`", "The broker is on the same machine."

_ABOUT = f"""- Two tasks. Flink commits each second, Spark each {MOST_ROWS:,} records (second half: how often).
- Seconds: from the start of the job in a process that has started until readers of committed records see all; medians
  over the rounds, ratios within a round. Peers took turns in rotating order, after a round that is not counted.
- Longest wait: without a record that became visible. Records are counted by key after each run: none missing or twice
  (Spark's own sink promises that only as long as nothing fails).
- Tuned: `batch.size={TUNED["batch.size"]}`, `linger.ms={TUNED["linger.ms"]}`, `buffer.memory={TUNED["buffer.memory"]}`.
- Kafka Streams and quixstreams were not measured.
"""


if __name__ == "__main__":
    raise SystemExit(main())
