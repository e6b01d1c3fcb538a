"""A query whose source is silent: no batch is planned and nothing is noted, unless a heartbeat moves its offsets.

Beside it Spark's own word: its watermark is that of the source which is behind, however long that one is silent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from integration.processes import until
from integration.streams import FileStream
from integration.targets import PostgresTarget
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from onceonly import EventTime, Storage, exactly_once
from onceonly.event_time import FixedWindows, TimeReader, heartbeat
from onceonly.windows import AtPeriod, AtWatermark, Sum, Tumbling, Windows
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochTime
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore

pytestmark = pytest.mark.spark


class Silent:
    """A query over files of which no more come."""

    def __init__(self, spark: SparkSession, stream: FileStream, place: Path) -> None:
        self.spark, self.stream, self.ledger, self.store = spark, stream, place / "ledger.db", MemoryStore()

    def alive(self, df: DataFrame) -> DataFrame:
        return df.unionByName(heartbeat(self.spark, like=df))

    def wrapped(self, **said: Any) -> Any:
        asked = {"event_time": "ingest", **said}
        return exactly_once(MemorySink(store=self.store), storage=Storage(ledger=self.ledger), **asked)

    def start(self, shape: Callable[[DataFrame], DataFrame], wrapped: Any = None, **trigger: Any) -> StreamingQuery:
        return self.stream.start(wrapped or self.wrapped(), shape, **(trigger or {"processingTime": "1 second"}))

    def events(self, kind: EventKind) -> list[str]:
        with closing(SqlLedger(str(self.ledger))) as ledger:
            ledger.open()
            return [event.reason for event in ledger.events("orders") if event.kind is kind]

    def epochs(self) -> list[Epoch]:
        sink = MemorySink(store=self.store)
        sink.open("orders")
        return [marker.epoch for marker, _ in sink.history()]

    def ids(self) -> list[int]:
        sink = MemorySink(store=self.store)
        sink.open("orders")
        return sorted(row["id"] for row in sink.rows())

    def reaches(self, count: int, within: float = 60) -> None:
        until = time.monotonic() + within
        while len(self.epochs()) < count:
            assert time.monotonic() < until, f"{len(self.epochs())} epochs after {within} s"
            time.sleep(0.1)


@pytest.fixture
def silent(spark: SparkSession, stream: FileStream, tmp_path: Path) -> Iterator[Silent]:
    made = Silent(spark, stream.receive(range(3)), tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()


def test_without_a_heartbeat_silence_notes_nothing(silent: Silent) -> None:
    for _ in range(3):  # each start is a trigger with nothing to read, but for the first
        query = silent.start(lambda df: df, availableNow=True)
        query.awaitTermination()
        assert query.exception() is None
        assert len(silent.epochs()) == 1
    assert silent.ids() == [0, 1, 2]


def test_with_a_heartbeat_epochs_without_rows_note_that_nothing_came_and_a_restart_goes_on(silent: Silent) -> None:
    query = silent.start(silent.alive)
    silent.reaches(2)
    query.stop()
    before = len(silent.epochs())
    again = silent.start(silent.alive)
    silent.reaches(before + 1)
    silent.stream.receive(range(3, 5))
    until(lambda: silent.ids() == [0, 1, 2, 3, 4], "the rows that came after the silence")
    silent.reaches(len(silent.epochs()) + 1)
    again.stop()
    assert silent.ids() == [0, 1, 2, 3, 4]
    noted: list[Any] = [epoch.time.complete_until for epoch in silent.epochs() if epoch.time]
    assert noted == sorted(set(noted))
    assert len(noted) == len(silent.epochs())
    rows = [epoch.digest.rows for epoch in silent.epochs()]
    assert sorted(number for number in rows if number) == [2, 3]
    assert rows[0] == 3
    assert 0 in rows[1 : rows.index(2)], "nothing came, and an epoch says so"
    assert rows[-1] == 0


def test_an_idle_source_lets_time_follow_the_clock_and_says_so_once_and_a_row_of_that_time_is_late(
    silent: Silent,
) -> None:
    time_of = f.timestamp_millis(f.col("id") + 1_700_000_000_000)
    idle = EventTime("at", max_delay="1 second", idle="2 seconds")
    wrapped = partial(silent.wrapped, event_time=idle, transform=lambda df: df.withColumn("at", time_of))
    query = silent.start(silent.alive, wrapped())

    def last() -> EpochTime | None:
        return silent.epochs()[-1].time if silent.epochs() else None

    until(lambda: (time := last()) and time.complete_until == time.batch_timestamp_ms - 3000, "time follows the clock")
    query.stop()
    silent.stream.receive(range(3, 5))
    again = silent.start(silent.alive, wrapped())
    until(lambda: silent.ids() == [0, 1, 2, 3, 4], "the rows that came after the silence")
    again.stop()
    times: list[Any] = [epoch.time for epoch in silent.epochs()]
    assert times[0].complete_until == 1_700_000_000_002 - 1000
    noted = [time.complete_until for time in times]
    assert noted == sorted(noted)
    (late,) = (time for time in times if time.late_rows)
    assert (late.late_rows, late.idle_since) == (2, None)
    followed = [time for time in times if time.idle_since and time.batch_timestamp_ms - time.idle_since >= 2000]
    assert all(time.complete_until == time.batch_timestamp_ms - 3000 for time in followed)
    assert len(silent.events(EventKind.SOURCE_IDLE)) == 1


@pytest.mark.slow
@pytest.mark.postgres
def test_timers_of_windows_come_due_while_the_source_is_silent(
    spark: SparkSession, stream: FileStream, pg: PostgresTarget
) -> None:
    """One row comes, in the first epoch; each result is of a later one: early by the clock, on time by its end."""
    windows = Windows(
        key="word",
        aggregates={"total": Sum("id")},
        time="ingest",
        window=Tumbling("3 seconds"),
        trigger=AtWatermark(early=AtPeriod("1 second")),
    )
    wrapped = exactly_once(pg.sink(), event_time="ingest", windows=windows)
    query = stream.receive([7]).start(
        wrapped, lambda df: df.unionByName(heartbeat(spark, like=df)), processingTime="1 second"
    )
    found, until = list[Any](), time.monotonic() + 60
    while not any(timing == "ON_TIME" for *_, timing in found):
        assert query.isActive, query.exception()
        assert time.monotonic() < until, found
        time.sleep(0.2)
        if pg.says("select to_regclass('orders')") != [(None,)]:
            found = pg.says("select _epoch, total, timing from orders order by _epoch, seq")
    query.stop()
    assert [(total, timing) for _, total, timing in found] == [(7, "EARLY"), (7, "ON_TIME")]
    assert min(epoch for epoch, _, _ in found) > 1


def test_a_heartbeat_has_the_columns_of_its_stream_and_no_row(silent: Silent) -> None:
    like = silent.stream.read()
    beat = heartbeat(silent.spark, like=like)
    assert beat.isStreaming
    assert beat.dtypes == like.dtypes


# ---- two sources, of which one is silent


@pytest.fixture
def two(spark: SparkSession, tmp_path: Path) -> tuple[FileStream, FileStream]:
    """One that goes on for three minutes of events, and one of which nothing came after the first second."""
    busy, quiet = (FileStream(spark, tmp_path / name) for name in ("busy", "quiet"))
    return busy.receive(range(90), range(90, 180)), quiet.receive([1])


@pytest.mark.slow
def test_the_silent_one_of_two_sources_holds_back_every_window_of_sparks(
    spark: SparkSession, tmp_path: Path, two: tuple[FileStream, FileStream]
) -> None:
    assert spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy") == "min"
    timed = [one.read().selectExpr("timestamp_seconds(id) AS at").withWatermark("at", "0 seconds") for one in two]
    windows: list[Any] = []
    counted = timed[0].union(timed[1]).groupBy(f.window("at", "10 seconds")).count()
    writer = counted.writeStream.foreachBatch(lambda df, _: windows.extend(df.collect())).outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
    query.awaitTermination()
    read = sum(source.numInputRows for progress in query.recentProgress for source in progress.sources)
    assert (read, windows) == (181, [])


@pytest.mark.slow
def test_beside_a_silent_source_windows_are_complete_by_what_commits_say(
    silent: Silent, two: tuple[FileStream, FileStream]
) -> None:
    busy, quiet = two
    silent.stream = busy
    query = silent.start(lambda df: silent.alive(df.union(quiet.read())))
    silent.reaches(4)
    query.stop()
    with_rows = [epoch.time for epoch in silent.epochs() if epoch.digest.rows]
    last = with_rows[-1]
    assert last is not None
    assert last.complete_until is not None
    with TimeReader("orders", MemorySink(store=silent.store)) as reader:
        lower = reader.time_window().lower
        assert lower is not None
        assert lower > last.complete_until
        found = list(reader.windows(FixedWindows("1 second"), since=last.complete_until - 1000))
    assert {one.status for one in found if one.end <= lower} == {"complete"}
    assert len(silent.ids()) == 181
