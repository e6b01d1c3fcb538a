"""Every public constructor refuses names and types that it does not take, at the call: E110, and never a raw error."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import onceonly
import onceonly.event_time
import onceonly.lineage
import onceonly.reading
import onceonly.replay
import onceonly.windows
import onceonly_sinks.delta
import onceonly_sinks.kafka
import onceonly_sinks.memory
import onceonly_sinks.postgres
from onceonly import OnceOnlyError
from onceonly.errors import options
from onceonly.protocol.registry import sink_from_address
from onceonly.windows import AtCount, AtWatermark, Sum, Tumbling
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.kafka import KafkaSink, KafkaTuning
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

PACKAGES = (
    onceonly,
    onceonly.windows,
    onceonly.event_time,
    onceonly.lineage,
    onceonly.reading,
    onceonly.replay,
    onceonly_sinks.delta,
    onceonly_sinks.kafka,
    onceonly_sinks.memory,
    onceonly_sinks.postgres,
)

GIVEN = {
    "ExactlyOnce",
    "OnceOnlyError",
    "ReadPoint",
    "Dataset",
    "DatasetWriter",
    "TimedEpoch",
    "NotComplete",
    "TimeWindow",
    "FixedWindow",
    "Certificate",
    "Rerun",
}
"""What users are given, and make none of."""

OWN = {"Aggregate", "drain"}
"""A class that users derive from, and a word that takes anything."""

PG = PostgresSink("postgresql://u@h/d", "t")
FITS: Mapping[str, Mapping[str, Any]] = {
    "Writers": {"event_time": "ingest"},
    "Dedupe": {"key": "id", "within": "7 days", "store": PG},
    "EventTime": {"column": "at", "max_delay": "0s"},
    "FromUpstream": {"sink": onceonly_sinks.delta.DeltaSink("/t")},
    "Output": {"name": "a"},
    "Route": {"by": "kind", "to": {"a": MemorySink()}},
    "AtCount": {"rows": 1},
    "AtMark": {"condition": "a"},
    "AtPeriod": {"period": "1 minute"},
    "Repeat": {"trigger": AtCount(1)},
    "OrFinally": {"trigger": AtCount(1), "until": AtWatermark()},
    **{name: {"size": "1 minute"} for name in ("Tumbling", "FixedWindows")},
    "Sliding": {"size": "2 minutes", "every": "1 minute"},
    "Sessions": {"gap": "1 minute"},
    "Custom": {"start": "a", "end": "b"},
    **{name: {"column": "a"} for name in ("CountDistinct", "ApproxCountDistinct", "Sum", "Min", "Max", "Mean")},
    "Last": {"column": "a", "by": "b"},
    "Windows": {"key": "a", "aggregates": {"s": Sum("a")}, "time": "at", "window": Tumbling("1 minute")},
    "TimeReader": {"name": "a", "source": MemorySink()},
    "DeltaSink": {"table": "/t"},
    "Merge": {"on": "target.id = source.id"},
    "KafkaSink": {"servers": "h:9092", "topic": "t"},
    "MemoryStore": {"name": "a"},
    "OpenLineage": {"to": "/nowhere/events.jsonl"},
    "PostgresSink": {"dsn": "postgresql://u@h/d", "table": "t"},
}
"""A call of each constructor that needs arguments."""

ANYTHING = {"Windows.late_rows", "Windows.state_sink", "Output.where", "Output.select"}
"""What is judged beside the sinks of the call, or by Spark, as no type of ours says what it may be."""


def public() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        for name in package.__all__:
            found = getattr(package, name)
            if (isinstance(found, type) or inspect.isroutine(found)) and name not in GIVEN | OWN:
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
        (lambda: KafkaSink(5, topic="x"), "KafkaSink(servers=) was given an int"),  # type: ignore[arg-type]
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


SINKS = (
    PostgresSink(
        "postgresql://u@h/d", "t", key=("shop", "id"), sequence="at", delete_flag="gone", keep=Keep(history=100)
    ),
    PostgresSink("postgresql://u@h/d", "t", keep=Keep(markers="all"), tuning=PostgresTuning(epoch_column=None)),
    DeltaSink("/t", key="id", external_changes="deletes", tuning=DeltaTuning(epoch_column="_epoch")),
    KafkaSink(["a:9092", "b:9092"], "t", id="kafka:mine", tuning=KafkaTuning(marker_topic="m")),
    MemorySink(key="id", delete_flag="gone"),
)


def test_the_repr_of_a_sink_is_the_call_that_makes_it_and_its_address_finds_it() -> None:
    typed = {repr(sink): eval(repr(sink)) for sink in SINKS}
    assert {text: repr(again) for text, again in typed.items()} == {text: text for text in typed}
    found = [type(sink).from_address(sink.address).address for sink in SINKS[:4]]
    assert found == [sink.address for sink in SINKS[:4]]


def test_the_repr_of_a_sink_shows_no_secret() -> None:
    shown = [
        repr(PostgresSink("postgresql://u:s3cret@h/d?sslpassword=s3cret", "t")),
        repr(DeltaSink("s3://bucket/t", storage_options={"AWS_SECRET_ACCESS_KEY": "s3cret"})),
        repr(KafkaSink("h:9092", "t", options={"kafka.sasl.password": "s3cret"})),
    ]
    assert [text for text in shown if "s3cret" in text] == []


@pytest.mark.parametrize(
    ("address", "suggested"),
    [
        ("postgres:host=h#t?delete_flg=gone&key=id", "no option delete_flg (did you mean delete_flag?)"),
        ("postgres:host=h#t?schema=add_column", 'schema is not "fail" or "add_columns": \'add_column\''),
        ("postgres:host=h#t?markers=some", "markers is not a number of epochs"),
        ("delta:/t#sequnce=at&key=id", "no option sequnce (did you mean sequence?)"),
        ("delta:/t#external_changes=all", "external_changes is not"),
        ("kafka:h:9092/t?marker_topc=m", "no option marker_topc (did you mean marker_topic?)"),
    ],
)
def test_an_option_that_an_address_cannot_have_is_refused_by_name(address: str, suggested: str) -> None:
    with pytest.raises(OnceOnlyError, match="E110") as refused:
        sink_from_address(address)
    assert suggested in str(refused.value)


def test_a_value_of_another_type_is_not_printed_for_it_may_be_a_secret() -> None:
    with pytest.raises(OnceOnlyError) as refused:
        PostgresSink({"password": "s3cret"}, "x")  # type: ignore[arg-type]
    assert "s3cret" not in str(refused.value)
    assert "PostgresSink(dsn=) was given a dict" in str(refused.value)


def test_tab_offers_the_public_names_and_the_version_and_all_of_them_load() -> None:
    packages = (onceonly, *(importlib.import_module(name) for name in sink_packages()))
    assert len(packages) == 6
    for package in packages:
        assert dir(package) == sorted([*package.__all__, "__version__"]), package.__name__
        assert [name for name in dir(package) if getattr(package, name) is None] == []
        assert package.__version__ == version("onceonly")
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nosuch'"):
            _ = package.nosuch


def sink_packages() -> Iterator[str]:
    for found in pkgutil.iter_modules(onceonly_sinks.__path__, "onceonly_sinks."):
        yield found.name


OPEN = {"MemoryStore.name", "OpenLineage.namespace", "PostgresTuning.epoch_column", "Windows.allowed_lateness"}
"""Texts of your own, with a default."""


def test_every_enumerated_argument_is_a_literal() -> None:
    """A word by default is one of a ``Literal``, another one is refused with all of them, and no code has a list."""
    texts, wrong, checked = set(), [], 0
    for name, call in public():
        for one, parameter in inspect.signature(call).parameters.items():
            parts = options._options(call.__init__ if isinstance(call, type) else call, str(parameter.annotation))
            choices = [choice for part in parts for choice in part.choices]
            if isinstance(parameter.default, str) and parameter.default not in choices:
                wrong.append(f"{name}.{one}")
            if any(part.base is str for part in parts):
                texts.add(one)
            if not choices or not isinstance(call, type) or any(part.base is str for part in parts):
                continue
            with pytest.raises(OnceOnlyError) as refused:
                call(*(AtCount(1), AtCount(2)) * (name == "Any"), **{**FITS.get(name, {}), one: "nosuch"})
            checked += 1
            wrong += [f"{name}.{one}: {choice}" for choice in choices if str(choice) not in str(refused.value)]
    assert set(wrong) == {*OPEN, "Windows.late_rows"}, "which takes a sink, too"
    assert checked >= 15
    folders = [Path(package.__file__ or "").parent for package in (onceonly, onceonly_sinks)]
    listed = {
        line for folder in folders for path in folder.rglob("*.py") for line in lists_of_words(path, texts - {"name"})
    }
    assert listed == set()


def lists_of_words(path: Path, names: set[str]) -> Iterator[str]:
    """Where a module compares an argument with words that it lists itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            told, words = getattr(node.left, "id", getattr(node.left, "attr", "")), node.comparators[0]
            listed = getattr(words, "elts", []) if isinstance(words, ast.Tuple | ast.Set | ast.List) else []
            if told in names and listed and all(isinstance(getattr(word, "value", None), str) for word in listed):
                yield f"{path.name}:{node.lineno} {ast.unparse(node)}"
