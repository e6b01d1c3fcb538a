"""Sinks that were restored, on real stores: the printed rewind is run as text, and every row is there once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from integration.printed import command, killed, obey, refused, run
from integration.targets import Backup, DeltaTarget, PostgresTarget, events
from pyspark.sql import functions as f

from onceonly import Dedupe, EventTime, Storage, exactly_once
from onceonly.faults import Point
from onceonly.windows import Sum, Tumbling, Windows
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

FIVES = [range(at, at + 5) for at in range(0, 25, 5)]
"""Batches of five rows: twenty-five in all."""


class TableBackup:
    """A copy of a Delta table as it is now, to be put back in its place.

    Args:
        target: the table.
    """

    def __init__(self, target: DeltaTarget) -> None:
        self._place, self._copy = Path(target.path), Path(f"{target.path}.copy")
        shutil.copytree(self._place, self._copy)

    def put_back(self) -> None:
        """Have the table's directory be what it was."""
        shutil.rmtree(self._place)
        shutil.copytree(self._copy, self._place)


def audit(ledger: object, *more: str) -> str:
    return run(["onceonly", "audit", "--query", "orders", "--ledger", str(ledger), *more])


def counted(df):
    return df.groupBy((f.col("id") % 3).alias("id")).agg(f.count("*").cast("string").alias("word"))


# ---- cut back: every sink stands at one epoch


@pytest.mark.slow
def test_a_table_that_was_set_back_is_gone_on_from_and_holds_every_row(stream, target, tmp_path) -> None:
    place = tmp_path / "ledger.db"

    def wrapped():
        return exactly_once(target.sink(), storage=Storage(ledger=place))

    stream.receive(*FIVES[:2]).run(wrapped())
    backup = Backup(target.dsn) if isinstance(target, PostgresTarget) else TableBackup(target)
    stream.receive(*FIVES[2:4]).run(wrapped())
    backup.put_back()
    said = stream.receive(FIVES[4]).fail(wrapped())
    assert "[ONCE-E207]" in said
    obey(said, "recover rewind")
    stream.run(wrapped())
    assert target.ids() == list(range(25))
    assert audit(place).startswith("EXACTLY ONCE")


@pytest.mark.parametrize(
    "provider",
    [
        pytest.param(one, marks=pytest.mark.slow)
        for one in ("RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider")
    ],
)
def test_a_query_with_state_goes_on_with_the_state_of_where_it_is_cut_back_to(spark, stream, pg, tmp_path, provider):
    from integration.streams import settings

    place, options = tmp_path / "ledger.db", {"shape": counted, "mode": "update"}
    store = {
        "spark.sql.streaming.stateStore.providerClass": f"org.apache.spark.sql.execution.streaming.state.{provider}"
    }
    with settings(spark, store):
        stream.receive(*FIVES[:2]).run(exactly_once(pg.sink(), storage=Storage(ledger=place)), **options)
        backup = Backup(pg.dsn)
        stream.receive(*FIVES[2:4]).run(exactly_once(pg.sink(), storage=Storage(ledger=place)), **options)
        wanted = Counter(pg.says("select id, word from orders"))
        backup.put_back()
        said = stream.receive(FIVES[4]).fail(exactly_once(pg.sink(), storage=Storage(ledger=place)), **options)
        obey(said, "recover rewind")
        stream.run(exactly_once(pg.sink(), storage=Storage(ledger=place)), **options)
    newest = pg.says("select id, max(word::int) from orders group by id order by id")
    assert newest == [(0, 9), (1, 8), (2, 8)]
    assert len(Counter(pg.says("select id, word from orders")) & wanted) == len(wanted)
    assert audit(place).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_input_that_is_gone_refuses_a_cut_back_until_just_its_epoch_may_be_lost(stream, pg, tmp_path) -> None:
    place = tmp_path / "ledger.db"
    stream.receive(*FIVES[:2]).run(exactly_once(pg.sink(), storage=Storage(ledger=place)))
    backup = Backup(pg.dsn)
    stream.receive(*FIVES[2:4]).run(exactly_once(pg.sink(), storage=Storage(ledger=place)))
    backup.put_back()
    said = stream.receive(FIVES[4]).fail(exactly_once(pg.sink(), storage=Storage(ledger=place)))
    (stream.inbox / "part-0002.parquet").unlink()
    told = refused(command(said, "recover rewind"), "--yes")
    assert "[ONCE-E230]" in told
    assert "epochs 3..3" in told
    obey(told, "--accept-loss 3..3")
    stream.run(exactly_once(pg.sink(), storage=Storage(ledger=place)))
    assert pg.ids() == [*range(10), *range(15, 25)]
    found = " ".join(audit(place).split())
    assert found.startswith("EXACTLY ONCE")
    assert "set aside when every sink was at epoch 2 and the loss of epochs 3..3 was accepted" in found
    assert "epochs 3..4 have taken their place, with 10 rows, not all of them the same" in found
    [told] = run(["onceonly", "status", "orders", "--ledger", str(place), "-o", "json"]).split("accepted: ")[1:]
    assert told.startswith("epoch 3: ")
    assert "part-0002.parquet" in told.partition('"')[0]


# ---- bring up: one of several lacks epochs that another one holds


@pytest.mark.slow
@pytest.mark.parametrize("own_ledger", [False, True], ids=["ledger apart", "ledger restored as well"])
def test_a_database_that_was_set_back_gets_its_rows_from_a_table(stream, pg, delta, tmp_path, own_ledger) -> None:
    place = None if own_ledger else tmp_path / "ledger.db"

    def wrapped():
        return exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=place))

    stream.receive(*FIVES[:2]).run(wrapped())
    backup = Backup(pg.dsn)
    stream.receive(*FIVES[2:4]).run(wrapped())
    backup.put_back()
    said = stream.receive(FIVES[4]).fail(wrapped())
    assert "[ONCE-E207]" in said
    obey(said, "recover rewind")
    assert pg.ids() == list(range(20))
    stream.run(wrapped())
    assert pg.ids() == delta.ids() == list(range(25))
    assert audit(place or pg.dsn, "--deep").startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_a_table_that_was_set_back_gets_its_rows_from_a_database(stream, pg, delta, ledger) -> None:
    def wrapped():
        return exactly_once(
            pg.sink(tuning=PostgresTuning(epoch_column="_epoch")), delta.sink(), storage=Storage(ledger=ledger)
        )

    stream.receive(*FIVES[:2]).run(wrapped())
    backup = TableBackup(delta)
    stream.receive(FIVES[2], [], FIVES[3]).run(wrapped())
    backup.put_back()
    said = stream.receive(FIVES[4]).fail(wrapped())
    obey(said, "recover rewind")
    stream.run(wrapped())
    assert pg.ids() == delta.ids() == list(range(25))
    assert audit(ledger.address, "--deep").startswith("EXACTLY ONCE")
    [told] = events(ledger, EventKind.ROLLED_FORWARD)
    assert told.startswith("delta:table brought from epoch 2 to 5")


@pytest.mark.slow
def test_a_table_that_was_deleted_is_filled_again_from_a_database(stream, pg, delta, ledger) -> None:
    def wrapped():
        return exactly_once(
            pg.sink(tuning=PostgresTuning(epoch_column="_epoch")), delta.sink(), storage=Storage(ledger=ledger)
        )

    stream.receive(*FIVES[:4]).run(wrapped())
    delta.vanish()
    said = stream.receive(FIVES[4]).fail(wrapped())
    assert "[ONCE-E208]" in said
    obey(said, "recover rewind")
    stream.run(wrapped())
    assert pg.ids() == delta.ids() == list(range(25))
    assert audit(ledger.address, "--deep").startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_sinks_that_were_set_back_to_different_epochs_are_brought_level_and_then_cut_back(stream, pg, delta, ledger):
    def wrapped():
        return exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=ledger))

    stream.receive(FIVES[0]).run(wrapped())
    database = Backup(pg.dsn)
    stream.receive(FIVES[1]).run(wrapped())
    table = TableBackup(delta)
    stream.receive(*FIVES[2:4]).run(wrapped())
    database.put_back()
    table.put_back()
    obey(stream.receive(FIVES[4]).fail(wrapped()), "recover rewind")
    obey(stream.fail(wrapped()), "recover rewind")
    stream.run(wrapped())
    assert pg.ids() == delta.ids() == list(range(25))
    assert audit(ledger.address).startswith("EXACTLY ONCE")


@pytest.mark.slow
def test_rows_that_somebody_changed_in_the_other_sink_are_not_brought(stream, pg, delta, ledger) -> None:
    def wrapped():
        return exactly_once(
            pg.sink(tuning=PostgresTuning(epoch_column="_epoch")), delta.sink(), storage=Storage(ledger=ledger)
        )

    stream.receive(*FIVES[:2]).run(wrapped())
    backup = TableBackup(delta)
    stream.receive(*FIVES[2:4]).run(wrapped())
    backup.put_back()
    pg.says("update orders set word = 'another' where id = 12")
    said = stream.receive(FIVES[4]).fail(wrapped())
    told = refused(command(said, "recover rewind"), "--yes")
    assert "[ONCE-E233]" in told
    assert "Epoch 3" in told
    assert delta.ids() == list(range(10))
    pg.says("update orders set word = 'w12' where id = 12")
    run(command(said, "recover rewind"), "--yes")
    stream.run(wrapped())
    assert pg.ids() == delta.ids() == list(range(25))


@pytest.mark.slow
@pytest.mark.parametrize("behind", [2, 5, 20])
def test_however_many_epochs_a_database_lacks_another_sink_gives_them(stream, pg, delta, ledger, behind) -> None:
    def wrapped():
        return exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=ledger))

    newest = 1 + behind
    stream.receive(range(5)).run(wrapped())
    backup = Backup(pg.dsn)
    stream.receive(*(range(at * 5, at * 5 + 5) for at in range(1, newest))).run(wrapped())
    backup.put_back()
    rewind = command(stream.receive(range(newest * 5, newest * 5 + 5)).fail(wrapped()), "recover rewind")
    told = f"gets epochs 2..{newest}, {behind * 5} rows: {behind - 1} from sink:delta:table, 1 from stage"
    assert told in run(rewind, code=4)
    run(rewind, "--yes")
    stream.run(wrapped())
    assert pg.ids() == delta.ids() == list(range(newest * 5 + 5))
    assert audit(ledger.address).startswith("EXACTLY ONCE")


# ---- what an epoch writes beside its rows, and no other sink holds


def deduped(pg: PostgresTarget) -> dict[str, Any]:
    return {"dedupe": Dedupe(key="id", within="7 days", store=PostgresSink(pg.dsn, table="orders_seen"))}


def paned(_: PostgresTarget) -> dict[str, Any]:
    teams = ["concat('t', id % 2) AS team", "id AS value", "timestamp_seconds(id) AS at"]
    panes = Windows(key="team", aggregates={"total": Sum("value")}, time="at", window=Tumbling("10 seconds"))
    return {
        "transform": lambda df: df.selectExpr(*teams),
        "event_time": EventTime("at", max_delay="0s"),
        "windows": panes,
    }


@pytest.mark.parametrize(
    ("options", "beside", "again", "column", "shown"),
    [
        pytest.param(deduped, "orders_seen", [3, 12], "id", list(range(25)), id="dedupe", marks=pytest.mark.slow),
        pytest.param(paned, "orders_state", [], "total", [20, 25, 70, 75], id="panes", marks=pytest.mark.slow),
    ],
)
def test_what_is_remembered_of_rows_is_brought_up_from_the_stage_with_them(
    stream, pg, delta, ledger, options, beside, again, column, shown
) -> None:
    def wrapped():
        return exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=ledger, keep_epochs=9), **options(pg))

    def remembered() -> list[Any]:
        return sorted(pg.says(f"select * from {beside}"))

    stream.receive(*FIVES[:2]).run(wrapped())
    backup = Backup(pg.dsn)
    stream.receive(FIVES[2], [*FIVES[3], *again]).run(wrapped())
    known = remembered()
    backup.put_back()
    assert remembered() != known
    obey(stream.receive([*FIVES[4], *again]).fail(wrapped()), "recover rewind")
    assert remembered() == known
    [told] = [event for event in events(ledger, EventKind.ROLLED_FORWARD) if event.startswith("postgres:orders ")]
    assert told.startswith("postgres:orders brought from epoch 2 to 4, rows from: stage")
    stream.run(wrapped())
    for rows in (pg.says(f"select {column} from orders"), delta.rows(column)):
        assert sorted(one for (one,) in rows) == shown
    assert audit(ledger.address).startswith("EXACTLY ONCE")


# ---- killed


KILLED = (
    Point.INSTALL_SENT,
    Point.REINDEX_AFTER,
    Point.PREPARE_SENT,
    Point.PREPARE_AFTER,
    Point.COMMIT_SENT,
    Point.COMMIT_AFTER,
    Point.RECORD_AFTER,
)


@pytest.mark.parametrize(
    ("kept", "origin"),
    [
        pytest.param(9, "3 from stage", id="from the stage", marks=pytest.mark.slow),
        pytest.param(1, "2 from sink:delta:table, 1 from stage", id="from another sink", marks=pytest.mark.slow),
    ],
)
def test_a_rewind_that_is_killed_around_each_of_its_steps_is_given_again(
    stream, pg, delta, ledger, kept, origin
) -> None:
    def wrapped():
        return exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=ledger, keep_epochs=kept))

    stream.receive(FIVES[0]).run(wrapped())
    backup = Backup(pg.dsn)
    stream.receive(*FIVES[1:4]).run(wrapped())
    backup.put_back()
    said = stream.receive(FIVES[4]).fail(wrapped())
    rewind = command(said, "recover rewind")
    assert origin in run(rewind, code=4)
    for point in KILLED:
        killed(rewind, point)
    run(rewind, "--yes")
    stream.run(wrapped())
    assert pg.ids() == delta.ids() == list(range(25))
    assert audit(ledger.address).startswith("EXACTLY ONCE")


def test_a_cut_back_that_is_killed_around_each_of_its_steps_is_given_again(stream, pg, ledger) -> None:
    def wrapped():
        return exactly_once(pg.sink(), storage=Storage(ledger=ledger))

    stream.receive(*FIVES[:2]).run(wrapped())
    backup = Backup(pg.dsn)
    stream.receive(*FIVES[2:4]).run(wrapped())
    backup.put_back()
    rewind = command(stream.receive(FIVES[4]).fail(wrapped()), "recover rewind")
    for point in (Point.INSTALL_SENT, Point.REINDEX_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER):
        killed(rewind, point)
    run(rewind, "--yes")
    stream.run(wrapped())
    assert pg.ids() == list(range(25))
    assert audit(ledger.address).startswith("EXACTLY ONCE")
