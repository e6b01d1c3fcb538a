"""``event_time=``: what rows say of time is counted in the action that writes them, alike on every way they take."""

from __future__ import annotations

import io
import json
import logging
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial, reduce
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from integration.streams import FileStream, plan_earlier, planned
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.core.stories import cut

from onceonly import EventTime, Output, Quality, Storage, exactly_once
from onceonly.errors import OnceOnlyError
from onceonly.event_time import FixedWindow, FixedWindows, TimedEpoch, TimeReader, Writers
from onceonly.protocol import Estimate
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.quality import spark_outputs
from onceonly.quality.spark_outputs import DividedBatch, OutputSpec
from onceonly.runtime.shared_transaction import InMemory
from onceonly.runtime.staging import RereadableBatch, StagedEpochs
from onceonly.spark import frames, row_times
from onceonly.spark.batch import SparkBatch
from onceonly.spark.engine import QueryPlan
from onceonly_checkpoints.digests import BAD
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.epoch_time import END, EpochTime, Unit
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
NOON_MS = int(NOON.timestamp() * 1000)
SMALL, UNKNOWN = Estimate(10, 1000), Estimate(None, None)


def few(batch: SparkBatch) -> None:
    list(batch.arrow())


def written(batch: SparkBatch) -> None:
    batch.dataframe.write.format("noop").mode("append").save()


def on_executors(batch: SparkBatch) -> None:
    batch.on_executors(lambda _, rows: {"rows": sum(row.num_rows for row in rows)})


WAYS = {"driver, few": (SMALL, few), "driver, many": (UNKNOWN, few), "written": (UNKNOWN, written)}
WAYS["executors"] = (UNKNOWN, on_executors)


@pytest.fixture(scope="module")
def drawn(spark: SparkSession) -> tuple[DataFrame, list[dict[str, Any]]]:
    """Rows with times before and after 1970, between two milliseconds, and none; in three partitions."""
    seed = 20260
    print(f"seed {seed}")
    draw = random.Random(seed)
    micros = [None if draw.random() < 0.1 else draw.randrange(-5_000_000, 5_000_000) for _ in range(500)]
    rows: list[dict[str, Any]] = [
        {"id": number, "at": value, "height": None if value is None else value // 1000, "good": draw.random() < 0.8}
        for number, value in enumerate(micros)
    ]
    table = pa.table(
        {
            "id": pa.array([row["id"] for row in rows], pa.int64()),
            "at": pa.array(micros, pa.timestamp("us", "UTC")),
            "height": pa.array([row["height"] for row in rows], pa.int32()),
            "good": [row["good"] for row in rows],
        }
    )
    return frames.of_arrow(spark, table).repartition(3), rows


def expected(rows: list[dict[str, Any]], horizon: int | None) -> RowTimes:
    times = [row["height"] for row in rows if row["height"] is not None]
    late = 0 if horizon is None else sum(time < horizon for time in times)
    return RowTimes(min(times), max(times), late, len(rows) - len(times))


CLOCKS = tuple(
    Clock("at" if unit == "ms" else "height", unit, horizon)
    for unit in ("ms", "integer")
    for horizon in (None, -5000, -1, 0, 17, END, -END - 1)
)
"""Each unit, with horizons between two rows and outside of all that a row can say."""


def test_spark_counts_times_by_floor_in_each_unit_before_each_horizon(
    drawn: tuple[DataFrame, list[dict[str, Any]]],
) -> None:
    frame, rows = drawn
    counted = [
        f.struct(f.count(f.lit(1)).alias("rows"), *row_times.metrics(clock)).alias(str(at))
        for at, clock in enumerate(CLOCKS)
    ]
    [found] = frame.agg(*counted).collect()
    said = {clock: row_times.from_metrics(found[str(at)].asDict()) for at, clock in enumerate(CLOCKS)}
    assert said == {clock: expected(rows, clock.horizon) for clock in CLOCKS}


def test_each_way_of_rows_counts_the_same(drawn: tuple[DataFrame, list[dict[str, Any]]]) -> None:
    frame, rows = drawn
    clocks = (Clock("at", "ms", 17), Clock("height", "integer", -1))
    found, wanted = {}, {}
    for number, (way, (size, act)) in enumerate(WAYS.items()):
        clock = clocks[number % 2]
        batch = SparkBatch(frame, size).timed(clock)
        act(batch)
        found[way] = (batch.times(), batch.digest().rows)
        wanted[way] = (expected(rows, clock.horizon), len(rows))
    assert found == wanted


@pytest.mark.parametrize(("column", "unit"), [("at", "ms"), ("height", "integer")])
def test_spark_compiles_nothing_for_a_batch_of_another_horizon(
    drawn: tuple[DataFrame, list[dict[str, Any]]], compiled: Callable[[], int], column: str, unit: Unit
) -> None:
    counts = []
    for horizon in range(17, 21):
        SparkBatch(drawn[0], UNKNOWN).timed(Clock(column, unit, horizon)).execute()
        counts.append(compiled())
    assert counts[1:] == [counts[0]] * 3


def in_files(batch: SparkBatch, root: Path) -> RereadableBatch:
    return StagedEpochs(str(root), "orders", [MemorySink()]).write(batch, 1, Fence(1, "us"), cut(0, 10)).batch


def in_memory(batch: SparkBatch, root: Path) -> RereadableBatch:
    table = pa.Table.from_batches(list(batch.arrow()), batch.schema)
    return InMemory(table, batch.digest(), batch.outputs() if isinstance(batch, DividedBatch) else ())


STILL = {"files": in_files, "memory": in_memory}


def test_rows_that_lie_still_are_read_for_it_and_say_the_same(
    drawn: tuple[DataFrame, list[dict[str, Any]]], tmp_path: Path
) -> None:
    frame, rows = drawn
    still = {way: lie(SparkBatch(frame, UNKNOWN), tmp_path) for way, lie in STILL.items()}
    found = {(way, clock): one.times_of(clock) for way, one in still.items() for clock in CLOCKS}
    assert found == {(way, clock): expected(rows, clock.horizon) for way, clock in found}


@pytest.mark.parametrize("way", STILL)
def test_bad_rows_move_no_time_and_rows_that_an_output_leaves_out_do(
    drawn: tuple[DataFrame, list[dict[str, Any]]], tmp_path: Path, way: str
) -> None:
    frame, rows = drawn
    plan = QueryPlan(stateful=False, nondeterministic=None, sources=())
    wanted = (
        OutputSpec("odd", ("a",), "good AND id % 2 = 1"),
        OutputSpec(BAD, ("b",), "NOT good", ("id", "'[]' AS reasons")),
    )
    batch = DividedBatch(frame, spark_outputs.resolve(plan, "orders", frame, wanted), UNKNOWN)
    still = STILL[way](batch, tmp_path)
    assert still.times_of(Clock("at", "ms", 17)) == expected([row for row in rows if row["good"]], 17)


def test_a_batch_without_rows_says_nothing(drawn: tuple[DataFrame, Any]) -> None:
    found = {}
    for way, (size, act) in WAYS.items():
        batch = SparkBatch(drawn[0].limit(0), size).timed(Clock("at", "ms", 17))
        act(batch)
        found[way] = batch.times()
    assert found == dict.fromkeys(WAYS, RowTimes())


# ---- in a query: ids are seconds after noon


def at_noon(df: DataFrame) -> DataFrame:
    return df.withColumn("event_time", f.timestamp_millis(f.col("id") * 1000 + NOON_MS))


def ms(seconds: int) -> int:
    return NOON_MS + seconds * 1000


class Noting:
    """One pipeline into a store in memory, or into what ``sink`` makes."""

    name = "orders"

    def __init__(self, stream: FileStream, tmp_path: Path, sink: Callable[[], Any] | None = None, **said: Any) -> None:
        self.stream, self.place, self.said = stream, tmp_path / "ledger.db", said
        self.store = MemoryStore()
        self.sink = sink or partial(MemorySink, store=self.store)

    def wrapped(self, **said: Any) -> Any:
        asked = {"transform": at_noon, **self.said, **said}
        return exactly_once(self.sink(), storage=Storage(ledger=self.place), **asked)

    def times(self) -> list[EpochTime | None]:
        sink = self.sink()
        sink.open(self.name)
        found = [marker.epoch.time for marker, _ in sink.history()]
        sink.close()
        return found

    def windows(self) -> list[FixedWindow]:
        with TimeReader("orders", self.sink()) as reader:
            return list(reader.windows(FixedWindows("10 seconds"), since=NOON))

    def noted(self) -> list[int | None]:
        return [time.complete_until if time else None for time in self.times()]

    def events(self, kind: EventKind) -> list[str]:
        ledger = SqlLedger(str(self.place))
        ledger.open()
        found = [event.reason for event in ledger.events(self.name) if event.kind is kind]
        ledger.close()
        return found


@pytest.fixture
def noting(stream: FileStream, tmp_path: Path) -> Callable[..., Noting]:
    return lambda **said: Noting(stream, tmp_path, **said)


class Beside(Noting):
    """One of several pipelines that a query writes to, with name, sink and ledger of its own."""

    def __init__(self, stream: FileStream, folder: Path, name: str, **said: Any) -> None:
        folder.mkdir()
        super().__init__(stream, folder, lambda: MemorySink(id=f"memory:{name}", store=self.store), **said)
        self.name = name


CENTURY = 250_000_000_000
"""An id, in seconds after noon, of the year 9948."""


def far_off(df: DataFrame) -> DataFrame:
    return at_noon(df.withColumn("id", f.when(f.col("id") == 70, CENTURY).otherwise(f.col("id"))))


@dataclass
class Told:
    """A query of three epochs that several pipelines note time of, and what was told meanwhile."""

    pipelines: dict[str, Beside]
    asked: list[TimedEpoch]
    few: MemoryStore
    log: str

    def __getitem__(self, name: str) -> Beside:
        return self.pipelines[name]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    place = tmp_path_factory.mktemp("told")
    stream, asked, few = FileStream(spark, place), list[TimedEpoch](), MemoryStore()

    def says(epoch: TimedEpoch) -> datetime | None:
        asked.append(epoch)
        return NOON + timedelta(seconds=epoch.number)

    at_once = EventTime("event_time", max_delay="0s")
    quality = Quality(expect={"of this century": "id < 1000"}, quarantine=MemorySink(id="memory:bad"), max_bad=10)
    ways: dict[str, dict[str, Any]] = {
        "greatest": {"event_time": EventTime("event_time", max_delay="10 seconds")},
        "ingest": {"event_time": "ingest"},
        "function": {"event_time": EventTime("event_time", callback=says)},
        "no watermark": {"event_time": "watermark"},
        "bad rows": {"event_time": at_once, "quality": quality, "transform": far_off},
        "ahead": {
            "event_time": EventTime("event_time", max_delay="0s", ahead="1 hour"),
            "quality": Quality(quarantine=MemorySink(id="memory:far")),
            "transform": far_off,
        },
        "output": {"event_time": at_once},
    }
    made = {name: Beside(stream, place / name, name, **said) for name, said in ways.items()}
    written = [one.wrapped(name=name) for name, one in made.items() if name != "output"]
    second = Output(MemorySink(id="memory:few", store=few), name="few", where="id < 2")
    one = made["output"]
    both: dict[str, Any] = {"name": "output", "transform": at_noon, "event_time": at_once}
    written.append(exactly_once(one.sink(), second, storage=Storage(ledger=one.place), **both))

    def write(df: DataFrame, batch_id: int) -> None:
        for each in written:
            each(df, batch_id)

    log, logger = io.StringIO(), logging.getLogger("onceonly")
    handler, level = logging.StreamHandler(log), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        stream.receive(range(60), [49, 48, 70], [71]).run(write)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return Told(made, asked, few, log.getvalue())


def test_a_query_notes_the_greatest_time_less_the_delay_and_names_rows_that_came_late(told: Told) -> None:
    first, second, third = told["greatest"].times()
    assert first is not None
    said = EpochTime(
        "ms",
        ms(49),
        ms(49),
        ms(59),
        earliest=ms(0),
        latest=ms(59),
        batch_timestamp_ms=first.batch_timestamp_ms,
        column="event_time",
    )
    assert first == said
    assert second is not None
    assert (second.complete_until, second.late_before, second.late_rows, second.earliest, second.latest) == (
        ms(60),
        ms(49),
        1,
        ms(48),
        ms(70),
    )
    assert third is not None
    assert (third.complete_until, third.late_rows) == (ms(61), 0)
    said = "1 row came late: all before 2026-01-01T12:00:49Z was recorded as complete; the earliest is of "
    assert told["greatest"].events(EventKind.BEHIND) == [f"{said}2026-01-01T12:00:48Z, 0:00:01 before that"]
    assert "3 rows; complete until 2026-01-01T12:01:00Z, 1 late" in told.log


YEAR_MS = 365 * 86_400_000


def interrupted(df: DataFrame) -> DataFrame:
    raise RuntimeError("the power is gone")


@pytest.mark.parametrize(
    "kind", [pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("memory", marks=pytest.mark.slow)]
)
def test_a_slice_that_is_replayed_a_year_later_has_the_same_times_and_makes_the_same_windows(
    kind: str, spark: SparkSession, noting: Callable[..., Noting], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    batches = (range(60), [*range(60, 90), 3])
    orders = noting(event_time=EventTime("event_time", max_delay="1s"))
    orders.stream.receive(*batches).run(orders.wrapped())
    target = request.getfixturevalue("pg") if kind == "postgres" else None
    again = Noting(FileStream(spark, tmp_path / "again"), tmp_path / "again", target and target.sink, **orders.said)
    moments = []
    for number, ids in enumerate(batches):
        again.stream.receive(ids).fail(again.wrapped(transform=interrupted))
        assert len(again.times()) == number, "planned, and written nowhere"
        moments.append(planned(again.stream.checkpoint, number) - YEAR_MS)
        plan_earlier(again.stream.checkpoint, number, moments[-1])
        again.stream.run(again.wrapped())
    first, replayed = [[time for time in one.times() if time] for one in (orders, again)]
    assert [time.batch_timestamp_ms for time in replayed] == moments
    assert [replace(time, batch_timestamp_ms=0) for time in replayed] == [
        replace(time, batch_timestamp_ms=0) for time in first
    ]
    assert [(time.earliest, time.latest, time.late_rows) for time in replayed] == [
        (ms(0), ms(59), 0),
        (ms(3), ms(89), 1),
    ]
    assert again.windows() == orders.windows()
    assert [window.status for window in again.windows()] == ["complete"] * 8 + ["open"]


def test_ingest_is_the_moment_that_spark_planned_the_batch_at(told: Told) -> None:
    ingest = told["ingest"]
    sink = ingest.sink()
    sink.open(ingest.name)
    epochs = [marker.epoch for marker, _ in sink.history()]
    moments = [planned(ingest.stream.checkpoint, batch) for batch in range(3)]
    assert [epoch.time and (epoch.time.complete_until, epoch.time.batch_timestamp_ms) for epoch in epochs] == [
        (at, at) for at in moments
    ]
    assert [epoch.lineage and epoch.lineage.batch_timestamp_ms for epoch in epochs] == moments


def test_a_function_is_asked_once_for_each_epoch_that_is_written(told: Told) -> None:
    assert told["function"].noted() == [ms(1), ms(2), ms(3)]
    assert [(epoch.number, epoch.rows, epoch.first, epoch.last) for epoch in told.asked] == [
        (1, 60, ms(0), ms(59)),
        (2, 3, ms(48), ms(70)),
        (3, 1, ms(71), ms(71)),
    ]


def windows(df: DataFrame) -> DataFrame:
    timed = at_noon(df).withWatermark("event_time", "5 seconds")
    return timed.groupBy(f.window("event_time", "10 seconds").alias("w")).count()


@dataclass
class Watermarked:
    """Windows of three batches: what was noted, and what was refused of another pipeline beside it."""

    orders: Beside
    by_column: Beside
    refused: list[str]


@pytest.fixture(scope="module")
def watermarked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Watermarked:
    place = tmp_path_factory.mktemp("watermarked")
    stream = FileStream(spark, place).receive(range(30), range(30, 60), range(60, 90))
    orders = Beside(stream, place / "one", "orders", event_time="watermark", transform=None)
    other = Beside(stream, place / "two", "by column", event_time=EventTime("w", max_delay="0s"), transform=None)
    by_watermark, by_column, said = orders.wrapped(name="orders"), other.wrapped(name="by column"), list[str]()

    def write(df: DataFrame, batch_id: int) -> None:
        by_watermark(df, batch_id)
        if not said:
            with pytest.raises(OnceOnlyError) as caught:
                by_column(df, batch_id)
            said.append(str(caught.value))

    stream.run(write, shape=windows)
    return Watermarked(orders, other, said)


@pytest.mark.slow
def test_windows_that_end_before_what_is_noted_are_there_and_change_no_more(watermarked: Watermarked) -> None:
    orders = watermarked.orders
    noted = orders.noted()
    assert noted[0] is None
    assert noted[-1] == ms(89 - 5)
    sink = orders.sink()
    sink.open("orders")
    brought = [(epoch, int(row["w"]["end"].timestamp() * 1000)) for epoch, row in sink.read_by_epoch((1, len(noted)))]
    assert sorted(end for _, end in brought) == [ms(10 * number) for number in range(1, 9)], "each once"
    through = [0, *(one or 0 for one in noted)]
    strays = [(epoch, end) for epoch, end in brought if not through[epoch - 1] < end <= through[epoch]]
    assert strays == [], "neither before what an earlier epoch noted, nor behind what its own one does"
    assert all(time is not None and time.closed_until == time.complete_until for time in orders.times())
    assert orders.events(EventKind.WARNED) == []


def test_a_column_of_rows_is_refused_where_state_holds_them_back_and_the_watermark_is_named(
    watermarked: Watermarked,
) -> None:
    [said] = watermarked.refused
    assert "[ONCE-E131]" in said
    assert 'exactly_once(..., event_time="watermark")' in said
    assert watermarked.by_column.times() == []


def test_a_watermark_that_the_plan_does_not_have_is_warned_of_and_nothing_is_noted(told: Told) -> None:
    assert told["no watermark"].noted() == [None] * 3
    (said,) = told["no watermark"].events(EventKind.WARNED)
    assert said.startswith('[ONCE-W704] Pipeline "no watermark" records Spark\'s watermark')


@pytest.mark.slow
def test_the_way_out_of_a_missing_watermark_notes_one(noting: Callable[..., Noting]) -> None:
    orders = noting(event_time="watermark", transform=None)

    def shape(df: DataFrame) -> DataFrame:
        return at_noon(df).withWatermark("event_time", "10 minutes")

    orders.stream.receive(range(3), range(3, 6)).run(orders.wrapped(), shape=shape)
    assert orders.noted()[-1] == ms(-600 + 2)
    assert orders.events(EventKind.WARNED) == []


@pytest.mark.parametrize("by", ["bad rows", "ahead"])
def test_bad_rows_of_the_year_9948_move_no_time(told: Told, by: str) -> None:
    assert told[by].noted() == [ms(59), ms(59), ms(71)]
    assert [time and (time.latest, time.late_rows) for time in told[by].times()] == [
        (ms(59), 0),
        (ms(49), 2),
        (ms(71), 0),
    ]


def test_sinks_of_an_output_carry_the_same_time(told: Told) -> None:
    sink = MemorySink(id="memory:few", store=told.few)
    sink.open("output")
    assert [marker.epoch.time for marker, _ in sink.history()] == told["output"].times()
    assert told["output"].noted() == [ms(59), ms(70), ms(71)]
    assert sorted(row["id"] for row in sink.rows()) == [0, 1]


HOUR = EventTime("event_time", max_delay="0s", ahead="1 hour")


def test_a_row_is_ahead_by_the_clock_that_the_batch_was_planned_at_however_late_it_is_replayed(
    noting: Callable[..., Noting],
) -> None:
    """Two hours after noon is the past by now, and was the future when the batch was planned, at noon."""
    bad = MemoryStore()
    orders = noting(event_time=HOUR, quality=Quality(quarantine=MemorySink(id="memory:bad", store=bad)))
    orders.stream.receive([0, 3600, 3601, 7200]).fail(orders.wrapped(transform=interrupted))
    plan_earlier(orders.stream.checkpoint, 0, NOON_MS)
    orders.stream.run(orders.wrapped())
    assert orders.noted() == [ms(3600)]
    quarantine = MemorySink(id="memory:bad", store=bad)
    quarantine.open("orders")
    rows = [(json.loads(row["reasons"]), json.loads(row["row"])["id"]) for row in quarantine.rows()]
    reason = [{"by": "expect", "rule": "ahead of the clock"}]
    assert sorted(rows, key=itemgetter(1)) == [(reason, 3601), (reason, 7200)]


def test_nothing_of_the_clock_is_seen_by_outputs_expectations_or_columns_of_the_user(
    noting: Callable[..., Noting],
) -> None:
    """Whatever has the name of our reason, or takes all columns, is as without ``ahead=``."""
    bad, wide, plain = MemoryStore(), MemoryStore(), MemoryStore()
    expect = {"ahead of the clock": "id <> 2", **{f"hash {number}": "hash(*) IS NOT NULL" for number in range(99)}}
    quality = Quality(expect=expect, quarantine=MemorySink(id="memory:bad", store=bad), max_bad=1.0)
    outputs = Output(MemorySink(id="memory:wide", store=wide), name="wide", select=["*", "struct(*) AS whole"])
    write = exactly_once(
        MemorySink(store=plain),
        outputs,
        event_time=HOUR,
        quality=quality,
        storage=Storage(ledger=noting().place),
        transform=lambda df: far_off(df).withColumn("onceonly clock", f.lit(1)),
    )
    noting().stream.receive([1, 2, 70]).run(write)

    def rows(id_: str, store: MemoryStore) -> list[dict[str, Any]]:
        sink = MemorySink(id=id_, store=store)
        sink.open("orders")
        return list(sink.rows())

    columns = ["id", "word", "event_time", "onceonly clock"]
    assert [list(row) for row in rows("memory", plain)] == [columns]
    assert [(list(row), list(row["whole"])) for row in rows("memory:wide", wide)] == [([*columns, "whole"], columns)]
    assert sorted(json.loads(row["row"])["id"] for row in rows("memory:bad", bad)) == [2, CENTURY]
    assert "or the limit of event_time, 1:00:00 ahead of the clock of its batch" in write.explain()


def test_without_a_quarantine_a_row_of_the_far_future_stops_the_query_and_the_printed_filter_leads_on(
    noting: Callable[..., Noting],
) -> None:
    orders = noting(event_time=HOUR, transform=None)
    orders.stream.receive([1, 70, 2])
    text = orders.stream.fail(orders.wrapped(), shape=far_off)
    assert orders.times() == []
    assert "ONCE-E530" in text
    assert "more than 1:00:00 after its batch was planned" in text
    way = re.search(r'\.where\("([^"]+)"\)', text)
    assert way
    orders.stream.run(orders.wrapped(), shape=lambda df: far_off(df).where(way[1]))
    assert orders.noted() == [ms(2)]


# ---- what is refused, and the way that each message names


def refused(orders: Noting, **said: Any) -> OnceOnlyError | str:
    text = orders.stream.receive(range(3)).fail(orders.wrapped(**said))
    assert orders.times() == []
    return text


@pytest.mark.slow
def test_a_pipeline_that_its_dataset_does_not_name_is_refused_and_the_names_that_are_told_are_taken(
    noting: Callable[..., Noting],
) -> None:
    orders = noting()
    said = str(refused(orders, event_time=Writers("ingest", writers=("web", "app"))))
    assert "[ONCE-E135]" in said
    assert 'name it as well: writers=("web", "app", "orders")' in said
    orders.stream.run(orders.wrapped(event_time=Writers("ingest", writers=("web", "app", "orders"))))
    assert len(orders.times()) == 1


@pytest.mark.slow
def test_a_column_that_rows_do_not_have_is_refused_with_the_one_that_is_meant(noting: Callable[..., Noting]) -> None:
    orders = noting()
    said = refused(orders, event_time=EventTime("event_tme", max_delay="0s"))
    assert "[ONCE-E130]" in said
    assert "did you mean event_time?" in said
    orders.stream.run(orders.wrapped(event_time=EventTime("event_time", max_delay="0s")))
    assert orders.noted() == [ms(2)]


NO_INSTANT: tuple[tuple[str, Unit, str], ...] = (
    ("date", "ms", "to_utc_timestamp('event_time', \"Europe/Berlin\")"),
    ("string", "ms", "to_utc_timestamp('event_time', \"Europe/Berlin\")"),
    ("timestamp_ntz", "ms", "to_utc_timestamp('event_time', \"Europe/Berlin\")"),
    ("bigint", "ms", "timestamp_millis('event_time')"),
    ("double", "ms", "col('event_time').cast(\"timestamp\")"),
    ("timestamp", "integer", "col('event_time').cast(\"bigint\")"),
)


def test_a_column_that_is_no_instant_is_refused_with_what_makes_it_one(noting: Callable[..., Noting]) -> None:
    orders = noting()
    stream, names = orders.stream.read(), {name: getattr(f, name) for name in dir(f)}
    otherwise, made = [], []
    for kind, unit, way in NO_INSTANT:
        wrapped = orders.wrapped(
            transform=None, event_time=EventTime("event_time", max_delay="0s" if unit == "ms" else 0, unit=unit)
        )
        other = at_noon(stream).withColumn("event_time", f.col("event_time").cast(kind))
        said = str(wrapped.explain(other))
        if "[ONCE-E130]" not in said or f"make it one in transform=: df.withColumn('event_time', {way})" not in said:
            otherwise.append(f"{kind}: {said}")
        if "will be refused" in str(wrapped.explain(other.withColumn("event_time", eval(way, names)))):
            otherwise.append(f"{kind}: the way out is refused as well")
        made.append(f.col("event_time").cast(kind).alias("event_time"))
    assert otherwise == []
    # And none of them is null for a row that has a time.
    batch = at_noon(orders.stream.spark.range(1))
    each = [
        batch.select(column).select(eval(way, names).isNotNull().alias("there"))
        for column, (_, _, way) in zip(made, NO_INSTANT, strict=True)
    ]
    assert [row["there"] for row in reduce(DataFrame.unionAll, each).collect()] == [True] * len(NO_INSTANT)


@pytest.mark.parametrize("kind", ["string", pytest.param("double", marks=pytest.mark.slow)])
def test_the_way_that_makes_a_column_an_instant_notes_time_in_the_refused_query(
    noting: Callable[..., Noting], kind: str
) -> None:
    def other(df: DataFrame) -> DataFrame:
        return at_noon(df).withColumn("event_time", f.col("event_time").cast(kind))

    orders = noting(event_time=EventTime("event_time", max_delay="0s"))
    said = str(refused(orders, transform=other))
    [way] = [way for name, _, way in NO_INSTANT if name == kind]
    assert f"make it one in transform=: df.withColumn('event_time', {way})" in said
    names = {name: getattr(f, name) for name in dir(f)}
    orders.stream.run(orders.wrapped(transform=lambda df: other(df).withColumn("event_time", eval(way, names))))
    assert orders.noted() == [ms(2 if kind == "double" else 2 - 3600)], "noon in Berlin is an hour before that in UTC"


@pytest.mark.slow
def test_a_watermark_is_no_word_on_old_rows_where_spark_takes_them_all_the_same(
    noting: Callable[..., Noting],
) -> None:
    orders = noting(event_time="watermark", transform=None)
    said = orders.stream.receive(range(30), range(30, 60)).fail(orders.wrapped(), shape=windows, mode="complete")
    assert "[ONCE-E131]" in said
    assert orders.times() == []
    assert '.outputMode("append")' in said
    orders.stream.run(orders.wrapped(), shape=windows, mode="append")
    assert orders.noted()[-1] == ms(59 - 5)


def test_what_is_refused_is_told_before_the_start(spark: SparkSession, noting: Callable[..., Noting]) -> None:
    orders = noting()
    stream = orders.stream.read()
    assert "E130" in orders.wrapped(event_time=EventTime("nope", max_delay="0s")).explain(stream)
    assert "E131" in orders.wrapped(event_time=EventTime("w", max_delay="0s"), transform=None).explain(windows(stream))
    promise = orders.wrapped(event_time=EventTime("event_time", max_delay="2 minutes")).explain(stream)
    words = "the greatest event_time so far, less 2 minutes."
    assert f"Each epoch records until when all rows are committed: {words}" in promise
    assert "it will be refused" not in promise
