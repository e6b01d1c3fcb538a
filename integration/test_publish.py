"""A rerun is published on real stores: readers see the old rows or the new ones, whenever it is killed, and once."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
from integration.printed import command, killed, refused, run
from integration.recorded import ROWS, Inbox, Recorded
from integration.targets import PostgresTarget
from pyspark.sql import DataFrame, SparkSession

from onceonly import Storage, exactly_once, replay
from onceonly.audit import Verdict, gather, judge
from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

FILES = 3
"""One epoch each; the row that other code drops is in the last."""

ALL = list(range(FILES * ROWS))
LESS = [number for number in ALL if number != 12]
"""Ids that stand before, and after the rerun whose code drops one."""


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """Files of three batches."""
    made = Inbox(tmp_path)
    made.put(FILES)
    return made


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path, inbox: Inbox, target) -> Recorded:
    """Three epochs of a file source in a real table."""
    return Recorded(spark, tmp_path, inbox.source, sink=target.sink()).run()


@pytest.fixture
def into(target, tmp_path: Path) -> Callable[[], Sink]:
    """Handles on a second place of the same kind."""
    if isinstance(target, PostgresTarget):
        return lambda: PostgresSink(target.dsn, table="again")
    return lambda: DeltaSink(str(tmp_path / "again"))


def without_12(orders: Recorded) -> Callable[[SparkSession], DataFrame]:
    """Other code: one row is dropped."""
    return lambda spark: orders.job(spark).where("id <> 12")


def rerun(orders: Recorded, into: Sink) -> replay.Rerun:
    return replay.rerun("orders", job=without_12(orders), into=into, ledger=orders.ledger, spark=orders.spark)


def publish(orders: Recorded, source: Sink, sink: Sink) -> Epoch:
    told = {"source": source, "sink": sink, "ledger": orders.ledger, "spark": orders.spark}
    return replay.publish("orders~v2", over="orders", **told)


def verdict(orders: Recorded, sink: Sink) -> tuple[Verdict, set[str]]:
    with closing(SqlLedger(orders.ledger)) as ledger, closing(sink):
        found = judge(gather(ledger, "orders", [sink]))
    return found.verdict, {finding.code for finding in found.findings}


@pytest.mark.slow
def test_a_rerun_takes_the_place_of_what_stands_and_the_query_goes_on_by_the_new_code(
    orders: Recorded, inbox: Inbox, target, into
) -> None:
    orders.sink.close()
    rerun(orders, into())
    done = publish(orders, into(), target.sink())
    assert (done.number, done.replaces, done.digest.rows) == (FILES + 1, (1, FILES), len(LESS))
    assert target.ids() == LESS
    assert verdict(orders, target.sink())[0] is Verdict.EXACTLY_ONCE
    with pytest.raises(OnceOnlyError) as again:
        publish(orders, into(), target.sink())
    assert again.value.code == "E241"
    inbox.put(1)
    replace(orders, sink=target.sink(), shape=lambda df: df.where("id <> 12")).run()
    assert target.ids() == [*LESS, *range(FILES * ROWS, (FILES + 1) * ROWS)]
    assert verdict(orders, target.sink())[0] is Verdict.EXACTLY_ONCE


@pytest.mark.slow
@pytest.mark.parametrize("target", ["postgres", "delta"], indirect=True)
def test_of_a_pipeline_that_was_refreshed_what_stands_is_run_again_and_no_more(
    orders: Recorded, target, into, tmp_path: Path
) -> None:
    orders.sink.close()
    run(["onceonly", "recover", "refresh", "orders", "--how", "replace", "--ledger", orders.ledger], "--yes")
    shutil.rmtree(orders.checkpoint)
    replace(orders, sink=target.sink()).run().sink.close()
    last = orders.records[-1].epoch
    assert last.series == FILES + 2  # behind the operator's epoch
    every = (
        PostgresSink(target.dsn, "every") if isinstance(target, PostgresTarget) else DeltaSink(str(tmp_path / "every"))
    )
    told = {"ledger": orders.ledger, "spark": orders.spark}
    replay.rerun("orders", range(1, last.number + 1), job=orders.job, into=copy(every), name="orders~every", **told)
    with pytest.raises(OnceOnlyError, match=f"run epochs {last.series}..{last.number} again") as doubled:
        replay.publish("orders~every", over="orders", source=every, sink=target.sink(), **told)
    assert doubled.value.code == "E242"
    assert target.ids() == ALL
    rerun(orders, into())
    publish(orders, into(), target.sink())
    assert target.ids() == LESS
    assert verdict(orders, target.sink())[0] is Verdict.EXACTLY_ONCE


@pytest.mark.slow
@pytest.mark.parametrize("target", ["delta"], indirect=True)
def test_a_rewind_names_the_publication_that_it_undoes_and_the_command_that_brings_it_back(
    orders: Recorded, inbox: Inbox, target, into
) -> None:
    orders.sink.close()
    rerun(orders, into())
    before = target.table.version()
    publish(orders, into(), target.sink())
    inbox.put(1)
    fixed = replace(orders, sink=target.sink(), shape=lambda df: df.where("id <> 12")).run()
    fixed.sink.close()
    target.table.restore(before)
    rewind = ["onceonly", "recover", "rewind", "orders", "--to", str(FILES), "--ledger", orders.ledger]
    plan = run(rewind, code=4)
    assert f"2 epochs, {len(LESS) + ROWS} rows of the ledger; Spark reads {ROWS} of these rows again" in plan
    assert f"epoch {FILES + 1}, which published orders~v2 ({len(LESS)} rows)" in plan
    run(rewind, "--yes")
    assert "A196" in verdict(orders, target.sink())[1]
    run(command(plan, "replay publish"), "--yes")
    assert target.ids() == LESS
    replace(fixed, sink=target.sink()).run().sink.close()
    assert target.ids() == [*LESS, *range(FILES * ROWS, (FILES + 1) * ROWS)]
    told = verdict(orders, target.sink())
    assert (told[0], "A196" in told[1]) == (Verdict.EXACTLY_ONCE, False)


@pytest.mark.parametrize("target", ["postgres", pytest.param("delta", marks=pytest.mark.slow)], indirect=True)
def test_readers_see_the_old_rows_or_the_new_ones_and_a_driver_that_runs_is_fenced_out(
    spark: SparkSession, orders: Recorded, inbox: Inbox, target, into
) -> None:
    orders.sink.close()
    writer = orders.job(spark).writeStream.foreachBatch(
        exactly_once(target.sink(), storage=Storage(ledger=orders.ledger))
    )
    inbox.put(1)
    running = writer.queryName("orders").option("checkpointLocation", orders.checkpoint).start()
    try:
        running.processAllAvailable()
        stood = target.ids()
        wanted = [number for number in stood if number != 12]
        assert len(stood) == len(ALL) + ROWS
        rerun(orders, into())
        seen = read_while(target.ids, lambda: publish(orders, into(), target.sink()))
        assert (seen[0], seen[-1]) == (stood, wanted)
        assert all(one in (stood, wanted) for one in seen)
        inbox.put(1)
        with pytest.raises(Exception, match="ONCE-E401"):  # whatever class Spark makes of it
            running.awaitTermination(120)
    finally:
        running.stop()
    assert target.ids() == wanted


def read_while(reads: Callable[[], list[int]], act: Callable[[], object]) -> list[list[int]]:
    """What a reader saw before, during and after an act."""
    seen, over = [reads()], threading.Event()

    def loop() -> None:
        while not over.is_set():
            seen.append(reads())

    reader = threading.Thread(target=loop)
    reader.start()
    try:
        act()
    finally:
        over.set()
        reader.join()
    return [*seen, reads()]


@pytest.mark.slow
def test_a_query_that_went_on_is_caught_up_with_by_the_printed_command(
    orders: Recorded, inbox: Inbox, target, into, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rerun(orders, into())
    inbox.put(1)
    orders.run()
    orders.sink.close()
    with pytest.raises(OnceOnlyError) as behind:
        publish(orders, into(), target.sink())
    assert behind.value.code == "E240"
    module = f"""
def stream(spark):
    return spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet({str(inbox.home)!r})

def changed(spark):
    return stream(spark).where("id <> 12")
"""
    (tmp_path / "jobs.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    printed = [word.replace("MODULE:FUNCTION", "jobs:changed") for word in command(str(behind.value), "replay run")]
    run(printed, "--yes")
    publishes = ["onceonly", "replay", "publish", "orders~v2", "--over", "orders", "--ledger", orders.ledger]
    assert f"rows of epochs 1..{FILES + 1} leave" in run(publishes, code=4)
    for point in (Point.PREPARE_AFTER, Point.COMMIT_BEFORE):
        killed(publishes, point)
        assert target.ids() == list(range((FILES + 1) * ROWS))
    killed(publishes, Point.COMMIT_AFTER)
    said = refused(publishes, "--yes")
    assert "[ONCE-E241]" in said
    assert "orders~v2" in run(command(said, "epochs show"))
    assert target.ids() == [number for number in range((FILES + 1) * ROWS) if number != 12]
    replace(orders, sink=target.sink(), shape=lambda df: df.where("id <> 12")).run()
    assert verdict(orders, target.sink())[0] is Verdict.EXACTLY_ONCE


@pytest.mark.slow
def test_rows_with_a_key_belong_to_no_epoch_and_are_not_swapped(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, pg
) -> None:
    orders = Recorded(spark, tmp_path, inbox.source, sink=pg.sink(key="id")).run()
    orders.sink.close()
    into = MemorySink(id="memory:again")
    rerun(orders, into)
    with pytest.raises(OnceOnlyError) as error:
        publish(orders, into, pg.sink(key="id"))
    assert error.value.code == "E242"
    assert len(re.findall("^[1-9]", run(command(str(error.value), "epochs list")), re.MULTILINE)) == FILES
    assert pg.ids() == ALL
