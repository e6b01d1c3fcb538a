"""Read points with a real Postgres: the ledger's view and the function agree, and rows are read at one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.several import Pipeline
from tests.sinks.postgres_writer import run
from typer.testing import CliRunner

from onceonly import OnceOnlyError
from onceonly.cli.app import app
from onceonly.protocol import Sink
from onceonly.reading import read_point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres


class Both(Pipeline):
    """A table of Postgres and a memory sink, with the ledger in that database."""

    def __init__(self, root: Path, dsn: str) -> None:
        super().__init__(root, ("b",))
        self.ledger.close()
        self.dsn, self.ledger = dsn, SqlLedger(dsn)

    def sinks(self) -> list[Sink]:  # type: ignore[override]
        return [PostgresSink(self.dsn, "target"), *super().sinks()]

    def in_view(self) -> list[tuple[object, ...]]:
        columns = "epoch, sink, position, identity, row_count"
        asked = f"SELECT {columns} FROM onceonly.read_point WHERE pipeline = 'orders' ORDER BY epoch, sink"
        return [(*row[:2], json.loads(row[2]), *row[3:]) for row in run(self.dsn, asked)]

    def by_function(self) -> list[tuple[object, ...]]:
        """What the function says of each epoch that it calls complete."""
        found: list[tuple[object, ...]] = []
        for record in self.ledger.epochs("orders"):
            try:
                point = read_point("orders", record.epoch.number, ledger=self.ledger)
            except OnceOnlyError:
                continue
            told = [
                (point.epoch, receipt.sink, dict(receipt.position), receipt.identity, receipt.rows)
                for receipt in point.receipts
            ]
            found += sorted(told, key=lambda row: row[1])
        return found


@pytest.fixture
def both(dsn: str, tmp_path: Path) -> Iterator[Both]:
    run(dsn, "CREATE TABLE target (id bigint, text text, _epoch bigint)")
    pipeline = Both(tmp_path, dsn)
    pipeline.driver().writes(1, 2, 3)
    yield pipeline
    pipeline.ledger.close()


def test_before_the_first_epoch_nothing_can_be_read_yet_and_behind_it_it_can(dsn: str, tmp_path: Path) -> None:
    with pytest.raises(OnceOnlyError, match="E245") as refused:
        read_point("orders", ledger=dsn)
    assert "it holds no ledger" in refused.value.what
    assert "Likely cause: the query has not committed its first epoch" in str(refused.value)
    pipeline = Both(tmp_path, dsn)
    pipeline.driver().writes(1)
    pipeline.ledger.close()
    assert read_point("orders", ledger=dsn).epoch == 1


def test_the_view_says_what_the_function_says_of_every_epoch(both: Both) -> None:
    assert both.in_view() == both.by_function()
    assert len(both.in_view()) == 6


@pytest.mark.parametrize("lacking", ["postgres:target", "memory:b"])
def test_an_epoch_that_lacks_a_receipt_is_no_read_point_of_either(both: Both, lacking: str) -> None:
    [record] = both.ledger.epochs("orders", 3, 3)
    told = tuple(receipt for receipt in record.receipts if receipt.sink != lacking)
    assert len(told) == 1
    both.ledger.record(replace(record, receipts=told))
    assert both.in_view() == both.by_function()
    assert {row[0] for row in both.in_view()} == {1, 2}


def test_a_ledger_that_was_rebuilt_from_one_of_two_sinks_has_no_read_point(both: Both) -> None:
    both.ledger.forget("orders")
    address = PostgresSink(both.dsn, "target").address
    done = CliRunner().invoke(
        app, ["recover", "rebuild-ledger", "--query", "orders", "--ledger", both.dsn, "--sink", address, "--yes"]
    )
    assert done.exit_code == 0, done.output
    assert len(both.ledger.epochs("orders")) == 3
    assert both.in_view() == both.by_function() == []


def test_rows_are_read_at_a_point_while_a_later_epoch_is_in_one_sink_only(both: Both) -> None:
    [record] = both.ledger.epochs("orders", 3, 3)
    both.ledger.record(replace(record, receipts=record.receipts[:1]))
    newest = "SELECT max(epoch) FROM onceonly.read_point WHERE pipeline = 'orders'"
    assert run(both.dsn, "SELECT count(*) FROM target") == [(30,)]
    rows = run(both.dsn, f"SELECT id FROM target WHERE _epoch <= ({newest}) ORDER BY id")
    assert [number for (number,) in rows] == list(range(20))
    point = read_point("orders", ledger=both.ledger)
    assert run(both.dsn, "SELECT count(*) FROM target WHERE _epoch <= %s", point.epoch) == [(20,)]
