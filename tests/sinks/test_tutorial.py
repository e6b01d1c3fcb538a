"""The tutorial's sink on a table that was there before it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.sinks.epochs import epoch_after
from tests.sinks.tutorial import SQLiteSink

from onceonly.batch import ArrowBatch
from onceonly.errors import DestinationError
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_sinks.delta import DeltaSink

FENCE = Fence(1, "owner")


def write(sink: SQLiteSink, rows: list[dict[str, object]]) -> Receipt:
    import pyarrow as pa

    sink.open("orders")
    sink.install(FENCE)
    found = sink.position(None).marker
    epoch = epoch_after(found.epoch if found else None, sink.id, len(rows), adoption=None)
    prepared = sink.prepare(ArrowBatch(pa.Table.from_pylist(rows)), epoch.number)
    return sink.commit(prepared, Marker("orders", sink.id, FENCE, epoch))


def existing(path: Path, columns: str = "id, note") -> SQLiteSink:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE orders ({columns})")
        db.execute("INSERT INTO orders (id) VALUES (1)")
        db.commit()
    return SQLiteSink(path, "orders")


def test_it_says_what_readers_have_to_do_in_the_words_of_every_other_sink(tmp_path: Path) -> None:
    said = [sink.capabilities.readers for sink in (SQLiteSink(tmp_path / "a.db", "t"), DeltaSink(tmp_path / "rows"))]
    assert {words.partition(": ")[0] for words in said} == {"nothing to do"}


def test_rows_that_were_there_before_belong_to_no_epoch(tmp_path: Path) -> None:
    sink = existing(tmp_path / "orders.db")
    sink.open("orders")
    assert sink.recount() == {0: 1}
    write(sink, [{"id": 2, "note": "new"}, {"id": 3, "note": "new"}])
    assert sink.recount() == {0: 1, 1: 2}


def test_a_column_that_the_table_lacks_is_named(tmp_path: Path) -> None:
    sink = existing(tmp_path / "orders.db", "id")
    with pytest.raises(DestinationError, match="the table lacks note") as caught:
        write(sink, [{"id": 2, "note": "new"}])
    assert caught.value.code == "E506"
    assert sink.recount() == {0: 1}


def test_what_sqlite_refuses_is_said_with_a_code(tmp_path: Path) -> None:
    sink = existing(tmp_path / "orders.db", "id PRIMARY KEY, note")
    with pytest.raises(DestinationError, match="SQLITE_CONSTRAINT") as caught:
        write(sink, [{"id": 1, "note": "twice"}])
    assert caught.value.code == "E508"
    assert sink.recount() == {0: 1}
