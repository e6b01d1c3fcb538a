"""A pin keeps what a read point names from our own pruning, for as long as its reader lives."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.several import Pipeline
from typer.testing import CliRunner

from onceonly import reading
from onceonly.cli.app import app
from onceonly.doctor import Observed, State
from onceonly.protocol.health import observe
from onceonly.reading import read_point
from onceonly_checkpoints.ledger import Pin, sql
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta.health import TableFacts
from onceonly_sinks.delta.health import judge as judge_delta
from onceonly_sinks.kafka.health import ClusterFacts, TopicFacts
from onceonly_sinks.kafka.health import judge as judge_kafka


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, ("a", "b"))
    made.driver().writes(1, 2, 3, 4)
    yield made
    made.ledger.close()


def pruned(pipeline: Pipeline) -> str:
    command = [
        "ledger",
        "prune",
        "--query",
        "orders",
        "--keep-epochs",
        "1",
        "--ledger",
        pipeline.ledger.address,
        "--yes",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return done.output


def recorded(pipeline: Pipeline) -> list[int]:
    return [record.epoch.number for record in pipeline.ledger.epochs("orders")]


def test_a_pin_is_a_read_point(pipeline: Pipeline) -> None:
    with reading.pin("orders", ledger=pipeline.ledger) as point:
        assert point == read_point("orders", ledger=pipeline.ledger)
        assert len(reading.read_at("orders", point, "memory:a", ledger=pipeline.ledger)) == 40


def test_the_ledger_keeps_what_is_pinned_and_lets_it_go_afterwards(pipeline: Pipeline) -> None:
    with reading.pin("orders", 2, ledger=pipeline.ledger.address):
        assert "which" in pruned(pipeline)
        assert recorded(pipeline) == [2, 3, 4]
    pruned(pipeline)
    assert recorded(pipeline) == [4]


def test_a_pin_goes_when_its_reader_fails(pipeline: Pipeline) -> None:
    with pytest.raises(KeyError), reading.pin("orders", 2, ledger=pipeline.ledger):
        raise KeyError
    assert pipeline.ledger.pins("orders") == []


def test_a_pin_is_renewed_while_it_is_held(pipeline: Pipeline) -> None:
    renewals = list[Pin]()

    class Watched(SqlLedger):
        """Tells of every pin that is written."""

        def pin(self, pin: Pin) -> None:
            super().pin(pin)
            renewals.append(pin)
            renewed.release()

    renewed, ledger = threading.Semaphore(0), Watched(pipeline.ledger.address)
    with reading.pin("orders", 1, ledger=ledger, lease=0.3):
        assert all(renewed.acquire(timeout=60) for _ in range(3)), "the pin itself, and two renewals"
    ledger.close()
    first, second, third = renewals[:3]
    assert first.until_ms < second.until_ms < third.until_ms
    assert first.since_ms == second.since_ms == third.since_ms
    assert first.token == second.token == third.token


def test_the_pin_of_a_reader_that_died_ends_by_itself(pipeline: Pipeline) -> None:
    dead, now = Pin("orders", "dead", 1, "ann@host:1", 0, 0), time.time_ns() // 1_000_000
    pipeline.ledger.pin(replace(dead, until_ms=now + 3_600_000))
    assert [pin.epoch for pin in pipeline.ledger.pins("orders")] == [1]
    pruned(pipeline)
    assert recorded(pipeline) == [1, 2, 3, 4]
    pipeline.ledger.pin(replace(dead, until_ms=now - 1))
    assert pipeline.ledger.pins("orders") == []
    pruned(pipeline)
    assert recorded(pipeline) == [4]


def test_pins_of_a_pipeline_go_with_it(pipeline: Pipeline) -> None:
    with reading.pin("orders", ledger=pipeline.ledger):
        pipeline.ledger.forget("orders")
        assert pipeline.ledger.pins("orders") == []


def test_an_older_ledger_is_upgraded_by_the_first_pin(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    later = "CREATE TABLE later (n INTEGER); UPDATE ledger_version SET version = 2;"
    newest = sql._scripts("sqlite")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(sql, "_scripts", lambda _: [*newest, (2, later)])
    with reading.pin("orders", ledger=pipeline.ledger.address) as point:
        assert point.epoch == 4
    with closing(sqlite3.connect(pipeline.ledger.address)) as connection:
        assert connection.execute("SELECT version FROM ledger_version").fetchone() == (2,)
        assert connection.execute("SELECT count(*) FROM later").fetchone() == (0,)


# ---- What others take while a reader reads.


def pinned_for(seconds: float) -> Observed:
    pins = [Pin("orders", "t", 1, "ann", 1_000_000, 0)]
    return observe([], 1_000_000 + int(seconds * 1000), pins)


@pytest.mark.parametrize(("hours", "state"), [(1, None), (90, State.HINT), (200, State.PROBLEM)])
def test_a_pin_that_outlasts_the_files_of_a_table_is_told(hours: int, state: State | None) -> None:
    checks = judge_delta("delta:t", None, TableFacts(1, {}), pinned_for(3600 * hours), merges=False)
    assert [check.state for check in checks if check.code == "D307"] == ([state] if state else [])


@pytest.mark.parametrize(("hours", "state"), [(1, None), (13, State.HINT), (25, State.PROBLEM)])
def test_a_pin_that_outlasts_the_records_of_a_topic_is_told(hours: int, state: State | None) -> None:
    topic = TopicFacts("rows", 1, 3, {"min.insync.replicas": "2", "retention.ms": str(24 * 3600 * 1000)})
    facts = ClusterFacts("host:9092", 3, 60.0, 900.0, "marks", "rows", (topic,))
    checks = judge_kafka("kafka:rows", facts, pinned_for(3600 * hours))
    assert [check.state for check in checks if check.code == "D108"] == ([state] if state else [])
