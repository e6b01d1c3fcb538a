"""What a user says of windows: what of it is refused and how it is mended, and what it means over columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.panes.making import COLUMNS, made, refused, said

from onceonly.windows import (
    All,
    AtCount,
    AtMark,
    AtPeriod,
    AtWatermark,
    Count,
    Custom,
    Global,
    Last,
    Max,
    Mean,
    Min,
    OrFinally,
    Repeat,
    Seq,
    Sessions,
    Sliding,
    Sum,
    Tumbling,
    Windows,
)
from onceonly.windows.rules.spec import SENT, define
from onceonly_checkpoints.epoch_time import END


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        (Custom("number", "at"), "bounds of a window are bigint and timestamp, and time='number' counts in 'integer'"),
        (Custom("opens", "number"), "'opens', and the rows have no such column"),
    ],
)
def test_a_bound_is_of_the_kind_of_time(own: Custom, problem: str) -> None:
    error = refused("E140", lambda: made(window=own))
    assert problem in str(error)


def test_a_bound_may_be_any_sql_of_that_kind_and_no_batch_is_one() -> None:
    own = Custom("number", "number + value")
    kinds = {"number + value": "bigint"}
    definition = define(panes(window=own), COLUMNS, kinds)
    assert definition.spans(5, (0, 9)) == [(0, 9)]
    assert definition.meaning != define(panes(window=Custom("number", "player")), COLUMNS).meaning
    refused("E140", lambda: define(panes(window=own, time="ingest"), COLUMNS, kinds))


def panes(**changes: Any) -> Windows:
    return Windows(**said(**changes))


# ---- what cannot mean anything, whatever the rows are


@pytest.mark.parametrize(
    ("wrong", "printed", "mended"),
    [
        ({"key": ""}, 'key="team"', {"key": "team"}),
        ({"key": []}, 'key="team"', {"key": ["team"]}),
        ({"key": ["team", "team"]}, 'key="team"', {"key": "team"}),
        ({"key": 3}, 'key="team"', {"key": "team"}),
        ({"key": ["team", 3]}, 'key="team"', {"key": ["team", "player"]}),
        ({"aggregates": {}}, 'aggregates={"total": Sum("value")}', {"aggregates": {"total": Sum("value")}}),
        (
            {"aggregates": {"total": "sum"}},
            'aggregates={"total": Sum("value")}',
            {"aggregates": {"total": Sum("value")}},
        ),
        ({"aggregates": {3: Count()}}, 'aggregates={"total": Sum("value")}', {"aggregates": {"total": Sum("value")}}),
        ({"aggregates": [Count()]}, 'aggregates={"total": Sum("value")}', {"aggregates": {"total": Sum("value")}}),
        ({"aggregates": {"least": Min("")}}, 'least=Min("value")', {"aggregates": {"least": Min("value")}}),
        ({"aggregates": {"many": Count(" ")}}, 'many=Count("value")', {"aggregates": {"many": Count("value")}}),
        (
            {"aggregates": {"end": Last("value", by="")}},
            'end=Last("value", by="event_time")',
            {"aggregates": {"end": Last("value", by="number")}},
        ),
        ({"time": ""}, 'time="event_time"', {"time": "number"}),
        ({"time": None}, 'time="event_time"', {"time": "number"}),
        ({"window": 10}, 'Tumbling("2 minutes")', {"window": Tumbling(10)}),
        ({"window": "2 minutes"}, 'Tumbling("2 minutes")', {"window": Global()}),
        ({"trigger": "1 minute"}, 'AtWatermark(early=AtPeriod("1 minute"))', {"trigger": AtWatermark()}),
        ({"allowed_lateness": "a while"}, 'give "2 minutes", "1 hour"', {"allowed_lateness": 5}),
        ({"allowed_lateness": -1}, 'give "2 minutes", "1 hour"', {"allowed_lateness": 0}),
        ({"allowed_lateness": None}, 'give "2 minutes", "1 hour"', {"allowed_lateness": "unlimited"}),
        ({"accumulation": "adding"}, "'discarding', 'accumulating', 'retracting'", {"accumulation": "discarding"}),
        ({"on_time": "never"}, "say one of 'always', 'changed'", {"on_time": "changed"}),
        ({"results": "appends"}, "say one of 'changes', 'upserts'", {"results": "upserts"}),
        ({"late_rows": "late"}, 'give "count", or a sink', {"late_rows": "count"}),
        ({"max_open": 0}, "give a whole number, or leave it out", {"max_open": 1}),
        ({"max_open": True}, "give a whole number, or leave it out", {"max_open": None}),
        ({"max_open": "1000"}, "give a whole number, or leave it out", {"max_open": 1000}),
        (
            {"trigger": All(AtMark("a"), AtMark("b"))},
            "AtMark('a OR b')",
            {"trigger": All(AtMark("a OR b"), AtMark("a OR b"))},
        ),
        (
            {"window": Sessions(10), "trigger": Seq(AtCount(1), AtWatermark())},
            "give AtWatermark, with AtPeriod or AtCount for early= and late=",
            {"window": Sessions(10), "trigger": AtWatermark(early=AtPeriod("1 minute"), late=AtCount(1))},
        ),
        (
            {"window": Sessions(10), "trigger": AtMark("a")},
            "or one of these alone",
            {"window": Sessions(10), "trigger": AtCount(1)},
        ),
        (
            {"results": "upserts", "accumulation": "discarding"},
            'say accumulation="accumulating", or results="changes"',
            {"results": "upserts", "accumulation": "accumulating"},
        ),
        (
            {"results": "upserts", "accumulation": "discarding"},
            'say accumulation="accumulating", or results="changes"',
            {"results": "changes", "accumulation": "discarding"},
        ),
    ],
)
def test_what_cannot_mean_anything_is_refused_and_what_is_printed_instead_is_taken(
    wrong: Mapping[str, Any], printed: str, mended: Mapping[str, Any]
) -> None:
    error = refused("E140", lambda: panes(**wrong))
    assert printed in str(error)
    assert "Nothing was written" in str(error).replace("\n", " ")
    define(panes(**mended), COLUMNS)


@pytest.mark.parametrize("name", [*SENT, "KIND", "Window_End"])
def test_a_column_named_like_one_of_a_pane_row_is_refused(name: str) -> None:
    way = "give the key or the value another name, with transform= or in aggregates="
    assert way in str(refused("E140", lambda: panes(key=["team", name])))
    assert way in str(refused("E140", lambda: panes(aggregates={name: Count()})))
    define(panes(aggregates={f"{name}_of_it": Count()}), COLUMNS)


def test_a_value_named_like_the_key_is_refused() -> None:
    error = str(refused("E140", lambda: panes(aggregates={"Team": Count()})))
    assert "a column called team" in error
    assert "it is there twice" in error
    panes(aggregates={"teams": Count()})


def test_sessions_that_are_upserted_must_retract() -> None:
    shape = {"window": Sessions(10), "results": "upserts"}
    error = refused("E145", lambda: panes(**shape))
    assert 'add accumulation="retracting"' in str(error)
    panes(**shape, accumulation="retracting")
    panes(window=Sessions(10))
    panes(window=Tumbling(10), results="upserts")


# ---- over columns


@pytest.mark.parametrize(
    ("wrong", "printed", "mended"),
    [
        ({"key": "taem"}, "did you mean team?", {"key": "team"}),
        ({"time": "nummer"}, "did you mean number?", {"time": "number"}),
        ({"aggregates": {"total": Sum("valeu")}}, "did you mean value?", {"aggregates": {"total": Sum("value")}}),
        (
            {"aggregates": {"last": Last("value", by="att")}},
            "did you mean",
            {"aggregates": {"last": Last("value", by="at")}},
        ),
        ({"key": "heat"}, 'F.col("heat").cast("string")', {"key": "player"}),
        ({"key": ["team", "tags"]}, 'F.col("tags").cast("string")', {"key": ["team", "amount"]}),
        ({"time": "team"}, 'F.col("team").cast("timestamp")', {"time": "at", "window": Tumbling("1 minute")}),
        ({"time": "amount"}, 'F.col("amount").cast("timestamp")', {"time": "at", "window": Global()}),
        ({"window": Tumbling("2 minutes")}, "give sizes as numbers, Tumbling(100)", {"window": Tumbling(100)}),
        ({"window": Sessions("1 h")}, "give sizes as numbers, Tumbling(100)", {"window": Sessions(100)}),
        ({"allowed_lateness": "1 minute"}, "give sizes as numbers, Tumbling(100)", {"allowed_lateness": 60}),
        (
            {"time": "at", "window": Tumbling(120)},
            'give sizes as times, Tumbling("2 minutes")',
            {"time": "at", "window": Tumbling("2 minutes")},
        ),
        (
            {"time": "at", "window": Sliding("2 min", "1 min"), "allowed_lateness": 5},
            'give sizes as times, Tumbling("2 minutes")',
            {"time": "at", "window": Sliding("2 min", "1 min"), "allowed_lateness": "5 s"},
        ),
    ],
)
def test_what_does_not_fit_the_columns_is_refused_and_what_is_printed_instead_is_taken(
    wrong: Mapping[str, Any], printed: str, mended: Mapping[str, Any]
) -> None:
    assert printed in str(refused("E140", lambda: define(panes(**wrong), COLUMNS)))
    define(panes(**mended), COLUMNS)


def test_sums_of_floating_point_are_refused_with_the_name_that_the_user_gave() -> None:
    error = refused("E144", lambda: made(aggregates={"warmth": Mean("heat")}))
    assert 'warmth=Mean("heat", approximate=True)' in str(error)
    assert made(aggregates={"warmth": Mean("heat", approximate=True)}).value_kinds == ("double",)


def test_a_cast_that_is_printed_is_taken_as_an_expression_of_a_row() -> None:
    text = "CAST(heat AS DECIMAL(18, 4))"
    told = define(panes(aggregates={"warmth": Sum(text)}), COLUMNS, {text: "decimal(18,4)"})
    assert told.panes.expressions == (text,)
    assert told.value_kinds == ("decimal(28,4)",)


def test_times_are_milliseconds_of_instants_or_the_numbers_of_a_column() -> None:
    assert made(allowed_lateness=7).unit == "integer"
    assert made(allowed_lateness=7).lateness == 7
    assert made(time="at", window=Tumbling("2 minutes"), allowed_lateness="1 minute").unit == "ms"
    assert made(time="at", window=Tumbling("2 minutes"), allowed_lateness="1 minute").lateness == 60_000
    assert made(time="ingest", window=Tumbling("2 minutes")).unit == "ms"
    assert made(time="player", window=Global()).unit == "integer"


def test_unlimited_lateness_closes_when_nothing_follows() -> None:
    assert made(allowed_lateness="unlimited").closes(10) == END
    assert made(window=Global()).closes(END) == END
    assert made(allowed_lateness=5).closes(10) == 15


@pytest.mark.parametrize("nothing", [0, "0s", "0 minutes", "0 days"])
def test_no_lateness_is_no_lateness_in_whatever_unit(nothing: Any) -> None:
    told = made(allowed_lateness=nothing, trigger=AtCount(1))
    assert told.lateness == 0
    assert not told.panes.needs_time
    made(allowed_lateness=nothing, time="at", window=Tumbling("1 minute"))


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, True),
        ({"trigger": AtCount(1)}, False),
        ({"trigger": AtPeriod("1 minute"), "window": Global()}, False),
        ({"trigger": AtCount(1), "allowed_lateness": 5}, True),
        ({"trigger": AtCount(1), "allowed_lateness": "unlimited"}, True),
        ({"trigger": All(AtCount(1), AtWatermark())}, True),
        ({"trigger": Seq(AtCount(1), OrFinally(Repeat(AtCount(2)), AtWatermark()))}, True),
    ],
)
def test_panes_need_what_is_noted_where_a_trigger_or_lateness_waits_for_it(
    changes: Mapping[str, Any], needs: bool
) -> None:
    assert panes(**changes).needs_time is needs


def test_what_rows_are_asked_for_is_asked_once() -> None:
    values = {"total": Sum("value"), "mean": Mean("value"), "last": Last("value", by="number"), "rows": Count()}
    told = panes(aggregates=values, trigger=AtWatermark(early=AtMark("value < 0"), late=AtMark("value < 0")))
    assert told.expressions == ("value", "number")
    assert told.marks == "value < 0"
    assert panes().marks is None


# ---- fingerprints

SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"key": "team"}, {"key": ["team"]}),
    ({"trigger": AtCount(5)}, {"trigger": Repeat(AtCount(5))}),
    ({"allowed_lateness": 5}, {"allowed_lateness": 5, "trigger": AtWatermark(late=AtCount(1))}),
    ({}, {"trigger": AtWatermark(late="closing")}),
    (
        {"trigger": AtWatermark(early=AtCount(2), late=AtCount(3))},
        {"trigger": Seq(OrFinally(Repeat(AtCount(2)), AtWatermark()), Repeat(AtCount(3)))},
    ),
    ({"time": "at", "window": Tumbling("2 minutes")}, {"time": "at", "window": Tumbling("120 seconds")}),
    (
        {"time": "at", "window": Tumbling("1 h"), "allowed_lateness": "1 minute"},
        {"time": "at", "window": Tumbling("60 min"), "allowed_lateness": "60 s"},
    ),
    ({"max_open": 5}, {"max_open": None}),
    ({}, {"late_rows": object()}),
]

OTHER_HOW: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"trigger": AtWatermark(early=AtCount(1))}),
    ({"trigger": AtCount(1)}, {"trigger": AtCount(2)}),
    ({"trigger": AtPeriod("1 minute")}, {"trigger": AtPeriod("2 minutes")}),
    ({"trigger": AtMark("a")}, {"trigger": AtMark("b")}),
    ({}, {"allowed_lateness": 1}),
    ({"allowed_lateness": 1}, {"allowed_lateness": 1, "trigger": AtWatermark(late="closing")}),
    ({}, {"allowed_lateness": "unlimited"}),
]

OTHER_MEANING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"key": "player"}),
    ({"key": ["team", "player"]}, {"key": ["player", "team"]}),
    ({}, {"aggregates": {"sum": Sum("value")}}),
    ({}, {"aggregates": {"total": Max("value")}}),
    ({}, {"aggregates": {"total": Sum("player")}}),
    ({"aggregates": {"a": Count(), "b": Sum("value")}}, {"aggregates": {"b": Sum("value"), "a": Count()}}),
    ({}, {"window": Tumbling(20)}),
    ({}, {"window": Tumbling(10, offset=5)}),
    ({}, {"window": Sliding(10, 10)}),
    ({}, {"window": Sessions(10)}),
    ({}, {"window": Global()}),
    ({}, {"accumulation": "retracting"}),
    ({}, {"on_time": "changed"}),
    ({}, {"results": "upserts"}),
    ({"window": Global()}, {"window": Global(), "time": "player"}),
    (
        {"time": "at", "window": Tumbling("1 day")},
        {"time": "at", "window": Tumbling("1 day", timezone="Europe/Berlin")},
    ),
]


def _pair(pair: tuple[dict[str, Any], dict[str, Any]]) -> tuple[Any, Any]:
    return made(**pair[0]), made(**pair[1])


@pytest.mark.parametrize("pair", SAME)
def test_definitions_that_mean_the_same_have_one_fingerprint(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = _pair(pair)
    assert (one.meaning, one.fingerprint) == (other.meaning, other.fingerprint)


@pytest.mark.parametrize("pair", OTHER_HOW)
def test_trigger_and_lateness_are_no_part_of_what_rows_mean(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = _pair(pair)
    assert one.meaning == other.meaning
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("pair", OTHER_MEANING)
def test_what_changes_what_rows_mean_has_another_fingerprint(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = _pair(pair)
    assert one.meaning != other.meaning
    assert one.fingerprint != other.fingerprint


def test_a_column_of_another_type_means_something_else() -> None:
    whole, exact = COLUMNS, COLUMNS | {"value": "decimal(12,2)"}
    assert define(panes(), whole).meaning != define(panes(), exact).meaning
    assert define(panes(), whole).meaning != define(panes(), COLUMNS | {"team": "int"}).meaning


def test_panes_are_equal_by_what_they_say() -> None:
    assert panes(trigger=AtWatermark(early=AtCount(1))) == panes(trigger=AtWatermark(early=AtCount(1)))
    assert panes(trigger=AtWatermark(early=AtCount(1))) != panes()
