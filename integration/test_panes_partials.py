"""What Spark computes of windows and what the driver computes are one, whatever windows, values and rows there are."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from onceonly.protocol.batch import AsOf, Bound
from onceonly.protocol.row_times import RowTimes
from onceonly.spark.detect import engine_for
from onceonly.spark.frames import of_arrow, setting
from onceonly.windows import (
    Aggregate,
    ApproxCountDistinct,
    AtMark,
    AtWatermark,
    Count,
    CountDistinct,
    Custom,
    Global,
    Last,
    Max,
    Mean,
    Min,
    Sessions,
    Sliding,
    Sum,
    Tumbling,
    Windows,
)
from onceonly.windows.epoch_step import EpochAggregates
from onceonly.windows.rules.assigners import LEAST, Window
from onceonly.windows.rules.json_values import Json
from onceonly.windows.rules.spec import Definition, define
from onceonly.windows.rules.state import Partial
from onceonly.windows.rules.step import Row, key_text, partials_of
from onceonly.windows.spark_partials import Action, kinds_of
from onceonly_checkpoints.epoch_time import END

pytestmark = pytest.mark.spark

COLUMNS: list[tuple[str, pa.DataType]] = [
    ("team", pa.string()),
    ("level", pa.decimal128(6, 2)),
    ("since", pa.timestamp("us", "UTC")),
    ("day", pa.date32()),
    ("tag", pa.binary()),
    ("at", pa.timestamp("us", "UTC")),
    ("offset", pa.int64()),
    ("number", pa.int64()),
    ("small", pa.int16()),
    ("price", pa.decimal128(12, 2)),
    ("huge", pa.decimal128(38, 10)),
    ("ratio", pa.float64()),
    ("said", pa.bool_()),
    ("clock", pa.timestamp("us")),
]
SCHEMA = pa.schema(COLUMNS)
KEYS = ("team", "level", "since", "day", "tag")
VALUES = {
    "rows": Count(),
    "numbers": Count("number"),
    "number_sum": Sum("number"),
    "small_sum": Sum("small"),
    "price_sum": Sum("price"),
    "huge_sum": Sum("huge"),
    "ratio_sum": Sum("ratio", approximate=True),
    "number_mean": Mean("number"),
    "price_mean": Mean("price"),
    "huge_mean": Mean("huge"),
    "first_at": Min("at"),
    "last_clock": Max("clock"),
    "least_tag": Min("tag"),
    "greatest_team": Max("team"),
    "least_ratio": Min("ratio"),
    "any_said": Max("said"),
    "last_price": Last("price", by="at"),
    "last_day": Last("day", by="small"),
    "doubled": Sum("number + number DIV 2"),
    **{f"different_{name}": CountDistinct(name) for name, _ in COLUMNS},
}
FEW = {name: VALUES[name] for name in ("rows", "number_sum", "last_price", "different_clock")}
"""Enough where windows are the question: Spark compiles a plan of all values for a second."""

_1970 = datetime(1970, 1, 1, tzinfo=timezone.utc)
BOUND = Bound(AsOf(1, 1, 1_000, "scores"))


def instant(rng: random.Random, around: int, spread: int) -> datetime:
    return _1970 + timedelta(microseconds=(around + rng.randrange(-spread, spread)) * 1000 + rng.randrange(1000))


def drawn(rng: random.Random, count: int, around: int = 0, spread: int = 600_000) -> list[dict[str, Any]]:
    """Rows in few keys and windows, some null in each column."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    def row() -> dict[str, Any]:
        one = rng.randrange(3)
        return {
            "team": maybe(["a", "ü😀", "\ufffd"][one]),
            "level": Decimal(25 * one).scaleb(-2),
            "since": _1970 + timedelta(microseconds=one - 1),
            "day": date(1969, 12, 31 - one),
            "tag": maybe(bytes([0, 255, one])),
            "at": maybe(instant(rng, around, spread)),
            "offset": maybe(rng.randrange(-50, 50)),
            "number": maybe(rng.choice([rng.randrange(-9, 9), 2**61, -(2**61)])),
            "small": maybe(rng.randrange(-5, 5)),
            "price": maybe(Decimal(rng.randrange(-(10**12) + 1, 10**12)).scaleb(-2)),
            "huge": maybe(Decimal(f"{rng.choice([-1, 1]) * rng.randrange(10**38)}e-10")),
            "ratio": maybe(rng.choice([-0.0, 0.0, 0.25, -7.5, 1e9])),
            "said": maybe(rng.random() < 0.5),
            "clock": maybe(instant(rng, around, spread).replace(tzinfo=None)),
        }

    return [row() for _ in range(count)]


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return of_arrow(spark, pa.Table.from_pylist(rows, schema=SCHEMA)).repartition(3)


def bring(df: DataFrame) -> Iterator[pa.RecordBatch]:
    with closing(engine_for(df).arrow(df)) as pieces:
        yield from pieces


def defined(df: DataFrame, panes: Windows) -> Definition:
    return define(panes, dict(df.dtypes), kinds_of("scores", df, panes))


def action(
    df: DataFrame, panes: Windows, bound: Bound = BOUND, horizon: int | None = None, *, late: bool = False
) -> Action:
    return Action(df, defined(df, panes), bound, horizon, late, bring, tasks=2)


def both(asked: Action) -> tuple[EpochAggregates, EpochAggregates]:
    return asked.counted(few=True), asked.counted(few=False)


def windows(window: Window, time: str = "at", values: Mapping[str, Any] = VALUES) -> Windows:
    # Sessions take no trigger that marks: of two that merge it could not be said what it waits for.
    trigger = AtWatermark() if isinstance(window, Sessions) else AtMark("said")
    return Windows(key=KEYS, aggregates=values, time=time, window=window, trigger=trigger)


def millis(value: datetime) -> int:
    return (value - _1970) // timedelta(milliseconds=1)


def maybe_millis(value: datetime | None) -> int | None:
    return None if value is None else millis(value)


def expected(definition: Definition, rows: list[dict[str, Any]], of: str = "at") -> list[Partial]:
    """By the pure rules, from rows that Spark never saw."""

    def taken(row: dict[str, Any], text: str) -> Any:
        if text in row:
            return row[text]
        assert text == "number + number DIV 2"
        number = row["number"]
        return None if number is None else number + (abs(number) // 2) * (1 if number >= 0 else -1)

    return partials_of(
        definition,
        [
            Row(
                [row[key] for key in KEYS],
                maybe_millis(row[of]) if of == "at" else row[of],
                [taken(row, text) for text in definition.panes.expressions],
                row["said"] is True and not definition.sessions,
            )
            for row in rows
        ],
    )


def times(rows: list[dict[str, Any]], horizon: int, of: str = "at") -> RowTimes:
    known: list[int] = [millis(row[of]) if of == "at" else row[of] for row in rows if row[of] is not None]
    late = sum(time < horizon for time in known)
    return RowTimes(min(known, default=None), max(known, default=None), late, len(rows) - len(known))


MINUTES = {
    "fixed": Tumbling("2 minutes"),
    "moved": Tumbling("2 minutes", offset="30 seconds"),
    "sliding": Sliding("5 minutes", "2 minutes"),
    "even": Sliding("4 minutes", "2 minutes"),
    "gaps": Sliding("30 seconds", "2 minutes"),
    "sessions": Sessions("1 minute"),
    "global": Global(),
}
NUMBERS = {"fixed": Tumbling(7, offset=3), "sliding": Sliding(10, 4), "sessions": Sessions(2), "global": Global()}


def unlike(case: str, asked: Action, rows: list[dict[str, Any]], said: RowTimes | None, of: str = "at") -> list[str]:
    """Where one of the two ways does not give what the rules say of these rows."""
    wanted = sorted(expected(asked.definition, rows, of))
    assert wanted, case
    found = []
    for way, counted in zip(("here", "by Spark"), both(asked), strict=True):
        held = {
            "partial results": sorted(counted.partials) == wanted,
            "rows": counted.rows == len(rows),
            "times": said is None or counted.times == said,
            "late rows": counted.late is None,
        }
        found += [f"{case}, {way}: {what}" for what, same in held.items() if not same]
    return found


WHOLE = pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few values", "all values"]
)


@WHOLE
def test_both_ways_give_what_the_rules_say_of_every_window(spark: SparkSession, whole: bool) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rows = drawn(random.Random(seed), 150)
    df, found = frame(spark, rows), list[str]()
    for case, window in MINUTES.items():
        # Of windows that stand by themselves and of those that merge all values are asked for at any time.
        values = VALUES if whole or case in ("moved", "sessions") else FEW
        asked = action(df, windows(window, values=values), horizon=-7)
        found += unlike(case, asked, rows, times(rows, -7))
    assert found == []


@pytest.mark.slow
@WHOLE
def test_so_they_do_where_time_is_a_number(spark: SparkSession, whole: bool) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rows = drawn(random.Random(seed), 150)
    df, found = frame(spark, rows), list[str]()
    for case, window in NUMBERS.items():
        asked = action(df, windows(window, "offset", VALUES if whole else FEW), horizon=4)
        found += unlike(case, asked, rows, times(rows, 4, "offset"), "offset")
    assert found == []


_SINCE = "unix_millis(at) - pmod(unix_millis(at), 120000L)"
OWN = {
    "times": (Custom(f"timestamp_millis({_SINCE})", f"timestamp_millis({_SINCE} + 120000L)"), MINUTES["fixed"], "at"),
    "numbers": (Custom("offset - pmod(offset - 3, 7)", "offset - pmod(offset - 3, 7) + 7"), NUMBERS["fixed"], "offset"),
}
"""Windows that rows name, the same by a size, and the column of time."""


@pytest.mark.parametrize("case", OWN)
def test_windows_that_rows_name_are_those_of_a_size_where_they_name_them_so(spark: SparkSession, case: str) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rows = drawn(random.Random(seed), 150)
    named, sized, of = OWN[case]
    df = frame(spark, rows)
    wanted = sorted(expected(defined(df, windows(sized, of, FEW)), rows, of))
    for counted in both(action(df, windows(named, of, FEW), horizon=4)):
        assert sorted(counted.partials) == wanted
        assert counted.times == times(rows, 4, of)


def test_a_row_that_names_a_window_without_it_is_in_none_and_moves_no_time(spark: SparkSession) -> None:
    bounds = {"in": (0, 9), "at its end": (0, 5), "too early": (6, 9), "no begin": (None, 9), "no end": (0, None)}
    rows = [
        drawn(random.Random(1), 1)[0] | {"team": team, "offset": 5, "small": begin, "number": end}
        for team, (begin, end) in bounds.items()
    ]
    panes = Windows(key="team", aggregates={"rows": Count()}, time="offset", window=Custom("small", "number"))
    for counted in both(action(frame(spark, rows), panes, Bound(AsOf(1, 1, 0, "scores"), noted_before=100), late=True)):
        assert [(partial.window_key, partial.rows) for partial in counted.partials] == [(('["in"]', 0, 9), 1)]
        assert (counted.rows, counted.times) == (5, RowTimes(5, 5, 0, 4))
        assert counted.late is not None
        late = sorted(
            zip(*(counted.late[name].to_pylist() for name in ("team", "window_start", "window_end")), strict=True)
        )
        assert late == [("at its end", None, None), ("in", 0, 9), *((team, None, None) for team in sorted(bounds)[2:])]


ZONES = {
    "23 hours": ("Europe/Berlin", "0s", datetime(2024, 3, 31, 1, tzinfo=timezone.utc)),
    "25 hours": ("Europe/Berlin", "0s", datetime(2024, 10, 27, 1, tzinfo=timezone.utc)),
    "an hour left out": ("Europe/Berlin", "150 minutes", datetime(2024, 3, 31, 1, tzinfo=timezone.utc)),
    "an hour twice": ("Europe/Berlin", "150 minutes", datetime(2024, 10, 27, 1, tzinfo=timezone.utc)),
    "no midnight": ("America/Sao_Paulo", "0s", datetime(2018, 11, 4, 3, tzinfo=timezone.utc)),
    "midnight twice": ("America/St_Johns", "0s", datetime(2010, 11, 7, 2, 31, tzinfo=timezone.utc)),
}


@pytest.mark.slow
@WHOLE
def test_local_days_are_the_same_both_ways_where_clocks_change(spark: SparkSession, whole: bool) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    found = list[str]()
    for case, (zone, offset, change) in ZONES.items():
        if not whole and case not in ("an hour twice", "no midnight"):
            continue
        rows = drawn(random.Random(seed), 300, millis(change), 3 * 3_600_000)
        window = Tumbling("1 day", offset=offset, timezone=zone)
        asked = action(frame(spark, rows), windows(window, values=VALUES if whole else FEW))
        found += unlike(case, asked, rows, None)
        outside = [
            one
            for one in expected(asked.definition, rows)
            if not (one.window_key.start <= one.first and one.last < one.window_key.end)
        ]
        found += [f"{case}: {one}" for one in outside]
    assert found == []


def test_an_epoch_without_rows_gives_nothing(spark: SparkSession) -> None:
    for counted in both(action(frame(spark, []), windows(Sessions("1 minute")), late=True)):
        assert counted.partials == []
        assert (counted.rows, counted.times) == (0, RowTimes())
        assert counted.late is not None
        assert counted.late.num_rows == 0


def test_sessions_that_touch_are_two_both_ways(spark: SparkSession) -> None:
    times = [0, 60_000, 60_000, 119_999, 180_000]
    rows = [drawn(random.Random(1), 1)[0] | {"at": _1970 + timedelta(milliseconds=time)} for time in times]
    for counted in both(action(frame(spark, rows), windows(Sessions("1 minute")))):
        spans = sorted((partial.window_key.start, partial.window_key.end, partial.rows) for partial in counted.partials)
        assert spans == [(0, 60_000, 1), (60_000, 179_999, 3), (180_000, 240_000, 1)]


def test_rows_of_the_moment_of_their_batch_are_of_one_window(spark: SparkSession) -> None:
    rows = drawn(random.Random(2), 20)
    for counted in both(action(frame(spark, rows), windows(Tumbling("1 second"), "ingest"), horizon=2_000)):
        assert {(partial.window_key.start, partial.window_key.end) for partial in counted.partials} == {(1_000, 2_000)}
        assert counted.times == RowTimes(1_000, 1_000, 20, 0)


class Spread(Aggregate):
    """The least and the greatest number."""

    kind = "bigint"

    def partial(self) -> Column:
        return f.to_json(f.array(f.min("small"), f.max("small")))

    def merge(self, partial: Any, other: Any) -> Json:
        return [min(partial[0], other[0]), max(partial[1], other[1])]

    def value(self, partial: Any) -> Json:
        return int(partial[1] - partial[0])


def test_an_aggregate_of_the_users_own_sees_all_columns_also_of_few_rows(spark: SparkSession) -> None:
    rows = [row | {"small": at} for at, row in enumerate(drawn(random.Random(3), 9))]
    for at, row in enumerate(rows):
        row["offset"] = at // 2
    panes = Windows(key="day", aggregates={"spread": Spread()}, time="offset", window=Sliding(4, 2))
    for counted in both(action(frame(spark, rows), panes)):
        for partial in counted.partials:
            own = [
                row["small"]
                for row in rows
                if f'["{row["day"]}"]' == partial.window_key.key
                and partial.window_key.start <= row["offset"] < partial.window_key.end
            ]
            assert partial.values == ([min(own), max(own)],)
        assert sum(partial.rows for partial in counted.partials) == 18


LATE = {
    "fixed": Tumbling("2 minutes"),
    "days": Tumbling("1 day", timezone="Europe/Berlin"),
    "sliding": Sliding("5 minutes", "2 minutes"),
    "gaps": Sliding("30 seconds", "2 minutes"),
    "sessions": Sessions("10 seconds"),
    "global": Global(),
}


NOTED = (None, 0, 60_001, END)
"""What the epoch before had noted."""

AT_ANY_TIME = list(zip(LATE, (60_001, 0, 60_001, END, 60_001, None), strict=True))
"""Each window with one of them; the others are among the slow tests."""


@pytest.mark.parametrize(
    ("noted_of", "values"),
    [
        (AT_ANY_TIME, FEW),
        pytest.param([(window, noted) for window in LATE for noted in NOTED], VALUES, marks=pytest.mark.slow),
    ],
    ids=["each window", "each window, whatever was noted"],
)
def test_rows_that_are_dropped_come_whole_once_for_each_window(
    spark: SparkSession, noted_of: list[tuple[str, int | None]], values: dict[str, Any]
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rows = drawn(random.Random(seed), 60)
    df, found = frame(spark, rows), list[str]()
    for window, noted in noted_of:
        bound = Bound(AsOf(1, 2, 2_000, "scores"), noted_before=noted)
        asked = action(df, windows(LATE[window], values=values), bound, noted, late=True)
        wanted = sorted(_dropped(asked.definition, rows, noted))
        for way, counted in zip(("here", "by Spark"), both(asked), strict=True):
            assert counted.late is not None
            columns = [*SCHEMA.names, "window_start", "window_end", "horizon"]
            late = [tuple(row.values()) for row in counted.late.to_pylist()]
            horizon = None if noted in (None, END) else noted * 1000
            held = {
                "columns": counted.late.column_names == columns,
                "rows": sorted(repr(_plain(row[:-1])) for row in late) == wanted,
                "horizon": {_plain([row[-1]])[0] for row in late} <= {horizon},
            }
            found += [f"{window}, noted {noted}, {way}: {what}" for what, same in held.items() if not same]
    assert found == []


def _dropped(definition: Definition, rows: list[dict[str, Any]], noted: int | None) -> list[str]:
    """Rows of windows that were closed, with these; and rows that are in none for want of a time."""
    untimed = [(*row.values(), None, None) for row in rows if row["at"] is None]
    closed = [
        one.window_key
        for one in expected(definition, rows)
        if noted is not None and definition.closes(one.window_key.end) <= noted
    ]
    timed = [
        (*row.values(), _shown(place.start), _shown(place.end))
        for row in rows
        for place in closed
        if (time := maybe_millis(row["at"])) is not None and place.start <= time < place.end
        if key_text(definition, [row[key] for key in KEYS]) == place.key
    ]
    return [repr(_plain(row)) for row in (*untimed, *timed)]


def _shown(bound: int) -> datetime | None:
    return None if bound in (LEAST, END) else _1970 + timedelta(milliseconds=bound)


def _plain(row: Sequence[Any]) -> list[Any]:
    """Values whose text is the same wherever they come from."""
    instants = [isinstance(value, datetime) and value.tzinfo is not None for value in row]
    micro = timedelta(microseconds=1)
    return [(one - _1970) // micro if instant else one for one, instant in zip(row, instants, strict=True)]


def test_a_row_is_executed_and_each_expression_computed_once(spark: SparkSession) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counting(number: int | None) -> int | None:
        computed.add(1)
        return number

    spark.udf.register("counting", counting, "bigint")
    df = frame(spark, drawn(random.Random(4), 50)).select("*", f.expr("counting(offset)").alias("counted"))
    panes = Windows(
        key="team",
        aggregates={
            "mean": Mean("counting(number)"),
            "sum": Sum("counting(number)"),
            "last": Last("team", by="counted"),
        },
        time="counted",
        window=Sliding(10, 4),
    )
    asked = action(df, panes)
    for few in (True, False):
        before = computed.value
        asked.counted(few=few)
        assert computed.value - before == 100, "50 rows, and two expressions"


def jobs(spark: SparkSession, group: str, asked: Action, *, few: bool) -> list[int]:
    """How many stages each job has that an action runs."""
    spark.sparkContext.setJobGroup(group, "one job")
    try:
        # As in the session of a stream: adaptive execution makes a job of each stage.
        with setting(asked.rows, "spark.sql.adaptive.enabled", "false"):
            asked.counted(few=few)
        tracker = spark.sparkContext.statusTracker()
        told = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        return [len(one.stageIds) for one in told if one is not None]
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_one_job_is_run(spark: SparkSession) -> None:
    asked = action(frame(spark, drawn(random.Random(5), 50)), windows(Sessions("1 minute"), values=FEW), late=True)
    for few in (True, False):
        assert len(jobs(spark, f"panes {few}", asked, few=few)) == 1


def test_of_a_hundred_rows_nothing_is_shuffled_and_the_next_epoch_compiles_nothing(
    spark: SparkSession, compiled: Callable[[], int]
) -> None:
    df = of_arrow(spark, pa.Table.from_pylist(drawn(random.Random(6), 100), schema=SCHEMA))
    panes = Windows(key="team", aggregates={"total": Sum("number")}, time="at", window=Tumbling("2 minutes"))
    assert jobs(spark, "few rows", action(df, panes), few=True) == [1]
    before = compiled()
    later = action(df, panes, Bound(AsOf(2, 2, 9_000, "scores"), noted_before=60_000), 60_000)
    assert jobs(spark, "few rows later", later, few=True) == [1]
    assert compiled() == before
    # A plan that shuffles has two stages, and one that nobody has seen is compiled: both are noticed here.
    assert jobs(spark, "many rows", action(df, panes), few=False) == [2]
    assert compiled() > before


@pytest.mark.slow
@pytest.mark.parametrize(
    "window",
    [
        Tumbling("2 minutes"),
        Sliding("60 minutes", "1 minute"),
        Sessions("1 minute"),
        Tumbling("1 day", timezone="Europe/Berlin"),
    ],
    ids=["fixed", "sliding", "sessions", "days"],
)
@pytest.mark.parametrize("late", [False, True], ids=["counted", "kept"])
def test_a_million_rows_are_counted_by_spark(spark: SparkSession, window: Window, late: bool) -> None:
    df = spark.range(0, 1_000_000, 1, 4).selectExpr(
        "concat('user', pmod(xxhash64(id), 10000)) AS user",
        "id AS number",
        "CAST(id % 97 AS DECIMAL(12,2)) AS price",
        "timestamp_millis(1700000000000 + id) AS at",
    )
    panes = Windows(key="user", aggregates={"total": Sum("number"), "price": Sum("price")}, time="at", window=window)
    bound = Bound(AsOf(1, 2, 2_000, "scores"), noted_before=1_700_000_000_000)
    asked = action(df, panes, bound, late=late)
    began = time.perf_counter()
    counted = asked.counted(few=False)
    print(f"{time.perf_counter() - began:.1f} s, {len(counted.partials)} partial results, {_peak()} MB at most")
    assert counted.rows == 1_000_000
    assert counted.times == RowTimes(1_700_000_000_000, 1_700_000_999_999)
    assert sum(partial.rows for partial in counted.partials) == 1_000_000 * (60 if isinstance(window, Sliding) else 1)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def test_an_estimate_of_different_values_is_one_in_the_driver_and_in_spark(spark: SparkSession) -> None:
    rows = drawn(random.Random(7), 3_000)
    panes = Windows(
        key="tag",
        aggregates={"users": ApproxCountDistinct("concat(team, `offset`)", keep=16), "exact": CountDistinct("offset")},
        time="at",
        window=Tumbling("1 hour"),
    )
    few, many = both(action(frame(spark, rows), panes))
    assert sorted(few.partials) == sorted(many.partials)
    estimates = [partial.values[0] for partial in few.partials]
    assert max(map(len, estimates)) == 16


@pytest.mark.parametrize("time_", ["at", "ingest"])
def test_spark_compiles_nothing_for_a_batch_of_another_time(
    spark: SparkSession, compiled: Callable[[], int], time_: str
) -> None:
    df = frame(spark, drawn(random.Random(7), 50))
    if time_ == "ingest":
        df = df.withColumnRenamed("at", "seen")
    counts = []
    for epoch in range(1, 5):
        moment = 1_000 * epoch
        bound = Bound(AsOf(1, 1, moment, "scores"), noted_before=moment - 7)
        panes = windows(Tumbling("1 minute"), time_, {"rows": Count(), "number_sum": Sum("number")})
        found = action(df, panes, bound, moment, late=time_ == "at").counted(few=False)
        assert found.rows == 50
        counts.append(compiled())
    assert counts[1] > 0
    assert counts[1:] == [counts[1]] * 3
