"""What goes wrong in real life, through a real foreachBatch: a clear error, and nothing is lost or doubled."""

from __future__ import annotations

import datetime
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from integration.targets import DeltaTarget
from pyspark.sql import DataFrame

from onceonly import OnceOnlyError, Output, Storage, exactly_once
from onceonly.protocol import Sink
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.kafka.columns import Columns
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


# ---- rows that no sink takes, all in one batch of one query


@dataclass(frozen=True)
class Bad:
    """Rows that must be refused.

    Attributes:
        select: of the rows of a batch: expressions, or a function of the batch.
        code: of the refusal.
        words: what it must say.
        ddl: columns of the table that is there before; empty for none.
        options: of the sink.
    """

    select: tuple[str, ...] | Callable[[DataFrame], DataFrame]
    code: str
    words: tuple[str, ...] = ()
    ddl: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def of(self, rows: DataFrame) -> DataFrame:
        return self.select(rows) if callable(self.select) else rows.selectExpr(*self.select)


def vectors(rows: DataFrame) -> DataFrame:
    from pyspark.ml.feature import VectorAssembler

    return VectorAssembler(inputCols=["id"], outputCol="point").transform(rows).select("id", "point")


KEY = (("key", "id"),)
KEYS = {
    "null key": Bad(("nullif(id, 3) as id", "word"), "E504", options=KEY),
    "key twice": Bad(("id div 2 as id", "word"), "E505", options=KEY),
    "misspelt key": Bad(("id", "word"), "E506", ("wrod", "id, word", "did you mean word?"), options=(("key", "wrod"),)),
}
VALUES = {
    "NUL": Bad(("id", "concat(word, char(0)) as word"), "E503", ("word",), "word text"),
    "over-long": Bad(("id", "'far too long' as word"), "E503", ("word",), "word varchar(3)"),
    "overflow": Bad(("id", "cast(123456.7 as decimal(10,1)) as word"), "E503", ("word",), "word numeric(4,1)"),
    "past the year 9999, inside JSON": Bad(
        ("id", "named_struct('until', timestamp_micros(253402300800000000 + 86400000000 * id)) as word"),
        "E503",
        ("column word",),
    ),
    "a type of the user's own": Bad(vectors, "E506", ("VectorUDT",)),
}
FORMLESS = {
    "parse_json(concat('{\"a\": \"', word, '\"}'))": "variant",
    "array(parse_json('1'))": "array<variant>",
    "map(named_struct('a', word), 1)": "map<struct<a:string>,int>",
}
VALUES |= {
    f"{kind}, {'table there' if ddl else 'no table'}": Bad(("id", f"{expression} as word"), "E506", (kind,), ddl)
    for expression, kind in FORMLESS.items()
    for ddl in ("", "word jsonb")
}


def refusals(stream: Any, cases: dict[str, Bad], sink: Callable[[str, Bad], Sink]) -> dict[str, str]:
    """Offer one batch to a pipeline for each case, and return what each was refused with."""
    found = {}

    def write(rows: DataFrame, batch_id: int) -> None:
        for case, bad in cases.items():
            wrapped = exactly_once(
                sink(case, bad),
                name=f"orders, {case}",
                storage=Storage(ledger=str(stream.root / "ledger.db")),
                transform=bad.of,
            )
            try:
                wrapped(rows, batch_id)
                found[case] = "nothing"
            except OnceOnlyError as refused:
                found[case] = str(refused)

    stream.receive(range(5)).run(write)
    assert set(found) == set(cases)
    return found


def other_than_wanted(found: dict[str, str], cases: dict[str, Bad]) -> dict[str, str]:
    return {
        case: said
        for case, said in found.items()
        if not all(words in said for words in (f"[ONCE-{cases[case].code}]", *cases[case].words))
    }


def test_rows_that_postgres_cannot_hold_are_refused_by_column_or_type_and_nothing_is_written(stream, pg):
    cases = {**KEYS, **VALUES}
    tables = {case: f"t{number}" for number, case in enumerate(cases)}
    for case, bad in cases.items():
        if bad.ddl:
            pg.says(f"create table {tables[case]} (id bigint, {bad.ddl}, _epoch bigint)")
    found = refusals(stream, cases, lambda case, bad: PostgresSink(pg.dsn, table=tables[case], **dict(bad.options)))
    assert other_than_wanted(found, cases) == {}
    assert "OverflowError" not in found["past the year 9999, inside JSON"]
    there = {table for (table,) in pg.says("select relname from pg_class where relkind = 'r' and relname ~ '^t[0-9]'")}
    assert there == {tables[case] for case, bad in cases.items() if bad.ddl}
    assert [table for table in sorted(there) if pg.says(f"select count(*) from {table}") != [(0,)]] == []


def test_rows_that_a_delta_table_cannot_merge_are_refused_and_nothing_is_written(stream, tmp_path):
    found = refusals(stream, KEYS, lambda case, bad: DeltaSink(tmp_path / case, **dict(bad.options)))
    assert other_than_wanted(found, KEYS) == {}
    assert [case for case in KEYS if list(Path(tmp_path / case).glob("*.parquet"))] == []


# ---- both sinks


def test_rows_arrive_once_across_restarts(stream, target):
    stream.receive(range(10), range(10, 20)).run(exactly_once(target.sink()))
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(exactly_once(target.sink()))
    assert target.ids() == list(range(30))


@pytest.mark.slow
def test_executors_write_the_same_rows(stream, either):
    tuning = (DeltaTuning if isinstance(either, DeltaTarget) else PostgresTuning)(driver_limit=1)
    stream.receive(range(500), range(500, 1000)).run(exactly_once(either.sink(tuning=tuning)))
    assert either.ids() == list(range(1000))


def test_a_replaced_table_is_refused(stream, target):
    stream.receive(range(10)).run(exactly_once(target.sink()))
    target.vanish()
    said = stream.receive(range(10, 20)).fail(exactly_once(target.sink()))
    assert "[ONCE-E208]" in said


CHANGED = {
    "a column disappears": ({}, ("id", "word as other"), "other"),
    "a type changes": ({}, ("id", "id as word"), "word"),
    "a key is misspelt": ({"key": "wrod"}, ("id", "word"), "did you mean word?"),
}


def test_columns_that_change_between_epochs_are_refused_and_the_batch_is_written_when_they_are_back(stream, target):
    stream.receive(range(10)).run(exactly_once(target.sink()))
    stream.receive(range(10, 20))
    found = {}
    for case, (options, select, words) in CHANGED.items():
        said = stream.fail(exactly_once(target.sink(**options)), shape=lambda df, select=select: df.selectExpr(*select))
        if "[ONCE-E506]" not in said or words not in said:
            found[case] = said
    assert found == {}
    assert target.ids() == list(range(10))
    stream.run(exactly_once(target.sink()))
    assert target.ids() == list(range(20))


def test_an_upsert_takes_the_newest_of_a_key(stream, either):
    sink = either.sink(key="id", sequence="seq")
    stream.receive(range(10), range(10, 20)).run(
        exactly_once(sink), shape=lambda df: df.selectExpr("id % 5 as id", "word", "id as seq")
    )
    assert newest(either) == [(number, f"w{number + 15}") for number in range(5)]


def newest(target: Any) -> list[tuple[Any, ...]]:
    if hasattr(target, "says"):
        return target.says("select id, word from orders order by id")
    return sorted(target.rows("id", "word"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_ledger_is_named_for_an_ordinary_user(stream, either, tmp_path):
    ledger = tmp_path / "ledger.db"
    stream.receive(range(10)).run(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    ledger.chmod(stat.S_IRUSR)
    said = stream.receive(range(10, 20)).fail(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    assert "[ONCE-E511]" in said
    assert either.ids() == list(range(10))


def test_a_ledger_that_is_no_database_is_named(stream, either, tmp_path):
    ledger = tmp_path / "ledger.db"
    ledger.write_text("not a database, but text that is long enough to look like one" * 40)
    said = stream.receive(range(10)).fail(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    assert "[ONCE-E511]" in said
    assert "ledger.db" in said


def test_a_ledger_deleted_while_stopped_costs_no_row(stream, either, tmp_path):
    ledger = tmp_path / "ledger.db"
    stream.receive(range(10), range(10, 20)).run(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    ledger.unlink()
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    assert either.ids() == list(range(30))


def test_what_a_topic_lacks_is_made_of_the_other_columns_as_the_refusal_says(spark):
    def taken_by_kafka(frame):
        Columns.check("kafka:orders", frame.limit(0).toArrow().schema, "orders")
        return frame.columns

    orders = spark.createDataFrame([(1, "w1")], "id bigint, word string")
    with pytest.raises(OnceOnlyError, match="no column value") as refused:
        taken_by_kafka(orders)
    [alone] = re.findall(r'selectExpr\("(.*?)"\)', refused.value.remedy)
    assert taken_by_kafka(orders.selectExpr(alone)) == ["value"]


@pytest.mark.kafka
def test_a_topic_beside_a_table_is_refused_with_the_output_that_keeps_the_table_as_it_is(stream, pg, any_kafka):
    topic, stopped = any_kafka.topic("records"), []
    pg.says("create table orders (id bigint, word text)")
    wide = {"transform": lambda rows: rows.selectExpr("*", "word AS value")}
    stream.receive(range(3))
    for options in ({}, wide):
        stopped.append(stream.fail(exactly_once(pg.sink(), KafkaSink(any_kafka.servers, topic), **options)))
    assert ["the batch has no column value" in stopped[0], "the table has no column value" in stopped[1]] == [True] * 2
    calls = [re.findall(r"(exactly_once\(table, Output\(.*\)\))", said)[0] for said in stopped]
    assert calls[0] == calls[1]
    names = {"exactly_once": exactly_once, "Output": Output, "table": pg.sink()}
    names["KafkaSink"] = lambda _: KafkaSink(any_kafka.servers, topic)
    stream.run(eval(calls[0], names))
    assert pg.ids() == [0, 1, 2]
    found = pg.says("select column_name from information_schema.columns where table_name = 'orders' order by 1")
    assert [name for (name,) in found] == ["id", "word"]


# ---- Postgres


def test_a_wrong_login_is_named_and_its_password_never_printed(stream, postgres):
    # The embedded server: what another says depends on how it checks logins.
    pairs = psycopg.conninfo.conninfo_to_dict(postgres.dsn) | {"user": "nobody", "password": "geheim"}
    url = "postgresql://nobody:geheim@{host}:{port}/{dbname}".format(**pairs)
    for spelled in (psycopg.conninfo.make_conninfo(**pairs), url):
        said = stream.receive(range(3)).fail(exactly_once(PostgresSink(spelled, table="orders")))
        assert "geheim" not in said
        # libpq gives a failed login no SQLSTATE, so it cannot be told from an address where nobody answers.
        assert "[ONCE-E501]" in said
        assert 'role "nobody" does not exist' in said


def test_a_database_that_is_away_at_the_start_is_named(stream):
    said = stream.receive(range(3)).fail(exactly_once(PostgresSink("postgresql://127.0.0.1:1/none", table="orders")))
    assert "[ONCE-E501]" in said
    assert "onceonly doctor" in said


def test_a_table_restored_to_an_older_state_is_refused(stream, pg):
    stream.receive(range(10)).run(exactly_once(pg.sink()))
    pg.says("create table kept as select * from onceonly.head")
    stream.receive(range(10, 20), range(20, 30)).run(
        exactly_once(pg.sink(), storage=Storage(ledger=stream.root / "own.db"))
    )
    pg.says("delete from onceonly.epoch where epoch > 1")
    pg.says("update onceonly.head set epoch = 1, chain = (select chain from kept)")
    pg.says("delete from orders where _epoch > 1")
    said = stream.receive(range(30, 40)).fail(exactly_once(pg.sink(), storage=Storage(ledger=stream.root / "own.db")))
    assert "[ONCE-E207]" in said


# ---- Delta


@pytest.mark.slow
def test_a_restored_delta_table_is_refused(stream, spark, delta):
    stream.receive(range(10), range(10, 20)).run(exactly_once(delta.sink()))
    versions = DeltaTable(delta.path).version()
    spark.sql(f"restore table delta.`{delta.path}` to version as of {versions - 1}")
    said = stream.receive(range(20, 30)).fail(exactly_once(delta.sink()))
    assert "[ONCE-E209]" in said
    assert "RESTORE" in said


def test_a_foreign_delete_in_a_delta_table_is_refused(stream, spark, delta):
    stream.receive(range(10)).run(exactly_once(delta.sink()))
    DeltaTable(delta.path).delete("id = 3")
    assert "[ONCE-E209]" in stream.receive(range(10, 20)).fail(exactly_once(delta.sink()))


@pytest.mark.slow
def test_optimize_and_vacuum_between_epochs_are_harmless(stream, delta):
    stream.receive(range(10), range(10, 20)).run(exactly_once(delta.sink()))
    table = DeltaTable(delta.path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    stream.receive(range(20, 30)).run(exactly_once(delta.sink()))
    assert delta.ids() == list(range(30))


@pytest.mark.slow
def test_a_retention_that_forgets_markers_is_refused(stream, spark, delta):
    stream.receive(range(10)).run(exactly_once(delta.sink()))
    retention = "'delta.setTransactionRetentionDuration' = 'interval 1 hour'"
    spark.sql(f"alter table delta.`{delta.path}` set tblproperties ({retention})")
    assert "[ONCE-E509]" in stream.receive(range(10, 20)).fail(exactly_once(delta.sink()))


@pytest.mark.slow
def test_values_of_all_kinds_come_back_from_delta_as_spark_made_them(stream, spark, delta):
    def shaped(df):
        return df.selectExpr(
            "id",
            "cast(id as decimal(12,2)) d",
            "timestamp'2020-01-01 10:00:00' + make_dt_interval(id) t",
            "date'2020-01-01' + cast(id as int) day",
            "array(id, null) a",
            "named_struct('x', word) s",
            "if(id = 2, null, word) n",
        )

    stream.receive(range(5)).run(exactly_once(delta.sink()), shape=shaped)
    rows = spark.read.format("delta").load(delta.path).orderBy("id").collect()
    assert [row.n for row in rows] == ["w0", "w1", None, "w3", "w4"]
    assert rows[3].a == [3, None]
    assert rows[3].s.x == "w3"
    assert rows[3].day == datetime.date(2020, 1, 4)
    assert [row.d for row in rows] == [Decimal(number).quantize(Decimal("0.01")) for number in range(5)]
    assert [row.t for row in rows] == [datetime.datetime(2020, 1, 1 + number, 10) for number in range(5)]
