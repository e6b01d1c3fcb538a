"""Columns that change between two epochs: recorded in the epoch, noted once, and the same after any kill."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from integration.datasources import SourceStream
from integration.jobs import PANES
from integration.processes import Drivers, was_killed
from integration.stage import Inbox, Scene
from integration.streams import FileStream
from integration.targets import PostgresTarget
from integration.test_datasource import every_type
from pyspark.sql import SparkSession

from onceonly import EventTime, Output, Quality, Storage, exactly_once
from onceonly.faults import Point
from onceonly_checkpoints.epoch import Columns, Epoch
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark

PLAIN: Columns = (("id", "bigint", True), ("word", "string", True))


def columns(epoch: Epoch) -> dict[str, tuple[Columns, Columns]]:
    return {part.output: (part.columns, part.before) for part in epoch.columns}


# ---- killed

DEATHS = (
    f"{Point.STAGE_AFTER}:killgroup",
    f"{Point.COMMIT_SENT}:killgroup:1",
    f"{Point.COMMIT_AFTER}:killgroup:1",
    f"{Point.COMMIT_SENT}:killgroup:2",
    f"{Point.RECORD_BEFORE}:killgroup",
)
"""With the change in no sink, in the first of two, in both without an answer, and in both without a record of it."""


def noted(notes: int) -> Columns:
    return (*PLAIN, *((f"note_{number}", "string", False) for number in range(1, notes + 1)))


@pytest.mark.kill
@pytest.mark.postgres
def test_a_change_is_recorded_with_both_sides_and_noted_once_wherever_the_driver_is_killed(
    any_postgres: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    """Each driver is of a program with one column more, and dies in the epoch that brings it."""
    inbox = Inbox(tmp_path / "in")
    table = Scene(tmp_path, "postgres", any_postgres.database("columns"), inbox)
    files = Scene(tmp_path, "delta", str(tmp_path / "table"), inbox)
    files.name = table.name
    also = (("delta", files.target),)
    inbox.fill(1)
    warm_drivers.finish(table.job(also=also))
    for number, fault in enumerate(DEATHS, start=1):
        inbox.fill(number + 1)
        job = table.job(also=also, notes=number)
        assert was_killed(warm_drivers.start(job, fault=fault)), fault
        before = [marker.epoch for scene in (table, files) for marker in scene.markers()]
        warm_drivers.finish(job)
        after = [marker.epoch for marker in table.markers()]
        assert after == [marker.epoch for marker in files.markers()], fault
        assert set(before) <= set(after), fault
        assert len(after) == number + 1, fault
    assert columns(after[0]) == {"": (PLAIN, ())}
    assert [columns(epoch) for epoch in after[1:]] == [
        {"": (noted(number), noted(number - 1))} for number in range(1, len(DEATHS) + 1)
    ]
    assert [(event.epoch, event.reason) for event in table.events(EventKind.SCHEMA_CHANGED)] == [
        (number + 1, f"note_{number}: none -> string not null") for number in range(1, len(DEATHS) + 1)
    ]


# ---- outputs


def test_each_output_has_columns_of_its_own_and_only_a_changed_one_is_noted(stream: FileStream, tmp_path: Path) -> None:
    whole, bad = MemorySink("memory:whole"), MemorySink("memory:bad")

    def run(*select: str) -> None:
        table = DeltaSink(str(tmp_path / "large"), schema="add_columns")
        parts = Output(table, name="large", where="id > 1", select=list(select))
        quality = Quality(expect={"named": "word IS NOT NULL"}, quarantine=bad)
        stream.run(exactly_once(whole, parts, storage=Storage(ledger=tmp_path / "l.db"), quality=quality))

    for ids, select in (([1, 2], ["id"]), ([3, 4], ["id"]), ([5, 6], ["id", "word"])):
        stream.receive(ids)
        run(*select)
    with closing(SqlLedger(str(tmp_path / "l.db"))) as ledger:
        first, second, third = [record.epoch for record in ledger.epochs("orders")]
        [event] = ledger.events("orders", kind=EventKind.SCHEMA_CHANGED)
    assert {*columns(first)} == {"", "large", "bad"}
    assert columns(first)["large"] == (PLAIN[:1], ())
    assert (second.columns, second.columns_since) == ((), 1)
    assert columns(third) == {**columns(first), "large": (PLAIN, PLAIN[:1])}
    assert (event.epoch, event.reason) == (3, "output large: word: none -> string null")


# ---- each way in


@pytest.mark.source
def test_the_data_source_records_the_same_columns_as_foreach_batch(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for way in ("format", "foreachBatch"):
        stream = SourceStream(spark, tmp_path / way).receive([1, 2])
        sink, ledger = DeltaSink(str(tmp_path / way / "table")), tmp_path / way / "l.db"
        if way == "format":
            stream.run_to(sink, shape=every_type, ledger=str(ledger))
        else:
            stream.run(exactly_once(sink, storage=Storage(ledger=ledger), transform=every_type))
        with closing(SqlLedger(str(ledger))) as opened:
            found += [columns(record.epoch) for record in opened.epochs("orders")]
    assert found[0] == found[1]
    [(written, before)] = found[0].values()
    assert (written[0], {name: kind for name, kind, _ in written}["price"]) == (PLAIN[0], "decimal(20,4)")
    assert before == ()


@pytest.mark.postgres
def test_windows_record_the_columns_of_their_results(spark: SparkSession, pg: PostgresTarget, tmp_path: Path) -> None:
    stream = FileStream(spark, tmp_path).receive(range(30), range(30, 60))
    for _ in range(2):
        stream.run(exactly_once(pg.sink(), event_time=EventTime("id", max_delay=12, unit="integer"), windows=PANES))
    with closing(SqlLedger(pg.dsn)) as ledger:
        first, second = [record.epoch for record in ledger.epochs("orders")]
    assert [*columns(first)] == ["windows"]
    assert {("word", "string"), ("total", "bigint")} <= {part[:2] for part in columns(first)["windows"][0]}
    assert (second.columns, second.columns_since) == ((), 1)
