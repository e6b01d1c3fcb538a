"""The tutorial's sink on a table that was there before it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.sinks.epochs import epoch_after
from tests.sinks.tutorial import PAGE, FolderSink, SQLiteSink

import onceonly.protocol
from onceonly.errors import ConfigurationError, DestinationError
from onceonly.protocol import (
    DetectsChanges,
    HasConstraints,
    HostsStores,
    Inspectable,
    JoinsTransaction,
    ReadsRows,
    ReplacesRows,
    SinkBase,
    StreamSource,
)
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.capabilities import Span
from onceonly.quality.quarantine import rows_of
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


BAD = {"reasons": '[{"by": "expect", "rule": "amount"}]', "row": '{"id": 1}', "hash": 7}


class ShownSink(SQLiteSink, ReadsRows):
    def read_by_epoch(self, span: Span) -> Iterator[tuple[int, dict[str, object]]]:
        with closing(self.connect()) as db:
            db.row_factory = sqlite3.Row
            rows = db.execute(f"SELECT * FROM {self.table} WHERE _epoch BETWEEN ? AND ?", span).fetchall()
        return ((row["_epoch"], dict(row)) for row in rows)


def test_a_sink_gains_a_feature_by_inheriting_one_class(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    sinks = plain, shown = SQLiteSink(path, "orders"), ShownSink(path, "orders")
    write(plain, [BAD])
    for sink in sinks:
        sink.open("orders")
    with pytest.raises(ConfigurationError, match="such a sink is only written"):
        rows_of(plain, (1, 1), 10)
    assert [(bad.epoch, bad.rules) for bad in rows_of(shown, (1, 1), 10)] == [(1, ("amount",))]


def test_a_member_by_its_name_alone_is_no_feature(tmp_path: Path) -> None:
    class Lookalike(SQLiteSink):
        read_by_epoch = ShownSink.read_by_epoch

    with pytest.raises(ConfigurationError, match="such a sink is only written"):
        rows_of(Lookalike(tmp_path / "orders.db", "orders"), (1, 1), 10)


BASES = (JoinsTransaction, ReplacesRows, ReadsRows, DetectsChanges, HasConstraints, Inspectable, StreamSource)


def test_each_base_class_has_a_member_to_write_and_names_what_is_missing_without_the_others() -> None:
    assert [base for base in BASES if not base.__abstractmethods__] == []
    bases = (*BASES, HostsStores)
    assert [
        f"{base.__name__}.{name}"
        for base in bases
        for name, member in vars(base).items()
        if callable(member) and not name.startswith("_") and not member.__doc__
    ] == []
    assert [base for base in bases if base.__name__ not in onceonly.protocol.__all__] == []
    assert len(onceonly.protocol.__all__) == 25


def page_rows(columns: int) -> list[list[str]]:
    """Cells of the page's tables with this many columns."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == columns]


def members(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_the_page_lists_each_member_of_each_base_class_once() -> None:
    required, optional = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for _, base, needed, more in page_rows(4)[1:]:
        required[base.strip("`")] += members(needed)
        optional[base.strip("`")] += members(more)
    bases = {base.__name__: base for base in (*BASES, HostsStores)}
    assert required.keys() == bases.keys()
    for name, base in bases.items():
        public = {member for member in vars(base) if not member.startswith("_")}
        abstract: frozenset[str] = getattr(base, "__abstractmethods__", frozenset())
        assert sorted(required[name]) == sorted(abstract), name
        assert sorted(optional[name]) == sorted(public - abstract), name


def test_the_page_lists_each_member_of_a_sink_once() -> None:
    cells = [members(row[0]) for row in page_rows(2)]
    public = {member for member in vars(SinkBase) if not member.startswith("_")} - {"id"}
    assert sorted(name for cell in cells for name in cell if name in SinkBase.__abstractmethods__) == sorted(
        SinkBase.__abstractmethods__
    )
    assert sorted(name for cell in cells for name in cell if name in public) == sorted(public)
