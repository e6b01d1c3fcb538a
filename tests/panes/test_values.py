"""Values: exact, the same in any order and grouping, null where rows say nothing, and JSON in between."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from tests.panes.making import refused, through_json

from onceonly.windows import Aggregate, ApproxCountDistinct, Count, CountDistinct, Last, Max, Mean, Min, Sum
from onceonly.windows.rules import json_values
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.values import Fold, Value
from onceonly.windows.spark_groups import aggregated

if TYPE_CHECKING:
    from pyspark.sql import Column


def folded(fold: Fold, rows: Sequence[Sequence[Any]]) -> Json:
    """The partial result of rows, stored and read after each."""
    partial: Json = None
    for row in rows:
        after = fold.add(partial, row)
        partial = through_json(after)
        assert partial == after
    return partial


def result(value: Value, of: Sequence[str], *rows: Sequence[Any]) -> Any:
    """The result over rows, as Arrow takes it."""
    fold = value.over("found", of)
    return json_values.decode(fold.kind, through_json(fold.result(folded(fold, rows))))


def column(value: Value, kind: str, *cells: Any) -> Any:
    """The result over one column."""
    return result(value, [kind], *[(cell,) for cell in cells])


# ---- what each is


@pytest.mark.parametrize(
    ("value", "kind", "cells", "found"),
    [
        (Count("value"), "bigint", [1, None, 3], 2),
        (Count("value"), "bigint", [None], 0),
        (CountDistinct("value"), "bigint", [3, 1, None, 3], 2),
        (CountDistinct("value"), "bigint", [None], 0),
        (CountDistinct("value"), "decimal(4,1)", [Decimal("1.0"), Decimal("1.0"), Decimal("10.0")], 2),
        (CountDistinct("value"), "double", [0.0, -0.0, math.nan, math.nan, 1.0], 3),
        (Sum("value"), "bigint", [1, None, 2**62], 2**62 + 1),
        (Sum("value"), "tinyint", [127, 127], 254),
        (Sum("value"), "bigint", [None, None], None),
        (Sum("value"), "decimal(4,2)", [Decimal("0.10"), None, Decimal("0.20")], Decimal("0.30")),
        (Sum("value"), "decimal(38,0)", [Decimal(10**37), Decimal(1)], Decimal(10**37 + 1)),
        (Min("value"), "bigint", [3, None, -2], -2),
        (Max("value"), "bigint", [3, None, -2], 3),
        (Min("value"), "decimal(4,2)", [Decimal("9.00"), Decimal("10.00")], Decimal("9.00")),
        (Max("value"), "decimal(4,2)", [Decimal("9.00"), Decimal("10.00")], Decimal("10.00")),
        (Max("value"), "string", ["z", "\uffff", "\U0001f600", None], "\U0001f600"),
        (Min("value"), "string", ["b", "", "a"], ""),
        (Max("value"), "boolean", [False, None, True], True),
        (Max("value"), "binary", [b"\x7f\xff", b"\x80"], b"\x80"),
        (Min("value"), "binary", [b"\x00\x01", b"\x00"], b"\x00"),
        (Max("value"), "date", [date(999, 12, 31), date(2024, 2, 29)], date(2024, 2, 29)),
        (Max("value"), "double", [1.0, math.inf, None], math.inf),
        (Min("value"), "double", [1.0, -math.inf, math.nan], -math.inf),
        (Min("value"), "double", [math.nan, 5.0], 5.0),
        (Mean("value"), "bigint", [1, None, 2], 1.5),
        (Mean("value"), "bigint", [2**62, 2**62 + 2], float(2**62 + 1)),
        (Mean("value"), "bigint", [None], None),
        (Mean("value"), "decimal(4,2)", [Decimal("0.10"), Decimal("0.20"), Decimal("0.20")], Decimal("0.166667")),
        (Mean("value"), "decimal(3,1)", [Decimal("-0.1"), Decimal(0), Decimal(0)], Decimal("-0.03333")),
        (Sum("value", approximate=True), "double", [0.5, None, 0.25], 0.75),
        (Mean("value", approximate=True), "float", [1.0, 2.0], 1.5),
    ],
)
def test_a_value_is_what_sql_says(value: Value, kind: str, cells: list[Any], found: Any) -> None:
    answer = column(value, kind, *cells)
    assert answer == found
    assert type(answer) is type(found)


def test_rows_are_counted_where_no_column_is_said() -> None:
    assert result(Count(), [], (), (), ()) == 3


def test_what_is_no_number_is_the_greatest() -> None:
    assert math.isnan(column(Max("value"), "double", math.inf, math.nan, 5.0))
    assert math.isnan(column(Min("value"), "double", math.nan, math.nan))


@pytest.mark.parametrize("value", [Sum("value", approximate=True), Mean("value", approximate=True)])
def test_sums_of_floating_point_go_on_over_what_is_no_number(value: Value) -> None:
    assert math.isnan(column(value, "double", 1.0, math.nan, 2.0))
    assert math.isnan(column(value, "double", math.inf, 1.0, -math.inf))
    assert column(value, "double", -math.inf, 1.0) == -math.inf
    assert column(value, "double", 1e308, 1e308) == math.inf


@pytest.mark.parametrize("value", [Min("value"), Max("value"), Last("value", by="value")])
def test_the_two_zeros_of_floating_point_are_one_value(value: Value) -> None:
    fold = value.over("found", ["double"] * len(value.inputs))
    rows = [(0.0,) * len(value.inputs), (-0.0,) * len(value.inputs)]
    assert json.dumps(folded(fold, rows)) == json.dumps(folded(fold, rows[::-1]))


# ---- last


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("a", 1), ("b", 3), ("c", 2)], "b"),
        ([("a", 3), ("b", 3)], "b"),
        ([("b", 3), ("a", 3)], "b"),
        ([(None, 3), ("a", 3)], "a"),
        ([("a", 3), (None, 3)], "a"),
        ([("a", 2), (None, 3)], None),
        ([("a", 2), ("z", None)], "a"),
        ([("z", None)], None),
        ([], None),
    ],
)
def test_the_last_value_is_of_the_last_row_and_of_two_the_greater_one(rows: list[Any], found: str | None) -> None:
    assert result(Last("name", by="at"), ["string", "bigint"], *rows) == found


def test_decimals_and_instants_order_rows_by_what_they_are_and_not_by_their_digits() -> None:
    nine, ten = Decimal("9.0"), Decimal("10.0")
    assert result(Last("name", by="at"), ["string", "decimal(4,1)"], ("a", ten), ("b", nine)) == "a"
    assert result(Last("name", by="at"), ["decimal(4,1)", "bigint"], (ten, 1), (nine, 1)) == ten
    early, late = datetime(1969, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 1, tzinfo=timezone.utc)
    assert result(Last("name", by="at"), ["string", "timestamp"], ("a", late), ("b", early)) == "a"


# ---- any order, any grouping

CELLS: dict[str, Any] = {
    "bigint": lambda draw: draw.randint(-(2**63), 2**63 - 1),
    "smallint": lambda draw: draw.randint(-50, 50),
    "decimal(38,6)": lambda draw: Decimal(draw.randint(-(10**37), 10**37)).scaleb(-6),
    "decimal(5,2)": lambda draw: Decimal(draw.randint(-99_999, 99_999)).scaleb(-2),
}
VALUES = [Count("x"), CountDistinct("x"), Sum("x"), Min("x"), Max("x"), Mean("x"), Last("x", by="x")]


def _of_all(value: Value, cells: list[Any]) -> Any:
    """What a value of exact numbers is, by fractions over all rows at once."""
    known = [Fraction(cell) for cell in cells if cell is not None]
    match value:
        case Count():
            return len(known) if cells else None
        case CountDistinct():
            return len({*known}) if cells else None
        case Sum():
            return sum(known) if known else None
        case Mean():
            return sum(known) / len(known) if known else None
        case Min():
            return min(known, default=None)
        case _:
            return max(known, default=None)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_exact_numbers_give_the_same_in_any_order_and_grouping(value: Value, kind: str) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    draw, fold = random.Random(seed), value.over("found", [kind] * len(value.inputs))
    for _ in range(60):
        cells = [draw.choice([None, CELLS[kind](draw), CELLS[kind](draw)]) for _ in range(draw.randrange(12))]
        rows = [(cell,) * len(value.inputs) for cell in cells]
        whole = folded(fold, rows)
        draw.shuffle(rows)
        cut = sorted(draw.randint(0, len(rows)) for _ in range(2))
        parts = [folded(fold, part) for part in (rows[: cut[0]], rows[cut[0] : cut[1]], rows[cut[1] :])]
        first, second, third = parts
        assert fold.merged(fold.merged(third, first), second) == fold.merged(first, fold.merged(second, third)) == whole
        found, exact = json_values.decode(fold.kind, fold.result(whole)), _of_all(value, cells)
        if isinstance(value, Mean) and exact is not None:
            step = Fraction(
                1, 10 ** (cast("tuple[int, int]", json_values.decimal(fold.kind))[1] if "dec" in kind else 0)
            )
            near = Fraction(float(exact)) if fold.kind == "double" else exact
            assert abs(Fraction(found) - near) <= (0 if fold.kind == "double" else step / 2)
        else:
            assert (found if found is None else Fraction(found)) == exact


@pytest.mark.parametrize(("keep", "users", "off"), [(64, 60, 0.0), (64, 5_000, 0.5), (4096, 40_000, 0.06)])
def test_an_estimate_is_near_and_the_same_in_any_order_and_grouping(keep: int, users: int, off: float) -> None:
    check_estimate(ApproxCountDistinct("user", keep=keep), users, off)


def check_estimate(value: ApproxCountDistinct, users: int, off: float) -> None:
    """Estimate drawn users in three orders and groupings. They must agree, and be near: ``off`` is a share."""
    keep = value.keep
    fold, draw = value.over("found", ["bigint"]), random.Random(keep + users)
    hashes = [draw.randrange(-(2**63), 2**63) for _ in range(users)]
    found = set()
    for _ in range(3):
        rows = [*hashes, *draw.choices(hashes, k=users)]
        draw.shuffle(rows)
        parts = [sorted(set(part))[:keep] for part in (rows[: users // 3], rows[users // 3 : users], rows[users:])]
        whole: Json = None
        for part in parts:
            whole = fold.merged(whole, through_json(part))
        assert len(cast("list[int]", whole)) <= keep
        found.add(fold.result(whole))
    assert len(found) == 1, "in another order or grouping it is another one"
    (estimate,) = found
    assert abs(cast("int", estimate) - users) <= off * users
    assert fold.result(folded(fold, [(hashes[0],), (None,), (hashes[0],)])) == 1


def test_an_estimate_of_few_hashes_is_refused_and_another_number_of_them_is_another_definition() -> None:
    assert "at least 16" in str(refused("E110", lambda: ApproxCountDistinct("x", keep=2)))
    assert ApproxCountDistinct("x").spelled != ApproxCountDistinct("x", keep=64).spelled


# ---- kinds of the results, and of nothing


@pytest.mark.parametrize(
    ("value", "of", "kind", "nothing"),
    [
        (Count(), [], "bigint", 0),
        (Count("x"), ["string"], "bigint", 0),
        (Sum("x"), ["int"], "bigint", 0),
        (Sum("x"), ["decimal(12,2)"], "decimal(22,2)", Decimal(0)),
        (Sum("x"), ["decimal(38,6)"], "decimal(38,6)", Decimal(0)),
        (Sum("x", approximate=True), ["float"], "double", 0.0),
        (Min("x"), ["timestamp"], "timestamp", None),
        (Max("x"), ["float"], "float", None),
        (Mean("x"), ["int"], "double", None),
        (Mean("x"), ["decimal(12,2)"], "decimal(16,6)", None),
        (Mean("x"), ["decimal(38,36)"], "decimal(38,38)", None),
        (Last("x", by="y"), ["date", "bigint"], "date", None),
    ],
)
def test_a_result_has_the_type_that_spark_gives_it(value: Value, of: list[str], kind: str, nothing: Any) -> None:
    fold = value.over("found", of)
    assert fold.kind == kind
    assert json_values.decode(kind, fold.nothing) == nothing
    assert json_values.array(kind, [json_values.decode(kind, fold.nothing)]).type == json_values.arrow(kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", -(2**63)),
        ("string", 'ä"\\\n\U0001f600'),
        ("boolean", False),
        ("double", 0.1),
        ("double", math.inf),
        ("double", -math.inf),
        ("float", 1.5),
        ("decimal(38,10)", Decimal("-1234567890123456789012345678.0123456789")),
        ("decimal(3,0)", Decimal("1E+2")),
        ("date", date(1, 1, 1)),
        ("binary", b"\x00\xff"),
        ("timestamp", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)),
        ("timestamp", datetime(2024, 3, 31, 1, 30, tzinfo=timezone.utc)),
        ("timestamp", datetime(2024, 3, 31, 1, 30, tzinfo=timezone(timedelta(hours=-7)))),
        ("timestamp_ntz", datetime(2024, 3, 31, 2, 30)),
        ("string", None),
    ],
)
def test_a_value_comes_back_from_json_as_it_went_in(kind: str, value: Any) -> None:
    assert json_values.is_storable(kind)
    back = json_values.decode(kind, through_json(json_values.encode(kind, value)))
    assert pa.array([value], json_values.arrow(kind)).equals(json_values.array(kind, [back]))


def test_an_instant_may_be_its_microseconds_already() -> None:
    assert json_values.encode("timestamp", 5) == json_values.encode("timestamp", datetime(1970, 1, 1, 0, 0, 0, 5)) == 5


# ---- a value of one's own


class Spread(Aggregate):
    """Greatest less least."""

    kind = "bigint"

    def partial(self) -> Column:
        from pyspark.sql import functions as f

        return f.to_json(f.array(f.min("value"), f.max("value")))

    def merge(self, partial: Any, other: Any) -> Json:
        return [min(partial[0], other[0]), max(partial[1], other[1])]

    def value(self, partial: Any) -> Json:
        return int(partial[1] - partial[0])


def test_a_value_of_ones_own_is_joined_in_python_and_computed_by_spark_alone() -> None:
    fold = Spread().over("spread", [])
    assert fold.result(fold.merged(fold.merged([3, 4], None), [9, 9])) == 6
    assert fold.result(None) is None
    assert Spread().spelled == [f"{Spread.__module__}.Spread", "bigint"]
    with pytest.raises(TypeError, match="Spread is computed by Spark"):
        fold.add(None, [1])


def test_a_decimal_that_a_double_would_round_is_refused_with_the_way_to_keep_it() -> None:
    read = aggregated(Uncomputed(), [], []).read
    assert read(['{"a":1.7976931348623157E308,"b":0.10000000000000000000,"c":123456789012345678901,"d":"1.5"}']) == {
        "a": 1.7976931348623157e308,
        "b": 0.1,
        "c": 123456789012345678901,
        "d": "1.5",
    }
    told = str(refused("E140", lambda: read(['{"a":[123456789012345678.9]}'])))
    assert "19 digits" in told
    assert "CAST(sum(x) AS STRING)" in told


class Uncomputed(Spread):
    """Its Column is not asked for anything."""

    def partial(self) -> Any:
        return None


class Kindless(Spread):
    kind = "array<bigint>"


def test_one_whose_result_cannot_be_kept_is_refused_with_the_line_that_is_missing() -> None:
    assert 'kind = "bigint"' in str(refused("E140", lambda: Kindless().over("spread", [])))
    Spread().over("spread", [])


# ---- what cannot be computed, and the way out


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("value", ["Sum", "Mean"])
def test_a_sum_of_floating_point_is_refused_and_both_ways_that_are_printed_are_taken(value: str, kind: str) -> None:
    make = {"Sum": Sum, "Mean": Mean}[value]
    text = str(refused("E144", lambda: make("heat").over("found", [kind])))
    assert f"Windows cannot add up {value}: column heat is of type {kind}." in text
    assert f'found={value}("heat", approximate=True)' in text
    assert make("heat", approximate=True).over("found", [kind]).kind == "double"
    assert f'found={value}("CAST(heat AS DECIMAL(18, 4))")' in text
    of_decimals = make("CAST(heat AS DECIMAL(18, 4))").over("found", ["decimal(18,4)"])
    assert of_decimals.kind == {"Sum": "decimal(28,4)", "Mean": "decimal(22,8)"}[value]


@pytest.mark.parametrize(
    ("value", "of", "printed"),
    [
        (Sum("x"), ["string"], "give a column of numbers, or cast it"),
        (Mean("x"), ["timestamp"], "give a column of numbers, or cast it"),
        (Sum("x"), ["boolean"], "give a column of numbers, or cast it"),
        (Min("x"), ["array<bigint>"], "give one of text, numbers, times, bytes or true and false"),
        (Max("x"), ["interval day to second"], "give one of text, numbers, times, bytes or true and false"),
        (Last("x", by="y"), ["map<string,int>", "bigint"], "give one of text, numbers, times, bytes or true and false"),
        (Last("x", by="y"), ["bigint", "struct<a:int>"], "give one of text, numbers, times, bytes or true and false"),
    ],
)
def test_values_of_kinds_that_do_not_fit_are_refused(value: Value, of: list[str], printed: str) -> None:
    assert printed in str(refused("E140", lambda: value.over("found", of)))
    value.over("found", ["bigint"] * len(of))
