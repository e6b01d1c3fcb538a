"""Kafka as one of several sinks: what a transaction that the brokers ended in mid-epoch means for the others."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.core.several import Driver, Pipeline
from tests.kafka_client import committed, ends

from onceonly import faults
from onceonly.errors import DestinationError
from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink

_numbers = itertools.count(1)
_DECIDED_S = 30.0


class BesideKafka(Pipeline):
    """A memory sink first, Kafka after it."""

    def __init__(self, root: Path, servers: str, topic: str) -> None:
        super().__init__(root, ("first",))
        self.servers, self.topic = servers, topic
        self.timeout_ms = 60_000

    def sinks(self) -> list[Any]:
        options = {"kafka.transaction.timeout.ms": str(self.timeout_ms)}
        return [*super().sinks(), KafkaSink(self.servers, self.topic, options=options)]

    def hold(self, epochs: int) -> None:
        wanted = [f"row {number}" for number in range(epochs * 2)]
        assert sorted(row["value"] for row in super().sinks_open()[0].rows()) == wanted
        assert sorted(committed(self.servers, self.topic)) == wanted

    def sinks_open(self) -> list[Any]:
        first, _ = super().sinks_open()
        return [first]


def rows(number: int) -> pa.Table:
    return pa.table({"value": [f"row {number * 2 - 2}", f"row {number * 2 - 1}"]})


def write(driver: Driver, *numbers: int) -> None:
    for number in numbers:
        driver.writes(number, table=rows(number))


@pytest.fixture
def beside(tmp_path: Path, kafka: EmbeddedKafka) -> Iterator[BesideKafka]:
    yield BesideKafka(tmp_path, kafka.servers, kafka.topic(f"beside-{next(_numbers)}"))
    faults.disarm()


def test_a_transaction_ended_while_the_driver_stood_still_after_the_first_sinks_commit_is_finished_by_the_next(
    beside: BesideKafka,
) -> None:
    write(beside.driver(), 1)
    beside.timeout_ms = 1_000
    stopped = beside.driver()
    _, before = ends(beside.servers, beside.topic)
    faults.arm(Point.COMMIT_AFTER, lambda: until_the_brokers_end_it(beside, before))
    with pytest.raises(DestinationError) as caught:
        write(stopped, 2)
    assert caught.value.code == "E513"
    assert committed(beside.servers, beside.topic) == ["row 0", "row 1"]
    beside.timeout_ms = 60_000
    healing = beside.driver()
    healing.writes(2, table=pa.table({"value": ["computed", "otherwise"]}))
    write(healing, 3)
    beside.hold(3)
    assert any("brought to epoch 2" in reason for reason in beside.events(EventKind.RESOLVED))


def until_the_brokers_end_it(beside: BesideKafka, before: int) -> None:
    """A driver that stands still where the first sink has committed, for longer than its transaction may stay open."""
    deadline = time.monotonic() + _DECIDED_S
    while True:
        stable, end = ends(beside.servers, beside.topic)
        if stable == end > before:
            return
        assert time.monotonic() < deadline, "the brokers left the transaction open"
