"""A row that the server refuses: column, constraint, shape and place are said, one cause each, never the value."""

import traceback
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import Writer, orders, rows, run

from onceonly.errors import DestinationError
from onceonly.lab.postgres import EmbeddedPostgres

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


def refused(writer: Writer, batch: pa.Table) -> str:
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
    with Writer(dsn, via=via) as writer:
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
    with Writer(dsn, via="driver") as writer:
        said = refused(writer, batch(value, pa.string(), good))
    assert "v (string)" in said
    assert shape in said
    assert "row 3" in said


def test_rows_of_kafka_are_named_by_their_position_there(dsn: str) -> None:
    run(dsn, 'CREATE TABLE target (topic text, partition int, "offset" bigint, v bigint CHECK (v > 0))')
    table = pa.table(
        {
            "topic": ["orders", "orders"],
            "partition": pa.array([3, 3], pa.int32()),
            "offset": pa.array([41, 42], pa.int64()),
            "v": pa.array([1, -1], pa.int64()),
        }
    )
    with Writer(dsn, via="driver") as writer:
        assert "row 2, topic orders, partition 3, offset 42" in refused(writer, table)


def test_a_row_among_many_pieces_is_found_by_its_number(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint CHECK (id <> 90000), note text)")
    with Writer(dsn, via="driver", driver_limit=1 << 30) as writer:
        assert "row 90001" in refused(writer, orders(*range(100_000)))


def test_a_row_that_no_partition_takes_says_so(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text) PARTITION BY RANGE (id)")
    run(dsn, "CREATE TABLE low PARTITION OF target FOR VALUES FROM (0) TO (10)")
    with Writer(dsn, via=via) as writer:
        said = refused(writer, orders(1, 99887766))
    assert "no partition" in said
    assert "99887766" not in said


def test_a_character_that_the_database_cannot_write_names_the_setting(
    postgres: EmbeddedPostgres, dsn: str, via: str
) -> None:
    run(dsn, "DROP DATABASE IF EXISTS narrow")
    run(dsn, "CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    narrow = postgres.database("narrow")
    with Writer(narrow, via=via) as writer:
        said = refused(writer, orders(1, note="日本"))
    assert "server_encoding" in said
    assert "UTF8" in said
    assert "日本" not in said
    assert "0xe6" not in said


def test_a_deferred_constraint_that_the_commit_refuses_is_named_without_the_value(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, note text)")
    with Writer(dsn, via=via) as writer:
        said = refused(writer, orders(99887766, 99887766))
    assert "target_id_key" in said
    assert "99887766" not in said


def test_a_number_that_does_not_fit_is_not_quoted(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id smallint, note text)")
    with Writer(dsn, via=via) as writer:
        assert "99887766" not in refused(writer, orders(99887766))


def test_the_servers_own_words_quote_values(dsn: str) -> None:
    """Why they are not passed on: the premise of the others here."""
    run(dsn, "CREATE TYPE mood AS ENUM ('happy')")
    with pytest.raises(psycopg.DataError, match=SECRET):
        run(dsn, f"SELECT '{SECRET}'::mood")
