"""Signed rows of a table with a key: added up they are the table, for each pair of epochs, on each store."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.flat_options import postgres_sink
from tests.sinks.postgres_harness import PostgresHarness
from tests.sinks.test_postgres_history import Table, changes, replayed
from tests.sinks.test_rows_by_epoch import One

from onceonly import OnceOnlyError, reading
from onceonly_checkpoints.epoch import Receipt
from onceonly_lab.conformance import CLAIMS, COLUMNS, ConformanceFailure, SinkHarness
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink, MemoryStore

EPOCHS = 12


THREE = (("id", "int64"), ("place", "int64"), ("note", "string"))


def with_feed(folder: Path, *, feed: bool = True, columns: tuple[tuple[str, str], ...] = THREE) -> Path:
    """A new table whose owner has switched its change data feed on."""
    schema = pa.schema([(name, pa.int64() if kind == "int64" else pa.string()) for name, kind in columns])
    configuration = {"delta.enableChangeDataFeed": "true"} if feed else None
    DeltaTable.create(str(folder), schema, configuration=configuration)
    return folder


@pytest.fixture(params=["memory", "delta", pytest.param("postgres", marks=pytest.mark.postgres)])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[One]:
    options: dict[str, Any] = {"key": "id", "sequence": "place", "delete_flag": "gone"}
    if request.param == "memory":
        store = MemoryStore()
        query = One(tmp_path, lambda: MemorySink("memory:a", store, **options))
    elif request.param == "delta":
        folder = with_feed(tmp_path / "rows")
        query = One(tmp_path, lambda: DeltaSink(folder, **options))
    else:
        dsn = request.getfixturevalue("dsn")
        query = One(tmp_path, lambda: postgres_sink(dsn, "target", history="all", **options))
    yield query
    query.ledger.close()


def written(query: One, dice: random.Random, epochs: int = EPOCHS) -> list[Table]:
    """The table after each epoch, 0 included."""
    driver, tables = query.driver(), [Table()]
    for epoch in range(1, epochs + 1):
        batch = changes(dice)
        driver.writes(epoch, table=batch)
        tables.append(replayed(tables[-1], batch))
    driver.sinks[0].close()
    return tables


def as_rows(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter((key, *row) for key, row in table.items())


def read(query: One, after: int, upto: int) -> list[dict[str, Any]]:
    return reading.changes("orders", query.make(), after=after, upto=upto, ledger=query.ledger).to_pylist()


def added(rows: Counter[tuple[Any, ...]], changed: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What is left once signed rows were added. Fails if a row is taken that is not there."""
    for row in sorted(changed, key=lambda row: (row["_epoch"], row["_sign"])):
        rows[row["id"], row["place"], row["note"]] += row["_sign"]
        assert min(rows.values()) >= 0, row
    return +rows


def test_changes_added_to_a_table_give_every_later_one(query: One) -> None:
    dice = random.Random(7)
    tables = written(query, dice)
    for after in range(EPOCHS + 1):
        for upto in range(max(after, 1), EPOCHS + 1):
            changed = read(query, after, upto)
            assert {row["_epoch"] for row in changed} <= set(range(after + 1, upto + 1))
            assert added(as_rows(tables[after]), changed) == as_rows(tables[upto]), (after, upto)
            pairs = Counter((row["id"], row["_epoch"], row["_sign"]) for row in changed)
            assert set(pairs.values()) <= {1}, (after, upto)


def refused(query: One, after: int = 0, upto: int | Literal["latest"] = "latest") -> OnceOnlyError:
    with pytest.raises(OnceOnlyError) as refusal:
        reading.changes("orders", query.make(), after=after, upto=upto, ledger=query.ledger)
    return refusal.value


def test_a_position_past_the_end_is_refused(query: One) -> None:
    written(query, random.Random(1), 3)
    refusal = refused(query, after=3, upto=2)
    assert (refusal.code, read(query, 3, 3)) == ("E110", [])
    assert "after=3 is past epoch 2" in str(refusal)


def test_an_epoch_that_not_all_sinks_hold_is_not_read(query: One) -> None:
    written(query, random.Random(1), 2)
    [record] = query.ledger.epochs("orders", 2, 2)
    query.ledger.supersede("orders", 2, "a test")
    query.ledger.record(replace(record, receipts=()))
    assert {
        row["_epoch"] for row in reading.changes("orders", query.make(), after=0, ledger=query.ledger).to_pylist()
    } == {1}
    assert refused(query, upto=2).code == "E245"


def test_a_table_without_a_feed_names_the_statement_that_switches_it_on(tmp_path: Path) -> None:
    folder = with_feed(tmp_path / "rows", feed=False)
    query = One(tmp_path, lambda: DeltaSink(folder, key="id", sequence="place", delete_flag="gone"))
    written(query, random.Random(1), 2)
    refusal = refused(query)
    assert refusal.code == "E244"
    assert "the change data feed of the table was off up to epoch 2" in str(refusal)
    assert (
        f"ALTER TABLE delta.`file://{folder}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)" in refusal.remedy
    )
    DeltaTable(str(folder)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    driver, batch = query.driver(), changes(random.Random(2))
    driver.writes(3, table=batch)
    driver.sinks[0].close()
    before = reading.read_at("orders", 2, query.make(), ledger=query.ledger).to_pylist()
    after = reading.read_at("orders", 3, query.make(), ledger=query.ledger).to_pylist()
    tables = [as_rows({row["id"]: (row["place"], row["note"]) for row in rows}) for rows in (before, after)]
    assert added(tables[0], read(query, 2, 3)) == tables[1]
    assert refused(query, after=1).code == "E244"
    query.ledger.close()


def test_rows_that_another_program_changed_have_no_epoch_and_are_refused(tmp_path: Path) -> None:
    folder = with_feed(tmp_path / "rows")
    options: dict[str, Any] = {"key": "id", "sequence": "place", "delete_flag": "gone"}
    query = One(tmp_path, lambda: DeltaSink(folder, external_changes="changes", **options))
    written(query, random.Random(1), 2)
    DeltaTable(str(folder)).delete("id >= 0")
    driver = query.driver()
    driver.writes(3, table=changes(random.Random(2)))
    driver.sinks[0].close()
    refusal = refused(query, after=2)
    assert (refusal.code, "another program changed rows: DELETE" in str(refusal)) == ("E244", True)
    assert read(query, 0, 2)
    query.ledger.close()


def test_a_feed_whose_files_are_gone_is_refused(tmp_path: Path) -> None:
    folder = with_feed(tmp_path / "rows")
    query = One(tmp_path, lambda: DeltaSink(folder, key="id", sequence="place", delete_flag="gone"))
    written(query, random.Random(1), 4)
    for file in (folder / "_change_data").rglob("*.parquet"):
        file.unlink()
    refusal = refused(query)
    assert (refusal.code, "a file of its change data feed is gone" in str(refusal)) == ("E243", True)
    query.ledger.close()


@pytest.mark.postgres
def test_a_history_that_was_trimmed_names_the_oldest_epoch_that_is_left(dsn: str, tmp_path: Path) -> None:
    query = One(tmp_path, lambda: postgres_sink(dsn, "target", key="id", history=None))
    written(One(tmp_path, query.make), random.Random(1), 2)
    assert refused(query).code == "E244"
    keeping = One(tmp_path, lambda: postgres_sink(dsn, "target", key="id", history="all"))
    driver = keeping.driver()
    driver.writes(3, table=pa.table({"id": [1], "place": [1], "note": ["x"], "gone": [False]}))
    driver.sinks[0].close()
    refusal = refused(keeping, after=1)
    assert (refusal.code, "covers epochs 2 to 3" in str(refusal)) == ("E243", True)
    assert "read the whole table once by read_at(), then its changes: read as of epoch 2" in refusal.remedy
    assert {row["id"] for row in read(keeping, 2, 3)} == {1}
    for ours in (query, keeping):
        ours.ledger.close()


def test_a_sink_that_only_adds_rows_names_the_other_read(tmp_path: Path) -> None:
    for make in (lambda: MemorySink("memory:b", MemoryStore("append")), lambda: DeltaSink(tmp_path / "append")):
        query = One(tmp_path / type(make()).__name__, make).written(1)
        refusal = refused(query)
        assert (refusal.code, "read_at(..., since=)" in refusal.remedy) == ("E244", True), refusal
        query.ledger.close()


@pytest.fixture(params=["delta", pytest.param("postgres", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], SinkHarness]:
    """Makes a new target, by its name."""

    def make(name: str) -> SinkHarness:
        if request.param == "postgres":
            return PostgresHarness(request.getfixturevalue("dsn"), key="id", history="all")
        (tmp_path / name).mkdir()
        with_feed(tmp_path / name / "rows", columns=COLUMNS)
        return DeltaHarness(tmp_path / name, key="id")

    return make


def test_the_claim_on_signed_changes_holds_and_catches_a_store_that_shows_its_newest_rows(
    target: Callable[[str], SinkHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    [claim] = [claim for claim in CLAIMS if claim.name == "signed_changes_add_up_to_the_rows_of_each_epoch"]
    with closing(target("right")) as harness:
        claim.check(harness, seconds=60)
    with closing(target("wrong")) as harness:
        kind: Any = type(harness.connect())
        right = kind.read_changes

        def newest(sink: Any, at: Receipt, since: Receipt | None = None) -> pa.Table:
            changed, rows = right(sink, at, since), {row["id"]: row for row in harness.rows()}
            images = [
                {**row, "note": rows[row["id"]]["note"] if row["id"] in rows else "gone"} for row in changed.to_pylist()
            ]
            return pa.Table.from_pylist(images, changed.schema)

        monkeypatch.setattr(kind, "read_changes", newest)
        with pytest.raises(ConformanceFailure, match="Rows as of epoch 0 with the changes up to 1"):
            claim.check(harness, seconds=60)


def test_maintenance_and_a_new_column_between_epochs_are_no_changes(tmp_path: Path) -> None:
    folder = with_feed(tmp_path / "rows")
    options: dict[str, Any] = {"key": "id", "sequence": "place", "schema": "add_columns"}
    query = One(tmp_path, lambda: DeltaSink(folder, **options))
    driver, wide = query.driver(), {"id": [1, 5], "place": [9, 9], "note": ["x", "y"], "city": ["Bonn", "Rome"]}
    for epoch in (1, 2, 3):
        driver.writes(epoch, table=pa.table({"id": [epoch, 4], "place": [epoch, epoch], "note": ["a", "b"]}))
    driver.sinks[0].close()
    DeltaTable(str(folder)).optimize.z_order(["id"])
    assert DeltaTable(str(folder)).history(1)[0]["operation"] == "OPTIMIZE"
    driver = query.driver()
    driver.writes(4, table=pa.table(wide))
    driver.sinks[0].close()
    changed = read(query, 0, 4)
    assert [row["_epoch"] for row in changed] == [1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert [(row["id"], row["city"], row["_sign"]) for row in changed[-3:] if row["id"] == 1] == [
        (1, None, -1),
        (1, "Bonn", 1),
    ]
    query.ledger.close()


@pytest.mark.parametrize(
    "wrong",
    [{"after": None}, {"after": True}, {"after": 1.0}, {"after": ""}, {"after": -1}, {"upto": "1"}, {"upto": []}],
)
def test_what_is_no_position_is_refused(query: One, wrong: dict[str, Any]) -> None:
    written(query, random.Random(1), 2)
    refusal = refused(query, **wrong)
    assert refusal.code == "E110"
    assert "is no position" in str(refusal)


# A Postgres sink refuses rows with a column _epoch (E506).
@pytest.mark.parametrize(
    ("store", "own"),
    [
        *((store, own) for store in ("memory", "delta") for own in ("_sign", "_epoch")),
        pytest.param("postgres", "_sign", marks=pytest.mark.postgres),
    ],
)
def test_a_column_that_changes_have_too_is_refused(
    store: str, own: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kept, place = MemoryStore(), tmp_path / "rows"
    if store == "postgres":
        dsn = request.getfixturevalue("dsn")
        query = One(tmp_path, lambda: postgres_sink(dsn, "target", key="id", history="all"))
    elif store == "delta":
        with_feed(place, columns=(("id", "int64"), (own, "int64")))
        query = One(tmp_path, lambda: DeltaSink(place, key="id"))
    else:
        query = One(tmp_path, lambda: MemorySink("memory:a", kept, key="id"))
    driver = query.driver()
    driver.writes(1, table=pa.table({"id": [1], own: [7]}))
    driver.sinks[0].close()
    refusal = refused(query)
    assert refusal.code == "E244"
    assert f"a column {own}" in str(refusal)
    query.ledger.close()


def test_a_partition_that_deltalake_cannot_find_a_file_by_is_not_called_gone(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable.create(str(tmp_path / "rows"), schema, partition_by=["city"], configuration=feed)
    query = One(tmp_path, lambda: DeltaSink(tmp_path / "rows", key=("id", "city")))
    driver = query.driver()
    for epoch in (1, 2):
        driver.writes(epoch, table=pa.table({"id": [1], "city": ["New York"]}))
    driver.sinks[0].close()
    refusal = refused(query)
    assert refusal.code == "E244"
    assert "readChangeFeed" in str(refusal)
    query.ledger.close()
