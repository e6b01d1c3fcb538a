"""A driver that is asked for the metrics of its own queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from onceonly import Storage, exactly_once
from onceonly.metrics.listener import Listener
from onceonly_checkpoints.ledger import Pipeline
from onceonly_checkpoints.ledger.sql import SqlLedger

pytestmark = pytest.mark.spark


@pytest.fixture
def registry(spark, tmp_path: Path) -> Iterator[CollectorRegistry]:
    made = CollectorRegistry()
    listener = Listener(tmp_path / "ledger.db", made)
    spark.streams.addListener(listener)
    yield made
    spark.streams.removeListener(listener)


def test_a_driver_tells_what_its_own_queries_do(stream, sink, registry, tmp_path):
    ledger = tmp_path / "ledger.db"

    def value(name: str, pipeline: str = "orders", **labels: str) -> float | None:
        return registry.get_sample_value(name, {"pipeline": pipeline, **labels})

    stream.receive(range(10), range(10, 14)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert value("onceonly_epochs_total", outcome="committed") == 2
    assert value("onceonly_rows_total") == 14
    assert value("onceonly_phase_seconds_count", phase="commit") == 2
    assert value("onceonly_in_doubt_seconds") == 0
    assert value("onceonly_epoch_lag_seconds") > 0
    assert registry.get_sample_value("onceonly_ledger_up") == 1

    stream.receive(range(14, 20)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert value("onceonly_epochs_total", outcome="committed") == 3
    assert value("onceonly_epochs_total", outcome="opened") == 2
    assert value("onceonly_rows_total") == 20

    # One that ends by itself may have ended before it is looked at.
    running = stream.start(exactly_once(sink, storage=Storage(ledger=ledger)), processingTime="1 second")
    assert value("onceonly_query_running") == 1
    running.stop()


def test_pipelines_of_other_drivers_are_left_to_them(stream, sink, registry, tmp_path):
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    ledger.open()
    ledger.enter(Pipeline("returns", (), "a-query-of-another-driver", "file:/ck", 1, 0))
    stream.receive(range(3)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert registry.get_sample_value("onceonly_epoch", {"pipeline": "orders"}) == 1
    assert registry.get_sample_value("onceonly_epoch", {"pipeline": "returns"}) is None
