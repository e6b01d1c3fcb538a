"""Every public constructor refuses names and types that it does not take, at the call: E110, and never a raw error."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import onceonly
import onceonly.event_time
import onceonly.reading
import onceonly.windows
import onceonly_sinks.delta
import onceonly_sinks.kafka
import onceonly_sinks.memory
import onceonly_sinks.postgres
from onceonly import OnceOnlyError
from onceonly.windows import AtCount, AtWatermark, Fixed, Sum
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

PACKAGES = (
    onceonly,
    onceonly.windows,
    onceonly.event_time,
    onceonly.reading,
    onceonly_sinks.delta,
    onceonly_sinks.kafka,
    onceonly_sinks.memory,
    onceonly_sinks.postgres,
)

GIVEN = {
    "ExactlyOnce",
    "OnceOnlyError",
    "ReadPoint",
    "Refused",
    "TimedEpoch",
    "NotComplete",
    "TimeWindow",
    "FixedWindow",
}
"""What users are given, and make none of."""

OWN = {"Aggregate", "drain"}
"""A class that users derive from, and a word that takes anything."""

PG = PostgresSink("postgresql://u@h/d", "t")
FITS: Mapping[str, Mapping[str, Any]] = {
    "Dataset": {"time": "ingest"},
    "Dedupe": {"key": "id", "within": "7 days", "keep": PG},
    "EventTime": {"column": "at", "delay": "0s"},
    "FromUpstream": {"sink": onceonly_sinks.delta.DeltaSink("/t")},
    "Output": {"name": "a"},
    "Route": {"by": "kind", "to": {"a": MemorySink()}},
    "AtCount": {"rows": 1},
    "AtMark": {"condition": "a"},
    "AtPeriod": {"period": "1 minute"},
    "Repeat": {"trigger": AtCount(1)},
    "OrFinally": {"trigger": AtCount(1), "until": AtWatermark()},
    **{name: {"size": "1 minute"} for name in ("Fixed", "FixedWindows")},
    "Sliding": {"size": "2 minutes", "every": "1 minute"},
    "Sessions": {"gap": "1 minute"},
    **{name: {"column": "a"} for name in ("Sum", "Min", "Max", "Mean")},
    "Last": {"column": "a", "by": "b"},
    "Panes": {"key": "a", "values": {"s": Sum("a")}, "time": "at", "window": Fixed("1 minute")},
    "TimeReader": {"name": "a", "source": MemorySink()},
    "DeltaSink": {"path_or_table": "/t"},
    "Merge": {"on": "target.id = source.id"},
    "KafkaSink": {"servers": "h:9092", "topic": "t"},
    "MemoryStore": {"name": "a"},
    "PostgresSink": {"dsn": "postgresql://u@h/d", "table": "t"},
}
"""A call of each constructor that needs arguments."""

ANYTHING = {"Panes.late_rows", "Panes.state", "Output.where", "Output.select"}
"""What is judged beside the sinks of the call, or by Spark, as no type of ours says what it may be."""


def public() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        for name in package.__all__:
            found = getattr(package, name)
            if callable(found) and name not in GIVEN | OWN and not isinstance(found, type(int | str)):
                yield name, found


def raised(call: Any, *given: Any, **named: Any) -> str:
    """The code of a refusal, the class of another error, or nothing."""
    try:
        call(*given, **named)
    except OnceOnlyError as refused:
        return refused.code
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_no_public_call_takes_a_name_that_it_does_not_have_and_each_says_which_it_has() -> None:
    names = {name: raised(call, nonsense=1) for name, call in public()}
    assert len(names) > 40
    assert {name: found for name, found in names.items() if found != "E110"} == {}


def test_no_public_constructor_takes_a_value_of_another_type_nor_fails_raw() -> None:
    wrong: list[str] = []
    for name, made in public():
        if not isinstance(made, type):
            continue
        fits = dict(FITS.get(name, {}))
        sinks = [MemorySink()] if name == "Output" else []
        several = [AtCount(1), AtCount(2)] if name in ("Seq", "All", "Any") else sinks
        assert raised(made, *several, **fits) == "", name
        for one, parameter in inspect.signature(made).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL or f"{name}.{one}" in ANYTHING:
                continue
            for value in (object(), [object()]):
                found = raised(made, *several, **{**fits, one: value})
                if not found.startswith("E"):
                    wrong.append(f"{name}({one}={type(value).__name__}): {found or 'accepted'}")
    assert wrong == []


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: PostgresSink("postgresql://a@h/d", "x", keys="id"), "no argument keys= (did you mean key=?)"),  # type: ignore[call-arg]
        (lambda: KafkaSink(["a:9092", "b:9092"], topic="x"), "KafkaSink('a:9092,b:9092', ...)"),  # type: ignore[arg-type]
        (
            lambda: KafkaSink("a:9092", topic="x", security_protocol="SSL"),  # type: ignore[call-arg]
            'options={"kafka.security.protocol": ...}',
        ),
        (lambda: onceonly.Quality(expect=["a > 0"]), "Quality(expect=['a > 0']) is not understood"),  # type: ignore[arg-type]
        (lambda: PostgresSink("postgresql://a@h/d"), "missing a required argument: 'table'"),  # type: ignore[call-arg]
        (lambda: PostgresSink("postgresql://a@h/d", "x", "id"), "too many positional arguments"),  # type: ignore[misc]
        (lambda: onceonly.exactly_once(MemorySink(), qualty=1), "no argument qualty= (did you mean quality=?)"),  # type: ignore[call-arg]
    ],
)
def test_a_mistake_is_told_with_what_to_write_instead(call: Any, told: str) -> None:
    with pytest.raises(OnceOnlyError, match="E110") as refused:
        call()
    assert told in str(refused.value)


def test_a_value_of_another_type_is_not_printed_for_it_may_be_a_secret() -> None:
    with pytest.raises(OnceOnlyError) as refused:
        PostgresSink({"password": "s3cret"}, "x")  # type: ignore[arg-type]
    assert "s3cret" not in str(refused.value)
    assert "PostgresSink(dsn=) was given a dict" in str(refused.value)
