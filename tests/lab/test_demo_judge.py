"""The demo's judge finds every way in which a sink can differ from its input."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceonly_lab.demo import input
from onceonly_lab.demo.judge import Finding, Held, differing, judge


@pytest.fixture(scope="module")
def input_rows(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("flights") / "input"
    input.write(folder, 1000, 7)
    return input.read(folder)


def numbers(*counts: int) -> pa.Table:
    """A small table: row number ``i`` stands ``counts[i - 1]`` times in it."""
    rows = [row for row, count in enumerate(counts, start=1) for _ in range(count)]
    return pa.table({"row": pa.array(rows, pa.int32()), "value": pa.array([f"v{row}" for row in rows], pa.string())})


def test_the_input_itself_is_exact(input_rows: pa.Table) -> None:
    assert judge(input_rows, input_rows) == Finding(rows=1000, missing=0, doubled=0, foreign=0)


def test_order_columns_and_extra_columns_of_the_sink_do_not_matter(input_rows: pa.Table) -> None:
    shuffled = input_rows.sort_by([("dep_delay", "descending")])
    shuffled = shuffled.select(list(reversed(shuffled.column_names)))
    assert judge(input_rows, shuffled.append_column("_epoch", pa.array([1] * 1000, pa.int64()))).exact


def test_a_lost_row_is_missing(input_rows: pa.Table) -> None:
    assert judge(input_rows, input_rows.slice(3)) == Finding(rows=997, missing=3, doubled=0, foreign=0)


def test_an_empty_sink_misses_everything(input_rows: pa.Table) -> None:
    assert judge(input_rows, input_rows.slice(0, 0)) == Finding(rows=0, missing=1000, doubled=0, foreign=0)


def test_copies_beyond_the_first_are_doubled(input_rows: pa.Table) -> None:
    found = pa.concat_tables([input_rows, input_rows.slice(10, 20), input_rows.slice(10, 5)])
    assert judge(input_rows, found) == Finding(rows=1025, missing=0, doubled=25, foreign=0)


def test_one_row_lost_and_another_doubled_do_not_cancel_out(input_rows: pa.Table) -> None:
    found = pa.concat_tables([input_rows.slice(1), input_rows.slice(500, 1)])
    assert judge(input_rows, found) == Finding(rows=1000, missing=1, doubled=1, foreign=0)


@pytest.mark.parametrize("column", ["dep_time", "tailnum", "time_hour"])
def test_a_value_that_became_null_is_a_missing_row_and_a_foreign_one(input_rows: pa.Table, column: str) -> None:
    kept = input_rows[column].to_pylist()
    position = next(index for index, value in enumerate(kept) if value is not None)
    kept[position] = None
    field = input_rows.schema.field(column)
    found = input_rows.set_column(input_rows.column_names.index(column), field, pa.array(kept, field.type))
    assert judge(input_rows, found) == Finding(rows=1000, missing=1, doubled=0, foreign=1)


@pytest.mark.parametrize("row", [0, -5, 1001, 2**31 - 1, None])
def test_a_row_number_that_was_never_given_is_foreign(input_rows: pa.Table, row: int | None) -> None:
    stray = input_rows.slice(0, 1).set_column(0, "row", pa.array([row], pa.int32()))
    finding = judge(input_rows, pa.concat_tables([input_rows, stray]))
    assert finding == Finding(rows=1001, missing=0, doubled=0, foreign=1)


def test_a_sink_without_a_column_cannot_be_judged(input_rows: pa.Table) -> None:
    with pytest.raises(KeyError):
        judge(input_rows, input_rows.drop_columns(["tailnum"]))


def test_an_input_without_dense_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="numbered"):
        judge(numbers(1, 0, 1), numbers(1, 0, 1))


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_counts_agree_with_counting_by_hand(copies: list[int]) -> None:
    finding = judge(numbers(*[1] * len(copies)), numbers(*copies))
    assert finding.rows == sum(copies)
    assert finding.missing == copies.count(0)
    assert finding.doubled == sum(count - 1 for count in copies if count)
    assert finding.foreign == 0


ALIKE = {1: Held("a", 50), 2: Held("b", 50), 3: Held("c", 0)}


def test_sinks_that_hold_the_same_epochs_differ_in_none() -> None:
    assert differing([ALIKE, dict(ALIKE), dict(reversed(ALIKE.items()))]) == ()


@pytest.mark.parametrize("other", [Held("b", 49), Held("x", 50), Held("b", None), None])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_an_epoch_that_one_sink_lacks_or_holds_otherwise_differs(where: int, other: Held | None) -> None:
    changed = {number: held for number, held in {**ALIKE, 2: other}.items() if held}
    sinks = [changed if index == where else ALIKE for index in range(3)]
    assert differing(sinks) == (2,)


def test_what_no_sink_has_counted_is_not_taken_for_alike() -> None:
    assert differing([{1: Held("a", None)}] * 3) == (1,)
