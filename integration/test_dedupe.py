"""Ids that were seen: of rows with one id, at most one within the time reaches any sink, whoever sends it again."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Iterable
from typing import Any

import pytest
from integration.printed import obey
from integration.streams import FileStream, settings
from integration.targets import Backup, PostgresTarget
from integration.test_refresh import FLOW
from pyspark.sql import DataFrame
from typer.testing import CliRunner

from onceonly import Dedupe, EventTime, OnceOnlyError, Output, Quality, Recovery, Route, Storage, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.cli.app import app
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

DAY_MS = 86_400_000
MONDAY_MS = 1_700_000_000_000


def once(pg: PostgresTarget, within: str = "7 days", key: str = "id", **said: Any) -> Dedupe:
    return Dedupe(key=key, within=within, store=PostgresSink(pg.dsn, table="orders_seen", **said))


def wrapped(pg: PostgresTarget, **more: Any) -> Any:
    return exactly_once(pg.sink(), dedupe=once(pg), **more)


def on_days(stream: FileStream, days: Iterable[tuple[float, Iterable[int]]], write: Any) -> None:
    """Receive a file for each day, and have the engine's clock stand at that day when it plans the file's batch."""
    moments = []
    for day, ids in days:
        stream.receive(ids)
        moments.append(MONDAY_MS + int(day * DAY_MS))

    def at_its_time(df: DataFrame, batch_id: int) -> None:
        set_clock(stream, moments[batch_id])
        write(df, batch_id)

    with settings(stream.spark, {"spark.sql.streaming.metadataCache.enabled": "false"}):  # Spark reads what was written
        stream.run(at_its_time)


def set_clock(stream: FileStream, clock_ms: int) -> None:
    number = stream.newest("offsets")
    version, metadata, *offsets = stream.log_entry("offsets", number).read_text().splitlines()
    said = {**json.loads(metadata), "batchTimestampMs": clock_ms}
    stream.edit("offsets", number, "\n".join([version, json.dumps(said), *offsets]))


def verdict(pg: PostgresTarget, *more: Any) -> Verdict:
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    judged = [pg.sink(), once(pg).keeper, *more]
    found = audit(ledger, "orders", judged)
    for sink in judged:
        sink.close()
    ledger.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    return found.verdict


def epochs(pg: PostgresTarget) -> list[Any]:
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    found = [record.epoch for record in ledger.epochs("orders")]
    ledger.close()
    return found


def test_a_row_that_comes_again_in_its_batch_or_a_later_one_reaches_no_sink(
    stream: FileStream, pg: PostgresTarget, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "onceonly"):
        stream.receive([1, 2, 2, 3, 3, 3], [3, 4], [1, 4, 5, 5]).run(wrapped(pg))
    assert pg.ids() == [1, 2, 3, 4, 5]
    assert pg.says("select count(*), count(distinct id), min(octet_length(id)) from orders_seen") == [(5, 5, 16)]
    assert [(epoch.digest.rows, epoch.repeated.rows, epoch.outputs[0].offered) for epoch in epochs(pg)] == [
        (3, 3, 6),
        (1, 1, 2),
        (1, 3, 4),
    ]
    assert {epoch.resume_point.ids for epoch in epochs(pg)} == {"key=['id']"}
    assert "1 rows; repeated 3; bad 0" in caplog.text
    shown = CliRunner().invoke(app, ["epochs", "show", "3", "--query", "orders", "--ledger", pg.dsn])
    assert "3 rows, whose id had been seen before" in shown.stdout
    verdict(pg)


@pytest.mark.slow
def test_a_row_that_comes_again_moves_no_time(stream: FileStream, pg: PostgresTarget) -> None:
    time = EventTime("id", max_delay=0, unit="integer")
    stream.receive([1, 2], [12, 3], [14]).run(exactly_once(pg.sink(), dedupe=once(pg, key="id % 10"), event_time=time))
    assert pg.ids() == [1, 2, 3, 14]
    assert [(epoch.time.complete_until, epoch.time.late_rows) for epoch in epochs(pg)] == [(2, 0), (3, 0), (14, 0)]


def test_an_id_is_known_for_the_time_from_the_row_that_was_let_through_on_and_then_leaves_with_an_epoch(
    stream: FileStream, pg: PostgresTarget
) -> None:
    held = []

    def write(df: DataFrame, batch_id: int) -> None:
        once_each(df, batch_id)
        held.append(pg.says("select count(*), min(_epoch) from orders_seen")[0])

    once_each = wrapped(pg)
    days = [
        (0, [1, 2, *range(100, 200)]),
        (6, [1, 3]),
        (7, [2, 3]),  # to the millisecond: still within
        (7.5, [1, 2, 3]),
        (14, [1, 2, 3]),
    ]
    on_days(stream, days, write)
    assert [epoch.lineage.batch_timestamp_ms for epoch in epochs(pg)] == [
        MONDAY_MS + int(day * DAY_MS) for day, _ in days
    ]
    let_through = pg.says("select _epoch, array_agg(id order by id) from orders where id < 100 group by 1 order by 1")
    assert let_through == [(1, [1, 2]), (2, [3]), (4, [1, 2]), (5, [3])]
    assert held == [(102, 1), (103, 1), (103, 1), (3, 2), (3, 4)]
    verdict(pg)


def test_a_row_without_an_id_is_bad_and_not_remembered(stream: FileStream, pg: PostgresTarget) -> None:
    aside = pg.sink().table("orders_bad")

    def write(**more: Any) -> Any:
        return wrapped(pg, transform=lambda df: df.selectExpr("if(id < 0, null, id) AS id", "word"), **more)

    seen = stream.receive([1, -1, -1]).fail(write())
    assert "[ONCE-E522] 2 of the 3 rows of epoch 1" in seen, seen[:2000]
    assert "a known id 2" in seen
    stream.receive([-1, 1, 2]).run(write(quality=Quality(quarantine=aside)))
    assert pg.ids() == [1, 2]
    assert pg.says("select count(*) from orders_bad") == [(3,)]
    assert pg.says("select count(*) from orders_seen") == [(2,)]
    verdict(pg, aside)


def test_the_id_of_a_bad_row_is_not_remembered_so_the_mended_one_comes_through(
    stream: FileStream, pg: PostgresTarget
) -> None:
    aside = pg.sink().table("orders_bad")

    def write(expected: str) -> Any:
        return wrapped(pg, quality=Quality(expect={"word": expected}, quarantine=aside))

    stream.receive([1, 2, 2]).run(write("word <> 'w2'"))
    stream.receive([1, 2, 2]).run(write("true"))
    assert pg.ids() == [1, 2]
    assert pg.says("select count(*) from orders_bad") == [(2,)]


@pytest.mark.slow
def test_outputs_and_tables_by_route_get_what_was_let_through(stream: FileStream, pg: PostgresTarget) -> None:
    even = Output(pg.sink().table("even"), name="even", where="id % 2 = 0", select=["id"])
    low, high = pg.sink().table("low"), pg.sink().table("high")
    route = Route("if(id < 3, 'low', if(id < 6, 'high', 'none'))", {"low": low, "high": high})
    aside = pg.sink().table("orders_bad")
    stream.receive([1, 2, 2, 7, 7], [2, 3, 4, 4]).run(
        exactly_once(pg.sink(), even, route, quality=Quality(quarantine=aside), dedupe=once(pg))
    )
    found = {name: pg.says(f"select id from {name} order by 1") for name in ("orders", "even", "low", "high")}
    assert found == {
        "orders": [(1,), (2,), (3,), (4,)],
        "even": [(2,), (4,)],
        "low": [(1,), (2,)],
        "high": [(3,), (4,)],
    }
    assert pg.says("select count(*) from orders_bad") == [(2,)]
    verdict(pg, even.sinks[0], low, high, aside)


# ---- sinks that are behind, and what was lost


def died() -> None:
    raise RuntimeError("died between two transactions")


def dies(stream: FileStream, ids: Iterable[int], write: Any, after: int = 1) -> None:
    faults.arm(Point.COMMIT_AFTER, died, after)
    assert "died between" in stream.receive(ids).fail(write)
    faults.disarm()


@pytest.mark.slow
def test_an_epoch_that_the_table_of_ids_holds_already_is_computed_again_with_the_same_rows(
    stream: FileStream, pg: PostgresTarget
) -> None:
    store = MemoryStore()

    def write() -> Any:
        return exactly_once(pg.sink(), MemorySink(id="memory:all", store=store), dedupe=once(pg))

    stream.receive([1, 2]).run(write())
    dies(stream, [2, 3, 3, 4], write())  # the two tables hold epoch 2, the memory does not
    assert (pg.ids(), pg.says("select count(*) from orders_seen")) == ([1, 2, 3, 4], [(4,)])
    for place in stream.root.glob("*.staging"):
        shutil.rmtree(place)
    stream.receive([1, 4, 5]).run(write())
    assert pg.ids() == sorted(row["id"] for row in MemorySink(id="memory:all", store=store).rows()) == [1, 2, 3, 4, 5]


def apart(pg: PostgresTarget) -> Dedupe:
    """A table of ids that waits for locks otherwise than the rows' own, and so has a transaction of its own."""
    return once(pg, tuning=PostgresTuning(lock_timeout=20.0))


@pytest.mark.slow
def test_a_table_of_ids_that_is_behind_gets_them_from_staged_files_before_it_is_asked(
    stream: FileStream, pg: PostgresTarget
) -> None:
    stream.receive([1, 2]).run(exactly_once(pg.sink(), dedupe=apart(pg)))
    dies(stream, [2, 3], exactly_once(pg.sink(), dedupe=apart(pg)))
    assert (pg.ids(), pg.says("select count(*) from orders_seen")) == ([1, 2, 3], [(2,)])
    stream.receive([3, 4]).run(exactly_once(pg.sink(), dedupe=apart(pg)))
    assert pg.ids() == [1, 2, 3, 4]
    assert pg.says("select count(*), max(_epoch) from orders_seen") == [(4, 3)]
    verdict(pg)


@pytest.mark.slow
def test_a_table_of_ids_that_was_set_back_is_refused_and_not_asked(
    stream: FileStream, pg: PostgresTarget, any_postgres: Any
) -> None:
    kept = PostgresTarget(any_postgres.database(f"{pg.dsn.rpartition('/')[2]}_kept"))

    def write() -> Any:
        return exactly_once(pg.sink(), dedupe=Dedupe(key="id", within="7 days", store=kept.sink().table("seen")))

    stream.receive([1, 2]).run(write())
    backup = Backup(kept.dsn)
    stream.receive([2, 3]).run(write())
    backup.put_back()
    said = stream.receive([3, 4]).fail(write())
    assert "[ONCE-E2" in said, said[:2000]
    assert pg.ids() == [1, 2, 3]
    obey(said, "recover resolve")
    stream.run(write())
    assert pg.ids() == [1, 2, 3, 4]
    assert kept.says("select count(*) from seen") == [(4,)]


@pytest.mark.slow
def test_a_table_of_ids_that_was_emptied_stops_the_query_and_another_key_is_warned_of(
    stream: FileStream, pg: PostgresTarget, caplog: pytest.LogCaptureFixture
) -> None:
    stream.receive([1, 2]).run(wrapped(pg))
    pg.says("truncate orders_seen")
    said = stream.receive([2, 3]).fail(wrapped(pg))
    assert "[ONCE-E209]" in said
    assert "ids of epoch 1 are not there any more: 2 of 2" in said
    assert pg.ids() == [1, 2]
    obey(said, "--accept-change")
    stream.run(wrapped(pg))
    assert pg.ids() == [1, 2, 2, 3], "as it was accepted"
    stream.receive([3, 4]).run(wrapped(pg))
    assert "W713" not in caplog.text
    stream.receive([4, 5]).run(exactly_once(pg.sink(), dedupe=once(pg, key="id + 0")))
    assert "[ONCE-W713]" in caplog.text
    assert pg.ids() == [1, 2, 2, 3, 4, 5], "another spelling of the same ids"


@pytest.mark.slow
def test_a_full_refresh_brings_every_row_again_and_forgets_what_was_known(
    stream: FileStream, pg: PostgresTarget
) -> None:
    stream.checkpoint = stream.root / FLOW / "0"
    stream.receive([1, 2, 2], [2, 3]).run(wrapped(pg, recovery=Recovery(on_refresh="replace")))
    stream.checkpoint = stream.root / FLOW / "1"
    stream.run(wrapped(pg, recovery=Recovery(on_refresh="replace")))
    assert pg.ids() == [1, 2, 3]
    assert pg.says("select _epoch, count(*) from orders_seen group by 1 order by 1") == [(3, 2), (4, 1)]
    assert [epoch.repeated.rows for epoch in epochs(pg)] == [1, 1, 1, 1]
    verdict(pg)


@pytest.mark.slow
def test_a_stateful_batch_that_is_skipped_is_the_same_although_its_ids_were_forgotten(
    stream: FileStream, pg: PostgresTarget
) -> None:
    def write() -> Any:
        return wrapped(pg, transform=lambda df: df.selectExpr("id % 3 AS id", "word"))

    def go() -> None:
        stream.run(write(), shape=lambda df: df.dropDuplicates(["id"]))

    stream.receive([1, 2, 4, 5])
    go()
    stream.receive([7, 3])
    go()
    # Ids of the newest epoch never leave for their age (E209 where they are gone); those that 7 repeats do.
    pg.says("delete from orders_seen where _epoch = 1")
    stream.remove("commits", 1)
    go()
    assert pg.ids() == [0, 1, 2]


# ---- what it is called with, found out when it runs


@pytest.mark.slow
def test_what_cannot_be_an_id_or_hold_one_is_refused_before_anything_is_written(
    stream: FileStream, pg: PostgresTarget
) -> None:
    pg.says("create table narrow_seen (id text primary key, _epoch bigint)")
    narrow = Dedupe(key="id", within="7 days", store=PostgresSink(pg.dsn, table="narrow_seen"))
    cases = {
        "a list": (once(pg, key="array(id)"), "E121", "it is of type array<bigint>: make a text or a number of it"),
        "no column": (once(pg, key="nothing"), "E121", "nothing"),
        "a table of other columns": (narrow, "E506", "narrow_seen"),
    }
    assert "[ONCE-E121]" in exactly_once(pg.sink(), dedupe=once(pg, key="array(id)")).explain(stream.read())
    assert "[ONCE-E121]" not in wrapped(pg).explain(stream.read())
    found = {}

    def write(df: DataFrame, batch_id: int) -> None:
        for case, (dedupe, code, words) in cases.items():
            try:
                exactly_once(pg.sink(), dedupe=dedupe, name=f"orders, {case}")(df, batch_id)
                said = "nothing"
            except OnceOnlyError as refused:
                said = str(refused)
            if f"[ONCE-{code}]" not in said or words not in said:
                found[case] = said

    stream.receive([1]).run(write)
    assert found == {}
    there = "select relname from pg_class where relkind = 'r' and relname in ('orders', 'orders_seen')"
    assert (pg.says(there), pg.says("select count(*) from narrow_seen")) == ([], [(0,)])


@pytest.mark.slow
def test_an_id_of_several_parts_is_all_of_them(stream: FileStream, pg: PostgresTarget) -> None:
    parts = ("substr('abcabc', 1, cast(id % 10 AS int))", "substr('abcabc', cast(id % 10 AS int) + 1)")
    key = Dedupe(key=parts, within="7 days", store=PostgresSink(pg.dsn, table="orders_seen"))
    stream.receive([1, 2, 11, 3]).run(exactly_once(pg.sink(), dedupe=key))
    assert pg.says("select id % 10, count(*) from orders group by 1 order by 1") == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.slow
def test_an_id_is_its_text_so_a_column_may_become_wider(stream: FileStream, pg: PostgresTarget) -> None:
    stream.receive([1, 2]).run(exactly_once(pg.sink(), dedupe=once(pg, key="cast(id AS int)")))
    stream.receive([2, 3]).run(exactly_once(pg.sink(), dedupe=once(pg, key="id")))
    stream.receive([3, 4]).run(exactly_once(pg.sink(), dedupe=once(pg, key="cast(id AS string)")))
    assert pg.ids() == [1, 2, 3, 4]


@pytest.mark.slow
def test_executors_and_the_driver_let_the_same_rows_through(stream: FileStream, pg: PostgresTarget) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    files = [[draw.randrange(400) for _ in range(300)] for _ in range(3)]
    before = "id % 100 AS event", "id", "if(id % 7 = 0, null, word) AS word", "id / 3D AS share"
    found = []
    ways: dict[str, dict[str, Any]] = {"driver": {}, "executors": {"storage": Storage(staging=stream.root / "staging")}}
    for way, more in ways.items():
        other = FileStream(stream.spark, stream.root / way, name=way)
        rows, kept = pg.sink().table(way), pg.sink().table(f"{way}_seen")
        dedupe = Dedupe(key="event", within="7 days", store=kept)
        write = exactly_once(rows, dedupe=dedupe, transform=lambda df: df.selectExpr(*before), **more)
        other.receive(*files).run(write)
        found.append(pg.says(f"select id, word, _epoch from {way} order by 1"))
    assert found[0] == found[1]
    assert len(found[0]) == len({number % 100 for numbers in files for number in numbers})
