"""What an upsert replaces is kept beside its table: rows as of each epoch are what a replay up to it comes to."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.core.several import Crash, Pipeline, crash, rows
from tests.sinks.flat_options import postgres_sink
from tests.sinks.postgres_writer import Writer, run
from tests.sinks.test_postgres_replacing import replaces
from tests.sinks.test_postgres_replacing import written as writer_of_two
from tests.sinks.test_rows_by_epoch import One
from tests.sinks.variants import BOTH_WAYS

from onceonly import OnceOnlyError, faults, reading
from onceonly.faults import Point
from onceonly.protocol.capabilities import EpochExpired
from onceonly.reading import read_at
from onceonly_checkpoints.ledger import Pin
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

pytestmark = pytest.mark.postgres

SLOW = pytest.mark.slow

Table = dict[int, tuple[int, str]]


@pytest.fixture
def made(dsn: str, tmp_path: Path) -> Iterator[Any]:
    kept: list[One] = []

    def make(**options: Any) -> One:
        said = {"key": "id", "history": "all", **options}
        kept.append(One(tmp_path / f"p{len(kept)}", lambda: postgres_sink(dsn, "target", **said)))
        return kept[-1]

    yield make
    for one in kept:
        one.ledger.close()


def changes(dice: random.Random) -> pa.Table:
    """Changes of some of twenty keys, some of them late, some of them removals."""
    keys = dice.sample(range(20), dice.randrange(1, 8))
    places = [dice.randrange(1000) for _ in keys]
    notes, gone = [f"note {dice.random():.6f}" for _ in keys], [dice.random() < 0.3 for _ in keys]
    return pa.table({"id": keys, "place": places, "note": notes, "gone": gone})


def replayed(table: Table, batch: pa.Table) -> Table:
    """The table once a batch has met it: a later place wins, and of a removed key nothing is left."""
    found = dict(table)
    for row in batch.to_pylist():
        if row["id"] in found and found[row["id"]][0] > row["place"]:
            continue
        found.pop(row["id"], None)
        if not row["gone"]:
            found[row["id"]] = (row["place"], row["note"])
    return found


def read(one: One, epoch: int, **more: Any) -> Table:
    found = read_at("orders", epoch, one.make(), ledger=one.ledger, **more)
    return {row["id"]: (row["place"], row["note"]) for row in found.to_pylist()}


@pytest.mark.parametrize(
    ("via", "seed"), [("driver", 1), pytest.param("driver", 2, marks=SLOW), pytest.param("executors", 1, marks=SLOW)]
)
def test_rows_as_of_each_of_fifty_epochs_are_those_of_a_replay(made: Any, dsn: str, via: str, seed: int) -> None:
    one, dice = made(sequence="place", delete_flag="gone", load=via), random.Random(seed)
    driver, expected = one.driver(), list[Table]()
    for epoch in range(1, 51):
        batch = changes(dice)
        driver.writes(epoch, table=batch)
        expected.append(replayed(expected[-1] if expected else {}, batch))
    driver.sinks[0].close()
    for epoch, table in enumerate(expected, 1):
        assert read(one, epoch) == table, epoch
    versions = run(dsn, "SELECT count(*) FROM target_history WHERE _from >= _to")
    assert versions == [(0,)]


def test_what_changed_since_an_epoch_is_read_alone(made: Any) -> None:
    one = made().written(1, 2, 3)
    found = read_at("orders", 3, one.make(), ledger=one.ledger, since=1)
    assert sorted(row["id"] for row in found.to_pylist()) == list(range(10, 30))


def test_a_late_change_that_changed_nothing_leaves_no_version(made: Any, dsn: str) -> None:
    one = made(sequence="place")
    driver = one.driver()
    driver.writes(1, table=pa.table({"id": [1], "place": [5], "note": ["a"]}))
    driver.writes(2, table=pa.table({"id": [1], "place": [4], "note": ["late"]}))
    driver.sinks[0].close()
    assert run(dsn, "SELECT note, _from, _to FROM target_history") == [("a", 1, None)]


def test_rows_that_stood_before_are_known_from_the_epoch_before_the_first_that_is_kept(made: Any, dsn: str) -> None:
    one = made(history=None).written(1, 2)
    kept = One(one.root, lambda: PostgresSink(dsn, "target", key="id", keep=Keep(history="all")))
    driver = kept.driver()
    driver.writes(3)
    driver.sinks[0].close()
    assert len(read_at("orders", 2, kept.make(), ledger=kept.ledger)) == 20
    with pytest.raises(OnceOnlyError, match="covers epochs 2 to 3") as found:
        read_at("orders", 1, kept.make(), ledger=kept.ledger)
    assert found.value.code == "E243"
    assert "read as of epoch 2" in found.value.remedy
    kept.ledger.close()


def test_a_history_that_was_left_out_for_some_epochs_begins_anew(made: Any, dsn: str) -> None:
    one = made()
    written(one, 2)
    without = One(one.root, lambda: PostgresSink(dsn, "target", key="id"))
    written(without, 4, 3)
    for epoch in (3, 4):
        with pytest.raises(OnceOnlyError, match="covers epochs 0 to 2"):
            read_at("orders", epoch, one.make(), ledger=one.ledger)
    written(one, 6, 5)
    for epoch in (4, 5, 6):
        assert len(read_at("orders", epoch, one.make(), ledger=one.ledger)) == 10
    with pytest.raises(OnceOnlyError, match="covers epochs 4 to 6"):
        read_at("orders", 3, one.make(), ledger=one.ledger)
    without.ledger.close()


@pytest.mark.parametrize("via", BOTH_WAYS)
def test_what_a_full_refresh_replaced_is_kept(dsn: str, via: str) -> None:
    with writer_of_two(dsn, via, key="id", history="all") as writer:
        replaces(writer, 1, 9)
        receipts = dict(enumerate((receipt for _, receipt in writer.sink.history()), 1))
        notes = {
            epoch: dict(zip(*writer.sink.read_at(at).select(["id", "note"]).to_pydict().values(), strict=True))
            for epoch, at in receipts.items()
        }
    assert notes == {1: {1: "new", 2: "new"}, 2: {1: "new", 2: "new", 3: "new"}, 3: {1: "anew", 9: "anew"}}


def test_a_history_that_begins_with_a_full_refresh_knows_of_nothing_before(dsn: str) -> None:
    with writer_of_two(dsn, "driver", key="id"):
        pass
    with Writer(dsn, key="id", history="all", generation=2) as writer:
        replaces(writer, 1, 9)
        *_, before, newest = [receipt for _, receipt in writer.sink.history()]
        assert len(writer.sink.read_at(newest)) == 2
        with pytest.raises(EpochExpired, match="covers epochs 3 to 3"):
            writer.sink.read_at(before)


def test_a_history_that_is_not_there_yet_is_said(made: Any) -> None:
    one = made(history=None).written(1)
    asked = made()
    with pytest.raises(OnceOnlyError, match="is not there yet"):
        read_at("orders", 1, asked.make(), ledger=one.ledger)


def test_columns_that_are_added_are_kept_too(made: Any) -> None:
    one = made(schema="add_columns").written(1)
    driver = one.driver()
    driver.writes(2, table=rows(1).append_column("more", pa.array([7] * 10)))
    driver.sinks[0].close()
    assert set(read_at("orders", 2, one.make(), ledger=one.ledger).column("more").to_pylist()) == {7}
    assert set(read_at("orders", 1, one.make(), ledger=one.ledger).column("more").to_pylist()) == {None}


def test_a_driver_that_dies_before_the_commit_leaves_no_version(made: Any, dsn: str) -> None:
    one = made().written(1)
    faults.arm(Point.COMMIT_BEFORE, crash)
    with pytest.raises(Crash):
        one.driver().writes(2)
    faults.disarm()
    assert run(dsn, "SELECT count(*), max(_from) FROM target_history") == [(10, 1)]


def test_the_statement_of_a_point_reads_the_history(made: Any, dsn: str) -> None:
    from onceonly.reading import read_point

    one = made().written(1, 2)
    with closing(one.make()) as sink:
        statement = read_point("orders", 1, ledger=one.ledger).sql(sink)
    assert len(run(dsn, statement)) == 10


def test_the_view_of_an_upsert_shows_what_all_sinks_hold(dsn: str, tmp_path: Path) -> None:
    class Two(Pipeline):
        def sinks(self) -> list[Any]:
            upsert = PostgresSink(dsn, "target", key="id", keep=Keep(history="all"), sealed_view=True)
            return [upsert, MemorySink("memory:z", self.stores["z"])]

    pipeline = Two(tmp_path, ("z",))
    driver = pipeline.driver()
    driver.writes(1)
    driver.writes(2, table=rows(1))
    for sink in driver.sinks:
        sink.close()
    faults.arm(Point.COMMIT_AFTER, crash)
    with pytest.raises(Crash):
        pipeline.driver().writes(3)
    faults.disarm()
    assert run(dsn, "SELECT count(*) FROM target") == [(20,)]
    assert run(dsn, "SELECT count(*), min(_epoch) FROM target_sealed") == [(10, 2)]
    pipeline.ledger.close()


# ---- How long it is kept.


def written(one: One, last: int, first: int = 1) -> None:
    """Epochs each of which replaces the same ten rows."""
    driver = one.driver()
    for epoch in range(first, last + 1):
        driver.writes(epoch, table=rows(1))
    driver.sinks[0].close()


def test_versions_that_ended_long_ago_go_and_reading_them_is_an_error(made: Any, dsn: str) -> None:
    one = made(history=64)
    written(one, 112)
    assert run(dsn, "SELECT kept_from FROM onceonly.head") == [(48,)]
    assert run(dsn, "SELECT min(_to) FROM target_history") == [(49,)]
    assert len(read_at("orders", 48, one.make(), ledger=one.ledger)) == 10
    with pytest.raises(OnceOnlyError, match="covers epochs 48 to 112"):
        read_at("orders", 47, one.make(), ledger=one.ledger)


def test_a_pin_keeps_what_is_older_also_when_it_came_late_or_the_driver_is_new(made: Any, dsn: str) -> None:
    def kept_from() -> int:
        [(first,)] = run(dsn, "SELECT kept_from FROM onceonly.head")
        return first

    one = made(history=64)
    written(one, 79)
    with reading.pin("orders", 5, ledger=one.ledger) as point:
        assert isinstance(one.ledger.pins("orders")[0], Pin)
        written(one, 80, 80)
        assert kept_from() == 5
        assert {row["_epoch"] for row in read_at("orders", point, one.make(), ledger=one.ledger).to_pylist()} == {5}
    with reading.pin("orders", 70, ledger=one.ledger):
        written(one, 96, 81)
    assert kept_from() == 96 - 64, "a pin that is younger takes nothing away"


@pytest.mark.parametrize(
    "options",
    [
        {"key": None},
        {"tuning": PostgresTuning(epoch_column=None)},
    ],
)
def test_a_history_that_cannot_be_kept_is_refused_when_it_is_said(dsn: str, options: dict[str, Any]) -> None:
    with pytest.raises(OnceOnlyError, match="E110"):
        PostgresSink(dsn, "target", **{"key": "id", "keep": Keep(history="all"), **options})


def test_a_table_with_such_columns_of_its_own_is_refused(made: Any, dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, text text, _epoch bigint, _to bigint)")
    with pytest.raises(OnceOnlyError, match="E506"):
        made().written(1)


@pytest.mark.slow  # measured by the clock
def test_a_history_costs_less_than_writing_twice_more(made: Any, dsn: str) -> None:
    """The bar is 2.2 times an upsert without one; what a busy machine adds is left to it."""

    def took(**options: Any) -> float:
        run(dsn, "DROP TABLE IF EXISTS target, target_history; DROP SCHEMA IF EXISTS onceonly CASCADE")
        one, best = made(**options), 1e9
        driver = one.driver()
        for epoch in range(1, 7):
            batch = pa.table({"id": range(20_000), "text": [f"{epoch} {at}" for at in range(20_000)]})
            began = time.perf_counter()
            driver.writes(epoch, table=batch)
            best = min(best, time.perf_counter() - began)
        driver.sinks[0].close()
        return best

    plain, kept = took(history=None), took()
    print(f"upsert of 20,000 rows {plain * 1000:.0f} ms, with history {kept * 1000:.0f} ms, {kept / plain:.2f} times")
    assert kept < 4 * plain
