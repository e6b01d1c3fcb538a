"""The ledger's view and the function name the same read points, whatever receipts a ledger holds."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoints.samples import at, epoch_after, lineage, record_of
from tests.sinks.postgres_writer import run

from onceonly import OnceOnlyError
from onceonly.reading import read_point
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Receipt
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.ledger.sql import SqlLedger

SINKS = ("delta:t", "postgres:t", "kafka:t")

FEW_OR_MANY = pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])

Points = set[tuple[str, int, str, str]]
"""Pipeline, epoch, chain and sink."""


def fill(ledger: Ledger, draw: random.Random) -> list[str]:
    """Two pipelines of a few epochs: sinks join and leave, receipts are lost, of another history, or a stranger's; a
    part may be set aside and come again."""
    names = [f"orders-{draw.randrange(10**9)}" for _ in range(2)]
    for name in names:
        last: Epoch | None = None
        for number in range(1, draw.randint(2, 8)):
            last = _epoch(last, number, draw)
            ledger.record(_record(name, last, draw))
        if last and draw.random() < 0.3:
            cut = draw.randint(2, last.number + 1)
            ledger.supersede(name, cut, "every sink stands before it")
            [before] = ledger.epochs(name, cut - 1, cut - 1)
            ledger.record(_record(name, _epoch(before.epoch, cut + 40, draw), draw))
    return names


def _epoch(before: Epoch | None, to: int, draw: random.Random) -> Epoch:
    made = epoch_after(before, at(to), lineage(to))
    listed = draw.sample(SINKS, draw.randint(1, len(SINKS)))
    return chain.linked(replace(made, sinks=tuple((sink, 1) for sink in listed), chain=""))


def _record(name: str, epoch: Epoch, draw: random.Random) -> EpochRecord:
    receipts: list[Receipt] = []
    for sink in SINKS:  # also of such as the epoch does not list
        kind = draw.random()
        if kind < 0.85:
            hash_ = epoch.chain if kind < 0.7 else "0" * 64
            receipts.append(Receipt(sink, epoch.number, hash_, "id", (("version", 3),), epoch.digest.rows))
    return replace(record_of(epoch, pipeline=name), receipts=tuple(receipts))


def by_function(ledger: Ledger, names: list[str]) -> Points:
    found: Points = set()
    for name in names:
        for record in ledger.epochs(name):
            try:
                point = read_point(name, record.epoch.number, ledger=ledger)
            except OnceOnlyError as unsealed:
                if unsealed.code != "E245":
                    raise
                continue
            found |= {(name, point.epoch, point.chain, receipt.sink) for receipt in point.receipts}
    return found


def newest(points: Points, name: str) -> int | None:
    return max((epoch for pipeline, epoch, _, _ in points if pipeline == name), default=None)


@FEW_OR_MANY
def test_view_and_function_agree_on_random_ledgers_in_sqlite(tmp_path: Path, count: int) -> None:
    place = str(tmp_path / "ledger.db")
    with closing(SqlLedger(place)) as ledger:
        ledger.open()
        names = [name for number in range(count) for name in fill(ledger, random.Random(number))]
        with closing(sqlite3.connect(place)) as connection:
            view: Points = set(connection.execute("SELECT pipeline, epoch, chain, sink FROM read_point"))
        assert view == by_function(ledger, names)
        tops = {name: top for name in names if (top := newest(view, name)) is not None}
        assert {name: read_point(name, ledger=ledger).epoch for name in tops} == tops
        assert len(tops) > count


@pytest.mark.postgres
@FEW_OR_MANY
def test_view_and_function_agree_on_random_ledgers_in_postgres(dsn: str, count: int) -> None:
    with closing(SqlLedger(dsn)) as ledger:
        ledger.open()
        names = [name for number in range(count) for name in fill(ledger, random.Random(number))]
        view: Points = set(run(dsn, "SELECT pipeline, epoch, chain, sink FROM onceonly.read_point"))
        assert view == by_function(ledger, names)
        assert len({name for name, *_ in view}) > count
