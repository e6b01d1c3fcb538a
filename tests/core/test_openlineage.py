"""Lineage events without Spark: names of datasets, origins of columns, what counts as sent, what is refused."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoints.samples import history
from tests.openlineage import Receiver, Schema

from onceonly import OnceOnlyError, exactly_once
from onceonly.lineage import LedgerEvents, OpenLineage, Sent
from onceonly.lineage.events import Subject, column_origins, committed, dataset_of, failed, run_id, target_of
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Event, EventKind, LedgerUnavailable
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink

STREAM = """relation
  column: AttributeReference dataType=long exprId=#0 name=id
  column: AttributeReference dataType=string exprId=#1 name=word
Project
  projectList: AttributeReference exprId=#2 name=twice
  projectList: AttributeReference exprId=#3 name=made
  Project
    projectList: Alias exprId=#2 name=twice
      Multiply
        AttributeReference exprId=#0 name=id
    projectList: Alias exprId=#3 name=made
      AttributeReference exprId=#9 name=of_a_generator
    relation
      column: AttributeReference dataType=long exprId=#0 name=id"""


@pytest.mark.parametrize(
    ("address", "dataset"),
    [
        ("postgres:host=db port=5433 user=ann dbname=shop#orders", ("postgres://db:5433", "shop.public.orders")),
        ('postgres:host=db dbname=shop#"sales"."orders"?key=id', ("postgres://db:5432", "shop.sales.orders")),
        ("postgres:host=/tmp/run dbname=shop#orders", ("postgres://localhost:5432", "shop.public.orders")),
        ("postgres:host=a,b port=1,2 dbname=shop#orders", ("postgres://a:1", "shop.public.orders")),
        ("postgres:postgresql://ann:secret@db:1/shop#orders", ("postgres://db:1", "shop.public.orders")),
        ("kafka:b1:9092,b2:9092/orders?id=kafka:x", ("kafka://b1:9092", "orders")),
        ("delta:/lake/a b", ("file", "/lake/a b")),
        ("delta:s3://bucket/lake/orders#key=id", ("s3://bucket", "lake/orders")),
        ("memory:store", ("onceonly", "memory:store")),
    ],
)
def test_a_sink_is_named_as_openlineage_names_its_kind_and_without_a_login(
    address: str, dataset: tuple[str, str]
) -> None:
    assert target_of(address) == dataset


def test_a_source_is_named_by_its_place_without_a_login() -> None:
    assert dataset_of("file:/in%20box") == ("file", "/in box")
    assert dataset_of("s3a://key:secret@bucket/in") == ("s3://bucket", "in")
    assert dataset_of("abfss://box@acc.dfs.core.windows.net/in") == ("abfss://box@acc.dfs.core.windows.net", "in")


def test_a_column_has_origins_only_where_the_plan_shows_all_of_them() -> None:
    assert column_origins(STREAM) == {"twice": {"id"}}
    beside = "  relation\n    column: AttributeReference exprId=#7 name=x\n"
    for node, more in (("Join", beside), ("Union", "")):
        assert column_origins(STREAM.replace("Project\n", f"{more}Project\n", 1)) == ({} if more else {"twice": {"id"}})
        assert more or column_origins(f"{node}\n  {STREAM}") == {}
    assert column_origins("") == {}


def test_the_run_id_of_an_epoch_is_always_the_same_and_another_for_each_job() -> None:
    ids = [run_id(namespace, pipeline, epoch) for namespace in "ab" for pipeline in "ab" for epoch in (1, 11)]
    assert ids == [run_id(namespace, pipeline, epoch) for namespace in "ab" for pipeline in "ab" for epoch in (1, 11)]
    assert len({*ids}) == 8


def test_events_of_every_sample_record_keep_to_the_schema(tmp_path: Path) -> None:
    subject = Subject(pipeline="orders", namespace="tests", sinks={}, sources={}, guarantee="each row once")
    from openlineage.client.serde import Serde

    refused = failed(subject, Event("orders", EventKind.FAILED, "E203: overlap", 5, 1, 10))
    for event in (*committed(subject, next(history(1))), refused):
        assert Schema().faults(json.loads(Serde.to_json(event))) == []


def test_the_schema_finds_a_wrong_event_and_a_wrong_facet() -> None:
    subject = Subject(pipeline="orders", namespace="tests", sinks={}, sources={})
    from openlineage.client.serde import Serde

    event = json.loads(Serde.to_json(committed(subject, next(history(1)))[1]))
    for wrong in ({"eventTime": "yesterday"}, {"producer": "onceonly"}, {"run": {"runId": "5"}}, {"eventType": "DONE"}):
        assert Schema().faults(event | wrong), wrong
    del event["outputs"][0]["outputFacets"]["outputStatistics"]["_producer"]
    assert Schema().faults(event)


def test_epochs_that_a_rewind_removed_count_as_unsent(tmp_path: Path) -> None:
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    ledger.open()
    for record in history(3):
        ledger.record(record)
    noted = LedgerEvents(ledger, "orders", "tests", {"0": "kafka://b:9092"})
    assert noted.sent() is None
    chains = {record.epoch.number: record.epoch.chain for record in ledger.epochs("orders")}
    for number in (1, 3):
        noted.note(Sent(number, chains[number]))
    assert noted.sent() == Sent(3, chains[3])
    ledger.supersede("orders", 2, "rewound")
    noted.note(Sent(3, chains[3]))  # a driver that was fenced out notes it late
    assert noted.sent() == Sent(1, chains[1])
    assert LedgerEvents(ledger, "orders", None, {}).subject().sources == {"0": "kafka://b:9092"}
    ledger.close()


def test_an_epoch_counts_as_sent_after_the_answer_and_an_unfinished_one_is_not_sent(tmp_path: Path) -> None:
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    ledger.open()
    *whole, unfinished = history(3)
    for record in (*whole, replace(unfinished, receipts=())):
        ledger.record(record)
    unsent = LedgerEvents(ledger, "orders", "tests", {})
    with Receiver() as receiver:
        receiver.answer = 500
        to = OpenLineage(receiver.url)
        with pytest.raises(OnceOnlyError, match="ONCE-E532") as caught:
            unsent.resend(to, receiver.url)
        assert (caught.value.code, unsent.sent()) == ("E532", None)
        receiver.answer = 201
        assert unsent.resend(to, receiver.url) == [1, 2]
        assert (receiver.epochs(), unsent.sent()) == ([1, 2], Sent(2, whole[1].epoch.chain))
    ledger.close()


def test_a_failure_is_sent_once_and_an_interrupted_page_goes_on_after_its_last_epoch(tmp_path: Path) -> None:
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    ledger.open()
    for record in history(3):
        ledger.record(record)
    ledger.note(Event("orders", EventKind.FAILED, "E203: overlap", 2, at_ms=10))
    pending = LedgerEvents(ledger, "orders", "tests", {})
    states = [
        (sent.epoch, sent.failed_ms, [event.eventType.value for event in run_events])
        for sent, run_events in pending.pending(Sent(0))
    ]
    assert states == [(0, 10, ["FAIL"]), *((number, 10, ["START", "COMPLETE"]) for number in (1, 2, 3))]
    assert [sent.epoch for sent, _ in pending.pending(Sent(1, failed_ms=10))] == [2, 3]
    assert [sent.epoch for sent, _ in pending.pending(Sent(1, failed_ms=10), 2)] == [2]
    ledger.close()


def test_a_ledger_that_cannot_be_read_is_not_blamed_on_the_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    ledger.open()
    for record in history(2):
        ledger.record(record)

    def unreadable(*_: object) -> list[EpochRecord]:
        raise LedgerUnavailable("the disk is gone")

    monkeypatch.setattr(ledger, "epochs", unreadable)
    with pytest.raises(LedgerUnavailable, match="the disk is gone"):
        LedgerEvents(ledger, "orders", "tests", {}).resend(OpenLineage(tmp_path / "events.jsonl"), "events.jsonl")
    ledger.close()


@pytest.mark.parametrize("kind", ["async_http", "composite", "console", "noop", None])
def test_a_transport_that_cannot_tell_whether_an_event_arrived_is_refused(kind: str | None) -> None:
    with pytest.raises(OnceOnlyError, match="http, file, kafka") as caught:
        OpenLineage({"type": kind})
    assert caught.value.code == "E110"


@pytest.mark.parametrize(
    "to",
    [
        {"type": "http", "auth": {"type": "api_key", "apiKey": "hush"}},
        '{"type": "http", "url": "http://me:hush@host"',
    ],
)
def test_settings_that_the_client_does_not_take_are_refused_without_their_secret(to: str | dict[str, object]) -> None:
    with pytest.raises(OnceOnlyError) as caught:
        OpenLineage(to)
    assert caught.value.code == "E110"
    assert "hush" not in str(caught.value)


def test_without_its_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client.transport", None)
    with pytest.raises(OnceOnlyError, match="openlineage-python") as caught:
        OpenLineage("/tmp/events.jsonl")
    assert caught.value.code == "E108"
    assert "lineage" in caught.value.remedy or "openlineage-python" in caught.value.remedy


def test_a_callback_with_lineage_is_not_sent_to_spark_connect(tmp_path: Path) -> None:
    lineage = OpenLineage(tmp_path / "events.jsonl")
    write = exactly_once(DeltaSink(tmp_path / "t"), name="orders", checkpoint="/cp", lineage=lineage)
    with pytest.raises(OnceOnlyError, match="lineage= works on classic sessions only") as caught:
        pickle.dumps(write)
    assert caught.value.code == "E110"
