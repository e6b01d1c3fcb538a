"""``event_time=``: what cannot mean anything is refused by name when the call is made, and what it promises is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceonly import EventTime, exactly_once
from onceonly.errors import ConfigurationError
from onceonly.event_time import FromUpstream
from onceonly.event_time.event_time_argument import check_event_time
from onceonly.machine.event_time import EventTimeConfig
from onceonly.spark import engine
from onceonly_checkpoints.epoch_time import END
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink


def refused(make: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert caught.value.code == "E110"
    return str(caught.value)


@pytest.mark.parametrize(
    ("said", "noting"),
    [
        ({"max_delay": "2 minutes"}, EventTimeConfig("rows", "ms", "at", 120_000)),
        ({"max_delay": "0s"}, EventTimeConfig("rows", "ms", "at", 0)),
        ({"max_delay": 1, "unit": "integer"}, EventTimeConfig("rows", "integer", "at", 1)),
        (
            {"max_delay": "0s", "idle": "10 minutes", "ahead": "1 hour"},
            EventTimeConfig("rows", "ms", "at", 0, idle=600_000, ahead=3_600_000),
        ),
        ({"callback": lambda epoch: epoch.last}, EventTimeConfig("function", "ms", "at")),
        ({"callback": lambda epoch: 1, "ahead": "1 hour"}, EventTimeConfig("function", "ms", "at", ahead=3_600_000)),
        ({"callback": lambda epoch: epoch.last, "unit": "integer"}, EventTimeConfig("function", "integer", "at")),
    ],
)
def test_an_event_time_is_what_the_machine_takes(said: dict[str, Any], noting: EventTimeConfig) -> None:
    assert EventTime("at", **said).noting == noting


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({}, "EventTime(max_delay=None)"),
        ({"max_delay": 120}, "EventTime(max_delay=120)"),
        ({"max_delay": "soon"}, "EventTime(max_delay='soon')"),
        ({"max_delay": "-1 s"}, "EventTime(max_delay='-1 s')"),
        ({"max_delay": "1s", "unit": "integer"}, "EventTime(max_delay='1s')"),
        ({"max_delay": -1, "unit": "integer"}, "EventTime(max_delay=-1)"),
        ({"max_delay": True, "unit": "integer"}, "EventTime(max_delay=True)"),
        ({"max_delay": END + 1, "unit": "integer"}, f"EventTime(max_delay={END + 1})"),
        ({"max_delay": "1s", "unit": "days"}, 'EventTime(unit=) takes "ms" or "integer"'),
        ({"max_delay": "1s", "callback": lambda epoch: 1}, "EventTime(callback="),
        ({"callback": "noon"}, "EventTime(callback='noon')"),
        ({"callback": lambda epoch: 1, "idle": "1 hour"}, "EventTime cannot work with idle='1 hour'"),
        ({"max_delay": 1, "unit": "integer", "idle": "1 hour"}, "EventTime cannot work with idle='1 hour'"),
        ({"max_delay": 1, "unit": "integer", "ahead": "1 hour"}, "EventTime cannot work with ahead='1 hour'"),
        ({"max_delay": "1s", "ahead": "soon"}, "EventTime(ahead=) takes a duration of at least a second"),
    ],
)
def test_an_event_time_that_means_nothing_is_refused_when_it_is_made(said: dict[str, Any], named: str) -> None:
    assert named in refused(lambda: EventTime("at", **said))


@pytest.mark.parametrize("column", ["", None, 7])
def test_a_column_has_a_name(column: Any) -> None:
    assert "EventTime(column=" in refused(lambda: EventTime(column, max_delay="0s"))


def test_an_event_time_does_not_change() -> None:
    time = EventTime("at", max_delay="0s")
    with pytest.raises(AttributeError):
        time.column = "other"  # type: ignore[misc]


@pytest.mark.parametrize("said", ["event", 7, EventTime, "Ingest", ["at"]])
def test_what_is_no_way_to_say_time_is_refused_when_the_call_is_made(said: Any) -> None:
    text = refused(lambda: exactly_once(MemorySink(), event_time=said))
    assert "exactly_once(event_time=" in text
    ways = 'EventTime("event_time", max_delay="2 minutes"), FromUpstream(sink), "ingest", "watermark", a function of a '
    assert f"{ways}TimedEpoch, or a Writers" in text


def noon(epoch: object) -> int:
    return 12


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (EventTime("at", max_delay="2 minutes"), "the greatest at so far, less 2 minutes."),
        (EventTime("at", callback=noon), "what noon() says, with rows by at."),
        ("ingest", "the moment at which the engine planned the batch."),
        ("watermark", "the engine's watermark."),
        (noon, "what noon() says."),
    ],
)
def test_the_promise_says_what_is_noted(said: Any, words: str) -> None:
    promise = exactly_once(MemorySink(), event_time=said).explain()
    assert f"Each epoch records until when all rows are committed: {words}\n" in promise
    assert "all rows are there" not in exactly_once(MemorySink()).explain()


BERLIN = "to_utc_timestamp('at', \"Europe/Berlin\")"


def test_a_column_that_says_no_time_is_refused_with_what_makes_it_one_and_the_others_are_taken() -> None:
    cases = (
        ("ms", "timestamp", None),
        ("ms", "date", BERLIN),
        ("ms", "string", BERLIN),
        ("ms", "timestamp_ntz", BERLIN),
        ("ms", "tinyint", "timestamp_millis('at')"),
        ("ms", "smallint", "timestamp_millis('at')"),
        ("ms", "int", "timestamp_millis('at')"),
        ("ms", "bigint", "timestamp_millis('at')"),
        ("ms", "double", "col('at').cast(\"timestamp\")"),
        ("integer", "tinyint", None),
        ("integer", "smallint", None),
        ("integer", "int", None),
        ("integer", "bigint", None),
        ("integer", "timestamp", "col('at').cast(\"bigint\")"),
        ("integer", "string", "col('at').cast(\"bigint\")"),
    )
    otherwise = []
    for unit, kind, way in cases:
        time = check_event_time(EventTime("at", max_delay="0s" if unit == "ms" else 0, unit=unit))
        said = None
        try:
            time.check_columns("orders", [("id", "bigint"), ("at", kind)])
        except ConfigurationError as refusal:
            said = f"{refusal.code} {refusal.remedy}"
        wanted = way and f"E130 make it one in transform=: df.withColumn('at', {way})"
        if said != wanted and not (said and wanted and said.startswith(wanted)):
            otherwise.append((unit, kind, said))
    assert otherwise == []


def test_a_column_that_rows_do_not_have_is_refused_with_the_nearest_name() -> None:
    time = check_event_time(EventTime("event_tme", max_delay="0s"))
    with pytest.raises(ConfigurationError, match=r"did you mean event_time\?") as caught:
        time.check_columns("orders", [("id", "bigint"), ("event_time", "timestamp")])
    assert caught.value.code == "E130"
    assert "id, event_time" in caught.value.remedy


STATEFUL = engine.QueryPlan(stateful=True, nondeterministic=None, sources=())


@pytest.mark.parametrize(
    ("said", "how"),
    [
        (EventTime("at", max_delay="0s"), "EventTime"),
        (EventTime("at", callback=noon), "EventTime"),
        (FromUpstream(DeltaSink("/tables/clicks")), "FromUpstream"),
        ("watermark", None),
        ("ingest", None),
        (noon, None),
    ],
)
def test_rows_that_state_holds_back_say_nothing_of_time_and_the_watermark_does(said: Any, how: str | None) -> None:
    time = check_event_time(said)
    time.check_plan(replace(STATEFUL, stateful=False), "orders")
    if how is None:
        time.check_plan(STATEFUL, "orders")
        return
    with pytest.raises(ConfigurationError, match=how) as caught:
        time.check_plan(STATEFUL, "orders")
    assert caught.value.code == "E131"
    assert 'event_time="watermark"' in caught.value.remedy
