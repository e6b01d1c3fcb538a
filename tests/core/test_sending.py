"""What a wrapper is when Spark Connect sends it to its server: what it was called with; all else is refused by name."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from onceonly import Dedupe, EventTime, Output, Quality, Recovery, Storage, exactly_once
from onceonly.api.arguments import refuse_checkpoint
from onceonly.errors import ConfigurationError, OnceOnlyError
from onceonly.spark.engine import QueryPlan, Run
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink


def sent(*sinks: Any, checkpoint: str | None = "/cp/orders", **options: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(exactly_once(*sinks, name="orders", checkpoint=checkpoint, **options)))


def refusal(*sinks: Any, **options: Any) -> OnceOnlyError:
    with pytest.raises(ConfigurationError) as caught:
        sent(*sinks, **options)
    return caught.value


class Connected(DeltaSink):
    """A sink that holds what lives in one process."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    "sink",
    [DeltaSink("/t", key="id"), PostgresSink("postgresql://u@h/d", table="t"), KafkaSink("h:9092", topic="t")],
    ids=lambda sink: sink.id,
)
def test_sinks_and_options_arrive(sink: Any) -> None:
    arrived = sent(
        sink,
        transform=lambda df: df.dropna(),
        storage=Storage(ledger="/l.db"),
        recovery=Recovery(overlap="trim", adopt={"0": {"logOffset": 3}}),
    )
    again = sent(
        sink,
        transform=lambda df: df.dropna(),
        storage=Storage(ledger="/l.db"),
        recovery=Recovery(overlap="trim", adopt={"0": {"logOffset": 3}}),
    )
    assert repr(arrived) == repr(again) == f"exactly_once({sink!r}, name='orders')"


def test_what_a_wrapper_has_learned_stays_behind() -> None:
    made = exactly_once(DeltaSink("/t"), checkpoint="/cp")
    assert len(pickle.dumps(made)) < 1000
    assert pickle.loads(pickle.dumps(made)).last_receipts == ()


def test_without_a_checkpoint_it_would_not_find_its_query() -> None:
    refused = refusal(DeltaSink("/t"), checkpoint=None)
    assert (refused.code, refused.what) == ("E106", "On Spark Connect the callback does not know its checkpoint.")
    assert "onceonly.start(writer, exactly_once(sink" in refused.remedy


def test_a_sink_of_this_process_is_refused() -> None:
    refused = refusal(MemorySink(id="memory:orders"))
    assert refused.code == "E110"
    assert "'memory:orders' lives in this process, and the callback runs in the server's" in refused.what


def test_a_ledger_of_this_process_is_refused(tmp_path: Path) -> None:
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    refused = refusal(DeltaSink("/t"), storage=Storage(ledger=ledger))
    ledger.close()
    assert refused.code == "E110"
    assert "lives in this process, and the callback runs in the server's" in refused.what


def test_a_sink_that_cannot_be_pickled_is_named() -> None:
    refused = refusal(DeltaSink("/other"), Connected("t"), storage=Storage(staging="/stage"))
    assert refused.code == "E151"
    assert refused.what.startswith("delta:t cannot be sent to the server of Spark Connect")


def test_a_function_that_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()
    refused = refusal(DeltaSink("/t"), transform=lambda df: lock and df)
    assert (refused.code, refused.what[:11]) == ("E151", "transform= ")


def test_a_blank_checkpoint_is_refused() -> None:
    assert refusal(DeltaSink("/t"), checkpoint=" ").code == "E110"


def run(checkpoint: str) -> Run:
    """A run as far as it is asked for its checkpoint."""
    nothing: Any = None
    return Run("r", "q", "orders", checkpoint, None, False, "s", QueryPlan(False, None, ()), nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("told", "resolved"),
    [
        (None, "file:/cp/orders"),
        ("/cp/orders/", "file:/cp/orders"),
        ("file:///cp/orders", "file:/cp/orders"),
        ("/cp/with%20sign and blank", "file:/cp/with%2520sign%20and%20blank"),
        ("s3a://lake/cp/", "s3a://lake/cp"),
        ("/cp/orders", "hdfs://node:8020/cp/orders"),
    ],
)
def test_the_query_s_own_checkpoint_is_taken_however_it_is_spelled(told: str | None, resolved: str) -> None:
    refuse_checkpoint(told, run(resolved))


@pytest.mark.parametrize(("told", "resolved"), [("/cp/other", "file:/cp/orders"), ("s3a://a/cp", "s3a://b/cp")])
def test_another_checkpoint_than_the_query_s_is_refused(told: str, resolved: str) -> None:
    with pytest.raises(ConfigurationError, match="E106") as caught:
        refuse_checkpoint(told, run(resolved))
    assert resolved in caught.value.what
    assert told in caught.value.what


def test_expectations_are_refused_by_name_where_the_callback_is_sent() -> None:
    found = refusal(DeltaSink("/t"), checkpoint="/cp", quality=Quality(expect={"amount": "amount >= 0"}))
    assert found.code == "E110"
    assert "exactly_once() was given quality=, and the query runs on Spark Connect." in str(found)


def test_ids_that_were_seen_are_refused_by_name_where_the_callback_is_sent() -> None:
    pg = PostgresSink("postgresql://u@h/d", table="t")
    found = refusal(pg, dedupe=Dedupe(key="id", within="7 days", store=pg.table("seen")))
    assert found.code == "E110"
    assert "exactly_once() was given dedupe=, and the query runs on Spark Connect." in str(found)


@pytest.mark.parametrize("said", ["ingest", EventTime("at", max_delay="0s")])
def test_time_is_refused_by_name_where_the_callback_is_sent_and_without_it_the_call_is_sent(said: Any) -> None:
    found = refusal(DeltaSink("/t"), event_time=said)
    assert found.code == "E110"
    assert "exactly_once() was given event_time=, and the query runs on Spark Connect." in str(found)
    assert "leave event_time= out there" in found.remedy
    assert sent(DeltaSink("/t")) is not None


def test_outputs_are_refused_by_name_where_the_callback_is_sent() -> None:
    found = refusal(DeltaSink("/t"), Output(DeltaSink("/few"), name="few", where="id < 3"))
    assert found.code == "E110"
    assert "exactly_once() has output 'few', and the query runs on Spark Connect." in str(found)
