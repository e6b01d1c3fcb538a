"""A full refresh: the checkpoint moves to a sibling directory, as declarative pipelines do, and no sink is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from integration.printed import obey
from integration.processes import Drivers, was_killed
from integration.stage import ROWS, Inbox, Scene
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from onceonly import Recovery, Storage, exactly_once
from onceonly.errors import IdentityError
from onceonly.faults import Point
from onceonly_sinks.delta import DeltaTuning
from onceonly_sinks.kafka import KafkaSink

FLOW = "storage/_checkpoints/orders/flow"
"""Where a declarative pipeline keeps the checkpoints of a flow into a sink, one below the other."""


@pytest.fixture
def stream(stream: FileStream) -> FileStream:
    stream.checkpoint = stream.root / FLOW / "0"
    return stream


def refresh(stream: FileStream) -> FileStream:
    """What ``--full-refresh`` does: a new checkpoint beside the old one, which stays."""
    stream.checkpoint = stream.checkpoint.with_name(str(int(stream.checkpoint.name) + 1))
    return stream


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy((f.col("id") % 3).alias("id")).agg(f.count("*").alias("n"))


def doubled(df: DataFrame) -> DataFrame:
    """What a changed program makes of the same input."""
    return df.withColumn("word", f.concat("word", "word"))


# ---- it stops, and both ways that are printed lead on


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.parametrize("target", ["postgres", pytest.param("delta", marks=pytest.mark.slow)], indirect=True)
def test_a_refresh_stops_and_the_printed_command_replaces(stream: FileStream, target: Any) -> None:
    options = {"storage": Storage(ledger=stream.root / "ledger.db")}
    stream.receive(range(5), range(5, 10)).run(exactly_once(target.sink(), **options))
    said = refresh(stream).fail(exactly_once(target.sink(), **options), shape=doubled)
    assert "[ONCE-E246]" in said
    assert "2 epochs, 10 rows" in said
    assert target.ids() == list(range(10))
    obey(said, "recover refresh")
    stream.receive(range(10, 15)).run(exactly_once(target.sink(), **options), shape=doubled)
    assert target.ids() == list(range(15))
    assert words(target) == {f"w{number}w{number}" for number in range(15)}


@pytest.mark.slow
@pytest.mark.spark
def test_a_refresh_stops_and_a_new_pipeline_on_a_new_table_keeps_what_stands(
    stream: FileStream, delta: DeltaTarget, tmp_path: Path
) -> None:
    stream.receive(range(5), range(5, 10)).run(exactly_once(delta.sink()))
    said = refresh(stream).fail(exactly_once(delta.sink()), shape=doubled)
    assert "a new pipeline name on a new table" in said
    stream.name, beside = "orders-2", DeltaTarget(str(tmp_path / "orders-2"))
    stream.run(exactly_once(beside.sink()), shape=doubled)
    assert beside.ids() == delta.ids() == list(range(10))
    assert words(delta) == {f"w{number}" for number in range(10)}


@pytest.mark.slow
@pytest.mark.spark
def test_the_query_that_goes_on_with_its_old_checkpoint_uses_the_command_up(
    stream: FileStream, delta: DeltaTarget
) -> None:
    options = {"storage": Storage(ledger=stream.root / "ledger.db")}
    stream.receive(range(5)).run(exactly_once(delta.sink(), **options))
    said = refresh(stream).fail(exactly_once(delta.sink(), **options))
    obey(said, "recover refresh")
    stream.checkpoint = stream.checkpoint.with_name("0")
    stream.receive(range(5, 10)).run(exactly_once(delta.sink(), **options))
    assert delta.ids() == list(range(10))
    assert "[ONCE-E246]" in refresh(stream).fail(exactly_once(delta.sink(), **options))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
def test_state_and_rows_begin_together(stream: FileStream, pg: PostgresTarget) -> None:
    options: dict[str, Any] = {"shape": counted, "mode": "update"}
    stream.receive(range(9)).run(exactly_once(pg.sink(key="id")), **options)
    assert "[ONCE-E246]" in refresh(stream).fail(exactly_once(pg.sink(key="id")), **options)
    stream.receive(range(9, 12)).run(
        exactly_once(pg.sink(key="id"), recovery=Recovery(on_refresh="replace")), **options
    )
    assert pg.says("select id, n from orders order by id") == [(0, 4), (1, 4), (2, 4)]


# ---- it replaces


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
def test_refresh_after_refresh_replaces_and_a_restart_in_between_goes_on(stream: FileStream, target: Any) -> None:
    def write() -> Any:
        return exactly_once(
            target.sink(), recovery=Recovery(on_refresh="replace"), storage=Storage(ledger=stream.root / "ledger.db")
        )

    stream.receive(range(5), range(5, 10)).run(write())
    refresh(stream).run(write(), shape=doubled)
    assert target.ids() == list(range(10))
    stream.receive(range(10, 15)).run(write(), shape=doubled)
    assert words(target) == {f"w{number}w{number}" for number in range(15)}
    refresh(stream).run(write())
    assert target.ids() == list(range(15))
    assert words(target) == {f"w{number}" for number in range(15)}


@pytest.mark.slow
@pytest.mark.spark
def test_a_checkpoint_that_is_lost_in_a_series_is_no_refresh(stream: FileStream, delta: DeltaTarget) -> None:
    def write() -> Any:
        return exactly_once(
            delta.sink(), recovery=Recovery(on_refresh="replace"), storage=Storage(ledger=stream.root / "ledger.db")
        )

    stream.receive(range(5)).run(write())
    refresh(stream).run(write())
    stream.lose_checkpoint()
    assert "[ONCE-E211]" in stream.fail(write())
    assert delta.ids() == list(range(5))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("committer", "options"),
    [
        ("log", {"key": "id"}),
        pytest.param("log", {"partition_by": "word"}, marks=pytest.mark.slow),
        pytest.param("spark", {"key": "id"}, marks=pytest.mark.slow),
        pytest.param("spark", {"partition_by": "word"}, marks=pytest.mark.slow),
    ],
    ids=lambda said: said if isinstance(said, str) else next(iter(said)),
)
def test_both_committers_of_delta_replace_in_one_version(
    stream: FileStream, tmp_path: Path, committer: str, options: dict[str, Any]
) -> None:
    path = str(tmp_path / "table")

    def write(**more: Any) -> Any:
        return exactly_once(
            DeltaTarget(path).sink(tuning=DeltaTuning(committer=committer), **options),
            recovery=Recovery(on_refresh="replace"),
            **more,
        )

    stream.receive(range(5)).run(write(storage=Storage(ledger=stream.root / "ledger.db")))
    before = DeltaTable(path).version()
    refresh(stream).run(
        write(storage=Storage(ledger=stream.root / "ledger.db")), shape=lambda df: doubled(df.where("id < 3"))
    )
    assert DeltaTarget(path).ids() == [0, 1, 2]
    later = [entry["version"] for entry in DeltaTable(path).history() if entry["version"] > before]
    changed = [version for version in later if _moves_rows(path, version)]
    assert len(changed) == 1


def _moves_rows(path: str, version: int) -> bool:
    text = (Path(path) / "_delta_log" / f"{version:020d}.json").read_text()
    return '"add":' in text or '"remove":' in text


@pytest.mark.spark
def test_one_topic_in_the_call_refuses_to_replace_before_the_query_starts(delta: DeltaTarget) -> None:
    with pytest.raises(IdentityError) as caught:
        exactly_once(delta.sink(), KafkaSink("localhost:9", topic="orders"), recovery=Recovery(on_refresh="replace"))
    assert caught.value.code == "E247"
    assert "kafka:orders cannot replace" in str(caught.value)


# ---- killed between two sinks of its first epoch


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.postgres
@pytest.mark.parametrize(
    "point", [pytest.param(Point.COMMIT_AFTER, marks=pytest.mark.slow), Point.COMMIT_SENT], ids=str
)
def test_a_driver_killed_between_two_sinks_of_the_first_epoch_is_healed_and_the_old_rows_are_gone(
    any_postgres: Any, warm_drivers: Drivers, tmp_path: Path, point: Point, request: pytest.FixtureRequest
) -> None:
    inbox = Inbox(tmp_path / "in")
    database = any_postgres.database(f"refresh_{abs(hash(request.node.name)):x}")
    scenes = Scene(tmp_path, "postgres", database, inbox), Scene(tmp_path, "delta", str(tmp_path / "table"), inbox)
    for scene in scenes:
        scene.name, scene.ledger_place = "arrivals", database
    job = scenes[0].job(also=(("delta", scenes[1].target),), checkpoint=tmp_path / FLOW / "0")
    inbox.fill(2)
    warm_drivers.finish(job)
    again = replace(job, checkpoint=str(tmp_path / FLOW / "1"), on_refresh="replace", shout=True)
    driver = warm_drivers.start(again, fault=f"{point}:killgroup:1")
    driver.wait(120)
    assert was_killed(driver), driver.last_words()
    assert [scene.newest() for scene in scenes] == [3, 2]
    assert [len(scene.rows()) for scene in scenes] == [ROWS, 2 * ROWS]
    warm_drivers.finish(again)
    for scene in scenes:
        found = scene.rows()
        assert [number for number, _ in found] == list(range(2 * ROWS))
        assert all(word == word.upper() for _, word in found)
        assert {marker.epoch.number: marker.epoch.series for marker in scene.markers()} == {1: 1, 2: 1, 3: 3, 4: 3}
    assert len({tuple(marker.epoch.chain for marker in scene.markers()) for scene in scenes}) == 1


# ---- what it is instead of


@pytest.mark.slow
@pytest.mark.spark
def test_the_vendors_sample_skips_a_refresh_in_silence(stream: FileStream, tmp_path: Path) -> None:
    """A constant application id with the batch id as its version: after a refresh every batch counts as written."""
    path = str(tmp_path / "plain")

    def write(df: DataFrame, batch_id: int) -> None:
        writer = df.write.format("delta").mode("append").option("txnAppId", "orders").option("txnVersion", batch_id)
        writer.save(path)

    stream.receive(range(5), range(5, 10)).run(write)
    refresh(stream).run(write, shape=doubled)
    table = DeltaTarget(path)
    assert table.ids() == list(range(10))
    assert words(table) == {f"w{number}" for number in range(10)}  # nothing was written, and nobody was told


def words(target: Any) -> set[str]:
    if isinstance(target, PostgresTarget):
        return {word for (word,) in target.says("select word from orders")}
    return set(target.table.to_pyarrow_table()["word"].to_pylist())
