"""A producer that connects before there is need of it: it disturbs nobody, and goes with the sink."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kafka_client import committed
from tests.sinks.kafka_harness import KafkaHarness

from onceonly_checkpoints.epoch import Fence
from onceonly_lab.conformance.scenario import Scenario
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.kafka.commit import KafkaPrepared
from onceonly_sinks.kafka.options import Options
from onceonly_sinks.kafka.transactions import Transactions

SECONDS = 10.0
_numbers = itertools.count(1)


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    name = f"ready-{next(_numbers)}"
    return kafka.topic(name)


@pytest.fixture
def transactions(kafka: EmbeddedKafka) -> Transactions:
    return Transactions(Options.check(kafka.servers, None), f"ready-{next(_numbers)}", SECONDS)


def clients() -> set[str]:
    """Clients of this process: each has one thread of this name, which it gives itself once it runs."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended since
            if (task / "comm").read_text().strip() == "rdk:main":
                found.add(task.name)
    return found


def await_(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_one_that_is_ready_does_not_end_the_transaction_of_another(
    kafka: EmbeddedKafka, topic: str, transactions: Transactions
) -> None:
    first = transactions.take()
    first.fence(SECONDS)
    first.begin()
    first.producer.produce(topic, b"row")
    first.flush()
    time.sleep(0.3)  # the next one has connected by now
    first.commit()
    first.drop()
    assert committed(kafka.servers, topic) == ["row"]
    transactions.close()


def test_each_is_taken_once(transactions: Transactions) -> None:
    taken = [transactions.take() for _ in range(3)]
    assert len({id(one.producer) for one in taken}) == 3
    for one in taken:
        one.drop()
    transactions.close()


def test_none_that_was_ready_before_a_loss_is_taken_after_it(transactions: Transactions) -> None:
    transactions.ready()
    before = transactions._next
    transactions.forget()
    taken = transactions.take()
    assert taken is not before
    taken.drop()
    transactions.close()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_closing_lets_the_one_go_that_nobody_took(transactions: Transactions) -> None:
    before = clients()
    transactions.ready()
    assert await_(lambda: bool(clients() - before))
    transactions.close()
    transactions.ready()
    assert await_(lambda: not clients() - before)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_one_whose_ids_others_shall_use_goes_with_whoever_held_it() -> None:
    """A sink that could not be opened is forgotten, not closed, and a client without a broker asks for one for ever."""
    before = clients()
    transactions = Transactions(Options.check("127.0.0.1:1", None), "forgotten", SECONDS, shared=True)
    transactions.ready()
    assert await_(lambda: bool(clients() - before))
    del transactions
    gc.collect()
    assert await_(lambda: not clients() - before)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_sink_that_is_closed_leaves_no_client_behind(kafka: EmbeddedKafka, topic: str) -> None:
    before = clients()
    sink = KafkaSink(kafka.servers, topic)
    for generation in range(1, 4):
        sink.open("leaves nothing")
        sink.install(Fence(generation, "ours"))
        sink.position(None)
        assert clients() - before
        sink.close()
    assert await_(lambda: not clients() - before)


def test_an_epoch_without_rows_is_committed_by_the_producer_that_prepared_it(kafka: EmbeddedKafka) -> None:
    """A filter that matches nothing does not cost a second fence."""
    with Scenario(KafkaHarness(kafka)) as story:
        driver = story.driver()
        planned = driver.plan(rows=0)
        prepared = driver.prepares(planned)
        assert isinstance(prepared, KafkaPrepared)
        prepared_by = prepared.state.transaction
        driver.commits(planned, prepared)
        assert prepared.state.transaction is prepared_by
        assert prepared_by.sent
        story.holds(planned, driver.writes(rows=2))
