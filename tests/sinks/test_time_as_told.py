"""What epochs of a query say of time, in memory and in Postgres: the same, whoever keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.core.several import Pipeline, offered
from tests.core.test_timed_epochs import ROWS, Query, noted, of_ids

from onceonly.event_time import TimeReader
from onceonly.machine import coordinator
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import Offer
from onceonly.machine.state import Job
from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink

_TOGETHER = """
SELECT w.lower, (SELECT count(*) FROM clicks), (SELECT max(id) FROM clicks)
FROM onceonly.time_window w WHERE w.target = 'clicks'::regclass
"""


class Stored(Pipeline):
    """A pipeline into one sink, made anew for each start of the query and for each reader.

    Args:
        root: directory of its own.
        make: makes the sink; ``None``: a store in memory.
    """

    def __init__(self, root: Path, make: Callable[[], Sink] | None) -> None:
        super().__init__(root, names=("a",))
        self._make = make

    def sinks(self) -> list[Any]:
        return [self.sink()]

    def sink(self) -> Any:
        return self._make() if self._make else MemorySink("memory:a", self.stores["a"])

    def epochs(self) -> list[Epoch]:
        (sink,) = self.sinks_open()
        found = [marker.epoch for marker, _ in sink.history()]
        sink.close()
        return found

    def ids_until(self, number: int) -> list[int]:
        """What somebody has read who has read the first epochs."""
        (sink,) = self.sinks_open()
        assert isinstance(sink, ReadsRows)
        rows = sink.read_by_epoch((1, number))
        assert rows is not None
        found = sorted(int(row["id"]) for _, row in rows)
        sink.close()
        return found


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stored]:
    dsn = request.getfixturevalue("dsn") if request.param == "postgres" else None
    made = Stored(tmp_path, partial(PostgresSink, dsn, table="clicks") if dsn else None)
    yield made
    made.ledger.close()


def test_whoever_has_read_up_to_an_epoch_has_just_the_rows_that_its_time_speaks_of(stored: Stored) -> None:
    query = Query(stored, ROWS)
    for number in range(1, 21):
        query.writes(number)
    with TimeReader("orders", stored.sink()) as reader:
        for number in range(1, 21):
            lower = reader.time_window({"orders": number}).lower
            assert lower == noted(number).complete_until
            ids = stored.ids_until(number)
            assert ids == list(range(number * 10))
            assert set(ids) >= set(range(lower))
        assert reader.time_window().lower == noted(20).complete_until
    assert [epoch.time for epoch in stored.epochs()] == [noted(number) for number in range(1, 21)]


@pytest.mark.postgres
def test_one_statement_reads_rows_and_what_they_are_complete_through_of_the_same_epoch(
    dsn: str, tmp_path: Path
) -> None:
    stored = Stored(tmp_path, partial(PostgresSink, dsn, table="clicks"))
    query = Query(stored, ROWS)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(1, 21):
            query.writes(number)
            assert connection.execute(_TOGETHER).fetchall() == [
                (noted(number).dataset_complete_until, number * 10, number * 10 - 1)
            ]
    stored.ledger.close()


def test_ten_epochs_without_rows_note_1_to_10_and_no_row(stored: Stored) -> None:
    query = Query(stored, EventTimeConfig("function", "integer"), lambda epoch: epoch.number)
    for number in range(1, 11):
        query.writes(number, table=of_ids())
    with TimeReader("orders", stored.sink()) as reader:
        assert reader.time_window().lower == 10
    assert [epoch.time and (epoch.time.dataset_complete_until, epoch.time.earliest) for epoch in stored.epochs()] == [
        (number, None) for number in range(1, 11)
    ]
    assert stored.ids_until(10) == []


def test_what_an_upstream_says_advances_time_as_often_as_it_says_more(stored: Stored) -> None:
    words = iter([None, 3, 3, 6])
    query = Query(stored, EventTimeConfig("upstream", "integer"), lambda _: next(words))
    query.writes(1, 2, 3, 4)
    assert [epoch.time and epoch.time.complete_until for epoch in stored.epochs()] == [None, 3, 3, 6]
    assert stored.events(EventKind.TIME_HELD) == []


@pytest.mark.parametrize(
    ("noting", "said"),
    [
        (EventTimeConfig("rows", "integer", "id", 2), 7),
        (EventTimeConfig("ingest"), 100),
        (EventTimeConfig("watermark"), 4),
    ],
    ids=["rows", "ingest", "watermark"],
)
def test_rows_at_5_and_9_that_were_planned_at_100_are_noted_by_each_way_as_it_says(
    stored: Stored, noting: EventTimeConfig, said: int
) -> None:
    query = Query(stored, noting)
    state = coordinator.start(Job("orders", (query.sinks[0].id,), "owner", planned(100, watermark=4), noting=noting))
    query.runner.run(state, batch_of(5, 9))
    (epoch,) = stored.epochs()
    assert epoch.time is not None
    assert (epoch.time.complete_until, epoch.time.batch_timestamp_ms) == (said, 100)
    with TimeReader("orders", stored.sink()) as reader:
        assert reader.time_window().lower == said


def planned(at: int, watermark: int) -> Offer:
    first = offered(1)
    return replace(first, lineage=replace(first.lineage, batch_timestamp_ms=at, watermark_ms=watermark))


def batch_of(*ids: int) -> ArrowBatch:
    return ArrowBatch(of_ids(*ids))
