"""What it costs to ask what a dataset is complete through, after 100,000 epochs of two writers; in Delta 20,000.

``python -m benchmarks.looks`` prints a table and puts it into ``results/time.md``, beside that of ``benchmarks.time``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from tests.reading.writing import Writer, records_at

from benchmarks import machine, topics
from benchmarks import report as reports
from onceonly.event_time import TimeReader
from onceonly.machine.writer_progress import WriterSet
from onceonly.protocol import Sink
from onceonly_lab.servers.kafka import temporary_kafka
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.postgres import PostgresSink, head

RESULTS = Path(__file__).parent / "results"

NAMES = ("web", "app")
EPOCHS = {"postgres": 100_000, "delta": 20_000, "kafka": 100_000}
"""Of both writers; in Delta fewer, since to lay so many files alone takes minutes."""

FIRST, LOOK = "a new reader's first look", "each look after another epoch"
SELECT, POLL = "the SELECT of a writer's poll", "the whole poll"

LIMITS = {
    "postgres": {FIRST: 5.0, LOOK: 5.0, SELECT: 1.0},
    "delta": {FIRST: 50.0, LOOK: 5.0},
    "kafka": {FIRST: 50.0, LOOK: 50.0},
}
"""Milliseconds of one ``time_window()``, and of the one SELECT by which a writer in Postgres finds its peers."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How long one kind of look took.

    Attributes:
        store: one of :data:`LIMITS`.
        epochs: of both writers, copies included.
        what: which look.
        limit: milliseconds; ``None``: it is held to none.
        times: of each, milliseconds.
    """

    store: str
    epochs: int
    what: str
    limit: float | None
    times: tuple[float, ...]


class Place:
    """A target of two writers, with as many epochs as are asked for; the last ones come from its sink.

    Args:
        store: one of :data:`LIMITS`.
        make: makes a sink on the target.
        copy: puts so many copies of each writer's first epoch where its sink keeps them.
        epochs: of both writers.
        dsn: of the database, where it is one.
    """

    def __init__(
        self, store: str, make: Callable[[], Sink], copy: Callable[[int], None], epochs: int, dsn: str = ""
    ) -> None:
        self.store, self.make = store, make
        table: dict[str, Any] = {"table": records_at} if store == "kafka" else {}
        self._writers = [Writer(name, make(), WriterSet(NAMES), **table) for name in NAMES]
        self._noted = 0
        self.more()
        copy(epochs // len(NAMES) - 2)
        for writer in self._writers:  # its sink knows nothing of the copies
            writer.take_over()
        self.more()
        self.epochs = epochs
        self._reader = TimeReader("web", make())
        self._poller = make()
        self._poller.open("web")
        self._asking = psycopg.connect(dsn, autocommit=True) if dsn else None

    def more(self) -> None:
        """One more epoch of each writer, each of which has seen the other."""
        self._noted += 1
        one, other = self._writers
        for writer, peer in ((one, other), (other, one)):
            writer.write(self._noted, noted=self._noted, ingest=self._noted, sees=[peer])

    def first(self) -> float:
        """Milliseconds until somebody who has just come is told."""
        with TimeReader("web", self.make()) as reader:
            return self._timed(reader)

    def look(self) -> float:
        """Milliseconds until somebody who was told before is told again."""
        return self._timed(self._reader)

    def poll(self) -> float:
        """Milliseconds of what a writer asks before its epoch."""
        assert isinstance(self._poller, PostgresSink)
        began = time.perf_counter()
        found = self._poller.newest_markers()
        took = time.perf_counter() - began
        times = [marker.epoch.time for marker in found]
        assert [epoch_time and epoch_time.complete_until for epoch_time in times] == [self._noted] * len(NAMES)
        return took * 1000

    def select(self) -> float:
        """Milliseconds of the one statement in it, on a connection that is open."""
        assert self._asking is not None
        target = self._asking.execute("SELECT 'clicks'::regclass::oid").fetchone()
        assert target is not None
        began = time.perf_counter()
        found = self._asking.execute(head.PEERS, {"oid": target[0]}).fetchall()
        took = time.perf_counter() - began
        assert len(found) == len(NAMES)
        return took * 1000

    def _timed(self, reader: TimeReader) -> float:
        began = time.perf_counter()
        window = reader.time_window()
        took = time.perf_counter() - began
        assert window.lower == self._noted, f"{self.store}: {window}"
        return took * 1000

    def close(self) -> None:
        """Release connections."""
        self._reader.close()
        self._poller.close()
        if self._asking:
            self._asking.close()
        for writer in self._writers:
            writer.sink.close()


def in_postgres(dsn: str, count: int) -> None:
    """Rows under numbers before the first one, in the same table and index."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        copied = connection.execute(
            """
            INSERT INTO onceonly.epoch
            SELECT pipeline, sink, epoch - number, generation, owner, chain, rows, marker, system_id, timeline,
                   target_oid, committed_at
            FROM onceonly.epoch, generate_series(1, %s) number WHERE epoch = 1
            """,
            (count,),
        )
        assert copied.rowcount == len(NAMES) * count
        connection.execute("VACUUM ANALYZE onceonly.epoch")


def in_delta(path: Path, count: int) -> None:
    """Versions with the text of the newest ones, in turns; then a checkpoint, as every hundredth commit leaves one."""
    log = path / "_delta_log"
    head = max(int(found.stem) for found in log.glob("*.json"))
    newest = [(log / f"{version:020d}.json").read_bytes() for version in (head - 1, head)]
    for number in range(len(NAMES) * count):
        (log / f"{head + 1 + number:020d}.json").write_bytes(newest[number % len(NAMES)])
    DeltaTable(path).create_checkpoint()


def in_kafka(servers: str, topic: str, count: int) -> None:
    """Records in the marker topics, in transactions of another producer."""
    sink = f"kafka:{topic}"
    listed = Producer({"bootstrap.servers": servers}).list_topics(timeout=30).topics
    markers = [name for name in listed if name.startswith("onceonly.") and topic in name]
    assert len(markers) == len(NAMES), f"{sink}: {markers}"
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "copies", "linger.ms": 50})
    producer.init_transactions(30)
    for name in markers:
        key, value = _last(servers, name)
        producer.begin_transaction()
        for _ in range(count):
            while True:
                try:
                    producer.produce(name, value, key, partition=0)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.commit_transaction(120)


def _last(servers: str, topic: str) -> tuple[bytes, bytes]:
    """Key and value of a topic's newest record."""
    settings = {"bootstrap.servers": servers, "group.id": "benchmarks", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message for message in consumer.consume(1000, timeout=5) if message.error() is None]
    consumer.close()
    return found[-1].key(), found[-1].value()


def places(root: Path, dsn: str, share: float, stack: ExitStack) -> Iterator[Place]:
    """Each store with its epochs, or a share of them."""
    epochs = {store: int(count * share) for store, count in EPOCHS.items()}
    yield Place("postgres", partial(PostgresSink, dsn, "clicks"), partial(in_postgres, dsn), epochs["postgres"], dsn)
    path = root / "clicks"
    yield Place("delta", partial(DeltaSink, path), partial(in_delta, path), epochs["delta"])
    kafka = stack.enter_context(temporary_kafka())
    topics.make(kafka.servers, "clicks")
    sink = partial(KafkaSink, kafka.servers, "clicks")
    yield Place("kafka", sink, partial(in_kafka, kafka.servers, "clicks"), epochs["kafka"])


def measure(found: Sequence[Place], rounds: int) -> list[Taken]:
    """All stores in turns, in every round an epoch of each writer and each kind of look."""
    times: Mapping[tuple[str, str], list[float]] = {
        (place.store, what): [] for place in found for what in (FIRST, LOOK, SELECT, POLL)
    }

    for number in range(rounds + 1):
        for place in found:
            place.more()
            asked = {LOOK: place.look, FIRST: place.first}
            if place.store == "postgres":
                asked |= {SELECT: place.select, POLL: place.poll}
            for what, ask in asked.items():
                took = ask()
                if number:  # the reader's very first look is none that comes after another
                    times[place.store, what].append(took)
    epochs = {place.store: place.epochs for place in found}
    return [
        Taken(store, epochs[store], what, LIMITS[store].get(what), tuple(taken))
        for (store, what), taken in times.items()
        if taken
    ]


def line_of(taken: Taken) -> str:
    """One row of the table."""
    lower, _, upper = quantiles(taken.times, n=4)
    limit = "" if taken.limit is None else f"{taken.limit:g} ms"
    missed = taken.limit is not None and lower > taken.limit  # by the better end of the spread, as in benchmarks.time
    cells = (
        taken.store,
        f"{taken.epochs:,}",
        taken.what,
        f"{median(taken.times):.1f} ms",
        f"{lower:.1f} to {upper:.1f}",
        f"{min(taken.times):.1f} ms",
        f"{limit}, missed" if missed else limit,
    )
    return f"| {' | '.join(cells)} |"


def report(measured: Sequence[Taken], about: dict[str, Any], rounds: int) -> str:
    """The part of the page."""
    lines = [
        "# What it costs to ask what is complete",
        "",
        f"{reports.place(about)} By `python -m benchmarks.looks`, {rounds} rounds.",
        "",
        "| store | epochs | what | median | spread | least | limit |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    return "\n".join([*lines, *(line_of(one) for one in measured), "", _ABOUT])


_ABOUT = """- The spread are the quartiles; a limit is missed where the better of them is. Where others loaded the
  machine, the least is nearest to what an idle one takes.
- A new reader's first look at Postgres and Kafka misses, since it connects. In Kafka further looks miss, too: each of
  the two marker topics is read by a consumer that is made for it. How many epochs there are plays no part. In Delta a
  look reads files of the log by their numbers, and opens no table.
- Two writers of one dataset; in every round each commits an epoch, of which the reader must be told.
- The last epochs are the sinks' own. Those before them are copies of the first one of each writer where the sink keeps
  its markers: rows of `onceonly.epoch`, versions of the log with a checkpoint behind them, records of the marker
  topics.
"""


def main() -> int:
    """Measure all stores; always 0: a figure that is missed stands in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.looks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="rounds that count, after one that does not")
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs; less than 1 only to see that it runs")
    asked = parser.parse_args()
    root, began = Path(tempfile.mkdtemp(prefix="onceonly-looks-")), time.perf_counter()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        dsn = stack.enter_context(EmbeddedPostgres(root / "postgres")).dsn
        about, found = machine.describe(dsn, None), []
        for place in places(root, dsn, asked.share, stack):
            stack.callback(place.close)
            found.append(place)
            print(f"{time.perf_counter() - began:.0f} s: {place.store}, {place.epochs} epochs", file=sys.stderr)
        text = report(measure(found, asked.rounds), about, asked.rounds)
    print(text)
    if asked.share == 1:
        reports.put(RESULTS / "time.md", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
