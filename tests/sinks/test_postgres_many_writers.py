"""Many writers of one table, each of which reads what its peers noted: nobody waits, and nothing is forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.reading.writing import Writer

from onceonly.event_time import TimeReader
from onceonly.machine.completeness import newest_of
from onceonly.machine.writer_progress import TimedMarker, WriterSet
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

# A file that grows is waited for, too, for as long as it takes to grow: no writer holds that lock to its commit.
WAITING = "SELECT locktype, mode, pid FROM pg_locks WHERE NOT granted AND locktype <> 'extend'"


class Polling(Writer):
    """A writer that asks the sink itself for its peers, before each epoch."""

    def one(self, noted: int) -> None:
        assert isinstance(self.sink, PostgresSink)
        found = newest_of(timed for marker in self.sink.newest_markers() if (timed := TimedMarker.of(marker)))
        polled = [one for one in found if one.writer != self.name]
        self.commit((noted,), self.timed((noted,), noted, 1_000 * noted, polled))


@contextmanager
def watched(dsn: str) -> Iterator[list[tuple[object, ...]]]:
    """Every lock that is waited for, seen by looks that follow each other at once."""
    seen: list[tuple[object, ...]] = []
    over = threading.Event()

    def look() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not over.is_set():
                seen.extend(connection.execute(WAITING).fetchall())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def deadlocks(dsn: str) -> object:
    """How many this database has seen: its server may have others, in which tests make some."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()


def write_for(writer: Polling, seconds: float, first: int) -> Callable[[], None]:
    def run() -> None:
        until, noted = time.monotonic() + seconds, first
        while time.monotonic() < until:
            began = time.monotonic()
            noted += 1
            writer.one(noted)
            time.sleep(max(0.0, 1 - (time.monotonic() - began)))

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "seconds"),
    [
        pytest.param(8, 3.0, id="eight"),
        pytest.param(32, 30.0, id="thirty-two", marks=pytest.mark.slow),
        pytest.param(32, 300.0, id="thirty-two for five minutes", marks=pytest.mark.slow),
    ],
)
def test_no_writer_waits_for_a_lock_of_another_and_in_the_end_the_least_of_them_is_what_is_complete(
    dsn: str, count: int, seconds: float
) -> None:
    names = tuple(f"w{number:02}" for number in range(count))
    writers = [Polling(name, PostgresSink(dsn, "clicks"), WriterSet(names)) for name in names]
    writers[0].one(0)  # makes the table, which others would wait for
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        return run

    before = deadlocks(dsn)
    with watched(dsn) as waits:
        threads = [
            threading.Thread(target=guarded(write_for(writer, seconds, 10 * at))) for at, writer in enumerate(writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert waits == []
    assert deadlocks(dsn) == before
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT count(*) FROM clicks").fetchone()
    epochs = [len(writer.epochs) for writer in writers]
    print(f"{count} writers, {seconds:.0f} s: {sum(epochs)} epochs, {min(epochs)} to {max(epochs)} of each")
    assert rows == (sum(epochs),)
    writers[0].one(10**6)  # sees what everybody has noted
    least = min(writer.epochs[-1].time.complete_until or 0 for writer in writers if writer.epochs[-1].time)
    with TimeReader(names[-1], PostgresSink(dsn, "clicks")) as reader:
        found = reader.time_window()
    assert (found.lower, [mark.writer for mark in found.at]) == (least, list(names))
    for writer in writers:
        writer.sink.close()
