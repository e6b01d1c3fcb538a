"""Rows that meet those of a Delta table as the user says; removals; columns that the table gets with an epoch."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sinks.delta_harness import DeltaHarness

from onceonly.audit import audit
from onceonly.errors import ConfigurationError, DestinationError
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Receipt
from onceonly_lab.conformance.scenario import PIPELINE, Driver, Scenario
from onceonly_sinks.delta import DeltaSink, DeltaTuning, Merge
from onceonly_sinks.delta.merge import Upsert, misnamed

GROWING = Merge("t.id = s.id").when_matched_update("s.step > t.step").when_not_matched_insert()


def writes(driver: Driver, table: pa.Table) -> Receipt:
    planned = driver.plan()
    return driver.commits(planned, driver.sink.prepare(ArrowBatch(table), planned.epoch.number))


def refused(driver: Driver, table: pa.Table, code: str) -> str:
    with pytest.raises(DestinationError) as caught:
        writes(driver, table)
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


def table_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: int(row.get("id", 0)))


def names(path: Path) -> list[str]:
    return [field.name for field in DeltaTable(path).schema().fields]


# ---- merge=


def amounts(*values: tuple[int, int, bool]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("closed", pa.bool_())])
    return pa.Table.from_pylist([{"id": id_, "amount": amount, "closed": c} for id_, amount, c in values], schema)


BALANCE = (
    Merge("t.id = s.id")
    .when_matched_delete("s.closed")
    .when_matched_update("s.amount <> 0", {"total": "t.total + s.amount"})
    .when_not_matched_insert("NOT s.closed", {"id": "s.id", "total": "s.amount"})
)


def test_clauses_build_on_what_stands_in_the_table(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "rows", pa.table({"id": pa.array([], pa.int64()), "total": pa.array([], pa.int64())}))
    with Scenario(DeltaHarness(tmp_path, merge=BALANCE)) as story:
        driver = story.driver()
        receipt = writes(driver, amounts((1, 10, False), (2, 5, False), (3, 5, True)))
        writes(driver, amounts((1, 7, False), (2, 0, True), (4, 0, False)))
        assert table_of(tmp_path / "rows") == [{"id": 1, "total": 17}, {"id": 4, "total": 0}]
        assert receipt.rows == 3
        found = DeltaSink.from_address(driver.sink.address)
        assert "A119" in [finding.code for finding in audit(None, PIPELINE, [found]).findings]


def test_all_columns_are_those_of_the_batch_but_the_ones_left_out(tmp_path: Path) -> None:
    merge = Merge("t.id = s.id").when_matched_update("NOT s.old").when_not_matched_insert().leaving_out("old")
    with Scenario(DeltaHarness(tmp_path, merge=merge)) as story:
        driver = story.driver()
        writes(driver, pa.table({"id": [1, 2], "note": ["a", "b"], "old": [False, False]}))
        writes(driver, pa.table({"id": [1, 2], "note": ["c", "d"], "old": [True, False]}))
        assert table_of(tmp_path / "rows") == [{"id": 1, "note": "a"}, {"id": 2, "note": "d"}]


def test_two_rows_for_one_row_of_the_table_are_refused_and_the_next_epoch_goes(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "rows", pa.table({"id": [1], "total": [0]}))
    with Scenario(DeltaHarness(tmp_path, merge=BALANCE)) as story:
        driver = story.newcomer()
        driver.fences()
        told = refused(driver, amounts((1, 10, False), (1, 11, False)), "E520")
        assert "several rows of the batch meet one row" in told
        assert "key= and sequence=" in told
        writes(driver, amounts((1, 10, False)))
        assert table_of(tmp_path / "rows") == [{"id": 1, "total": 10}]


@pytest.mark.parametrize(
    ("merge", "code"),
    [
        (Merge("t.id = s.nothing").when_matched_update(), "E520"),
        (Merge("t.id = = s.id").when_matched_update(), "E520"),
        (Merge("t.id = s.id").when_matched_update(None, {"note": "s.note +"}), "E520"),
        (Merge("t.id = s.id").when_matched_update(None, {"elsewhere": "s.id"}), "E506"),
        (Merge("t.id = s.id").when_matched_delete("s.gone").leaving_out("gone"), "E506"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value),
)
def test_what_a_merge_names_and_is_not_there_is_told(tmp_path: Path, merge: Merge, code: str) -> None:
    write_deltalake(tmp_path / "rows", pa.table({"id": [1], "note": ["a"]}))
    with Scenario(DeltaHarness(tmp_path, merge=merge)) as story:
        driver = story.driver()
        refused(driver, pa.table({"id": [1], "note": ["b"]}), code)
        assert table_of(tmp_path / "rows") == [{"id": 1, "note": "a"}]


def test_a_value_that_a_merge_cannot_take_is_not_in_the_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_deltalake(tmp_path / "rows", pa.table({"id": [1], "total": [0]}))
    caplog.set_level(logging.INFO)
    merge = Merge("t.id = s.id").when_matched_update(None, {"total": "CAST(s.note AS BIGINT)"})
    with Scenario(DeltaHarness(tmp_path, merge=merge)) as story:
        driver, rows = story.driver(), pa.table({"id": [1], "note": ["s3cret"]})
        told = refused(driver, rows, "E520")
        assert "s3cret" not in told + caplog.text
        assert "DEBUG" in told
        caplog.set_level(logging.DEBUG, "onceonly_sinks.delta")
        refused(driver, rows, "E520")
        assert "s3cret" in caplog.text


def test_a_merge_of_named_columns_does_not_create_a_table(tmp_path: Path) -> None:
    merge = Merge("t.id = s.id").when_matched_delete()
    with Scenario(DeltaHarness(tmp_path, merge=merge)) as story:
        assert "create the table" in refused(story.driver(), pa.table({"id": [1]}), "E506")


@pytest.mark.parametrize(
    "arguments",
    [
        {"merge": Merge("t.id = s.id")},
        {"merge": Merge(" ").when_matched_delete()},
        {"merge": Merge("t.id = s.id").when_matched_update().when_matched_delete("s.gone")},
        {"merge": GROWING, "key": "id"},
        {"merge": GROWING, "delete_flag": "gone"},
        {"merge": BALANCE, "schema": "add_columns"},
        {"delete_flag": "gone"},
        {"key": "id", "delete_flag": "id"},
        {"schema": "overwrite"},
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_together_are_refused_at_once(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DeltaSink(tmp_path, **arguments)
    assert caught.value.code == "E110"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key": ["id", "a,b&c#"], "sequence": "at", "delete_flag": "gone", "id": "it's #1"},
        {"merge": BALANCE.leaving_out("closed", "ü")},
        {"schema": "add_columns", "tuning": DeltaTuning(epoch_column="_epoch"), "partition_by": ("x", "y")},
    ],
    ids=str,
)
def test_an_address_finds_a_sink_that_writes_alike(tmp_path: Path, options: dict[str, Any]) -> None:
    for folder in ("rows", "a#b", "a#id=c"):
        sink = DeltaSink(tmp_path / folder, **options)
        found = DeltaSink.from_address(sink.address)
        assert (found.address, found.id, found.capabilities) == (sink.address, sink.id, sink.capabilities)
        assert found._settings == sink._settings
        found.open(PIPELINE)
        if sink.capabilities.recountable is False:
            assert found.recount() is None


# ---- delete_flag=


def changes(*values: tuple[int, int | None, bool | None]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("a`t", pa.int64()), ("gone, %", pa.bool_())])
    return pa.Table.from_pylist([{"id": id_, "a`t": at, "gone, %": gone} for id_, at, gone in values], schema)


def test_true_removes_the_key_and_the_column_is_not_stored(tmp_path: Path) -> None:
    with Scenario(DeltaHarness(tmp_path, key="id", delete_flag="gone, %")) as story:
        driver = story.driver()
        writes(driver, changes((1, 1, False), (2, 1, False), (3, 1, True)))
        receipt = writes(driver, changes((1, 0, True), (2, 9, False), (8, 9, True)))
        assert (receipt.rows, table_of(tmp_path / "rows")) == (3, [{"id": 2, "a`t": 9}])


def test_what_does_not_say_whether_it_removes_is_refused(tmp_path: Path) -> None:
    with Scenario(DeltaHarness(tmp_path, key="id", sequence="a`t", delete_flag="gone, %")) as story:
        driver = story.driver()
        writes(driver, changes((1, 1, False)))
        assert "1 nulls" in refused(driver, changes((1, 2, None)), "E503")
        refused(driver, changes((1, 2, True), (1, 2, False)), "E505")
        refused(driver, changes().drop_columns("gone, %"), "E506")
        number = changes((1, 2, True)).drop_columns("gone, %").append_column("gone, %", pa.array([1]))
        assert "must be boolean" in refused(driver, number, "E506")
        assert table_of(tmp_path / "rows") == [{"id": 1, "a`t": 1}]


def test_rows_that_are_equal_in_every_column_are_one_change(tmp_path: Path) -> None:
    nested = pa.array([[(1, float("nan"))], [(1, float("nan"))], [(1, 0.0)]], pa.map_(pa.int64(), pa.float64()))
    rows = pa.table({"id": [1, 1, 2], "step": [3, 3, 3], "values": nested})
    with Scenario(DeltaHarness(tmp_path, key="id", sequence="step")) as story:
        driver = story.driver()
        assert writes(driver, rows).rows == 3
        assert [row["id"] for row in table_of(tmp_path / "rows")] == [1, 2]
        refused(driver, rows.set_column(2, "values", nested.take(pa.array([0, 2, 2]))), "E505")


Epochs = Sequence[Sequence[tuple[int, int | None, bool]]]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.none() | st.integers(0, 9), st.booleans()), unique_by=lambda one: one[:2]
        ),
        min_size=2,
        max_size=4,
    )
)
def test_a_removal_obeys_the_sequence(tmp_path_factory: pytest.TempPathFactory, epochs: Epochs) -> None:
    folder = tmp_path_factory.mktemp("sequence")
    model: dict[int, int | None] = {}
    with Scenario(DeltaHarness(folder, key="id", sequence="a`t", delete_flag="gone, %")) as story:
        driver = story.driver()
        for epoch in epochs:
            writes(driver, changes(*epoch))
            newest = {
                id_: (at, gone) for id_, at, gone in sorted(epoch, key=lambda one: -1 if one[1] is None else one[1])
            }
            for id_, (at, gone) in newest.items():
                standing = model.get(id_)
                if standing is None or (at is not None and at >= standing):
                    model.pop(id_, None)
                    model |= {} if gone else {id_: at}
        assert {row["id"]: row["a`t"] for row in table_of(folder / "rows") if "id" in row} == model


def test_a_key_is_merged_as_the_same_merge_written_out(tmp_path: Path) -> None:
    merge = Upsert(("id",), "a`t", "gone, %").merge
    assert merge is not None
    for folder, options in (
        ("key", {"key": "id", "sequence": "a`t", "delete_flag": "gone, %"}),
        ("merge", {"merge": merge}),
    ):
        with Scenario(DeltaHarness(tmp_path / folder, **options)) as story:
            driver = story.driver()
            writes(driver, changes((1, 5, False), (2, 5, False), (3, 5, False)))
            writes(driver, changes((1, 4, True), (2, 6, True), (3, 6, False), (4, 1, True)))
    assert table_of(tmp_path / "key/rows") == table_of(tmp_path / "merge/rows")
    assert table_of(tmp_path / "key/rows") == [{"id": 1, "a`t": 5}, {"id": 3, "a`t": 6}]


# ---- schema="add_columns"

NARROW = pa.table({"id": [1], "step": [1]})
WIDE = pa.table({"id": [2], "step": [1], "no`te": ["wide"], "at": pa.array([0], pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize("limit", [1 << 20, 0], ids=["held", "large"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key": "id", "sequence": "step"},
        {"merge": GROWING},
        {"partition_by": "step"},
        {"tuning": DeltaTuning(epoch_column="_epoch")},
    ],
    ids=str,
)
def test_new_columns_come_with_the_epoch_that_brings_them(tmp_path: Path, options: dict[str, Any], limit: int) -> None:
    path = tmp_path / "rows"
    with Scenario(DeltaHarness(tmp_path, schema="add_columns", driver_limit=limit, **options)) as story:
        driver = story.driver()
        writes(driver, NARROW)
        before = DeltaTable(path)
        receipt = writes(driver, WIDE)
        alone = bool({"key", "merge"} & set(options)) or not limit
        assert receipt.at("version") == before.version() + (2 if alone else 1)
        assert DeltaTable(path).metadata().id == before.metadata().id
        assert set(names(path)) - set(names_of(before)) == {"no`te", "at"}
        assert all(field.nullable for field in DeltaTable(path).schema().fields)
        writes(driver, WIDE.set_column(0, "id", pa.array([3])))
        story.driver()
        assert [(row["id"], row["no`te"]) for row in table_of(path)] == [(1, None), (2, "wide"), (3, "wide")]
        if not {"key", "merge"} & set(options):
            assert story.reader().recount() == {1: 1, 2: 1, 3: 1}


def names_of(table: DeltaTable) -> list[str]:
    return [field.name for field in table.schema().fields]


def test_columns_of_an_epoch_without_rows_wait_for_the_first_that_has_some(tmp_path: Path) -> None:
    with Scenario(DeltaHarness(tmp_path, schema="add_columns")) as story:
        driver = story.driver()
        writes(driver, NARROW)
        writes(driver, WIDE.slice(0, 0))
        planned = driver.plan()
        driver.sink.prepare(ArrowBatch(WIDE), planned.epoch.number).abandon()
        assert names(tmp_path / "rows") == ["id", "step"]
        writes(driver, WIDE)
        assert names(tmp_path / "rows") == ["id", "step", "no`te", "at"]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (WIDE.set_column(1, "step", pa.array([1.5])), "step is long in the table and double in the batch"),
        (WIDE.append_column("AT", WIDE.column("at")), "at and AT are one name to a Delta table"),
    ],
    ids=["type", "name"],
)
def test_nothing_but_new_columns_is_let_in(tmp_path: Path, table: pa.Table, told: str) -> None:
    with Scenario(DeltaHarness(tmp_path, schema="add_columns")) as story:
        driver = story.driver()
        writes(driver, NARROW)
        assert told in refused(driver, table, "E506")
        assert names(tmp_path / "rows") == ["id", "step"]


def test_a_key_and_a_sequence_are_columns_whose_values_can_be_compared() -> None:
    types = {"k": "long", "s": {"type": "struct", "fields": []}, "a": {"type": "array", "elementType": "long"}}
    for upsert, said in [
        (Upsert(("k", "a")), "column a is of type array, which key= and sequence= cannot compare"),
        (Upsert(("k",), "s"), "column s is of type struct, which key= and sequence= cannot compare"),
    ]:
        told = misnamed(upsert, upsert.merge, types, frozenset())
        assert told is not None
        assert told[0] == said
    assert misnamed(Upsert(("k",)), Upsert(("k",)).merge, types, frozenset()) is None
