"""Lineage events of real queries: what a receiver gets, also when it is away or slow, and when a driver is killed."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer
from integration.processes import was_killed
from integration.stage import Inbox, Scene
from pyspark.sql import functions as f
from tests.kafka_client import put
from tests.openlineage import Receiver, Schema
from typer.testing import CliRunner

from onceonly import OnceOnlyError, Storage, exactly_once
from onceonly.api import run_state
from onceonly.cli.app import app
from onceonly.faults import Point
from onceonly.lineage import LedgerEvents, OpenLineage
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger

pytestmark = pytest.mark.spark


@pytest.fixture
def receiver():
    with Receiver() as made:
        yield made


def test_an_epoch_sends_one_event_with_its_inputs_outputs_receipts_and_column_lineage(stream, delta, ledger, receiver):
    write = exactly_once(
        delta.sink(),
        transform=lambda df: df.selectExpr("id * 2 AS twice", "word", "concat(word, id) AS both", "1 AS one"),
        storage=Storage(ledger=ledger),
        lineage=OpenLineage(receiver.url, namespace="tests"),
    )
    stream.receive(range(10), range(10, 25)).run(write)
    receiver.await_that(lambda: receiver.epochs() == [1, 2])
    schema = Schema()
    assert [fault for event in receiver.events for fault in schema.faults(event)] == []
    assert [event["eventType"] for event in receiver.events] == ["START", "COMPLETE"] * 2
    runs = [event["run"]["runId"] for event in receiver.events]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    event, [record] = receiver.events[-1], ledger.epochs("orders", 2)
    assert event["job"] | {"facets": {}} == {"namespace": "tests", "name": "orders", "facets": {}}
    assert "holds every row of the stream once" in event["job"]["facets"]["onceonly_guarantee"]["guarantee"]
    assert event["run"]["facets"]["onceonly_epoch"]["chain"] == record.epoch.chain
    [inbox], [table] = event["inputs"], event["outputs"]
    assert (inbox["namespace"], inbox["name"]) == ("file", str(stream.inbox))
    read = inbox["inputFacets"]["onceonly_range"]
    assert (read["start"], read["end"]) == ({"logOffset": 0}, {"logOffset": 1})
    assert read["files"] == [f"file://{stream.inbox}/part-0001.parquet"]
    assert inbox["inputFacets"]["inputStatistics"]["rowCount"] == 15
    assert (table["namespace"], table["name"]) == ("file", delta.path)
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 15
    assert table["outputFacets"]["onceonly_receipt"]["identity"] == record.receipts[0].identity
    assert table["facets"]["version"]["datasetVersion"] == str(record.receipts[0].at("version"))
    columns = [(column["name"], column["type"]) for column in table["facets"]["schema"]["fields"]]
    assert columns == [("twice", "bigint"), ("word", "string"), ("both", "string"), ("one", "int")]
    fields = table["facets"]["columnLineage"]["fields"]
    origins = {name: [part["field"] for part in found["inputFields"]] for name, found in fields.items()}
    assert origins == {"twice": ["id"], "word": ["word"], "both": ["id", "word"]}


def test_an_aggregate_and_two_sinks_are_one_event(stream, pg, delta, ledger, receiver):
    write = exactly_once(
        pg.sink(key="word"),
        delta.sink(),
        storage=Storage(ledger=ledger),
        lineage=OpenLineage(receiver.url),
    )
    shape = lambda df: df.groupBy("word").agg(f.sum("id").alias("total"))  # noqa: E731
    stream.receive(range(4)).run(write, shape=shape, mode="update")
    receiver.await_that(lambda: receiver.epochs() == [1])
    [complete] = receiver.of("COMPLETE")
    assert Schema().faults(complete) == []
    table, files = complete["outputs"]
    assert table["namespace"].startswith("postgres://")
    assert table["name"].endswith(".public.orders")
    assert (files["namespace"], files["name"]) == ("file", delta.path)
    fields = table["facets"]["columnLineage"]["fields"]
    assert {name: [part["field"] for part in each["inputFields"]] for name, each in fields.items()} == {
        "word": ["word"],
        "total": ["id"],
    }


def test_a_refused_attempt_is_a_run_of_its_own_that_fails_with_its_code(stream, delta, ledger, receiver):
    def write(**options):
        storage, lineage = Storage(ledger=ledger), OpenLineage(receiver.url)
        return exactly_once(delta.sink(), storage=storage, lineage=lineage, **options)

    stream.receive(range(10)).run(write())
    stream.receive(range(10, 20)).fail(write(transform=lambda df: df.withColumn("more", f.lit(1))))
    receiver.await_that(lambda: bool(receiver.of("FAIL")))
    [refused] = receiver.of("FAIL")
    [told] = ledger.events("orders", kind=EventKind.FAILED)
    assert refused["run"]["facets"]["onceonly_refusal"]["code"] == told.code != ""
    assert refused["run"]["facets"]["errorMessage"]["message"] == told.reason
    stream.run(write())
    receiver.await_that(lambda: receiver.epochs() == [1, 2])
    # FAIL ends a run, so the epoch that is committed later is another one.
    assert refused["run"]["runId"] not in {event["run"]["runId"] for event in receiver.of("COMPLETE")}
    assert len(receiver.of("FAIL")) == 1, "what was sent is not sent again by the next run"
    assert [fault for event in receiver.events for fault in Schema().faults(event)] == []


def test_an_outage_stops_no_query_and_loses_no_epoch(stream, sink, ledger, receiver, caplog):
    receiver.answer = 503
    ledger.open()
    write = exactly_once(sink, storage=Storage(ledger=ledger), lineage=OpenLineage(receiver.url))
    query = stream.receive(range(5), range(5, 9)).start(write, processingTime="100 milliseconds")
    try:
        receiver.await_that(lambda: len(ledger.epochs("orders")) == 2 and receiver.refused > 0)
        assert receiver.events == []
        assert [line for line in caplog.messages if "ONCE-W721" in line], caplog.messages
        receiver.answer = 201
        receiver.await_that(lambda: receiver.epochs() == [1, 2])
        receiver.answer = 503
        stream.receive(range(9, 12))
        receiver.await_that(lambda: len(ledger.epochs("orders")) == 3)
    finally:
        query.stop()
    receiver.answer = 201
    # Another process, later: what the first run could not send comes with the next epoch.
    again = exactly_once(sink, storage=Storage(ledger=ledger), lineage=OpenLineage(receiver.url))
    stream.receive(range(12, 14)).run(again)
    receiver.await_that(lambda: {*receiver.epochs()} == {1, 2, 3, 4})
    assert len({event["run"]["runId"] for event in receiver.of("COMPLETE")}) == 4


def test_epochs_that_no_run_could_send_are_sent_by_the_command(stream, sink, ledger, receiver):
    receiver.answer = 503
    write = exactly_once(sink, storage=Storage(ledger=ledger), lineage=OpenLineage(receiver.url, namespace="tests"))
    stream.receive(range(5), range(5, 9)).run(write)
    for watch in run_state._watches:
        watch.join(60)  # the last attempt comes after the query's end
    command = ["lineage", "resend", "orders", "--to", receiver.url, "--ledger", ledger.address]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "ONCE-E532" in refused.output
    assert f"onceonly lineage resend orders --to {receiver.url}" in refused.output
    receiver.answer = 201
    assert "orders: sent 2 epochs: 1 to 2" in CliRunner().invoke(app, command).output
    assert receiver.epochs() == [1, 2]
    first = [event["run"]["runId"] for event in receiver.of("COMPLETE")]
    assert "orders: sent 0 epochs" in CliRunner().invoke(app, command).output
    assert "orders: sent 1 epoch: 2" in CliRunner().invoke(app, [*command, "--epochs", "2..2"]).output
    assert [event["run"]["runId"] for event in receiver.of("COMPLETE")] == [*first, first[1]]
    assert {event["job"]["namespace"] for event in receiver.events} == {"tests"}


def test_no_epoch_waits_for_a_receiver_that_hangs(stream, sink, ledger, receiver):
    receiver.hangs, patience = 600.0, 60.0
    settings = {"type": "http", "url": receiver.url, "timeout": patience}
    write = exactly_once(sink, storage=Storage(ledger=ledger), lineage=OpenLineage(settings))
    seconds = []

    def timed(df, batch_id):
        began = time.perf_counter()
        write(df, batch_id)
        seconds.append(time.perf_counter() - began)

    stream.receive(*[range(50)] * 4).run(timed)
    assert (len(seconds), receiver.events) == (4, [])
    assert max(seconds) < patience / 2


@pytest.mark.kafka
def test_a_topic_is_named_by_its_brokers_and_a_topic_can_be_the_receiver(spark, tmp_path, any_kafka, ledger, delta):
    source, catalogue = any_kafka.topic("source", partitions=2), any_kafka.topic("catalogue")
    put(any_kafka.servers, source, range(5), lambda value: value % 2)
    options = {"kafka.bootstrap.servers": any_kafka.servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS word")
    settings = {"type": "kafka", "topic": catalogue, "config": {"bootstrap.servers": any_kafka.servers}}
    write = exactly_once(delta.sink(), storage=Storage(ledger=ledger), lineage=OpenLineage(settings))
    query = rows.writeStream.queryName("orders").foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "ck")).start().awaitTermination()
    consumer = Consumer({"bootstrap.servers": any_kafka.servers, "group.id": "t", "auto.offset.reset": "earliest"})
    consumer.subscribe([catalogue])
    try:
        start, complete = (json.loads(message.value()) for message in consumer.consume(2, 30))
    finally:
        consumer.close()
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert Schema().faults(complete) == []
    [topic] = complete["inputs"]
    assert (topic["namespace"], topic["name"]) == (f"kafka://{any_kafka.servers.partition(',')[0]}", source)
    assert topic["inputFacets"]["onceonly_range"]["end"] == {"0": 3, "1": 2}
    [table] = complete["outputs"]
    [origin] = table["facets"]["columnLineage"]["fields"]["word"]["inputFields"]
    assert (origin["name"], origin["field"]) == (source, "value")


@pytest.mark.kafka
def test_a_broker_that_does_not_take_an_event_is_no_success(stream, sink, ledger):
    stream.receive(range(3)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    config = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 500, "log_level": 0}
    to = OpenLineage({"type": "kafka", "topic": "catalogue", "config": config})
    unsent = LedgerEvents(ledger, "orders", None, {})
    with pytest.raises(OnceOnlyError, match="E532"):
        unsent.resend(to, "kafka")
    assert unsent.sent() is None


@pytest.mark.kill
@pytest.mark.postgres
def test_a_kill_between_commit_and_send_loses_no_epoch(any_postgres, warm_drivers, tmp_path, receiver):
    inbox = Inbox(tmp_path / "in")
    database = any_postgres.database("lineage_kills")
    scenes = [Scene(tmp_path, "delta", str(tmp_path / "delta"), inbox), Scene(tmp_path, "postgres", database, inbox)]
    jobs = [scene.job(lineage=receiver.url) for scene in scenes]
    points = (Point.COMMIT_AFTER, Point.RECORD_AFTER, Point.RETURN_BEFORE)
    for life, point in enumerate(points, start=1):
        inbox.fill(2 * life + 1)
        driver = warm_drivers.start(*jobs, fault=f"{point}:killgroup:2")
        driver.wait(240)
        assert was_killed(driver), driver.last_words()
    warm_drivers.finish(*jobs)
    numbers = list(range(1, inbox.files + 1))
    for scene in scenes:
        scene.holds_everything()
        ledger = SqlLedger(scene.ledger_place)
        command = ["lineage", "resend", scene.name, "--to", receiver.url, "--ledger", scene.ledger_place]
        assert CliRunner().invoke(app, command).exit_code == 0
        sent = {}
        for event in receiver.of("COMPLETE"):
            if event["job"]["name"] == scene.name:
                told = event["run"]["facets"]["onceonly_epoch"]
                sent.setdefault(told["epoch"], set()).add((event["run"]["runId"], told["chain"]))
        assert sorted(sent) == numbers
        chains = {record.epoch.number: record.epoch.chain for record in ledger.epochs(scene.name)}
        assert {number: [chain for _, chain in found] for number, found in sent.items()} == {
            number: [chain] for number, chain in chains.items()
        }, "each epoch has one run id, and it is the one in the ledger"
        ledger.close()
    assert json.dumps(receiver.events).count("password") == 0
