"""One stream into many tables by a column: each row in the table of its value; what has none is bad, or counted."""

from __future__ import annotations

import json

import pytest
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame

from onceonly import Output, Quality, Route, Storage, exactly_once
from onceonly_checkpoints.ledger import Ledger
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def kinds(df: DataFrame) -> DataFrame:
    """Of ten rows, 0 to 9: two are orders, two are refunds, the others of kinds c, d and of none."""
    return df.selectExpr("id", "word", "get(array('order', 'it\\'s', 'c', 'd'), int(id % 5)) AS kind")


def ids(pg: PostgresTarget, table: str) -> list[int]:
    return [row[0] for row in pg.says(f"select id from {table} order by id")]


def test_each_row_goes_into_the_table_of_its_value_in_one_transaction(stream: FileStream, pg: PostgresTarget) -> None:
    orders = pg.sink()
    route = Route("kind", {"order": orders, "it's": Output(orders.table("refunds"), name="refunds", select=["id"])})
    wrapped = exactly_once(route, quality=Quality(quarantine=PostgresSink(pg.dsn, table="orders_bad")))
    stream.receive(range(10), range(10, 15)).run(wrapped, shape=kinds)
    assert ids(pg, "orders") == [0, 5, 10]
    assert ids(pg, "refunds") == [1, 6, 11]
    bad = {json.loads(row)["id"]: json.loads(why) for row, why in pg.says("select row, reasons from orders_bad")}
    assert sorted(bad) == [2, 3, 4, 7, 8, 9, 12, 13, 14]
    assert bad[2] == bad[4] == [{"by": "expect", "rule": "a known kind"}]
    transactions = pg.says("select distinct xmin::text from orders union select distinct xmin::text from refunds")
    assert len(transactions) == 2, "one for each epoch, whatever the table"


@pytest.mark.slow
def test_a_value_that_nobody_named_stops_the_query_and_the_printed_way_leads_on(
    stream: FileStream, pg: PostgresTarget
) -> None:
    route = {"order": pg.sink()}
    said = stream.receive(range(10)).fail(exactly_once(Route("kind", route)), shape=kinds)
    assert "[ONCE-E522] 8 of the 10 rows" in said, said[:2000]
    assert "a known kind 8" in said
    assert "quality=Quality(..., quarantine=sink)" in said
    assert pg.says("select to_regclass('orders')") == [(None,)]
    aside = PostgresSink(pg.dsn, table="orders_bad")
    stream.run(exactly_once(Route("kind", route), quality=Quality(quarantine=aside)), shape=kinds)
    assert ids(pg, "orders") == [0, 5]
    assert pg.says("select count(*) from orders_bad") == [(8,)]


def test_values_may_share_a_table_and_others_be_ignored(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    every, both = MemorySink(id="memory:all"), delta.sink()
    wrapped = exactly_once(every, Route("kind", {"order": pg.sink(), "c": both, "d": both}, unknown="ignore"))
    stream.receive(range(10)).run(wrapped, shape=kinds)
    assert ids(pg, "orders") == [0, 5]
    assert delta.ids() == [2, 3, 7, 8]
    assert sorted(row["id"] for row in every.rows()) == [*range(10)]


def test_rows_are_not_routed_by_a_number(stream: FileStream, ledger: Ledger) -> None:
    kept = MemorySink("memory:kept")
    one, other = Output(kept, name="one"), Output(MemorySink("memory:other"), name="other")
    stream.receive(range(3))
    for values in ({"1": one, "01": other}, {"x1": one}):
        told = stream.fail(exactly_once(Route("id", values, unknown="ignore"), storage=Storage(ledger=ledger)))
        assert "[ONCE-E121]" in told
        assert "id is of type bigint" in told
        assert 'give string(id): Route("string(id)", ...)' in told
    stream.run(exactly_once(Route("string(id)", {"1": one}, unknown="ignore"), storage=Storage(ledger=ledger)))
    assert [row["id"] for row in kept.rows()] == [1]


@pytest.mark.slow
def test_what_is_no_column_is_refused_before_anything_is_written(stream: FileStream, pg: PostgresTarget) -> None:
    said = stream.receive(range(10)).fail(exactly_once(Route("kin", {"order": pg.sink()})), shape=kinds)
    assert "[ONCE-E121]" in said
    assert "kin" in said
    assert pg.says("select to_regclass('orders')") == [(None,)]
