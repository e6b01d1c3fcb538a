"""Removing rows by a column of the batch, and columns that the table gets with an epoch."""

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import Writer, orders, rows, run, staged
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import DestinationError

pytestmark = pytest.mark.postgres


@pytest.fixture(params=BOTH_WAYS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refused(writer: Writer, batch: pa.Table, code: str) -> str:
    with pytest.raises(DestinationError) as caught:
        writer.write(batch)
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


# ---- delete_flag=


def changes(*values: tuple[int | None, int | None, bool | None]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("gone %", pa.bool_())])
    return pa.Table.from_pylist([{"id": id_, "at": at, "gone %": gone} for id_, at, gone in values], schema)


DELETES: dict[str, Any] = {"key": "id", "delete_flag": "gone %"}


def test_true_removes_the_key_and_the_column_is_not_stored(dsn: str, via: str) -> None:
    with Writer(dsn, load=via, **DELETES) as writer:
        receipt = writer.write(changes((1, 1, False), (2, 1, False), (3, 1, True)))
        assert (receipt.rows, rows(dsn)) == (3, [(1, 1, 1), (2, 1, 1)])
        receipt = writer.write(changes((1, 0, True), (2, 9, False), (8, 9, True)))
        assert (receipt.rows, rows(dsn)) == (3, [(2, 9, 2)])
        assert writer.sink.recount() is None


def test_a_removal_obeys_the_sequence(dsn: str, via: str) -> None:
    with Writer(dsn, load=via, sequence="at", **DELETES) as writer:
        writer.write(changes((1, 5, False), (2, 5, False), (3, 5, False), (4, 4, True), (4, 5, False)))
        writer.write(changes((1, 4, True), (2, 6, True), (3, 6, True), (3, 7, False), (4, 6, False), (4, 7, True)))
        assert rows(dsn) == [(1, 5, 1), (3, 7, 2)]
        writer.write(changes((2, 1, False), (1, 5, True)))
        assert rows(dsn) == [(2, 1, 3), (3, 7, 2)], "of equal ones the later epoch wins"


def test_what_does_not_say_whether_it_removes_is_refused(dsn: str, via: str) -> None:
    with Writer(dsn, load=via, sequence="at", **DELETES) as writer:
        assert "1 nulls, and delete_flag=" in refused(writer, changes((1, 1, None), (2, 1, False)), "E503")
        refused(writer, changes((1, 1, True), (1, 1, False)), "E505")
        assert "not there" in refused(writer, orders(1).append_column("at", pa.array([1])), "E506")
        number = changes((1, 1, True)).drop_columns("gone %").append_column("gone %", pa.array([1]))
        assert "must be boolean" in refused(writer, number, "E506")
        writer.write(changes((1, 1, False)))
        assert rows(dsn) == [(1, 1, 1)]


# ---- schema="add_columns"

WIDE = pa.table({"id": [2], "note": ["wide"], "at": pa.array([0], pa.timestamp("us")), "price %": [1.5]})


def columns(dsn: str) -> list[tuple[Any, ...]]:
    query = "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = 'target'"
    return run(dsn, f"{query} ORDER BY ordinal_position")


@pytest.mark.parametrize("options", [{}, {"key": "id"}], ids=["append", "upsert"])
def test_new_columns_are_added_with_the_epoch_that_brings_them(dsn: str, via: str, options: dict[str, Any]) -> None:
    with Writer(dsn, load=via, schema="add_columns", **options) as writer:
        writer.write(orders(1))
        prepared = writer.prepare(WIDE)
        assert len(columns(dsn)) == 3
        with psycopg.connect(dsn) as other:
            other.execute("SET lock_timeout = '2s'")
            other.execute("INSERT INTO target (id) VALUES (9)")
        writer.commit(prepared)
        prepared.abandon()
        assert columns(dsn)[3:] == [
            ("at", "timestamp without time zone", "YES"),
            ("price %", "double precision", "YES"),
        ]
        writer.write(WIDE.set_column(0, "id", pa.array([3])))
        writer.write(orders(4))
        assert rows(dsn, columns='id, note, "price %", _epoch') == [
            (1, "new", None, 1),
            (2, "wide", 1.5, 2),
            (3, "wide", 1.5, 3),
            (4, "new", None, 4),
            (9, None, None, None),
        ]
        assert staged(dsn) == []


def test_columns_of_an_epoch_that_does_not_come_to_be_are_not_added(dsn: str, via: str) -> None:
    with Writer(dsn, load=via, schema="add_columns") as writer:
        writer.write(orders(1))
        writer.prepare(WIDE).abandon()
        writer.write(WIDE.slice(0, 0))
        assert len(columns(dsn)) == 3
        prepared = writer.prepare(WIDE)
        run(dsn, "ALTER TABLE target ADD COLUMN at text")
        with pytest.raises(DestinationError, match=r"E506.*was changed"):
            writer.commit(prepared)
        prepared.abandon()
        assert len(columns(dsn)) == 4


def test_a_narrower_type_is_never_changed(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id integer, note text)")
    with Writer(dsn, load=via, schema="add_columns") as writer:
        writer.write(WIDE)
        assert [name for name, *_ in columns(dsn)] == ["id", "note", "at", "price %"]
        text = "a note too long for a column that was made for twelve"
        run(dsn, "ALTER TABLE target ALTER note TYPE varchar(12)")
        refused(writer, WIDE.set_column(1, "note", pa.array([text])), "E503")
        assert columns(dsn)[0] == ("id", "integer", "YES")


def test_two_sinks_that_add_the_same_column_at_once_end_with_one(dsn: str, via: str) -> None:
    with (
        Writer(dsn, load=via, schema="add_columns", id="a") as one,
        Writer(dsn, load=via, schema="add_columns", id="b") as two,
    ):
        one.write(orders(1))
        left, right = one.prepare(WIDE), two.prepare(WIDE)
        one.commit(left)
        with pytest.raises(DestinationError, match=r"E506.*was changed"):
            two.commit(right)
        right.abandon()
        two.write(WIDE)
        assert len(columns(dsn)) == 5
