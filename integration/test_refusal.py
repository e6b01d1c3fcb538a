"""What a user of a real query sees of a refusal: its lines once in the log, its parts from error and query alike."""

from __future__ import annotations

import logging
import os
import shlex
import time
from urllib.parse import urlsplit

import psycopg
import pytest

from onceonly import Storage, exactly_once
from onceonly.errors import OverlapError, refusal
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = pytest.mark.spark


def stopped(stream, wrapped):
    query = stream.start(wrapped)
    with pytest.raises(Exception, match="ONCE-E") as caught:
        query.awaitTermination(60)
    return query, caught.value


def test_a_refusal_is_found_in_the_error_and_in_the_query(stream, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    query, error = stopped(stream, exactly_once(sink, storage=Storage(ledger=ledger)))
    found = refusal(query)
    assert found == refusal(error)
    assert found is not None
    assert found.code == "E211"
    assert isinstance(found.error, OverlapError)
    assert found.cause.startswith("the checkpoint was deleted or moved")
    assert "onceonly recover adopt orders" in found.next
    assert found.next.splitlines()[-1].startswith("or ")
    assert found.to_dict()["what"] == found.what
    assert ledger.events("orders")[-1].kind is EventKind.FAILED
    assert ledger.events("orders")[-1].code == "E211"


def test_a_refusal_is_logged_once_and_what_led_to_it_is_not_in_the_traceback(stream, ledger, caplog):
    sink = PostgresSink("postgresql://nobody@127.0.0.1:1/nowhere", "orders")
    with caplog.at_level(logging.INFO, "onceonly"):
        query, error = stopped(stream.receive(range(5)), exactly_once(sink, storage=Storage(ledger=ledger)))
    found = refusal(query)
    assert found is not None
    assert found.code == "E501"
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR and one.name.startswith("onceonly")]
    assert record.getMessage() == str(found)
    assert record.exc_info is None
    assert "psycopg" not in str(error)


@pytest.mark.slow
@pytest.mark.postgres
def test_a_refusal_on_an_executor_is_the_one_that_is_raised(stream, pg, ledger):
    pg.says("create table orders (id bigint, word text)")
    name = urlsplit(pg.dsn).path[1:]

    def closed_to_others(df):
        if not pg.ids():  # the first epoch: the driver connects
            return df
        with psycopg.connect(pg.dsn.replace(f"/{name}", "/postgres"), autocommit=True) as connection:
            connection.execute(f'alter database "{name}" allow_connections false')
        return df

    wrapped = exactly_once(
        pg.sink(tuning=PostgresTuning(load="executors")), storage=Storage(ledger=ledger), transform=closed_to_others
    )
    query, error = stopped(stream.receive(range(5), range(5, 10)), wrapped)
    found = refusal(query)
    assert found is not None
    assert found.code == "E501"
    assert "not currently accepting connections" in found.what + found.cause
    tried = shlex.split(found.next)[-1]
    assert tried == pg.sink(tuning=PostgresTuning(load="executors")).address.replace(
        "#orders", "#public.orders"
    )  # as it was found
    assert "DestinationUnavailable: [ONCE-E501]" in str(error)
    assert "SparkException" not in str(error).partition("[ONCE-E501]")[0]
    assert ledger.events("orders")[-1].code == "E501"


@pytest.mark.postgres
def test_a_row_that_executors_brought_is_named_where_a_constraint_refuses_it(stream, pg, ledger):
    pg.says("create table orders (id bigint check (id <> 7000), word text)")
    query, _ = stopped(
        stream.receive(range(6995, 7005)),
        exactly_once(pg.sink(tuning=PostgresTuning(load="executors")), storage=Storage(ledger=ledger)),
    )
    found = refusal(query)
    assert found is not None
    assert found.code == "E503"
    assert "orders_id_check" in found.what
    assert "a number of 4 digits" in found.what
    assert "row 6 of Spark partition 0" in found.what
    assert pg.ids() == []


def test_a_query_that_runs_or_died_of_something_else_has_no_refusal(stream, sink, ledger):
    query = stream.receive(range(5)).start(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert refusal(query) is None
    query.awaitTermination(60)
    assert refusal(query) is None
    assert refusal(ZeroDivisionError("division by zero")) is None


def test_a_query_that_ends_says_so_and_the_next_one_speaks_of_no_silent_end(stream, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    await_ended(ledger, 1)
    stream.receive(range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    opened = [event.reason for event in ledger.events("orders") if event.kind is EventKind.OPENED]
    assert "without a word" not in opened[-1]
    assert f":{os.getpid()} {stream.spark.sparkContext.applicationId}" in opened[-1]


def await_ended(ledger, generation: int) -> None:
    """The thread that closes a run notes its end a moment after the query is over."""
    until = time.monotonic() + 20
    while not any(
        event.kind is EventKind.ENDED and event.generation == generation for event in ledger.events("orders")
    ):
        assert time.monotonic() < until, "the end of the query was not noted"
        time.sleep(0.05)
