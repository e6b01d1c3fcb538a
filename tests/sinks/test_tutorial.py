"""The tutorial's sink on a table that was there before it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.sinks.epochs import epoch_after
from tests.sinks.tutorial import FolderSink, SQLiteSink

from onceonly.errors import DestinationError
from onceonly.protocol.batch import ArrowBatch
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


@pytest.mark.parametrize(
    ("ids", "code"), [([1, 2, 1], "E505"), ([1, None], "E504")], ids=["two rows of one key", "a key that is null"]
)
def test_rows_that_no_key_tells_apart_are_refused_before_one_is_put(
    ids: list[int | None], code: str, tmp_path: Path
) -> None:
    sink = FolderSink(tmp_path / "store", "id")
    with pytest.raises(DestinationError) as caught:
        write(sink, [{"id": one, "note": "x"} for one in ids])
    assert caught.value.code == code
    assert not list(tmp_path.glob("store/rows/*"))


def test_a_key_may_hold_what_no_file_name_does(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path / "store", "id")
    keys = ["../up", ".", "a/b", "", "%3D", "日本"]
    write(sink, [{"id": key, "note": "x"} for key in keys])
    found = [json.loads(path.read_text())["id"] for path in (tmp_path / "store" / "rows").iterdir()]
    assert sorted(found) == sorted(keys)
