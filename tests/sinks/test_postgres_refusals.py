"""A row that the server refuses: column, constraint, shape and place are said, one cause each, never the value."""

import time
import traceback
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import Writer, orders, rows, run, staged

from onceonly.errors import DestinationError
from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowBatch
from onceonly_lab.servers.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

SECRET = "s3cr3t-value"
SETUP = """
CREATE TYPE mood AS ENUM ('happy');
CREATE DOMAIN positive AS bigint CONSTRAINT above_zero CHECK (VALUE > 0);
CREATE TABLE customers (id bigint PRIMARY KEY);
CREATE TABLE target (id bigint, note text, v {ddl})
"""


@pytest.fixture(params=["driver", "executors"])
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refused(writer: Writer, batch: Batch | pa.Table) -> str:
    """What the user sees, with the errors that it came from."""
    with pytest.raises(DestinationError) as caught:
        writer.write(batch)
    assert caught.value.code == "E503", str(caught.value)
    return "".join(traceback.format_exception(caught.value))


def batch(value: Any, type_: pa.DataType, good: Any) -> pa.Table:
    """Three rows, of which the third is refused."""
    return orders(1, 2, 3).append_column("v", pa.array([good, good, value], type_))


@pytest.mark.parametrize(
    ("ddl", "good", "value", "type_", "words"),
    [
        ("bigint CHECK (v > 0)", 1, -99887766, pa.int64(), ["v (bigint)", "target_v_check", "CHECK ((v > 0))"]),
        (
            "bigint REFERENCES customers",
            None,
            99887766,
            pa.int64(),
            ["v (bigint)", "foreign key", "REFERENCES customers"],
        ),
        ("text UNIQUE", None, SECRET, pa.string(), ["v (string)", "unique key", "UNIQUE (v)"]),
        ("mood", "happy", SECRET, pa.string(), ["enum"]),
        ("positive", 1, -99887766, pa.int64(), ["above_zero"]),
        ("jsonb", "1", SECRET, pa.string(), ["not JSON"]),
        ("json", "1", SECRET, pa.string(), ["not JSON"]),
        ("bigint GENERATED ALWAYS AS (id) STORED CHECK (v < 3)", None, None, None, ["target_v_check"]),
    ],
    ids=["check", "foreign key", "unique", "enum", "domain", "jsonb", "json", "generated"],
)
def test_each_cause_is_said_with_column_and_constraint_and_never_the_value(
    dsn: str, via: str, ddl: str, good: Any, value: Any, type_: Any, words: list[str]
) -> None:
    run(dsn, SETUP.format(ddl=ddl))
    if ddl.endswith("UNIQUE"):
        run(dsn, "INSERT INTO target (id, v) VALUES (0, %s)", SECRET)
    with Writer(dsn, load=via) as writer:
        said = refused(writer, batch(value, type_, good) if type_ else orders(1, 2, 3))
        for word in (*words, "SQLSTATE"):
            assert word in said
        assert "99887766" not in said
        assert SECRET not in said
        assert "narrower" not in said
    assert len(rows(dsn)) == (1 if ddl.endswith("UNIQUE") else 0)


@pytest.mark.parametrize(
    ("ddl", "value", "shape"),
    [
        ("mood", SECRET, "a text of 12 characters"),
        ("jsonb", SECRET, "a text of 12 characters"),
    ],
)
def test_the_drivers_rows_are_named_by_number_with_the_shape_of_the_value(
    dsn: str, ddl: str, value: str, shape: str
) -> None:
    run(dsn, SETUP.format(ddl=ddl))
    good = "happy" if ddl == "mood" else "1"
    with Writer(dsn, load="driver") as writer:
        said = refused(writer, batch(value, pa.string(), good))
    assert "v (string)" in said
    assert shape in said
    assert "row 3" in said


def test_rows_of_kafka_are_named_by_their_position_there(dsn: str, via: str) -> None:
    run(dsn, 'CREATE TABLE target (topic text, partition int, "offset" bigint, v bigint CHECK (v > 0))')
    table = pa.table(
        {
            "topic": ["orders", "orders"],
            "partition": pa.array([3, 3], pa.int32()),
            "offset": pa.array([41, 42], pa.int64()),
            "v": pa.array([1, -1], pa.int64()),
        }
    )
    with Writer(dsn, load=via) as writer:
        said = refused(writer, table)
    row = "row 2" if via == "driver" else "a row of Spark partition 1"
    assert f"{row}, topic orders, partition 3, offset 42" in said


def test_a_row_among_many_pieces_is_found_by_its_number(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint CHECK (id <> 90000), note text)")
    with Writer(dsn, load="driver", driver_limit=1 << 30) as writer:
        assert "row 90001" in refused(writer, orders(*range(100_000)))


@pytest.mark.parametrize(
    ("ddl", "value", "type_", "words"),
    [
        ("bigint CHECK (v > 0)", -99887766, pa.int64(), ["v (bigint)", "a number of 8 digits"]),
        ("bigint REFERENCES customers", 99887766, pa.int64(), ["v (bigint)", "a number of 8 digits"]),
        ("text UNIQUE", SECRET, pa.string(), ["v (string)", "a text of 12 characters"]),
        ("bytea CHECK (length(v) < 5)", SECRET.encode(), pa.binary(), ["v (binary)", "12 bytes"]),
        ("text CHECK (v IS NOT NULL)", None, pa.string(), ["v (string)", "a null"]),
        ("mood", SECRET, pa.string(), ["v (string)", "a text of 12 characters"]),
        ("bigint GENERATED ALWAYS AS (id) STORED CHECK (v < 3)", None, None, ["target_v_check"]),
    ],
    ids=["check", "foreign key", "unique", "bytes", "null", "enum", "generated"],
)
def test_a_row_that_executors_brought_is_named_by_its_partition_with_the_shape_of_the_value(
    dsn: str, ddl: str, value: Any, type_: Any, words: list[str]
) -> None:
    run(dsn, SETUP.format(ddl=ddl))
    run(dsn, "INSERT INTO customers VALUES (1)")
    if ddl.endswith("UNIQUE"):
        run(dsn, "INSERT INTO target (id, v) VALUES (0, %s)", SECRET)
    good = {pa.int64(): [1, 1, 1], pa.string(): ["happy", "sad", "glad"], pa.binary(): [b"1"] * 3}.get(type_)
    good = ["happy"] * 3 if ddl == "mood" else good
    table = orders(1, 2, 5, 3)
    with Writer(dsn, load="executors") as writer:
        said = refused(writer, table.append_column("v", pa.array([*good, value], type_)) if good else table)
        for word in (*words, "of Spark partition 1"):
            assert word in said
        assert "99887766" not in said
        assert SECRET not in said
        assert staged(dsn) == []
    assert len(rows(dsn)) == (1 if ddl.endswith("UNIQUE") else 0)


@pytest.mark.parametrize("tasks", [1, 7])
def test_a_row_among_many_that_executors_brought_is_found(dsn: str, tasks: int) -> None:
    """Its number is told where one task alone has written: many fill their table in no order."""
    run(dsn, "CREATE TABLE target (id bigint CHECK (id <> 60000), note text)")
    batch = ArrowBatch(orders(*range(70_000)), partitions=tasks, duplicate_attempt=True)
    with Writer(dsn, load="executors") as writer:
        said = refused(writer, batch)
    assert ("row 60001 of Spark partition 0" if tasks == 1 else "a row of Spark partition 6") in said


def test_of_several_rows_that_are_refused_the_first_is_named(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint CHECK (id < 3), note text)")
    with Writer(dsn, load="executors") as writer:
        assert "row 3 of Spark partition 0" in refused(writer, ArrowBatch(orders(1, 2, 3, 4, 5, 6), partitions=1))


def test_of_the_changes_of_a_key_only_the_newest_can_be_refused(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, note text, v bigint CHECK (v > 0))")
    table = orders(1, 2, 1, 2).append_column("v", pa.array([-5, 1, 5, -1], pa.int64()))
    table = table.append_column("at", pa.array([1, 1, 2, 2], pa.int64()))
    run(dsn, "ALTER TABLE target ADD COLUMN at bigint")
    with Writer(dsn, load="executors", key="id", sequence="at") as writer:
        said = refused(writer, table)
    assert "a row of Spark partition 1" in said
    assert "a number of 1 digits" in said


def test_a_row_that_may_point_at_a_later_one_of_its_batch_is_not_blamed(dsn: str) -> None:
    """In part of the batch the first row would be refused: the row that it points at comes after it."""
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, note text, v bigint REFERENCES target)")
    table = orders(1, 2, 3).append_column("v", pa.array([2, None, 99887766], pa.int64()))
    with Writer(dsn, load="executors") as writer:
        said = refused(writer, table)
    assert "target_v_fkey" in said
    assert "Spark partition" not in said
    assert "99887766" not in said


@pytest.mark.slow
def test_a_search_that_takes_too_long_is_given_up(dsn: str) -> None:
    """The refusal is then told as the server tells it. Only from its fifth row on the constraint takes a minute."""
    run(dsn, "CREATE SEQUENCE asked")
    body = "BEGIN IF nextval('asked') > 4 THEN PERFORM pg_sleep(60); END IF; RETURN v <> 4; END"
    run(dsn, f"CREATE FUNCTION slow(v bigint) RETURNS bool LANGUAGE plpgsql AS $${body}$$")
    run(dsn, "CREATE TABLE target (id bigint CONSTRAINT slow CHECK (slow(id)), note text)")
    began = time.monotonic()
    with Writer(dsn, load="executors") as writer:
        said = refused(writer, orders(1, 2, 3, 4))
    assert time.monotonic() - began < 30
    assert "constraint slow" in said
    assert "Spark partition" not in said


def test_a_table_that_gets_its_columns_with_the_epoch_is_as_it_was_after_the_search(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint CHECK (id < 3), note text)")
    table = orders(1, 2, 3).append_column("later", pa.array([1, 2, 3], pa.int64()))
    with Writer(dsn, load="executors", schema="add_columns") as writer:
        assert "Spark partition 1" in refused(writer, table)
        assert run(dsn, "SELECT count(*) FROM pg_attribute WHERE attname = 'later'") == [(0,)]
        writer.write(table.slice(0, 2))
    assert len(rows(dsn)) == 2


def test_a_row_that_no_partition_takes_says_so(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text) PARTITION BY RANGE (id)")
    run(dsn, "CREATE TABLE low PARTITION OF target FOR VALUES FROM (0) TO (10)")
    with Writer(dsn, load=via) as writer:
        said = refused(writer, orders(1, 99887766))
    assert "no partition" in said
    assert "99887766" not in said


def test_a_character_that_the_database_cannot_write_names_the_setting(
    postgres: EmbeddedPostgres, dsn: str, via: str
) -> None:
    run(dsn, "DROP DATABASE IF EXISTS narrow")
    run(dsn, "CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    narrow = postgres.database("narrow")
    with Writer(narrow, load=via) as writer:
        said = refused(writer, orders(1, note="日本"))
    assert "server_encoding" in said
    assert "UTF8" in said
    assert "日本" not in said
    assert "0xe6" not in said


def test_a_deferred_constraint_that_the_commit_refuses_is_named_without_the_value(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, note text)")
    with Writer(dsn, load=via) as writer:
        said = refused(writer, orders(99887766, 99887766))
    assert "target_id_key" in said
    assert "99887766" not in said


def test_a_number_that_does_not_fit_is_not_quoted(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id smallint, note text)")
    with Writer(dsn, load=via) as writer:
        assert "99887766" not in refused(writer, orders(99887766))


def test_the_servers_own_words_quote_values(dsn: str) -> None:
    """Why they are not passed on: the premise of the others here."""
    run(dsn, "CREATE TYPE mood AS ENUM ('happy')")
    with pytest.raises(psycopg.DataError, match=SECRET):
        run(dsn, f"SELECT '{SECRET}'::mood")
