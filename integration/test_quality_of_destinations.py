"""Rows that a destination cannot hold are set aside as its own catalogue says, without an expectation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from integration.cases import each
from integration.servers import KafkaAddress
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame
from tests.kafka_client import committed

from onceonly import Output, Quality, exactly_once
from onceonly_sinks.delta import DeltaTuning
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

COLUMNS = {
    "needed": ("text not null", "'x'", "null", "needed: not null"),
    "short": ("varchar(3)", "'日本語'", "'four'", "short: at most 3 characters"),
    "clean": ("text", "'x'", "concat('a', char(0))", "clean: text in UTF-8 without NUL"),
    "utf_8": ("text", "'x'", "cast(unhex('ff') as string)", "utf_8: text in UTF-8 without NUL"),
    "small": ("smallint", "32767L", "32768L", "small: from -32768 to 32767"),
    "money": ("numeric(6,2)", "9999.990", "0.001", "money: at most 6 digits, 2 of them behind the point"),
    "whole": ("numeric(4,0)", "9999L", "10000L", "whole: at most 4 digits, 0 of them behind the point"),
    "known": ("uuid", "repeat('aF', 16)", "'nobody'", "known: a UUID"),
    "raw": ("uuid", "unhex(repeat('aF', 16))", "unhex('00')", "raw: 16 bytes"),
    "mood": ("feeling", "'so \"so\"'", "'angry'", "mood: one of happy, so ?so?"),
    "at": ("timestamp(3)", "timestamp_ntz'2026-01-01 00:00:00.123'", "timestamp_ntz'2026-01-01 00:00:00.1234'", None),
    "sure": ("certain", "1L", "cast(null as bigint)", "sure: not null"),
    "many": ("smallint[]", "array(1L, null)", "array(1L, 70000L)", "many: each from -32768 to 32767"),
    "words": ("text[]", "array('x', null)", "array('x', char(0))", "words: each text in UTF-8 without NUL"),
}
"""By column: its type in the table, a value that it holds, one that it does not, and why not."""

REASONS = {name: said or "at: a multiple of 1000 microseconds" for name, (_, _, _, said) in COLUMNS.items()}
MADE = "create type feeling as enum ('happy', 'so \"so\"'); create domain certain as bigint not null"


def aside(pg: PostgresTarget) -> PostgresSink:
    return PostgresSink(pg.dsn, table="orders_bad")


def each_broken_once(df: DataFrame) -> DataFrame:
    """Row n breaks column n; the rows after these break none, and one row breaks all."""
    every = len(COLUMNS)
    return df.selectExpr(
        "id",
        *(
            f"if(id in ({at}, {every}), {wrong}, {right}) as {name}"
            for at, (name, (_, right, wrong, _)) in enumerate(COLUMNS.items())
        ),
    )


def kept(pg: PostgresTarget, table: str = "orders_bad") -> dict[int, list[Mapping[str, str]]]:
    return {json.loads(row)["id"]: json.loads(why) for row, why in pg.says(f"select row, reasons from {table}")}


@pytest.mark.slow
@pytest.mark.parametrize("ways", [["driver"], pytest.param(["driver", "executors"], marks=pytest.mark.slow)])
def test_each_thing_that_a_table_cannot_hold_is_a_reason(
    stream: FileStream, pg: PostgresTarget, ways: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the driver writes the rows or executors do."""
    pg.says(MADE)
    columns = ", ".join(f"{name} {one[0]}" for name, one in COLUMNS.items())
    every, wrapped = len(COLUMNS), {}
    for way in ways:
        pg.says(f"create table by_{way} (id bigint, {columns}, _epoch bigint)")
        quality = Quality(quarantine=PostgresSink(pg.dsn, table=f"bad_{way}"))
        wrapped[way] = exactly_once(
            PostgresSink(pg.dsn, table=f"by_{way}", tuning=PostgresTuning(load=way)), quality=quality, name=way
        )
    said = each(stream.receive(range(every + 3), range(every + 3, every + 6)), wrapped, shape=each_broken_once)
    assert said == dict.fromkeys(ways, "")
    for way in ways:
        held = [number for (number,) in pg.says(f"select id from by_{way} order by id")]
        assert held == [*range(every + 1, every + 6)], way
        why = kept(pg, f"bad_{way}")
        assert {at: [one["rule"] for one in said] for at, said in why.items() if at < every} == {
            at: [said] for at, said in enumerate(REASONS.values())
        }, way
        assert sorted(one["rule"] for one in why[every]) == sorted(REASONS.values()), way
        assert {one["by"] for said in why.values() for one in said} == {f"postgres:by_{way}"}
    told = "15 of 17 rows quarantined: at: a multiple of 1000 microseconds 2, clean: text in UTF-8"
    assert caplog.text.count(told) == len(ways)


@pytest.mark.slow
def test_without_a_quarantine_nothing_is_asked_and_the_row_is_refused(stream: FileStream, pg: PostgresTarget) -> None:
    pg.says("create table orders (id bigint, word varchar(2), _epoch bigint)")
    said = stream.receive(range(5, 15)).fail(exactly_once(pg.sink(), quality=Quality(expect={"ids": "id >= 0"})))
    assert "[ONCE-E503]" in said
    stream.run(exactly_once(pg.sink(), quality=Quality(expect={"ids": "id >= 0"}, quarantine=aside(pg))))
    assert pg.ids() == [*range(5, 10)]
    assert sorted(kept(pg)) == [*range(10, 15)]


def test_a_row_that_one_of_the_sinks_cannot_hold_reaches_none_of_them(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    pg.says("create table orders (id bigint, word varchar(3), _epoch bigint)")
    memory = MemorySink(id="memory:all")
    even = Output(delta.sink(), name="even", where="id % 2 = 0")
    quality = Quality(expect={"no eleven": "id <> 11"}, quarantine=aside(pg))
    wrapped = exactly_once(memory, even, Output(pg.sink(), name="short", where="id > 99"), quality=quality)
    stream.receive(range(95, 105), range(11, 13)).run(wrapped)
    # Of the rows that output short wants, from 100 on, the word has four characters.
    assert [row["id"] for row in memory.rows()] == [95, 96, 97, 98, 99, 12]
    assert delta.ids() == [12, 96, 98]
    assert pg.ids() == []
    assert kept(pg) == {
        11: [{"by": "expect", "rule": "no eleven"}],
        **{
            number: [{"by": "postgres:orders", "output": "short", "rule": "word: at most 3 characters"}]
            for number in range(100, 105)
        },
    }


@pytest.mark.slow
def test_what_an_output_computes_is_asked_for_what_it_wants_alone(stream: FileStream, pg: PostgresTarget) -> None:
    pg.says("create table orders (id smallint, share smallint not null, _epoch bigint)")
    select = ["id", "cast(100000 / (id - 3) as int) AS share"]
    some = Output(pg.sink(), name="some", where="id > 1", select=select)
    quality = Quality(expect={"not three": "id <> 3"}, quarantine=aside(pg))
    stream.receive(range(10)).run(exactly_once(MemorySink(id="memory:all"), some, quality=quality))
    # 100,000 / 1 and / 2 are no smallint, nor is / -1; the division by nought is guarded by the expectation.
    assert pg.ids() == [7, 8, 9]
    assert sorted(kept(pg)) == [2, 3, 4, 5, 6]
    assert [one["rule"] for one in kept(pg)[4]] == ["share: from -32768 to 32767"]


@pytest.mark.slow
def test_rules_are_read_anew_by_the_next_start(stream: FileStream, pg: PostgresTarget) -> None:
    pg.says("create table orders (id bigint, word varchar(2), _epoch bigint)")
    stream.receive(range(5, 15)).run(exactly_once(pg.sink(), quality=Quality(quarantine=aside(pg))))
    assert (pg.ids(), len(kept(pg))) == ([*range(5, 10)], 5)
    pg.says("alter table orders alter word type varchar(3)")
    stream.receive(range(15, 20)).run(exactly_once(pg.sink(), quality=Quality(quarantine=aside(pg))))
    assert (pg.ids(), len(kept(pg))) == ([*range(5, 10), *range(15, 20)], 5)


@pytest.mark.slow
def test_a_table_that_is_not_there_yet_demands_what_it_will_be_made_of(stream: FileStream, pg: PostgresTarget) -> None:
    wrapped = exactly_once(pg.sink(key="id"), quality=Quality(quarantine=aside(pg)))
    shape = ["if(id = 3, null, id) as id", "if(id = 4, char(0), word) as word"]
    stream.receive(range(6)).run(wrapped, shape=lambda df: df.selectExpr(*shape))
    assert pg.ids() == [0, 1, 2, 5]
    said = pg.says("select reasons from orders_bad order by 1")
    assert [reason["rule"] for [why] in said for reason in json.loads(why)] == [
        "id: not null",
        "word: text in UTF-8 without NUL",
    ]


@pytest.mark.slow
def test_columns_that_a_table_cannot_take_at_all_are_refused_as_ever(stream: FileStream, pg: PostgresTarget) -> None:
    pg.says("create table orders (id bigint, _epoch bigint)")
    said = stream.receive(range(3)).fail(exactly_once(pg.sink(), quality=Quality(quarantine=aside(pg))))
    assert "[ONCE-E506]" in said
    pg.says('alter table orders add column "word" text')
    stream.run(exactly_once(pg.sink(), quality=Quality(quarantine=aside(pg))))
    assert pg.ids() == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("committer", ["log", "spark"])
def test_delta_sets_aside_what_its_columns_and_constraints_refuse(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, spark: Any, committer: str
) -> None:
    spark.sql(
        f"create table delta.`{delta.path}` (id bigint not null, word varchar(3), amount bigint, name char(2))"
        " using delta"
    )
    spark.sql(f"alter table delta.`{delta.path}` add constraint positive check (amount > 0)")

    def shape(df: DataFrame) -> DataFrame:
        return df.selectExpr(
            "if(id = 98, null, id) as id", "word", "if(id = 97, null, id - 95) as amount", "'ab' as name"
        )

    wrapped = exactly_once(delta.sink(tuning=DeltaTuning(committer=committer)), quality=Quality(quarantine=aside(pg)))
    stream.receive(range(94, 102)).run(wrapped, shape=shape)
    assert delta.ids() == [96, 99]
    why = sorted(
        tuple(load["rule"] for load in json.loads(said)) for [said] in pg.says("select reasons from orders_bad")
    )
    assert why == [
        ("constraint positive",),
        ("constraint positive",),
        ("constraint positive",),
        ("id: not null",),
        ("word: at most 3 characters",),
        ("word: at most 3 characters",),
    ]


@pytest.mark.slow
def test_an_expectation_guards_a_constraint_that_would_raise(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, spark: Any
) -> None:
    spark.sql(f"create table delta.`{delta.path}` (id bigint, word string) using delta")
    spark.sql(f"alter table delta.`{delta.path}` add constraint large check (10 / id >= 2)")
    quality = Quality(expect={"not nought": "id <> 0"}, quarantine=aside(pg))
    stream.receive(range(8)).run(exactly_once(delta.sink(), quality=quality))
    assert delta.ids() == [1, 2, 3, 4, 5]
    assert {number: [one["rule"] for one in why] for number, why in kept(pg).items()} == {
        0: ["not nought"],
        6: ["constraint large"],
        7: ["constraint large"],
    }


@pytest.mark.slow
@pytest.mark.kafka
def test_brokers_are_not_sent_what_no_topic_holds(
    stream: FileStream, pg: PostgresTarget, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("compacted", config={"cleanup.policy": "compact"})

    def shape(df: DataFrame) -> DataFrame:
        return df.selectExpr(
            "id",
            "word AS value",
            "if(id = 1, null, word) AS key",
            "if(id = 2, 7, 0) AS partition",
            "if(id = 3, timestamp_millis(0), timestamp_millis(1)) AS timestamp",
            "if(id = 4, array(named_struct('key', cast(null as string), 'value', unhex('00'))), null) AS headers",
        )

    sink = KafkaSink(any_kafka.servers, topic)
    stream.receive(range(6)).run(exactly_once(sink, quality=Quality(quarantine=aside(pg))), shape=shape)
    assert sorted(committed(any_kafka.servers, topic)) == ["w0", "w5"]
    assert {number: [one["rule"] for one in why] for number, why in kept(pg).items()} == {
        1: ["key: not null"],
        2: ["partition: from 0 to 0"],
        3: ["timestamp: after 1970-01-01 00:00 UTC"],
        4: ["headers: each with a key"],
    }


@pytest.mark.slow
def test_a_row_that_is_as_its_table_demands_and_breaks_a_check_is_refused_with_the_way_out(
    stream: FileStream, pg: PostgresTarget
) -> None:
    pg.says("create table orders (id bigint check (id < 7), word text, _epoch bigint)")
    said = stream.receive(range(10)).fail(exactly_once(pg.sink(), quality=Quality(quarantine=aside(pg))))
    assert "[ONCE-E503]" in said
    assert "expect=" in said
    stream.run(exactly_once(pg.sink(), quality=Quality(expect={"id < 7": "id < 7"}, quarantine=aside(pg))))
    assert pg.ids() == [*range(7)]
    assert sorted(kept(pg)) == [7, 8, 9]
