"""Rows come back out of a quarantine as they were, and back into their sinks once: by a query like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from integration.jobs import Job
from integration.processes import Drivers, was_killed
from integration.servers import KafkaAddress
from integration.stage import ROWS as ROWS_PER_FILE
from integration.stage import Inbox
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame

from onceonly import Quality, Recovery, Storage, bad_rows, exactly_once
from onceonly.audit import Verdict, audit
from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly.spark import frames
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.spark

TYPES = {
    "tiny": ("tinyint", "-128Y"),
    "long": ("bigint", "9223372036854775807L"),
    "single": ("float", "float('nan')"),
    "double": ("double", "5e-324D"),
    "infinite": ("double", "double('-infinity')"),
    "nought": ("double", "-0.0D"),
    "exact": ("decimal(38,10)", "cast('9999999999999999999999999999.9999999999' as decimal(38,10))"),
    "awkward": ("string", "concat('a\"b\\\\ \\n 日🧾', char(0))"),
    "raw": ("binary", "unhex('00ff')"),
    "day": ("date", "date'0001-01-01'"),
    "moment": ("timestamp", "timestamp'2026-10-25 02:30:00.123456+01:00'"),
    "old": ("timestamp", "timestamp'1880-01-01 00:00:00.000001'"),
    "late": ("timestamp", "timestamp'9999-12-31 23:59:59.999999'"),
    "local": ("timestamp_ntz", "timestamp_ntz'2026-03-29 02:30:00.123456'"),
    "sure": ("boolean", "true"),
    "list": ("array<bigint>", "array(1L, null)"),
    "empty": ("array<string>", "array()"),
    "map": ("map<string,int>", "map('a', 1, 'b', null)"),
    "nested": ("struct<a:bigint,b:struct<c:decimal(5,2)>>", "named_struct('a', null, 'b', named_struct('c', 1.10))"),
    "none": ("struct<a:int>", "null"),
    "span": ("interval day to second", "interval '1 02:03:04.000005' day to second"),
}
SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
ROWS = [f"cast({value} as {kind}) as {name}" for name, (kind, value) in TYPES.items()]


KEPT = "reasons string, row string, hash bigint"


def set_aside(
    stream: FileStream, spark: Any, ids: list[int], shape: Callable[[DataFrame], DataFrame] | None = None
) -> DataFrame:
    """What a quarantine keeps of these rows, all of which are bad."""
    bad = MemorySink(id="memory:bad")
    wrapped = exactly_once(MemorySink(id="memory:rows"), quality=Quality(expect={"none": "id < 0"}, quarantine=bad))
    stream.receive(ids).run(wrapped, shape=shape or (lambda df: df))
    return spark.createDataFrame([(row["reasons"], row["row"], row["hash"]) for row in bad.rows()], KEPT)


def one_of_each(df: DataFrame) -> DataFrame:
    return df.selectExpr("id", *ROWS)


@pytest.mark.slow
def test_every_type_comes_back_as_it_was(stream: FileStream, spark: Any) -> None:
    kept = set_aside(stream, spark, [1], one_of_each)
    read = []
    for zone in ("Europe/Berlin", "UTC", "Asia/Kathmandu"):
        with frames.setting(kept, "spark.sql.session.timeZone", zone):  # an expression takes it when it is analysed
            read.append(bad_rows(kept, f"id bigint, {SCHEMA}").selectExpr(f"'{zone}' AS zone", "*"))
    found = reduce(DataFrame.unionAll, read).collect()
    [wanted] = spark.range(1, 2).selectExpr("id", *ROWS).collect()
    assert {row["zone"]: row["intact"] for row in found} == {"Europe/Berlin": True, "UTC": True, "Asia/Kathmandu": True}
    assert {json.dumps(json.loads(row["reasons"])) for row in found} == {'[{"by": "expect", "rule": "none"}]'}
    assert {str(row["row"]) for row in found} == {str(wanted)}


def test_a_row_is_intact_only_where_schema_and_text_give_it_back(spark: Any, stream: FileStream) -> None:
    broken = "if(id = 1, cast(unhex('ff') as string), word) as word"
    kept = set_aside(stream, spark, [1, 2], lambda df: df.selectExpr("id", broken))
    wanted = {
        "id bigint, word string": {False, True},
        "id int, word string": {False},
        "id bigint": {False},
        "id bigint, wort string": {False},
    }
    found = {schema: {row["intact"] for row in bad_rows(kept, schema).collect()} for schema in wanted}
    assert found == wanted
    kinds = bad_rows(kept, "id bigint, word string").select("row.id", "intact").collect()
    assert {row["id"]: row["intact"] for row in kinds} == {1: False, 2: True}, "no text keeps bytes that are no UTF-8"


def test_columns_of_no_quarantine_and_types_that_json_lacks_are_refused(spark: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"bad_rows\(\) got columns id"):
        bad_rows(spark.range(3), "id bigint")
    kept = spark.createDataFrame([], KEPT)
    for schema in ("id bigint, at map<int,string>", "no ddl at all ,,", "int"):
        with pytest.raises(ConfigurationError, match=r"bad_rows\(\) cannot read rows of"):
            bad_rows(kept, schema)
    assert bad_rows(kept, "id bigint, at string").columns == ["row", "reasons", "intact"]


def mended(bad: DataFrame) -> DataFrame:
    """Rows as they are to come back; one of them cannot be mended, and is left where it is."""
    found = bad_rows(bad, "id bigint, word string").where("intact")
    return found.select("row.*").where("id <> 9").selectExpr("id", "substr(word, 1, 2) as word")


def test_mended_rows_reach_their_table_once(stream: FileStream, delta: DeltaTarget, spark: Any, tmp_path: Path) -> None:
    aside = str(tmp_path / "bad")
    spark.sql(f"create table delta.`{delta.path}` (id bigint, word varchar(2)) using delta")

    def again() -> None:
        stream_ = mended(spark.readStream.format("delta").load(aside))
        write = exactly_once(
            delta.sink(), recovery=Recovery(adopt="here"), storage=Storage(ledger=str(tmp_path / "ledger.db"))
        )
        query = stream_.writeStream.foreachBatch(write).queryName("orders mended")
        query = query.option("checkpointLocation", str(tmp_path / "mended")).trigger(availableNow=True).start()
        query.awaitTermination()

    quality = Quality(quarantine=DeltaSink(aside))
    wrapped = exactly_once(delta.sink(), quality=quality, storage=Storage(ledger=str(tmp_path / "orders.db")))
    stream.receive(range(8, 12)).run(wrapped)
    assert delta.ids() == [8, 9]
    again()
    assert delta.ids() == [8, 9, 10, 11]
    stream.receive(range(12, 14)).run(wrapped)
    again()
    assert delta.ids() == [*range(8, 14)]
    for name, own in (("orders", str(tmp_path / "orders.db")), ("orders mended", str(tmp_path / "ledger.db"))):
        judged_exact(name, own, delta.sink(), *([DeltaSink(aside)] if name == "orders" else []))


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.postgres
def test_rows_come_back_out_of_a_topic(
    stream: FileStream, pg: PostgresTarget, spark: Any, any_kafka: KafkaAddress, tmp_path: Path
) -> None:
    topic = any_kafka.topic("aside")
    pg.says("create table orders (id bigint, word varchar(2), _epoch bigint)")
    wrapped = exactly_once(pg.sink(), quality=Quality(quarantine=KafkaSink(any_kafka.servers, topic)))
    stream.receive(range(8, 12)).run(wrapped)
    options = {
        "kafka.bootstrap.servers": any_kafka.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    bad = spark.readStream.format("kafka").options(**options).load()
    write = exactly_once(pg.sink(), recovery=Recovery(adopt="here"))
    query = mended(bad).writeStream.foreachBatch(write).queryName("orders mended")
    query = query.option("checkpointLocation", str(tmp_path / "mended")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert pg.says("select id, word from orders order by id") == [(8, "w8"), (9, "w9"), (10, "w1"), (11, "w1")]
    stream.receive(range(12, 13)).run(wrapped)
    assert pg.ids() == [8, 9, 10, 11]


# ---- killed

EXPECTED = "pmod(xxhash64(id, 20), 20) <> 3"
WORDLESS = "pmod(xxhash64(id, 20), 20) = 7"
DEATHS = [f"{Point.STAGE_AFTER}:killgroup", f"{Point.COMMIT_SENT}:killgroup", f"{Point.COMMIT_SENT}:killgroup:2"]
DEATHS += [f"{Point.COMMIT_AFTER}:killgroup", f"{Point.COMMIT_AFTER}:killgroup:2", f"{Point.RECORD_BEFORE}:killgroup"]
ALONE = [one for one in DEATHS if "stage" not in one and not one.endswith(":2")]
"""Where the one sink of the query that brings rows in again can die: it stages nothing."""


@pytest.mark.slow
@pytest.mark.kill
def test_no_kill_of_either_query_loses_or_doubles_a_mended_row(
    tmp_path: Path, warm_rivals: Drivers, spark: Any
) -> None:
    inbox, table, aside = Inbox(tmp_path / "in"), DeltaTarget(str(tmp_path / "table")), str(tmp_path / "bad")
    spark.sql(f"create table delta.`{table.path}` (id bigint, word string not null) using delta")
    said = {"expect": EXPECTED, "wordless": WORDLESS, "also": (("delta", aside),)}
    ledgers = {name: str(tmp_path / f"{name}.db") for name in ("orders", "mended")}
    first = Job("orders", "delta", table.path, str(inbox.folder), str(tmp_path / "ck"), ledgers["orders"], **said)
    again = Job("mended", "delta", table.path, aside, str(tmp_path / "again"), ledgers["mended"], mends=True)
    inbox.fill(4)
    warm_rivals.finish(first)
    killed = []
    for number, fault in enumerate(DEATHS):
        inbox.fill(2 * number + 6)
        one = warm_rivals.start(first, fault=fault)
        other = warm_rivals.start(again, fault=ALONE[number % len(ALONE)])
        assert was_killed(one), f"{fault}: {one.last_words()}"
        killed.append(was_killed(other))
    assert sum(killed) > len(DEATHS) // 2, killed
    warm_rivals.finish(first)
    warm_rivals.finish(again)
    rows = spark.range(inbox.files * ROWS_PER_FILE)
    bad = {row["id"] for row in rows.where(f"not ({EXPECTED}) or {WORDLESS}").collect()}
    assert 0.05 < len(bad) / rows.count() < 0.2
    held = spark.read.format("delta").load(table.path).orderBy("id").collect()
    assert [(row["id"], row["word"]) for row in held] == [
        (number, "mended" if number in bad else f"w{number}") for number in range(inbox.files * ROWS_PER_FILE)
    ]
    for name, ledger in ledgers.items():
        judged_exact(name, ledger, table.sink(), *([DeltaSink(aside)] if name == "orders" else []))


def judged_exact(pipeline: str, place: str, *sinks: Sink) -> None:
    ledger = SqlLedger(place)
    ledger.open()
    found = audit(ledger, pipeline, sinks)
    for sink in sinks:
        sink.close()
    ledger.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]


@pytest.mark.postgres
def test_a_quarantine_in_postgres_keeps_the_same_text(stream: FileStream, pg: PostgresTarget, spark: Any) -> None:
    aside = PostgresSink(pg.dsn, table="orders_bad")
    wrapped = exactly_once(pg.sink(), quality=Quality(expect={"none": "id < 0"}, quarantine=aside))
    stream.receive([1, 2]).run(wrapped)
    kept = spark.createDataFrame(pg.says("select reasons, row, hash from orders_bad"), KEPT)
    found = bad_rows(kept, "id bigint, word string").orderBy("row.id").collect()
    assert [(row["row"]["word"], row["intact"]) for row in found] == [("w1", True), ("w2", True)]
