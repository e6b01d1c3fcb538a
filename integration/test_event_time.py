"""``note_time=``: what rows say of time is counted in the action that writes them, alike on every way they take."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from integration.streams import FileStream, plan_earlier, planned
from integration.targets import events
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.core.stories import cut

from onceonly import Dataset, EventTime, Output, Quality, TimedEpoch, exactly_once
from onceonly.errors import OnceOnlyError
from onceonly.protocol import Estimate
from onceonly.protocol.times import Clock, Times
from onceonly.reading import Fixed, Reader, Window
from onceonly.runtime.staging import StagedEpochs, Still
from onceonly.runtime.together import InMemory
from onceonly.spark import frames, outputs
from onceonly.spark.batch import SparkBatch
from onceonly.spark.engine import Plan
from onceonly.spark.outputs import DividedBatch, OutputSpec
from onceonly_checkpoints.content import BAD
from onceonly_checkpoints.epoch import Fence
from onceonly_checkpoints.epochtime import END, EpochTime, Unit
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
    batch.on_executors(lambda _, rows: {"rows": sum(one.num_rows for one in rows)})


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


def expected(rows: list[dict[str, Any]], horizon: int | None) -> Times:
    times = [row["height"] for row in rows if row["height"] is not None]
    late = 0 if horizon is None else sum(time < horizon for time in times)
    return Times(min(times), max(times), late, len(rows) - len(times))


@pytest.mark.parametrize("horizon", [None, -5000, -1, 0, 17, END, -END - 1])
@pytest.mark.parametrize("unit", ["ms", "integer"])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_rows_counts_the_same_by_floor(
    drawn: tuple[DataFrame, list[dict[str, Any]]], way: str, unit: Unit, horizon: int | None
) -> None:
    frame, rows = drawn
    size, act = WAYS[way]
    batch = SparkBatch(frame, size).timed(Clock("at" if unit == "ms" else "height", unit, horizon))
    act(batch)
    assert batch.times() == expected(rows, horizon)
    assert batch.digest().rows == len(rows)


def in_files(batch: SparkBatch, root: Path) -> Still:
    return StagedEpochs(str(root), "orders", [MemorySink()]).write(batch, 1, Fence(1, "us"), cut(0, 10)).batch


def in_memory(batch: SparkBatch, root: Path) -> Still:
    table = pa.Table.from_batches(list(batch.arrow()), batch.schema)
    return InMemory(table, batch.digest(), batch.outputs() if isinstance(batch, DividedBatch) else ())


STILL = {"files": in_files, "memory": in_memory}


@pytest.mark.parametrize("horizon", [None, -5000, 17, END])
@pytest.mark.parametrize("unit", ["ms", "integer"])
@pytest.mark.parametrize("way", STILL)
def test_rows_that_lie_still_are_read_for_it_and_say_the_same(
    drawn: tuple[DataFrame, list[dict[str, Any]]], tmp_path: Path, way: str, unit: Unit, horizon: int | None
) -> None:
    frame, rows = drawn
    still = STILL[way](SparkBatch(frame, UNKNOWN), tmp_path)
    assert still.times_of(Clock("at" if unit == "ms" else "height", unit, horizon)) == expected(rows, horizon)


@pytest.mark.parametrize("way", STILL)
def test_bad_rows_move_no_time_and_rows_that_an_output_leaves_out_do(
    drawn: tuple[DataFrame, list[dict[str, Any]]], tmp_path: Path, way: str
) -> None:
    frame, rows = drawn
    plan = Plan(stateful=False, nondeterministic=None, sources=())
    wanted = (
        OutputSpec("odd", ("a",), "good AND id % 2 = 1"),
        OutputSpec(BAD, ("b",), "NOT good", ("id", "'[]' AS reasons")),
    )
    batch = DividedBatch(frame, outputs.resolve(plan, "orders", frame, wanted), UNKNOWN)
    still = STILL[way](batch, tmp_path)
    assert still.times_of(Clock("at", "ms", 17)) == expected([row for row in rows if row["good"]], 17)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_without_rows_says_nothing(drawn: tuple[DataFrame, Any], way: str) -> None:
    size, act = WAYS[way]
    batch = SparkBatch(drawn[0].limit(0), size).timed(Clock("at", "ms", 17))
    act(batch)
    assert batch.times() == Times()


# ---- in a query: ids are seconds after noon


def at_noon(df: DataFrame) -> DataFrame:
    return df.withColumn("event_time", f.timestamp_millis(f.col("id") * 1000 + NOON_MS))


def ms(seconds: int) -> int:
    return NOON_MS + seconds * 1000


class Noting:
    """One pipeline into a store in memory, or into what ``sink`` makes."""

    def __init__(self, stream: FileStream, tmp_path: Path, sink: Callable[[], Any] | None = None, **said: Any) -> None:
        self.stream, self.place, self.said = stream, tmp_path / "ledger.db", said
        self.store = MemoryStore()
        self.sink = sink or partial(MemorySink, store=self.store)

    def wrapped(self, **said: Any) -> Any:
        asked = {"before": at_noon, **self.said, **said}
        return exactly_once(self.sink(), ledger=self.place, **asked)

    def times(self) -> list[EpochTime | None]:
        sink = self.sink()
        sink.open("orders")
        found = [marker.epoch.time for marker, _ in sink.history()]
        sink.close()
        return found

    def windows(self) -> list[Window]:
        with Reader("orders", self.sink()) as reader:
            return list(reader.windows(Fixed("10 seconds"), since=NOON))

    def noted(self) -> list[int | None]:
        return [time.noted if time else None for time in self.times()]

    def events(self, kind: EventKind) -> list[str]:
        ledger = SqlLedger(str(self.place))
        ledger.open()
        found = events(ledger, kind)
        ledger.close()
        return found


@pytest.fixture
def noting(stream: FileStream, tmp_path: Path) -> Callable[..., Noting]:
    return lambda **said: Noting(stream, tmp_path, **said)


def test_a_query_notes_the_greatest_time_less_the_delay_and_names_rows_that_came_late(
    noting: Callable[..., Noting], caplog: pytest.LogCaptureFixture
) -> None:
    orders = noting(note_time=EventTime("event_time", delay="10 seconds"))
    with caplog.at_level(logging.INFO, "onceonly"):
        orders.stream.receive(range(60), [49, 48, 70], [71]).run(orders.wrapped())
    first, second, third = orders.times()
    assert first is not None
    said = EpochTime("ms", ms(49), ms(49), ms(59), first=ms(0), last=ms(59), ingest=first.ingest, column="event_time")
    assert first == said
    assert second is not None
    assert (second.noted, second.horizon, second.late, second.first, second.last) == (ms(60), ms(49), 1, ms(48), ms(70))
    assert third is not None
    assert (third.noted, third.late) == (ms(61), 0)
    said = "1 row came late: all before 2026-01-01T12:00:49Z was noted as complete; the earliest is of "
    assert orders.events(EventKind.BEHIND) == [f"{said}2026-01-01T12:00:48Z, 0:00:01 before that"]
    assert "3 rows; complete through 2026-01-01T12:01:00Z, 1 late" in caplog.text


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
    orders = noting(note_time=EventTime("event_time", delay="1s"))
    orders.stream.receive(*batches).run(orders.wrapped())
    target = request.getfixturevalue("pg") if kind == "postgres" else None
    again = Noting(FileStream(spark, tmp_path / "again"), tmp_path / "again", target and target.sink, **orders.said)
    moments = []
    for number, ids in enumerate(batches):
        again.stream.receive(ids).fail(again.wrapped(before=interrupted))
        assert len(again.times()) == number, "planned, and written nowhere"
        moments.append(planned(again.stream.checkpoint, number) - YEAR_MS)
        plan_earlier(again.stream.checkpoint, number, moments[-1])
        again.stream.run(again.wrapped())
    first, replayed = [[time for time in one.times() if time] for one in (orders, again)]
    assert [time.ingest for time in replayed] == moments
    assert [replace(time, ingest=0) for time in replayed] == [replace(time, ingest=0) for time in first]
    assert [(time.first, time.last, time.late) for time in replayed] == [(ms(0), ms(59), 0), (ms(3), ms(89), 1)]
    assert again.windows() == orders.windows()
    assert [window.status for window in again.windows()] == ["complete"] * 8 + ["open"]


def test_ingest_is_the_moment_that_spark_planned_the_batch_at(noting: Callable[..., Noting]) -> None:
    orders = noting(note_time="ingest")
    orders.stream.receive(range(3), range(3, 5)).run(orders.wrapped())
    sink = MemorySink(store=orders.store)
    sink.open("orders")
    for marker, _ in sink.history():
        assert marker.epoch.time is not None
        assert marker.epoch.lineage is not None
        assert marker.epoch.time.noted == marker.epoch.time.ingest == marker.epoch.lineage.batch_timestamp_ms


def test_a_function_is_asked_once_for_each_epoch_that_is_written(noting: Callable[..., Noting]) -> None:
    told: list[TimedEpoch] = []

    def says(epoch: TimedEpoch) -> datetime | None:
        told.append(epoch)
        return NOON + timedelta(seconds=epoch.number)

    orders = noting(note_time=EventTime("event_time", says=says))
    orders.stream.receive(range(3), range(3, 5)).run(orders.wrapped())
    assert orders.noted() == [ms(1), ms(2)]
    assert [(epoch.number, epoch.rows, epoch.first, epoch.last) for epoch in told] == [
        (1, 3, ms(0), ms(2)),
        (2, 2, ms(3), ms(4)),
    ]


def windows(df: DataFrame) -> DataFrame:
    timed = at_noon(df).withWatermark("event_time", "5 seconds")
    return timed.groupBy(f.window("event_time", "10 seconds").alias("w")).count()


def test_windows_that_end_before_what_is_noted_are_there_and_change_no_more(noting: Callable[..., Noting]) -> None:
    orders = noting(note_time="watermark", before=None)
    orders.stream.receive(range(30), range(30, 60), range(60, 90)).run(orders.wrapped(), shape=windows)
    noted = orders.noted()
    assert noted[0] is None
    assert noted[-1] == ms(89 - 5)
    sink = MemorySink(store=orders.store)
    sink.open("orders")
    ends = [int(row["w"]["end"].timestamp() * 1000) for row in sink.rows()]
    assert sorted(ends) == [ms(10 * number) for number in range(1, 9)]
    assert all(end <= noted[-1] for end in ends)
    assert all(time is not None and time.closed == time.noted for time in orders.times())
    assert orders.events(EventKind.WARNED) == []


def test_a_watermark_that_the_plan_does_not_have_is_warned_of_and_nothing_is_noted(
    noting: Callable[..., Noting],
) -> None:
    orders = noting(note_time="watermark")
    orders.stream.receive(range(3)).run(orders.wrapped())
    assert orders.noted() == [None]
    (said,) = orders.events(EventKind.WARNED)
    assert said.startswith('[ONCE-W704] Pipeline "orders" notes the engine\'s watermark')


def test_the_way_out_of_a_missing_watermark_notes_one(noting: Callable[..., Noting]) -> None:
    orders = noting(note_time="watermark", before=None)

    def shape(df: DataFrame) -> DataFrame:
        return at_noon(df).withWatermark("event_time", "10 minutes")

    orders.stream.receive(range(3), range(3, 6)).run(orders.wrapped(), shape=shape)
    assert orders.noted()[-1] == ms(-600 + 2)
    assert orders.events(EventKind.WARNED) == []


def test_bad_rows_of_the_year_9999_move_no_time(noting: Callable[..., Noting], tmp_path: Path) -> None:
    quality = Quality(expect={"of this century": "id < 1000"}, quarantine=MemorySink(id="memory:bad"), max_bad=10)
    orders = noting(note_time=EventTime("event_time", delay="0s"), quality=quality)
    orders.stream.receive([1, 2, 250_000_000_000], [3]).run(orders.wrapped())
    assert orders.noted() == [ms(2), ms(3)]
    assert [time and time.late for time in orders.times()] == [0, 0]


def test_sinks_of_an_output_carry_the_same_time(noting: Callable[..., Noting]) -> None:
    store = MemoryStore()
    orders = noting(note_time=EventTime("event_time", delay="0s"))
    few = Output(MemorySink(id="memory:few", store=store), name="few", where="id < 2")
    wrapped = exactly_once(
        MemorySink(store=orders.store), few, ledger=orders.place, before=at_noon, note_time=orders.said["note_time"]
    )
    orders.stream.receive(range(5)).run(wrapped)
    sink = MemorySink(id="memory:few", store=store)
    sink.open("orders")
    assert [marker.epoch.time for marker, _ in sink.history()] == orders.times()
    assert orders.noted() == [ms(4)]


# ---- what is refused, and the way that each message names


def refused(orders: Noting, **said: Any) -> OnceOnlyError | str:
    text = orders.stream.receive(range(3)).fail(orders.wrapped(**said))
    assert orders.times() == []
    return text


def test_a_pipeline_that_its_dataset_does_not_name_is_refused_and_the_names_that_are_told_are_taken(
    noting: Callable[..., Noting],
) -> None:
    orders = noting()
    said = str(refused(orders, note_time=Dataset("ingest", writers=("web", "app"))))
    assert "[ONCE-E135]" in said
    assert 'name it as well: writers=("web", "app", "orders")' in said
    orders.stream.run(orders.wrapped(note_time=Dataset("ingest", writers=("web", "app", "orders"))))
    assert len(orders.times()) == 1


def test_a_column_that_rows_do_not_have_is_refused_with_the_one_that_is_meant(noting: Callable[..., Noting]) -> None:
    orders = noting()
    said = refused(orders, note_time=EventTime("event_tme", delay="0s"))
    assert "[ONCE-E130]" in said
    assert "did you mean event_time?" in said
    orders.stream.run(orders.wrapped(note_time=EventTime("event_time", delay="0s")))
    assert orders.noted() == [ms(2)]


@pytest.mark.parametrize(
    ("kind", "unit", "way"),
    [
        ("date", "ms", "to_utc_timestamp('event_time', \"Europe/Berlin\")"),
        ("string", "ms", "to_utc_timestamp('event_time', \"Europe/Berlin\")"),
        ("timestamp_ntz", "ms", "to_utc_timestamp('event_time', \"Europe/Berlin\")"),
        ("bigint", "ms", "timestamp_millis('event_time')"),
        ("double", "ms", "col('event_time').cast(\"timestamp\")"),
        ("timestamp", "integer", "col('event_time').cast(\"bigint\")"),
    ],
)
def test_a_column_that_is_no_instant_is_refused_with_what_makes_it_one(
    noting: Callable[..., Noting], kind: str, unit: Unit, way: str
) -> None:
    def other(df: DataFrame) -> DataFrame:
        return at_noon(df).withColumn("event_time", f.col("event_time").cast(kind))

    time = EventTime("event_time", delay="0s" if unit == "ms" else 0, unit=unit)
    orders = noting(note_time=time)
    said = str(refused(orders, before=other))
    assert "[ONCE-E130]" in said
    assert f"make it one in before=: df.withColumn('event_time', {way})" in said
    names = {name: getattr(f, name) for name in ("col", "to_utc_timestamp", "timestamp_millis")}
    orders.stream.run(orders.wrapped(before=lambda df: other(df).withColumn("event_time", eval(way, names))))
    assert orders.noted() != [None]


def test_a_column_of_rows_says_nothing_where_state_holds_them_back_and_the_watermark_does(
    noting: Callable[..., Noting],
) -> None:
    orders = noting(before=None)
    orders.stream.receive(range(3), range(3, 60))
    said = orders.stream.fail(orders.wrapped(note_time=EventTime("w", delay="0s")), shape=windows)
    assert "[ONCE-E131]" in said
    assert 'exactly_once(..., note_time="watermark")' in said
    orders.stream.run(orders.wrapped(note_time="watermark"), shape=windows)
    assert orders.noted()[-1] == ms(59 - 5)


def test_a_watermark_is_no_word_on_old_rows_where_spark_takes_them_all_the_same(
    noting: Callable[..., Noting],
) -> None:
    orders = noting(note_time="watermark", before=None)
    said = orders.stream.receive(range(30), range(30, 60)).fail(orders.wrapped(), shape=windows, mode="complete")
    assert "[ONCE-E131]" in said
    assert orders.times() == []
    assert '.outputMode("append")' in said
    orders.stream.run(orders.wrapped(), shape=windows, mode="append")
    assert orders.noted()[-1] == ms(59 - 5)


def test_what_is_refused_is_told_before_the_start(spark: SparkSession, noting: Callable[..., Noting]) -> None:
    orders = noting()
    stream = orders.stream.read()
    assert "E130" in orders.wrapped(note_time=EventTime("nope", delay="0s")).explain(stream)
    assert "E131" in orders.wrapped(note_time=EventTime("w", delay="0s"), before=None).explain(windows(stream))
    promise = orders.wrapped(note_time=EventTime("event_time", delay="2 minutes")).explain(stream)
    assert "Each epoch says up to when all rows are there: the greatest event_time so far, less 2 minutes." in promise
    assert "it will be refused" not in promise
