"""``windows=``: what it goes with, what it does not, where its state lies, and what is promised of it."""

from __future__ import annotations

from typing import Any

import pytest

from onceonly import EventTime, Output, Quality, exactly_once
from onceonly.errors import ConfigurationError, refuse
from onceonly.windows import AtCount, AtPeriod, Custom, Global, Last, Sessions, Sum, Tumbling, Windows
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import PostgresSink

PG = PostgresSink("postgresql://u@h/d", table="scores")
DELTA = DeltaSink("/lake/scores")
TOPIC = KafkaSink("h:9092", topic="scores")
SESSIONS = Sessions("1 minute")
TIME = EventTime("event_time", max_delay="2 minutes")


def panes(**said: Any) -> Windows:
    given = {
        "key": "team",
        "aggregates": {"total": Sum("value")},
        "time": "event_time",
        "window": Tumbling("2 minutes"),
    }
    return Windows(**{**given, **said})


@pytest.mark.parametrize(
    ("said", "code", "problem"),
    [
        ({"windows": "scores"}, "E140", "windows='scores' defines no windows"),
        ({"event_time": None}, "E140", "event_time= is missing"),
        (
            {"event_time": None, "windows": panes(trigger=AtCount(3), allowed_lateness="1 minute")},
            "E140",
            "event_time= is missing",
        ),
        (
            {"windows": panes(time="ingest")},
            "E140",
            "takes rows by the moment of their batch, and event_time= does not",
        ),
        ({"windows": panes(late_rows=3)}, "E140", "late_rows=3 is no sink"),
        ({"windows": panes(state_sink=TOPIC)}, "E143", "cannot hold windows and be asked for them"),
        (
            {"windows": panes(state_sink=DeltaSink("/lake/state", key="key"))},
            "E143",
            "delta:state was given options of its table",
        ),
        (
            {"windows": panes(state_sink=PG.table("scores_state", key="key"))},
            "E143",
            "was given options of its table",
        ),
        ({"windows": panes(state_sink=PG)}, "E143", "postgres:scores takes rows in the same call"),
        ({"windows": panes(late_rows=PG)}, "E102", "postgres:scores"),
    ],
)
def test_what_does_not_go_with_panes_is_refused_before_a_query_starts(
    said: dict[str, Any], code: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        exactly_once(PG, **{"event_time": TIME, "windows": panes(), **said})
    assert refused.value.code == code
    assert problem in str(refused.value)


KEYED = [
    ({}, ("team", "window_start"), ""),
    ({}, ("window_start", "team", "window_end"), ""),
    ({}, ("team",), "named by (team, window_start)"),
    ({}, ("window_start",), "named by (team, window_start)"),
    ({}, ("team", "window_start", "pane"), "named by (team, window_start)"),
    ({"results": "changes"}, ("team", "window_start", "pane"), ""),
    ({"window": Custom("opens", "closes")}, ("team", "window_start", "window_end"), ""),
    ({"window": Custom("opens", "closes")}, ("team", "window_start"), "named by (team, window_start, window_end)"),
    ({"results": "changes"}, ("team",), "named by (team, window_start)"),
    ({"key": ["team", "part"]}, ("team", "window_start"), "named by (team, part, window_start)"),
    ({"window": Global()}, ("team",), ""),
    ({"window": Global()}, ("team", "window_start"), "named by (team)"),
    ({"window": SESSIONS, "accumulation": "retracting"}, ("team", "window_start", "window_end"), ""),
    ({"window": SESSIONS, "accumulation": "retracting"}, ("team", "window_start"), "(team, window_start, window_end)"),
]
"""Panes as upserts unless they say otherwise, the key of their sink, and what is wrong with it."""


@pytest.mark.parametrize("sink", [DELTA, PG], ids=["delta", "postgres"])
def test_the_key_of_a_sink_names_one_window(sink: Any) -> None:
    found = {}
    for said, key, problem in KEYED:
        keyed = DeltaSink("/lake/scores", key=key) if sink is DELTA else PG.table("scores", key=key)
        state = {"state_sink": PG.table("scores_state")}
        try:
            exactly_once(keyed, event_time=TIME, windows=panes(**{"results": "upserts", **state, **said}))
        except ConfigurationError as refused:
            text = f"{refused.code} {refused}"
            if problem and "E140" in text and problem in text:
                continue
            found[str((said, key))] = text
        else:
            if problem:
                found[str((said, key))] = "taken"
    assert not found


def test_the_key_that_a_refusal_prints_is_taken() -> None:
    with pytest.raises(ConfigurationError, match=r"key=\('team', 'window_start'\), and its table"):
        exactly_once(PG.table("scores", key="team"), event_time=TIME, windows=panes(results="upserts"))
    exactly_once(PG.table("scores", key=("team", "window_start")), event_time=TIME, windows=panes(results="upserts"))


def test_results_of_windows_are_ordered_by_their_epochs_and_nothing_else() -> None:
    said: dict[str, Any] = {"key": ("team", "window_start"), "sequence": "seq"}
    for sink in (PG.table("scores", **said), MemorySink(**said)):
        with pytest.raises(ConfigurationError) as refused:
            exactly_once(sink, event_time=TIME, windows=panes(results="upserts", state_sink=PG.table("scores_state")))
        assert refused.value.code == "E140"
        assert "has sequence='seq'" in str(refused.value)
        assert "leave sequence= out" in refused.value.remedy


def test_several_results_of_a_window_in_an_epoch_are_not_told_to_take_a_sequence() -> None:
    chosen = exactly_once(PG.table("scores", key=("team", "window_start")), event_time=TIME, windows=panes())
    windows = chosen.arguments.windows
    assert windows
    details = {"key": "team", "example": "team = a", "next": "name the column: PostgresSink(..., sequence=...)"}
    for sink, way in (("postgres:scores", 'results="upserts"'), ("postgres:scores_state", "sequence=")):
        said = windows.reword(refuse("E505", sink=sink, **details))
        assert way in said.remedy
        assert said.details["example"] == "team = a"


def test_results_need_a_sink_beside_those_of_rows_and_the_printed_one_is_taken() -> None:
    large = Output(DELTA, name="large", where="value > 5")
    with pytest.raises(ConfigurationError, match="windows= has no sink for its results") as refused:
        exactly_once(large, event_time=TIME, windows=panes())
    printed = refused.value.remedy.partition("beside them: ")[2].replace("...", "event_time=TIME, windows=panes()")
    assert eval(printed, {**globals(), "pg": PG}).arguments.windows
    taken = exactly_once(large, PG.table("totals"), event_time=TIME, windows=panes()).arguments
    assert taken.windows is not None
    assert [sink.id for sink in taken.of_results] == ["postgres:totals"]
    told = taken.chosen.outputs
    assert {sink: name for sink, (name, _) in told.items()} == {
        "delta:scores": "large",
        "postgres:totals": "windows",
        "postgres:totals_state": "state",
    }


def test_bad_rows_break_rules_of_sinks_of_rows_and_none_of_sinks_of_results() -> None:
    quality = Quality(expect={"positive": "value > 0"}, quarantine=PG.table("bad"))
    text = exactly_once(
        Output(PG.table("rows"), name="all"), PG.table("totals"), quality=quality, event_time=TIME, windows=panes()
    ).explain()
    assert "or a rule of postgres:rows" in text
    assert "a rule of postgres:totals" not in text


@pytest.mark.parametrize("sinks", [(TOPIC,), (TOPIC, DeltaSink("shop.scores"))], ids=["a topic", "a catalogue"])
def test_state_needs_a_sink_that_can_be_asked_for_it(sinks: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        exactly_once(*sinks, event_time=TIME, windows=panes())
    assert refused.value.code == "E143"
    assert "none of the sinks can hold windows" in str(refused.value)
    assert 'state_sink=DeltaSink("/lake/scores_state")' in refused.value.remedy
    records = ["team AS key", "to_json(struct(*)) AS value"]
    named = panes(records=records, state_sink=DeltaSink("/lake/scores_state"))
    assert "state in delta:scores_state" in exactly_once(*sinks, event_time=TIME, windows=named).explain()


def test_the_way_out_of_a_missing_keeper_is_taken() -> None:
    wrapped = exactly_once(DELTA, event_time=TIME, windows=panes(state_sink=PG.table("scores_state")))
    assert wrapped.arguments.ids == ("delta:scores", "postgres:scores_state")


def test_a_topic_takes_no_results_that_are_not_called_as_parts_of_a_record() -> None:
    refused = refused_records()
    assert refused.code == "E140"
    assert "kafka:scores takes records, and window results have no column value" in str(refused)


def refused_records() -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        exactly_once(TOPIC, event_time=TIME, windows=panes(state_sink=PG.table("scores_state")))
    return refused.value


def test_the_way_out_of_results_that_are_no_records_is_taken() -> None:
    said = panes(key="key", aggregates={"value": Last("text", by="event_time")}, state_sink=PG.table("scores_state"))
    exactly_once(TOPIC, event_time=TIME, windows=said)
    printed = ["CAST(team AS STRING) AS key", "to_json(struct(*)) AS value"]
    made = panes(records=printed, state_sink=PG.table("scores_state"))
    assert repr(printed).replace("'", '"') in str(refused_records())
    chosen = exactly_once(TOPIC, PG.table("totals"), event_time=TIME, windows=made).arguments
    assert chosen.windows is not None
    targets = chosen.windows.targets(chosen.of_results)
    assert (targets.records, targets.panes) == (("kafka:scores",), ("postgres:totals",))
    exactly_once(PG, event_time=TIME, windows=panes(late_rows=TOPIC))  # late rows are those that transform= gives


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("bigint", "string", "column key of window results is bigint"),
        ("string", "bigint", "column value of window results is bigint"),
        ("binary", "binary", ""),
    ],
)
def test_parts_of_a_record_are_text_or_bytes(key: str, text: str, problem: str) -> None:
    said = panes(key="key", aggregates={"value": Last("text", by="event_time")}, state_sink=PG.table("scores_state"))
    chosen = exactly_once(TOPIC, event_time=TIME, windows=said).arguments.windows
    assert chosen is not None
    columns = {"key": key, "value": text}
    if not problem:
        chosen.check_records(columns)
        return
    with pytest.raises(ConfigurationError) as refused:
        chosen.check_records(columns)
    assert refused.value.code == "E140"
    assert f"kafka:scores takes records, and {problem}" in str(refused.value)


def test_state_lies_beside_the_results_in_a_database() -> None:
    wrapped = exactly_once(DELTA, PG, event_time=TIME, windows=panes())
    assert wrapped.arguments.ids == ("delta:scores", "postgres:scores", "postgres:scores_state")
    chosen = wrapped.arguments.windows
    assert chosen is not None
    targets = chosen.targets(wrapped.arguments.sinks)
    assert targets.panes == ("delta:scores", "postgres:scores")
    assert (targets.state, targets.late) == ("postgres:scores_state", None)


@pytest.mark.parametrize(
    ("sinks", "state"),
    [
        ((DELTA,), "delta:scores_state"),
        ((DeltaSink("shop.scores"), DeltaSink("/lake/others")), "delta:others_state"),
    ],
    ids=["a place", "a place beside which there can be another"],
)
def test_without_a_database_state_lies_beside_results_in_delta(sinks: tuple[Any, ...], state: str) -> None:
    wrapped = exactly_once(*sinks, event_time=TIME, windows=panes())
    assert f"state in {state}" in wrapped.explain()


def test_late_rows_have_a_sink_of_their_own() -> None:
    wrapped = exactly_once(PG, event_time=TIME, windows=panes(late_rows=PG.table("late")))
    chosen = wrapped.arguments.windows
    assert chosen is not None
    assert chosen.targets(wrapped.arguments.sinks).late == "postgres:late"


def test_a_name_that_postgres_would_cut_is_refused_with_another_way() -> None:
    with pytest.raises(ConfigurationError) as refused:
        exactly_once(PG.table("s" * 60), event_time=TIME, windows=panes())
    assert refused.value.code == "E143"
    assert 'state_sink=pg.table("scores_state")' in str(refused.value)
    exactly_once(PG.table("s" * 60), event_time=TIME, windows=panes(state_sink=PG.table("scores_state")))


def test_windows_that_wait_for_nothing_that_is_noted_need_no_time() -> None:
    exactly_once(PG, windows=panes(window=Global(), trigger=AtPeriod("2 minutes"), accumulation="discarding"))


def test_the_state_of_a_store_in_memory_is_found_again_by_the_next_driver() -> None:
    store = MemoryStore()
    keepers = [MemorySink("m", store).window_store(separate=True) for _ in range(2)]
    assert keepers[0].store is keepers[1].store
    assert keepers[0].can_join(MemorySink("m", store))


def test_what_is_promised_of_panes_is_said() -> None:
    text = str(exactly_once(PG, event_time=TIME, windows=panes(late_rows=PG.table("late"))).explain())
    assert "every row of output windows once: total of team in tumbling windows, accumulating" in text
    assert "output state once: every window that is open, as the newest epoch left it" in text
    assert "output late once: every row that came after its window was closed" in text
    assert "one transaction brings each epoch to all of them" in text


def test_what_a_wrapper_was_called_with_shows_its_panes() -> None:
    assert "windows=Windows(key='team'" in repr(exactly_once(PG, event_time=TIME, windows=panes()))
