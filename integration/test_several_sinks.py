"""One query into several real sinks: the same bytes in each, whatever kills the driver between two of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from integration.processes import Drivers, await_stopped, refused_with, was_killed
from integration.several import Several
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from onceonly import exactly_once, faults
from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import PostgresTuning

SINKS = 3
ONCE = (Point.STAGE_BEFORE, Point.STAGE_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER)
EACH = (Point.PREPARE_SENT, Point.COMMIT_BEFORE, Point.COMMIT_SENT, Point.COMMIT_AFTER)


@pytest.fixture
def several(any_postgres, any_kafka, tmp_path: Path, request) -> Several:
    name = f"several_{abs(hash(request.node.name)):x}"
    return Several(tmp_path, any_postgres.database(name), f"{any_kafka.servers} {any_kafka.topic(name)}")


# ---- in one process


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
def test_three_sinks_hold_the_same_rows_of_nine_types(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    memory = MemorySink(id="memory:orders")

    def shape(df):
        return df.select(
            "id",
            "word",
            (f.col("id") * 1.5).alias("ratio"),
            f.col("id").cast("decimal(20,4)").alias("price"),
            f.timestamp_micros(f.col("id") * 1_000_003).alias("seen"),
            f.timestamp_micros(f.col("id") * 1_000_003).cast("timestamp_ntz").alias("clock"),
            f.date_from_unix_date(f.col("id").cast("int")).alias("day"),
            f.array("word", f.lit(None)).alias("words"),
            f.col("word").cast("binary").alias("raw"),
        )

    stream.receive(range(10), range(10, 25), range(25, 25))
    wrapped = exactly_once(pg.sink(), delta.sink(), memory)
    stream.run(wrapped, shape=shape)
    in_postgres = pg.says("select id, word, ratio, price, seen, clock, day, words, raw from orders order by id")
    in_memory = sorted(tuple(row.values()) for row in memory.rows())
    in_delta = sorted(tuple(row.values()) for row in delta.table.to_pyarrow_table().to_pylist())
    assert len(in_memory) == 25
    assert in_delta == in_memory
    assert [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in in_postgres] == in_memory
    assert [receipt.sink for receipt in wrapped.last_receipts] == ["postgres:orders", "delta:table", "memory:orders"]


@pytest.mark.spark
@pytest.mark.postgres
def test_a_batch_that_one_sink_cannot_hold_reaches_none(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    stream.receive(range(10))
    said = stream.fail(exactly_once(delta.sink(), pg.sink()), shape=lambda df: df.withColumn("word", f.lit("nul\x00")))
    assert "ONCE-E503" in said
    assert pg.says("select count(*) from pg_class where relname = 'orders'") == [(0,)] or pg.ids() == []
    assert delta.table.to_pyarrow_table().num_rows == 0


def named(df: DataFrame) -> DataFrame:
    return df.select("id", "word", f.concat(f.lit("other "), "word").alias("other"))


def died() -> None:
    raise RuntimeError("died between two sinks")


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(["id", "other", "word"], marks=pytest.mark.slow),
        pytest.param(["id", "word"], marks=pytest.mark.slow),
        pytest.param(["id", "cast(id as string) AS word", "other", "1 AS more"], marks=pytest.mark.slow),
    ],
    ids=["swapped", "fewer", "more, of other types"],
)
def test_whoever_changed_the_columns_heals_with_those_that_the_epoch_has(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, changed: list[str]
) -> None:
    def wrapped() -> Any:
        return exactly_once(
            MemorySink(id="memory:orders", store=store), pg.sink(tuning=PostgresTuning(load="executors")), by_spark()
        )

    def by_spark() -> DeltaSink:
        return delta.sink(tuning=DeltaTuning(committer="spark"), schema="add_columns")

    store = MemoryStore()
    stream.receive(range(10)).run(wrapped(), shape=named)
    faults.arm(Point.COMMIT_AFTER, died)
    assert "died between" in stream.receive(range(10, 20)).fail(wrapped(), shape=named)
    faults.disarm()
    assert pg.ids() == [*range(10)], "Postgres and Delta are behind"
    # The batch is proven to be written, so that what is changed is not: both are brought to it by Spark.
    stream.run(wrapped(), shape=lambda df: named(df).selectExpr(*changed))
    expected = [(number, f"w{number}", f"other w{number}") for number in range(20)]
    assert pg.says("select id, word, other from orders order by id") == expected
    held = delta.table.to_pyarrow_table(columns=["id", "word", "other"]).to_pylist()
    assert sorted(tuple(row.values()) for row in held) == expected


# ---- killed


BETWEEN = [f"{Point.STAGE_AFTER}:killgroup:2", f"{Point.PREPARE_SENT}:killgroup:{SINKS + 1}"]
BETWEEN += [f"{Point.COMMIT_SENT}:killgroup:{SINKS + 1}", f"{Point.FETCH_AFTER}:killgroup"]
BETWEEN += [f"{Point.COMMIT_AFTER}:killgroup:{SINKS + 2}", f"{Point.RECORD_BEFORE}:killgroup:2"]
"""Where a kill leaves the sinks differently from one sink's."""

EVERYWHERE = [f"{point}:killgroup:2" for point in ONCE]
EVERYWHERE += [f"{point}:killgroup:{SINKS + sink}" for point in EACH for sink in range(1, SINKS + 1)]
# A driver that dies while it brings the third sink to the others' epoch, which the kill before it left behind.
EVERYWHERE += [f"{Point.COMMIT_AFTER}:killgroup:{SINKS + 2}", f"{Point.FETCH_AFTER}:killgroup"]


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("deaths", "killed"),
    [
        pytest.param(BETWEEN, "warm_drivers", id="between"),
        pytest.param(EVERYWHERE, "warm_drivers", marks=pytest.mark.slow, id="everywhere"),
        pytest.param(EVERYWHERE, "processes", marks=pytest.mark.slow, id="everywhere-and-its-jvm"),
    ],
)
def test_no_kill_between_two_sinks_loses_or_doubles_a_row(several: Several, deaths, killed, request) -> None:
    processes = request.getfixturevalue(killed)
    for number, fault in enumerate(deaths):
        several.inbox.fill(2 * number + 3)
        assert was_killed(processes.start(several.job(), fault=fault)), fault
        counts = several.newest()
        assert counts == sorted(counts, reverse=True), f"{fault}: {counts}"
        assert counts[0] - counts[-1] <= 1, f"{fault}: {counts}"
        for scene, count in zip(several.scenes, counts, strict=True):
            scene.holds_exactly(count)
    processes.finish(several.job())
    several.hold_everything()


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.kafka
@pytest.mark.postgres
def test_t1_a_driver_that_wakes_between_two_sinks_changes_nothing(several: Several, rivals: Drivers) -> None:
    several.inbox.fill(3)
    sleeper = rivals.start(several.job(), fault=f"commit.before:stop:{SINKS + 2}")
    await_stopped(sleeper)
    assert several.newest() == [2, 1, 1]
    rivals.finish(several.job())
    after = [scene.snapshot() for scene in several.scenes]
    sleeper.resume()
    assert refused_with(sleeper, "E401"), sleeper.last_words()
    assert [scene.snapshot() for scene in several.scenes] == after
    several.hold_everything()


@pytest.mark.kill
@pytest.mark.kafka
@pytest.mark.postgres
def test_t3_an_epoch_that_some_sinks_hold_is_finished_with_its_old_bytes(
    several: Several, warm_drivers: Drivers
) -> None:
    several.inbox.fill(2)
    assert was_killed(warm_drivers.start(several.job(), fault=f"commit.after:killgroup:{SINKS + 2}"))
    assert several.newest() == [2, 2, 1]
    warm_drivers.finish(several.job(shout=True))
    several.hold_everything()
    events = several.postgres.events(EventKind.RESOLVED)
    assert any("delta:table brought to epoch 2" in event.reason for event in events), events


@pytest.mark.kill
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.slow
def test_t3_without_the_staged_bytes_a_changed_program_is_refused(several: Several, warm_drivers: Drivers) -> None:
    several.inbox.fill(2)
    assert was_killed(warm_drivers.start(several.job(), fault=f"commit.after:killgroup:{SINKS + 1}"))
    shutil.rmtree(several.root / "checkpoint.onceonly.staging")
    refused = warm_drivers.start(several.job(shout=True))
    assert refused_with(refused, "E219"), refused.last_words()
    assert several.newest() == [2, 1, 1]
    warm_drivers.finish(several.job())
    several.hold_everything()


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.kafka
@pytest.mark.postgres
def test_t2_a_lost_answer_of_each_sink_is_one_copy(several: Several, warm_drivers: Drivers) -> None:
    several.inbox.fill(3)
    warm_drivers.finish(several.job(), fault=f"commit.sent:raise:{SINKS + 1}")
    several.inbox.fill(6)
    warm_drivers.finish(several.job(), fault=f"commit.sent:raise:{SINKS + 2}")
    several.inbox.fill(9)
    warm_drivers.finish(several.job(), fault=f"commit.sent:raise:{SINKS + 3}")
    several.hold_everything()
