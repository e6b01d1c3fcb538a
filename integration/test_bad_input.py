"""What goes wrong in real life, through a real foreachBatch: a clear error, and nothing is lost or doubled."""

from __future__ import annotations

import ast
import datetime
import os
import stat

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f

from onceonly import OnceOnlyError, exactly_once
from onceonly_sinks.kafka.columns import Columns
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


# ---- both sinks


def test_rows_arrive_once_across_restarts(stream, target):
    stream.receive(range(10), range(10, 20)).run(exactly_once(target.sink()))
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(exactly_once(target.sink()))
    assert target.ids() == list(range(30))


def test_executors_write_the_same_rows(stream, either):
    stream.receive(range(500), range(500, 1000)).run(exactly_once(either.sink(driver_limit=1)))
    assert either.ids() == list(range(1000))


def test_a_replaced_table_is_refused(stream, target):
    stream.receive(range(10)).run(exactly_once(target.sink()))
    target.vanish()
    said = stream.receive(range(10, 20)).fail(exactly_once(target.sink()))
    assert "[ONCE-E208]" in said


def test_a_column_that_disappears_between_epochs_is_refused(stream, either):
    stream.receive(range(10)).run(exactly_once(either.sink()))
    said = stream.receive(range(10, 20)).fail(
        exactly_once(either.sink()), shape=lambda df: df.select("id", f.col("word").alias("other"))
    )
    assert "[ONCE-E506]" in said
    assert "other" in said
    assert either.ids() == list(range(10))


def test_a_type_that_changes_between_epochs_is_refused(stream, target):
    stream.receive(range(10)).run(exactly_once(target.sink()))
    said = stream.receive(range(10, 20)).fail(
        exactly_once(target.sink()), shape=lambda df: df.select("id", f.col("id").alias("word"))
    )
    assert "[ONCE-E506]" in said
    assert "word" in said
    assert target.ids() == list(range(10))


def test_a_null_key_is_refused(stream, target):
    said = stream.receive(range(10)).fail(
        exactly_once(target.sink(key="id")), shape=lambda df: df.selectExpr("nullif(id, 3) as id", "word")
    )
    assert "[ONCE-E504]" in said


def test_a_key_twice_in_one_epoch_is_refused(stream, target):
    said = stream.receive(range(10)).fail(
        exactly_once(target.sink(key="id")), shape=lambda df: df.selectExpr("id div 2 as id", "word")
    )
    assert "[ONCE-E505]" in said


@pytest.mark.parametrize("existing", [False, True])
def test_a_misspelt_key_lists_the_columns_and_names_the_one_that_was_meant(stream, either, existing):
    if existing:
        stream.receive(range(5)).run(exactly_once(either.sink(key="id")))
    said = stream.receive(range(5, 10)).fail(exactly_once(either.sink(key="wrod")))
    assert "[ONCE-E506]" in said
    assert "wrod" in said
    assert "id, word" in said
    assert "did you mean word?" in said


def test_an_upsert_takes_the_newest_of_a_key(stream, either):
    sink = either.sink(key="id", sequence="seq")
    stream.receive(range(10), range(10, 20)).run(
        exactly_once(sink), shape=lambda df: df.selectExpr("id % 5 as id", "word", "id as seq")
    )
    assert either.ids() == [0, 1, 2, 3, 4]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_ledger_is_named_for_an_ordinary_user(stream, either, tmp_path):
    ledger = tmp_path / "ledger.db"
    stream.receive(range(10)).run(exactly_once(either.sink(), ledger=ledger))
    ledger.chmod(stat.S_IRUSR)
    said = stream.receive(range(10, 20)).fail(exactly_once(either.sink(), ledger=ledger))
    assert "[ONCE-E511]" in said
    assert either.ids() == list(range(10))


def test_a_ledger_that_is_no_database_is_named(stream, either, tmp_path):
    ledger = tmp_path / "ledger.db"
    ledger.write_text("not a database, but text that is long enough to look like one" * 40)
    said = stream.receive(range(10)).fail(exactly_once(either.sink(), ledger=ledger))
    assert "[ONCE-E511]" in said
    assert "ledger.db" in said


def test_a_ledger_deleted_while_stopped_costs_no_row(stream, either, tmp_path):
    ledger = tmp_path / "ledger.db"
    stream.receive(range(10), range(10, 20)).run(exactly_once(either.sink(), ledger=ledger))
    ledger.unlink()
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(exactly_once(either.sink(), ledger=ledger))
    assert either.ids() == list(range(30))


def test_what_a_topic_lacks_is_added_beside_what_a_table_wants_as_the_refusal_says(spark):
    def taken_by_kafka(frame):
        Columns.check("kafka:orders", frame.limit(0).toArrow().schema, "orders")
        return frame.columns

    orders = spark.createDataFrame([(1, "w1")], "id bigint, word string")
    with pytest.raises(OnceOnlyError, match="no column value") as refused:
        taken_by_kafka(orders)
    printed = ast.literal_eval(refused.value.remedy.partition("selectExpr")[2])
    assert taken_by_kafka(orders.selectExpr(*printed)) == ["id", "word", "value"]


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


@pytest.mark.parametrize(
    ("ddl", "expression", "said"),
    [
        ("word text", "concat(word, char(0))", "word"),
        ("word varchar(3)", "'far too long'", "word"),
        ("word numeric(4,1)", "cast(123456.7 as decimal(10,1))", "word"),
    ],
    ids=["NUL", "over-long", "overflow"],
)
def test_a_value_that_postgres_cannot_hold_is_refused_by_column(stream, pg, ddl, expression, said):
    pg.says(f"create table orders (id bigint, {ddl}, _epoch bigint)")
    message = stream.receive(range(5)).fail(
        exactly_once(pg.sink()), shape=lambda df: df.selectExpr("id", f"{expression} as word")
    )
    assert "[ONCE-E503]" in message
    assert said in message
    assert pg.ids() == []


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("parse_json(concat('{\"a\": \"', word, '\"}'))", "variant"),
        ("array(parse_json('1'))", "array<variant>"),
        ("map(named_struct('a', word), 1)", "map<struct<a:string>,int>"),
    ],
)
def test_a_type_without_a_form_in_postgres_is_refused_by_its_name(stream, pg, expression, named, existing):
    if existing:
        pg.says("create table orders (id bigint, word jsonb, _epoch bigint)")
    said = stream.receive(range(5)).fail(
        exactly_once(pg.sink()), shape=lambda df: df.selectExpr("id", f"{expression} as word")
    )
    assert "[ONCE-E506]" in said
    assert named in said
    assert pg.says("select count(*) from pg_class where relname = 'orders'") == [(int(existing),)]


def test_a_users_own_type_is_refused_by_its_name(stream, pg):
    from pyspark.ml.feature import VectorAssembler

    vectors = VectorAssembler(inputCols=["id"], outputCol="point")
    said = stream.receive(range(5)).fail(
        exactly_once(pg.sink()), shape=lambda df: vectors.transform(df).select("id", "point")
    )
    assert "[ONCE-E506]" in said
    assert "VectorUDT" in said


def test_a_moment_past_the_year_9999_inside_json_is_refused_by_column(stream, pg):
    far = "timestamp_micros(253402300800000000 + 86400000000 * id)"
    said = stream.receive(range(5)).fail(
        exactly_once(pg.sink()), shape=lambda df: df.selectExpr("id", f"named_struct('until', {far}) as word")
    )
    assert "[ONCE-E503]" in said
    assert "column word" in said
    assert "OverflowError" not in said


def test_a_table_restored_to_an_older_state_is_refused(stream, pg):
    stream.receive(range(10)).run(exactly_once(pg.sink()))
    pg.says("create table kept as select * from onceonly.head")
    stream.receive(range(10, 20)).run(exactly_once(pg.sink(), ledger=stream.root / "own.db"))
    stream.receive(range(20, 30)).run(exactly_once(pg.sink(), ledger=stream.root / "own.db"))
    pg.says("delete from onceonly.epoch where epoch > 1")
    pg.says("update onceonly.head set epoch = 1, chain = (select chain from kept)")
    pg.says("delete from orders where _epoch > 1")
    said = stream.receive(range(30, 40)).fail(exactly_once(pg.sink(), ledger=stream.root / "own.db"))
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


def test_optimize_and_vacuum_between_epochs_are_harmless(stream, delta):
    stream.receive(range(10), range(10, 20)).run(exactly_once(delta.sink()))
    table = DeltaTable(delta.path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    stream.receive(range(20, 30)).run(exactly_once(delta.sink()))
    assert delta.ids() == list(range(30))


@pytest.mark.long
def test_a_retention_that_forgets_markers_is_refused(stream, spark, delta):
    stream.receive(range(10)).run(exactly_once(delta.sink()))
    retention = "'delta.setTransactionRetentionDuration' = 'interval 1 hour'"
    spark.sql(f"alter table delta.`{delta.path}` set tblproperties ({retention})")
    assert "[ONCE-E509]" in stream.receive(range(10, 20)).fail(exactly_once(delta.sink()))


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
