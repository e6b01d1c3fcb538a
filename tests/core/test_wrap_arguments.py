"""What can be refused before a query starts."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from onceonly import Dedupe, OnceOnlyError, Recovery, Storage, exactly_once, start
from onceonly.api import arguments as preconditions
from onceonly.api.format_options import Options
from onceonly.errors import ConfigurationError
from onceonly.spark import engine
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.storage import LocalStorage, path_next_to
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

SINKS = [f"onceonly_sinks.{kind}" for kind in ("postgres", "delta", "kafka", "memory")]


@pytest.mark.parametrize(
    ("sinks", "said"),
    [
        ((), "there is none"),
        ((lambda df, batch_id: None,), "not a sink"),
        ((MemorySink,), "the class MemorySink"),
        (("postgres://host/db",), "not a sink"),
        ((MemorySink(id="a"), MemorySink(id="a")), "have the id 'a'"),
    ],
    ids=["none", "function", "class", "dsn", "twins"],
)
def test_what_is_not_a_sink_is_refused_by_name(sinks, said):
    with pytest.raises(OnceOnlyError, match=said) as caught:
        exactly_once(*sinks)
    assert caught.value.code == "E102"


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": " "},
        {"transform": 3},
        {"transform": MemorySink},
        {"version": 7},
        {"version": "a\nb"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_an_argument_that_means_nothing_is_refused_by_name(arguments):
    with pytest.raises(OnceOnlyError, match=next(iter(arguments))) as caught:
        exactly_once(MemorySink(), **arguments)
    assert caught.value.code == "E110"


@pytest.mark.parametrize(
    ("made", "argument", "value"),
    [
        (Storage, "ledger", SqlLedger),
        (Storage, "ledger", 7),
        (Storage, "keep_epochs", 0),
        (Storage, "keep_epochs", True),
        (Recovery, "overlap", "skip"),
        (Recovery, "on_refresh", "append"),
        (Recovery, "adopt", "there"),
        (Recovery, "adopt", 7),
        (Recovery, "lossy_source", "kafka"),
    ],
)
def test_a_value_that_means_nothing_is_refused_where_it_is_given(made, argument, value):
    with pytest.raises(OnceOnlyError, match=rf"{made.__name__}\({argument}=") as caught:
        made(**{argument: value})
    assert caught.value.code == "E110"
    assert f"leave {argument}= out" in caught.value.remedy or f"{argument}=1" in caught.value.remedy


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (MemorySink(), "'MemorySink' as its query"),
        (exactly_once(MemorySink(), checkpoint="/cp"), "without name="),
        (exactly_once(MemorySink(), name="orders"), "without checkpoint="),
    ],
)
def test_start_refuses_a_query_that_it_cannot_name_or_place(query, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        start(None, query)
    assert caught.value.code == "E110"
    assert 'name="orders", checkpoint="/cp/orders"' in caught.value.remedy


def test_start_refuses_arguments_beside_the_query():
    with pytest.raises(ConfigurationError, match=r"E110.*start\(\) has no argument name="):
        start(None, MemorySink(), name="orders", checkpoint="/cp")


@pytest.mark.parametrize(
    ("place", "cause"),
    [
        ("nowhere://bucket/x", "nowhere:// cannot be read here"),
        ("s3a://key:secret@bucket/x", "its URL carries a login"),
        ("memory://box/x?token=secret", "its URL carries a login or a query"),
    ],
)
def test_staging_where_this_process_cannot_read_is_refused_by_name_and_shows_no_secret(place, cause):
    with pytest.raises(OnceOnlyError, match=cause) as caught:
        exactly_once(MemorySink(id="a"), MemorySink(id="b"), storage=Storage(staging=place))
    assert caught.value.code == "E114"
    assert "secret" not in str(caught.value)


def test_rows_are_staged_beside_the_checkpoint_wherever_that_is():
    far = "s3a://bucket/checkpoint"
    assert path_next_to(f"{far}/", "onceonly.staging") == f"{far}.onceonly.staging"
    assert path_next_to("file:/a%20b/ck", "onceonly.staging") == "/a b/ck.onceonly.staging"


def test_explain_of_several_sinks_says_what_holds_between_them():
    text = exactly_once(MemorySink(id="a"), MemorySink(id="b")).explain()
    assert "a holds every row" in text
    assert "b holds every row" in text
    assert "the same bytes" in text


def test_an_unknown_keyword_is_an_error_at_construction():
    with pytest.raises(ConfigurationError, match=r"E110.*no argument ledgr= \(did you mean ledger=\?\)"):
        Storage(ledgr="x.db")


@pytest.mark.parametrize(("keyword", "fit"), [("storage", "a Storage"), ("lineage", r'OpenLineage\("http')])
def test_an_object_of_another_kind_is_an_error_that_does_not_show_it(keyword, fit):
    with pytest.raises(ConfigurationError, match=f"(?s)E110.*give {fit}") as refused:
        exactly_once(MemorySink(id="memory:orders"), **{keyword: "http://me:hush@host"})
    assert "hush" not in str(refused.value)


def test_the_file_of_pitfalls_names_every_keyword():
    page = Path(__file__, "../../../docs/how-it-is-proven/pitfalls.json").resolve().read_text()
    said = page.partition("The arguments of `exactly_once()` are ")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", said)) == set(inspect.signature(exactly_once).parameters) - {"sinks"}


def test_explain_says_what_is_promised_before_the_query_runs():
    text = exactly_once(MemorySink(id="memory:orders")).explain()
    assert text.startswith("memory:orders holds every row of the stream once.")
    assert "the plan is looked at when the query starts" in text


@pytest.mark.parametrize("mode", ["trigger RealTimeTrigger", "trigger ContinuousTrigger", "async progress tracking"])
def test_a_mode_that_cuts_a_repeated_batch_anew_is_refused_by_name(mode):
    plan = engine.QueryPlan(stateful=False, nondeterministic=None, sources=())
    run = engine.Run("r", "q", "orders", "file:/ck", mode, False, "s", plan, None, None, LocalStorage("/ck"))
    with pytest.raises(OnceOnlyError, match=mode) as caught:
        preconditions.refuse_unfit(run, "orders", lossy_source=None, one_by_one="")
    assert caught.value.code == "E104"


def test_a_wrapper_says_what_it_writes_to():
    assert repr(exactly_once(MemorySink(id="a"), name="orders")).endswith(", name='orders')")
    assert "MemorySink(" in repr(exactly_once(MemorySink(id="a")))


def test_a_notebook_shows_the_promise_and_no_markup_of_the_user():
    shown = exactly_once(MemorySink(id="<b>"))._repr_html_()
    assert "&lt;b&gt; holds every row of the stream once." in shown
    assert "<b>" not in shown


def test_a_promise_says_what_readers_do_apart_from_why_it_holds():
    said = exactly_once(DeltaSink("/nowhere/orders")).explain().splitlines()
    assert "  readers  nothing to do: every version of the table holds whole epochs only" in said
    assert not [line for line in said if "because" in line and "reader" in line]


def test_a_promise_names_the_target_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"  target   delta:{tmp_path}/lake/orders" in exactly_once(DeltaSink("lake/orders")).explain().splitlines()


def test_both_ways_into_a_session_are_exported_beside_their_sinks():
    from onceonly_sinks.delta import with_delta
    from onceonly_sinks.kafka import with_kafka

    assert callable(with_delta)
    assert callable(with_kafka)


def test_every_sink_is_told_by_its_address_and_without_its_password():
    sinks = [
        MemorySink(),
        DeltaSink("/nowhere/orders"),
        KafkaSink("localhost:9092", "orders", options={"kafka.sasl.password": "geheim"}),
        PostgresSink("postgresql://app:geheim@db/shop", "orders"),
    ]
    for sink in sinks:
        assert repr(sink).startswith(f"{type(sink).__name__}(")
        assert "orders" in repr(sink) or sink.id in repr(sink)
    told = repr(exactly_once(*sinks, name="orders"))
    assert all(repr(sink) in told for sink in sinks)
    assert "geheim" not in told


def test_a_delta_sink_is_told_by_its_place():
    assert repr(DeltaSink("/nowhere/orders")) == "DeltaSink('/nowhere/orders')"


# ---- order=


def kafka(topic: str, order: str | None) -> KafkaSink:
    return KafkaSink("localhost:9092", topic, order=order)


DEDUPE = Dedupe(key="id", within="1 hour", store=PostgresSink("postgresql://localhost/shop", "seen"))


@pytest.mark.parametrize(
    ("sinks", "said", "because"),
    [
        ((kafka("a", "seq"), kafka("b", "at")), {}, "an epoch has its rows in one order"),
        ((kafka("a", "seq"),), {"dedupe": DEDUPE}, "dedupe= moves rows"),
    ],
)
def test_an_order_that_the_call_cannot_keep_is_refused(sinks: Any, said: dict[str, Any], because: str) -> None:
    with pytest.raises(ConfigurationError, match="ONCE-E110") as refused:
        exactly_once(*sinks, **said)
    assert because in str(refused.value)


def test_sinks_of_one_order_and_sinks_without_one_go_together() -> None:
    wrapped = exactly_once(kafka("a", "seq"), kafka("b", "seq"), kafka("c", None))
    assert wrapped.arguments.order == ("kafka:a", "seq", True)
    assert str(wrapped.explain()).count("records of one key are in the order of seq") == 2


def test_an_upsert_has_no_order_but_its_sequence_and_a_data_source_writes_in_none() -> None:
    with pytest.raises(ConfigurationError, match="order= together with key= or apply="):
        PostgresSink("postgresql://localhost/shop", "orders", key="id", order="seq")
    for ordered in (PostgresSink("postgresql://localhost/shop", "orders", order="seq"), kafka("orders", "seq")):
        assert type(ordered).from_address(ordered.address).capabilities.order == "seq"
        options = {"to": ordered.address, "queryname": "orders", "checkpointlocation": "/cp"}
        with pytest.raises(ConfigurationError, match="order=") as refused:
            Options.parse(options).arguments()
        assert refused.value.code == "E150"
