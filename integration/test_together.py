"""Several tables of one Postgres in one query: one transaction brings an epoch to all, and nothing is staged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from integration.jobs import Job
from integration.processes import Drivers, was_killed
from integration.stage import ROWS, Inbox, Scene
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from integration.test_refresh import FLOW

from onceonly import Output, Quality, Recovery, Storage, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

EXPECT = {"below seven": "id % 10 < 7"}


def table(pg: PostgresTarget, name: str, **said: Any) -> PostgresSink:
    return PostgresSink(pg.dsn, table=name, **said)


def ids(pg: PostgresTarget, name: str) -> list[int]:
    return [row[0] for row in pg.says(f"select id from {name} order by 1")]


def wrapped(pg: PostgresTarget, **more: Any) -> Any:
    even = Output(table(pg, "even"), name="even", where="id % 2 = 0", select=["id"])
    quality = Quality(expect=EXPECT, quarantine=table(pg, "bad"))
    return exactly_once(pg.sink(), even, quality=quality, **more)


def verdict(pg: PostgresTarget, spark: Any) -> Verdict:
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    judged = [pg.sink(), table(pg, "even"), table(pg, "bad")]
    found = audit(ledger, "orders", judged, spark=spark)
    for sink in judged:
        sink.close()
    ledger.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    return found.verdict


def good(*spans: range) -> list[int]:
    return [one for span in spans for one in span if one % 10 < 7]


def test_an_epoch_is_one_transaction_with_the_ledgers_record(
    stream: FileStream, pg: PostgresTarget, spark: Any, tmp_path: Path
) -> None:
    stream.receive(range(10), range(10, 20)).run(wrapped(pg))
    assert pg.ids() == good(range(20))
    assert ids(pg, "even") == [one for one in good(range(20)) if one % 2 == 0]
    assert sorted(json.loads(row)["id"] for (row,) in pg.says("select row from bad")) == [7, 8, 9, 17, 18, 19]
    for epoch in (1, 2):
        wrote = {
            *pg.says(f"select xmin::text from orders where _epoch = {epoch}"),
            *pg.says(f"select xmin::text from even where _epoch = {epoch}"),
            *pg.says(f"select xmin::text from bad where _epoch = {epoch}"),
            *pg.says(f"select xmin::text from onceonly.epoch where epoch = {epoch}"),
            *pg.says(f"select xmin::text from onceonly.ledger_epochs where epoch = {epoch}"),
        }
        assert len(wrote) == 1
    assert not list(stream.root.rglob("*.staging"))
    verdict(pg, spark)


@pytest.mark.slow
def test_what_is_too_large_for_the_driver_is_staged_and_still_one_transaction(
    stream: FileStream, pg: PostgresTarget, spark: Any
) -> None:
    even = Output(
        table(pg, "even", tuning=PostgresTuning(load="executors")), name="even", where="id % 2 = 0", select=["id"]
    )
    quality = Quality(expect=EXPECT, quarantine=table(pg, "bad"))
    stream.receive(range(10)).run(exactly_once(pg.sink(tuning=PostgresTuning(load="executors")), even, quality=quality))
    assert pg.ids() == good(range(10))
    assert len({*pg.says("select xmin::text from orders"), *pg.says("select xmin::text from onceonly.epoch")}) == 1
    assert list(stream.root.rglob("*.staging"))
    verdict(pg, spark)


@pytest.mark.slow
def test_a_program_that_was_written_with_files_goes_on_without_and_back(
    stream: FileStream, pg: PostgresTarget, spark: Any, tmp_path: Path
) -> None:
    stream.receive(range(10)).run(wrapped(pg, storage=Storage(staging=tmp_path / "staging")))
    stream.receive(range(10, 20)).run(wrapped(pg))
    stream.receive(range(20, 30)).run(wrapped(pg, storage=Storage(staging=tmp_path / "staging")))
    stream.remove("commits", 2)
    stream.receive(range(30, 40)).run(wrapped(pg))
    assert pg.ids() == good(range(40))
    verdict(pg, spark)


def died() -> None:
    raise RuntimeError("died between two transactions")


@pytest.mark.slow
def test_a_table_elsewhere_is_brought_to_the_epoch_of_those_that_commit_together(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    def both() -> Any:
        quality = Quality(expect=EXPECT, quarantine=table(pg, "bad"))
        return exactly_once(pg.sink(), delta.sink(), quality=quality)

    stream.receive(range(10)).run(both())
    faults.arm(Point.COMMIT_AFTER, died)
    assert "died between" in stream.receive(range(10, 20)).fail(both())
    faults.disarm()
    assert (pg.ids(), delta.ids()) == (good(range(20)), good(range(10)))
    assert pg.says("select count(*) from bad") == [(6,)]
    stream.receive(range(20, 30)).run(both())
    assert pg.ids() == delta.ids() == good(range(30))
    assert pg.says("select count(*) from bad") == [(9,)]


@pytest.mark.slow
def test_a_full_refresh_replaces_the_rows_of_all_of_them_at_once(
    stream: FileStream, pg: PostgresTarget, spark: Any
) -> None:
    stream.checkpoint = stream.root / FLOW / "0"
    stream.receive(range(10), range(10, 20)).run(wrapped(pg, recovery=Recovery(on_refresh="replace")))
    stream.checkpoint = stream.root / FLOW / "1"
    stream.run(wrapped(pg, recovery=Recovery(on_refresh="replace")))
    assert pg.ids() == good(range(20))
    assert ids(pg, "even") == [one for one in good(range(20)) if one % 2 == 0]
    assert pg.says("select count(*) from bad") == [(6,)]
    assert pg.says("select distinct _epoch from orders order by 1") == [(3,), (4,)]
    verdict(pg, spark)


# ---- killed


EXPECTED = "pmod(xxhash64(id, 20), 10) <> 3"
DEATHS = [
    f"{Point.STAGE_BEFORE}:killgroup:2",
    f"{Point.STAGE_AFTER}:killgroup:2",
    *(f"{Point.PREPARE_AFTER}:killgroup:{3 + sink}" for sink in (1, 2, 3)),
    f"{Point.COMMIT_BEFORE}:killgroup:2",
    f"{Point.COMMIT_SENT}:killgroup:2",
    f"{Point.COMMIT_AFTER}:killgroup:2",
    f"{Point.RECORD_BEFORE}:killgroup",
]


@pytest.mark.slow
@pytest.mark.kill
def test_no_kill_parts_the_tables(any_postgres: Any, tmp_path: Path, warm_drivers: Drivers, spark: Any) -> None:
    database = any_postgres.database("together")
    inbox = Inbox(tmp_path / "in")
    scenes = [Scene(tmp_path, kind, database, inbox) for kind in ("postgres", "postgres:bad", "postgres:even")]
    for scene in scenes:
        scene.name, scene.ledger_place, scene.checkpoint = "arrivals", database, tmp_path / "checkpoint"
    also = tuple((scene.kind, scene.target) for scene in scenes[1:])
    said: dict[str, Any] = {"also": also, "expect": EXPECTED}
    job = Job("arrivals", "postgres", database, str(inbox.folder), str(tmp_path / "checkpoint"), **said)
    for number, fault in enumerate(DEATHS):
        inbox.fill(2 * number + 3)
        assert was_killed(warm_drivers.start(job, fault=fault)), fault
        assert len({scene.newest() for scene in scenes}) == 1, fault
        assert scenes[0].recorded()[-1:] == [scenes[0].newest()], "the ledger's record is in the same transaction"
    warm_drivers.finish(job)
    rows = spark.range(inbox.files * ROWS)
    met = {row["id"] for row in rows.where(EXPECTED).collect()}
    pg = PostgresTarget(database)
    assert ids(pg, "arrivals") == sorted(met)
    assert ids(pg, "even") == sorted(one for one in met if one % 2 == 0)
    assert sorted(json.loads(row)["id"] for (row,) in pg.says("select row from bad")) == sorted(
        {*range(inbox.files * ROWS)} - met
    )
    chains = [[marker.epoch.chain for marker in scene.markers()] for scene in scenes]
    assert chains[0] == chains[1] == chains[2]
    assert not list(tmp_path.rglob("*.staging"))
