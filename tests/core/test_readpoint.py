"""Read points: the newest epoch that every sink confirmed, and where each stood then."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest
from tests.core.several import Pipeline

from onceonly import OnceOnlyError
from onceonly.reading import ReadPoint, read_point
from onceonly_checkpoints.epoch import Receipt


def test_the_latest_read_point_names_a_place_in_each_sink(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    point = read_point("orders", ledger=pipeline.ledger)
    assert (point.epoch, [receipt.sink for receipt in point.receipts]) == (3, ["memory:a", "memory:b", "memory:c"])
    assert point["memory:b"].epoch == 3


def test_an_earlier_read_point_says_where_the_sinks_stood_then(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2, 3)
    [record] = pipeline.ledger.epochs("orders", 2, 2)
    assert read_point("orders", 2, ledger=pipeline.ledger).receipts == record.receipts


def test_an_epoch_that_a_sink_has_not_confirmed_is_no_read_point(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    [record] = pipeline.ledger.epochs("orders", 2, 2)
    pipeline.ledger.record(replace(record, receipts=record.receipts[:2]))
    assert read_point("orders", ledger=pipeline.ledger).epoch == 1
    with pytest.raises(OnceOnlyError, match="epoch 2 lacks memory:c"):
        read_point("orders", 2, ledger=pipeline.ledger)


def test_an_unknown_pipeline_is_named(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1)
    with pytest.raises(OnceOnlyError, match='"nosuch" has no epoch'):
        read_point("nosuch", ledger=pipeline.ledger)


def newest_in_view(pipeline: Pipeline) -> int:
    with sqlite3.connect(pipeline.ledger.address) as connection:
        (newest,) = connection.execute("SELECT max(epoch) FROM read_point WHERE pipeline = 'orders'").fetchone()
    connection.close()
    return int(newest)


@pytest.mark.parametrize("lacking", ["memory:a", "memory:b", "memory:c"])
def test_the_view_asks_for_the_receipt_of_every_sink_as_the_function_does(pipeline: Pipeline, lacking: str) -> None:
    pipeline.driver().writes(1, 2)
    assert newest_in_view(pipeline) == read_point("orders", ledger=pipeline.ledger).epoch == 2
    [record] = pipeline.ledger.epochs("orders", 2, 2)
    told = tuple(receipt for receipt in record.receipts if receipt.sink != lacking)
    pipeline.ledger.record(replace(record, receipts=told))
    assert newest_in_view(pipeline) == read_point("orders", ledger=pipeline.ledger).epoch == 1


def test_a_receipt_of_another_history_confirms_nothing(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    [record] = pipeline.ledger.epochs("orders", 2, 2)
    first, *others = record.receipts
    pipeline.ledger.record(replace(record, receipts=(replace(first, chain="0" * 64), *others)))
    assert newest_in_view(pipeline) == read_point("orders", ledger=pipeline.ledger).epoch == 1


def test_the_view_says_the_same_in_sql(pipeline: Pipeline) -> None:
    pipeline.driver().writes(1, 2)
    with sqlite3.connect(pipeline.ledger.address) as connection:
        found = connection.execute("SELECT sink, epoch FROM read_point WHERE epoch = 2 ORDER BY sink").fetchall()
    connection.close()
    assert found == [("memory:a", 2), ("memory:b", 2), ("memory:c", 2)]


def test_a_read_point_and_a_receipt_are_one_line_of_80_characters_in_a_shell() -> None:
    receipt = Receipt("postgres:orders", 812, "a" * 64, "71/16384", (("timeline", 1), ("lsn", "0/16B3748")), 2000)
    assert repr(receipt) == "<postgres:orders epoch 812: 2000 rows, timeline 1, lsn 0/16B3748>"
    assert repr(replace(receipt, position=())) == "<postgres:orders epoch 812: 2000 rows>"
    point = ReadPoint("orders", 812, "a" * 64, (receipt, replace(receipt, sink="delta:orders")), "/srv/ledger.db")
    assert repr(point) == "<orders epoch 812: postgres:orders, delta:orders>"
    long = replace(point, receipts=tuple(replace(receipt, sink=f"postgres:{'t' * n}") for n in range(40)))
    for shown in (repr(long), repr(long.receipts[-1]), repr(replace(receipt, sink="s" * 300))):
        assert len(shown) <= 80, shown
