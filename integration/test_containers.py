"""Each sink on servers in containers, the compose file as it is written, and what containers suffer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import pytest
from integration.containers import (
    SERVICES,
    Stack,
    compose_stack,
    kafka_container,
    no_compose,
    no_engine,
    postgres_container,
)
from integration.servers import KafkaAddress, PostgresAddress
from tests.sinks.kafka_harness import KafkaHarness
from tests.sinks.test_postgres_conformance import PostgresHarness

from onceonly import faults
from onceonly.errors import DestinationError
from onceonly.faults import InjectedFault, Point
from onceonly.protocol import OutcomeUnknown, Prepared
from onceonly_lab.conformance import SinkHarness
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario, replayed
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.containers

REQUIRED = "REQUIRE_CONTAINERS"
PATIENCE_S = 60.0
Answer = TypeVar("Answer")

Fault = Callable[[Stack, str], AbstractContextManager[None]]


def demand(lacking: str | None) -> None:
    """Skip for want of something, or fail where the run was started to have it."""
    if lacking and os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {lacking}", pytrace=False)
    if lacking:
        pytest.skip(lacking)


@pytest.fixture(scope="module", autouse=True)
def _engine() -> None:
    demand(no_engine())


@pytest.fixture(scope="module")
def stack(_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Both servers of docker-compose.yml, shared: a test that breaks one brings it back."""
    demand(no_compose())
    with compose_stack(tmp_path_factory.mktemp("compose")) as up:
        yield up


def on_postgres(server: PostgresAddress, name: str) -> PostgresHarness:
    return PostgresHarness(server.database(name), load="driver")


def on_kafka(server: KafkaAddress) -> KafkaHarness:
    return KafkaHarness(server, answer_timeout=3.0, hidden_timeout=30.0)


def writes_two_epochs_and_replays_them(harness: SinkHarness) -> None:
    """Two epochs by one driver, the second of them once more by the next; every row and marker is there once."""
    with Scenario(harness) as story:
        driver = story.driver()
        epochs = [driver.writes(50), driver.writes(50)]
        story.holds(*epochs)
        successor = story.driver()
        replayed(successor, epochs[1])
        story.holds(*epochs)
        story.holds(*epochs, successor.writes(1))


# ---- one server each, by testcontainers


@pytest.mark.postgres
def test_the_postgres_sink_writes_once_into_a_container() -> None:
    with postgres_container() as server:
        writes_two_epochs_and_replays_them(on_postgres(server, "smoke"))


@pytest.mark.kafka
def test_the_kafka_sink_writes_once_into_a_container() -> None:
    with kafka_container() as server:
        writes_two_epochs_and_replays_them(on_kafka(server))


# ---- the compose file


def test_the_servers_of_the_compose_file_come_up_healthy_and_serve_both_sinks(stack: Stack) -> None:
    assert {service: stack.health(service) for service in SERVICES} == dict.fromkeys(SERVICES, "healthy")
    writes_two_epochs_and_replays_them(on_postgres(stack.postgres, "smoke"))
    writes_two_epochs_and_replays_them(on_kafka(stack.kafka))


# ---- faults


def test_a_commit_into_a_paused_postgres_lands_once_when_it_wakes(stack: Stack) -> None:
    harness = on_postgres(stack.postgres, "paused")
    with Scenario(harness) as story, ThreadPoolExecutor(1) as pool:
        driver, first, planned, prepared = standing_before_its_second_commit(story)
        with stack.paused("postgres"):
            commit = pool.submit(driver.commits, planned, prepared)
            with pytest.raises(DestinationError) as caught:
                PostgresSink(f"{stack.postgres.url}?connect_timeout=2", "orders").open("another")
            assert caught.value.code == "E501"
            assert not commit.done(), "a server that stands still cannot have answered"
        assert commit.result(30).rows == 3
        story.holds(first, planned)


@pytest.mark.parametrize(
    ("service", "fault"),
    [
        ("postgres", Stack.killed),
        ("postgres", Stack.disconnected),
        ("kafka", Stack.paused),
        ("kafka", Stack.killed),
        ("kafka", Stack.disconnected),
    ],
)
def test_a_commit_that_finds_nobody_is_refused_and_written_once_by_the_next_driver(
    stack: Stack, service: str, fault: Fault
) -> None:
    with Scenario(on(stack, service)) as story:
        driver, first, planned, prepared = standing_before_its_second_commit(story)
        with fault(stack, service):
            with pytest.raises(DestinationError) as caught:
                driver.commits(planned, prepared)
            prepared.abandon()
            assert caught.value.code == "E501"
        successor = in_the_end(story.driver)
        assert successor.position().epoch == 1
        successor.tries(planned)
        story.holds(first, planned)


@pytest.mark.parametrize(
    ("service", "fault"),
    [
        ("postgres", Stack.killed),
        ("postgres", Stack.disconnected),
        ("kafka", Stack.paused),
        ("kafka", Stack.disconnected),
    ],
)
def test_a_commit_whose_answer_a_fault_swallows_is_found_when_the_server_is_back(
    stack: Stack, service: str, fault: Fault
) -> None:
    with Scenario(on(stack, service)) as story, ExitStack() as until_back:

        def strike() -> None:
            until_back.enter_context(fault(stack, service))
            raise InjectedFault("the answer was lost")

        driver, first, planned, prepared = standing_before_its_second_commit(story)
        faults.arm(Point.COMMIT_SENT, strike)
        until_back.callback(faults.disarm)
        with pytest.raises(OutcomeUnknown):
            driver.commits(planned, prepared)
        prepared.abandon()
        until_back.close()
        assert in_the_end(lambda: driver.looks_up(planned)) is not None
        story.holds(first, planned)


def in_the_end(act: Callable[[], Answer]) -> Answer:
    """Try as a restarted query does: a broker that slept beyond its session answers, is shut out, and comes back."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except (DestinationError, OutcomeUnknown):
            if time.monotonic() > deadline:
                raise


def on(stack: Stack, service: str) -> SinkHarness:
    if service == "postgres":
        return on_postgres(stack.postgres, "faults")
    return on_kafka(stack.kafka)


def standing_before_its_second_commit(story: Scenario) -> tuple[Driver, PlannedEpoch, PlannedEpoch, Prepared]:
    driver = story.driver()
    first = driver.writes()
    planned = driver.plan()
    return driver, first, planned, driver.prepares(planned)
