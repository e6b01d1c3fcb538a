"""What every line of Spark must do, on Spark Connect: append, upsert, keep state, stage, replay, heal, trim."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from integration.connect.streams import ConnectStream
from integration.targets import DeltaTarget, PostgresTarget, events
from pyspark.sql import DataFrame, SparkSession

from onceonly import Recovery, Storage, reading
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaTuning
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

pytestmark = pytest.mark.connect


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("word").count()


def with_paths(df: DataFrame) -> DataFrame:
    return df.selectExpr("*", "_metadata.file_path as file_path")


def without_paths(df: DataFrame) -> DataFrame:
    return df.drop("file_path")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where the ledger lies."""
    return str(tmp_path / "ledger.db")


@pytest.mark.parametrize("limit", [None, 0])
def test_rows_are_appended_once_through_the_callback_and_by_executors(
    connected: ConnectStream, pg: PostgresTarget, delta: DeltaTarget, place: str, limit: int | None
) -> None:
    postgres = PostgresTuning() if limit is None else PostgresTuning(driver_limit=limit)
    delta_tuning = DeltaTuning() if limit is None else DeltaTuning(driver_limit=limit)
    connected.receive(range(10), range(10, 20))
    connected.write(pg.sink(tuning=postgres), storage=Storage(ledger=place))
    connected.lose_checkpoint()
    connected.name = "history"
    connected.write(delta.sink(tuning=delta_tuning), storage=Storage(ledger=place))
    assert pg.ids() == delta.ids() == list(range(20))


def test_one_epoch_goes_to_several_sinks_and_a_replay_to_none(
    connected: ConnectStream, pg: PostgresTarget, delta: DeltaTarget, ledger: SqlLedger, place: str
) -> None:
    connected.receive(range(10), range(10, 20)).write(pg.sink(), delta.sink(), storage=Storage(ledger=place))
    connected.remove("commits", 1)
    connected.receive(range(20, 30)).write(pg.sink(), delta.sink(), storage=Storage(ledger=place))
    assert pg.ids() == delta.ids() == list(range(30))
    assert len(events(ledger, EventKind.SKIPPED)) == 1


def with_note(df: DataFrame) -> DataFrame:
    return df.selectExpr("*", "'noted' AS note")


def test_columns_that_change_are_recorded(
    connected: ConnectStream, delta: DeltaTarget, ledger: SqlLedger, place: str
) -> None:
    sink = delta.sink(schema="add_columns")
    connected.receive(range(5)).write(sink, storage=Storage(ledger=place))
    connected.receive(range(5, 10)).write(sink, storage=Storage(ledger=place), shape=with_note)
    assert [record.epoch.changed_columns for record in ledger.epochs("orders")] == [
        "",
        "note: none -> string not null",
    ]
    assert events(ledger, EventKind.SCHEMA_CHANGED) == ["note: none -> string not null"]


@pytest.mark.parametrize("limit", [None, 0], ids=["few rows", "too many for the driver"])
def test_two_tables_of_one_postgres_commit_together(
    connected: ConnectStream, pg: PostgresTarget, limit: int | None
) -> None:
    postgres = PostgresTuning() if limit is None else PostgresTuning(driver_limit=limit)
    sink = pg.sink(tuning=postgres)
    connected.receive(range(10), range(10, 20)).write(sink, sink.table("copy", tuning=postgres))
    connected.remove("commits", 1)
    connected.receive(range(20, 30)).write(sink, sink.table("copy", tuning=postgres))
    assert pg.ids() == [row[0] for row in pg.says("select id from copy order by id")] == list(range(30))
    wrote = "select o.xmin::text, c.xmin::text, e.xmin::text from orders o join copy c using (id) "
    together = pg.says(f"{wrote} join onceonly.epoch e on e.epoch = o._epoch")
    assert len(together) >= 30  # of each row, what each of the sinks keeps of its epoch
    assert [one for one in together if len({*one}) != 1] == []


def test_a_table_is_checked_in_the_transaction_that_changes_it(connected: ConnectStream, pg: PostgresTarget) -> None:
    def sink() -> PostgresSink:
        return pg.sink(check_table={"few": "count(*) <= 15"})

    connected.receive(range(10)).write(sink())
    with pytest.raises(Exception, match="ONCE-E531") as refused:
        connected.receive(range(10, 20)).write(sink())
    assert 'breaks check "few" of table orders: count(*) <= 15 is not true (count(*): 20)' in str(refused.value)
    assert pg.ids() == list(range(10))


def test_state_goes_on_over_a_replay(connected: ConnectStream, pg: PostgresTarget, place: str) -> None:
    for _ in range(3):
        connected.receive(range(5))
        connected.write(pg.sink(key="word"), storage=Storage(ledger=place), shape=counts, mode="update")
        connected.remove("commits", connected.newest("commits"))
    connected.write(pg.sink(key="word"), storage=Storage(ledger=place), shape=counts, mode="update")
    found = dict(pg.says("select word, count from orders"))
    assert found == Counter({f"w{number}": 3 for number in range(5)})


def test_keys_are_merged_into_delta(connected: ConnectStream, delta: DeltaTarget, place: str) -> None:
    for _ in range(2):
        connected.receive(range(5)).write(delta.sink(key="id"), storage=Storage(ledger=place))
    assert delta.ids() == list(range(5))


def fives(df: DataFrame) -> DataFrame:
    return df.selectExpr("id % 5 AS id", "word")


def test_changes_of_its_table_are_read_by_a_session_of_the_server(
    connected: ConnectStream, pg: PostgresTarget, place: str, remote: SparkSession
) -> None:
    sink = pg.sink(key="id", keep=Keep(history="all"))
    for batch in (range(5), range(5, 7)):
        connected.receive(batch).write(sink, storage=Storage(ledger=place), shape=fives)
    changed = reading.changes("orders", sink, after=1, ledger=place, spark=remote)
    assert sorted((row.id, row.word, row._epoch, row._sign) for row in changed.collect()) == [
        (0, "w0", 2, -1),
        (0, "w5", 2, 1),
        (1, "w1", 2, -1),
        (1, "w6", 2, 1),
    ]


def test_a_lost_checkpoint_is_trimmed(connected: ConnectStream, pg: PostgresTarget, place: str) -> None:
    def write() -> None:
        connected.write(
            pg.sink(),
            shape=with_paths,
            storage=Storage(ledger=place),
            recovery=Recovery(overlap="trim"),
            transform=without_paths,
        )

    connected.receive(range(10), range(10, 20))
    write()
    connected.lose_checkpoint()
    connected.receive(range(20, 30))
    write()
    assert pg.ids() == list(range(30))
