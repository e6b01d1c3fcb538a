"""Pane rows and state as rows of Arrow: columns, types, what has no bound, and what upserts leave."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.panes.making import COLUMNS, Pipeline, made, refused, said

from onceonly.protocol.batch import ArrowBatch
from onceonly.windows import Aggregate, AtCount, AtWatermark, Count, Global, Max, Sessions, Sum, Tumbling, Windows
from onceonly.windows.epoch_step import collector_paused, union
from onceonly.windows.rules.spec import SENT, define
from onceonly.windows.rules.state import (
    BUCKETS,
    EpochClock,
    OpenWindowState,
    Partial,
    WindowKey,
    bucket,
    pane_table,
    state_table,
)
from onceonly.windows.rules.step import Row, joined, key_text, partials_of, step
from onceonly.windows.rules.values import Value
from onceonly_checkpoints.epoch_time import END

EVERY = AtWatermark(early=AtCount(1), late=AtCount(1))
UTC = pa.timestamp("us", "UTC")


# ---- pane rows


@pytest.mark.parametrize(("unit", "times"), [("integer", pa.int64()), ("ms", UTC)])
def test_a_pane_row_has_key_bounds_values_and_what_it_says_of_itself(unit: str, times: Any) -> None:
    shape = {} if unit == "integer" else {"time": "at", "window": Tumbling("10 ms")}
    run = Pipeline(made(**shape, aggregates={"total": Sum("amount"), "rows": Count()}))
    run.epoch(5, [])
    table = pane_table(run.definition, [])
    assert table.num_rows == 0
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == {
        "team": pa.string(),
        "window_start": times,
        "window_end": times,
        "total": pa.decimal128(22, 2),
        "rows": pa.int64(),
        "kind": pa.string(),
        "sign": pa.int16(),
        "timing": pa.string(),
        "pane": pa.int32(),
        "final": pa.bool_(),
        "fired_at": UTC,
        "watermark": times,
        "seq": pa.int64(),
    }


def test_an_empty_epoch_has_the_columns_of_a_full_one() -> None:
    run = Pipeline(made(trigger=EVERY, results="upserts"))
    full = pane_table(run.definition, run.epoch(1, [(3, 5)]))
    assert full.num_rows == 1
    assert pane_table(run.definition, []).schema == full.schema
    assert set(SENT) < set(full.schema.names)


def test_times_of_rows_are_instants_to_the_millisecond() -> None:
    run = Pipeline(made(time="at", window=Tumbling("2 minutes")))
    (row,) = pane_table(run.definition, run.epoch(90_001, [(1, 5)], noted=120_000)).to_pylist()
    assert row["window_start"] == datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert row["window_end"] == row["watermark"] == datetime(1970, 1, 1, 0, 2, tzinfo=timezone.utc)
    assert row["fired_at"] == datetime(1970, 1, 1, 0, 1, 30, 1_000, tzinfo=timezone.utc)


@pytest.mark.parametrize("shape", [{}, {"time": "at"}])
def test_what_has_no_bound_is_null(shape: dict[str, Any]) -> None:
    run = Pipeline(made(**shape, window=Global(), trigger=EVERY))
    (early,) = pane_table(run.definition, run.epoch(1, [(3, 5)])).to_pylist()
    assert (early["window_start"], early["window_end"], early["watermark"]) == (None, None, None)
    (last,) = pane_table(run.definition, run.ends(2)).to_pylist()
    assert (last["window_start"], last["window_end"], last["watermark"], last["final"]) == (None, None, None, True)


def test_keys_come_back_as_they_were() -> None:
    kinds = {"amount": "decimal(12,2)", "day": "date", "at": "timestamp", "yes": "boolean", "raw": "binary", "n": "int"}
    told = define(Windows(**said(key=list(kinds))), COLUMNS | kinds)
    at = datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone.utc)
    keys = [(Decimal("1.50"), date(2024, 2, 29), at, True, b"\x00\xff", -1), (None,) * 6]
    partials = partials_of(told, [Row(key, 3, (1,)) for key in keys])
    run = Pipeline(told)
    assert [partial.window_key.key for partial in partials] == [key_text(told, key) for key in keys]
    rows = step(run.definition, EpochClock(1, 10, None), [], partials).rows
    found = [tuple(row[name] for name in kinds) for row in pane_table(told, rows).to_pylist()]
    assert sorted(found, key=str) == sorted(keys, key=str)


# ---- what does not fit


@pytest.mark.parametrize(
    ("value", "column", "big", "wider"),
    [
        (Sum("value"), "bigint", 2**62, Sum("CAST(value AS DECIMAL(38, 0))")),
        (Sum("value"), "decimal(38,0)", Decimal(9 * 10**37), Sum("CAST(value AS DOUBLE)", approximate=True)),
    ],
)
def test_a_sum_that_outgrows_its_type_is_refused_and_both_wider_ones_are_taken(
    value: Value, column: str, big: Any, wider: Value
) -> None:
    rows = [Row(("A",), 3, (1,)), *[Row(("B",), 13, (big,))] * 2]
    error = refused("E146", lambda: _written(value, column, rows))
    assert f'Value total of window [10, 20) of key ["B"] does not fit into {column}.' in str(error)
    assert 'total=Sum("CAST(... AS DECIMAL(38, 0))")' in str(error)
    assert 'total=Sum("CAST(... AS DOUBLE)", approximate=True)' in str(error)
    kind = "double" if "DOUBLE" in str(wider) else "decimal(38,0)"
    assert [float(row["total"]) for row in _written(wider, kind, rows).to_pylist()] == [1.0, float(2 * big)]


def _written(value: Value, kind: str, rows: Sequence[Row]) -> Any:
    inputs = dict.fromkeys(value.inputs, kind)
    told = define(Windows(**said(aggregates={"total": value})), {**COLUMNS, **inputs}, inputs)
    return pane_table(told, step(told, EpochClock(1, 20, None), [], partials_of(told, rows)).rows)


class Wrong(Aggregate):
    kind = "bigint"

    def partial(self) -> Any:
        raise NotImplementedError

    def merge(self, partial: Any, other: Any) -> Any:
        return partial

    def value(self, partial: Any) -> Any:
        return "many"


def test_a_value_of_ones_own_that_gives_another_kind_than_it_says_is_refused() -> None:
    told = made(aggregates={"mine": Wrong()})
    rows = step(told, EpochClock(1, 20, None), [], [Partial(WindowKey('["A"]', 0, 10), (1,), 1)]).rows
    assert "an Aggregate whose value() returns another type" in str(refused("E146", lambda: pane_table(told, rows)))


# ---- upserts


def _upserts(**changes: Any) -> Pipeline:
    return Pipeline(made(**{"results": "upserts", "trigger": EVERY, "allowed_lateness": 50, **changes}))


def _brief(run: Pipeline, rows: Any) -> list[tuple[Any, ...]]:
    table = pane_table(run.definition, rows)
    return [(row["window_start"], row["total"], row["pane"], row["deleted"]) for row in table.to_pylist()]


@pytest.mark.parametrize("accumulation", ["accumulating", "retracting"])
def test_upserts_are_the_last_row_of_each_window(accumulation: str) -> None:
    run = _upserts(accumulation=accumulation)
    assert _brief(run, run.epoch(1, [(3, 5), (13, 1)])) == [(0, 5, 0, False), (10, 1, 0, False)]
    assert _brief(run, run.epoch(2, [(3, 2)], noted=10)) == [(0, 7, 2, False)]
    assert _brief(run, run.epoch(3, [(3, 2)])) == [(0, 9, 3, False)]


def test_upserts_of_sessions_delete_what_was_absorbed() -> None:
    run = _upserts(window=Sessions(10), accumulation="retracting")
    run.epoch(1, [(0, 1), (15, 2)])
    assert _brief(run, run.epoch(2, [(8, 4)])) == [(0, 1, 0, True), (15, 2, 0, True), (0, 7, 1, False)]


def test_a_table_that_is_upserted_holds_each_window_once_and_what_signed_rows_add_up_to() -> None:
    table: dict[tuple[int, int], int] = {}
    runs = [_upserts(window=Sessions(4), accumulation="retracting", results=rows) for rows in ("upserts", "changes")]
    total = 0
    for clock in range(1, 60):
        given = [((clock * 37) % 50, clock), ((clock * 11) % 50, 1)]
        upserts, changes = (pane_table(run.definition, run.epoch(clock, given)).to_pylist() for run in runs)
        for row in upserts:
            bounds = (row["window_start"], row["window_end"])
            if row["deleted"]:
                del table[bounds]
            else:
                table[bounds] = row["total"]
        total += sum(row["sign"] * row["total"] for row in changes)
        assert sum(table.values()) == total
        assert sorted(table) == sorted((place.start, place.end) for place in runs[0].state)


# ---- state


def test_state_is_written_in_rows_that_say_when_they_wake_and_gone_ones_say_so() -> None:
    place, gone = WindowKey('["A"]', 0, 10), WindowKey('["B"]', -10, 0)
    kept = OpenWindowState(place, (5, None), 1, wake_clock=60_000, wake_time=10)
    table = state_table([kept], [gone])
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == {
        **{"key": pa.string(), "start": pa.int64(), "stop": pa.int64(), "body": pa.string()},
        **{"wake_clock": pa.int64(), "wake_time": pa.int64(), "bucket": pa.int16(), "gone": pa.bool_()},
    }
    first, second = table.to_pylist()
    assert OpenWindowState.read(WindowKey(first["key"], first["start"], first["stop"]), first["body"]) == kept
    assert (first["wake_clock"], first["wake_time"], first["gone"]) == (60_000, 10, False)
    assert (second["key"], second["start"], second["stop"], second["gone"]) == ('["B"]', -10, 0, True)
    assert (second["wake_clock"], second["wake_time"]) == (None, END)
    assert state_table([], []).schema == table.schema


def test_a_key_is_in_one_part_of_the_state_for_good() -> None:
    assert bucket("123456789") == 0xCBF43926 % BUCKETS  # what CRC-32 is checked by, and Spark's crc32() gives
    assert {bucket(f"[{n}]") for n in range(20_000)} == set(range(BUCKETS))


# ---- partial results of few rows


def test_rows_without_a_time_are_in_no_window() -> None:
    told = made()
    assert partials_of(told, [Row(("A",), None, (1,)), Row(("A",), 3, (2,))]) == [
        Partial(WindowKey('["A"]', 0, 10), (2,), 1, 0, 3, 3)
    ]


def test_partial_results_say_how_many_rows_and_marks_they_are_of_and_from_when_to_when() -> None:
    told = made(aggregates={"most": Max("value"), "rows": Count()})
    rows = [Row(("A",), 7, (1,), True), Row(("A",), 3, (None,)), Row(("A",), 9, (5,), True), Row(("B",), 12, (0,))]
    assert partials_of(told, rows) == [
        Partial(WindowKey('["A"]', 0, 10), (5, 3), 3, 2, 3, 9),
        Partial(WindowKey('["B"]', 10, 20), (0, 1), 1, 0, 12, 12),
    ]


def test_rows_of_overlapping_sessions_are_one_partial_result_of_their_key() -> None:
    told = made(window=Sessions(10))
    rows = [Row((team,), time, (1,)) for team, time in (("A", 30), ("A", 0), ("B", 5), ("A", 9), ("A", 19))]
    assert sorted(partials_of(told, rows)) == [
        Partial(WindowKey('["A"]', 0, 19), (2,), 2, 0, 0, 9),
        Partial(WindowKey('["A"]', 19, 29), (1,), 1, 0, 19, 19),
        Partial(WindowKey('["A"]', 30, 40), (1,), 1, 0, 30, 30),
        Partial(WindowKey('["B"]', 5, 15), (1,), 1, 0, 5, 5),
    ]


def test_partial_results_of_parts_are_joined_as_if_they_were_of_all_rows() -> None:
    told = made(aggregates={"most": Max("value"), "rows": Count()})
    rows = [Row(("A",), time, (value,), time > 3) for time, value in ((7, 1), (3, None), (9, 5), (1, 4))]
    (whole,) = partials_of(told, rows)
    parts = [one for row in rows for one in partials_of(told, [row])]
    assert joined(told, whole.window_key, parts) == joined(told, whole.window_key, parts[::-1]) == whole


# ---- rows of all outputs together


def test_late_rows_whose_columns_are_never_null_lie_in_a_file_beside_rows_that_lack_them(tmp_path: Path) -> None:
    """A literal of ``transform=`` makes such a column. Arrow's writer had refused the epoch."""
    always = pa.field("at", pa.int64(), nullable=False)
    inner = pa.field("inner", pa.struct([always]), nullable=False)
    late = pa.table({"at": [1], "inner": [{"at": 2}]}, schema=pa.schema([always, inner]))
    joined_rows = union({"onceonly windows": pa.table({"total": [3]}), "onceonly late": late})
    ArrowBatch(joined_rows, partitions=1).write(str(tmp_path / "staged"))
    [file] = (tmp_path / "staged").iterdir()
    assert pq.read_table(file).to_pylist() == [
        {"onceonly windows": {"total": 3}, "onceonly late": None},
        {"onceonly windows": None, "onceonly late": {"at": 1, "inner": {"at": 2}}},
    ]


def test_the_collector_is_as_it_was_after_a_step_and_after_one_that_failed() -> None:
    with collector_paused(), suppress(ValueError), collector_paused():
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
