"""Every sink, ours and the one of the tutorial, gives one event one code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.kafka_harness import KafkaHarness
from tests.sinks.memory_harness import MemoryHarness
from tests.sinks.postgres_harness import PostgresHarness
from tests.sinks.tutorial import SQLiteHarness

from onceonly.errors import OnceOnlyError
from onceonly.protocol import Superseded
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.conformance import SinkHarness
from onceonly_lab.conformance.scenario import Driver, PlannedEpoch, Scenario, plan

SINKS = [
    "memory",
    "tutorial",
    "delta",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("kafka", marks=pytest.mark.kafka),
]


@pytest.fixture(params=SINKS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkHarness]:
    made: dict[str, Callable[[], SinkHarness]] = {
        "memory": MemoryHarness,
        "tutorial": SQLiteHarness,
        "delta": lambda: DeltaHarness(tmp_path),
        "postgres": lambda: PostgresHarness(request.getfixturevalue("postgres").database("one_rule")),
        "kafka": lambda: KafkaHarness(request.getfixturevalue("kafka")),
    }
    harness = made[request.param]()
    yield harness
    harness.close()


def gap(first: PlannedEpoch, driver: Driver) -> PlannedEpoch:
    return driver.plan(after=driver.plan().epoch)


def other_history(first: PlannedEpoch, driver: Driver) -> PlannedEpoch:
    return driver.plan(salt=2, after=driver.plan(salt=1, after=first.epoch).epoch)


def other_epoch(first: PlannedEpoch, driver: Driver) -> PlannedEpoch:
    return driver.plan(salt=1, after=first.epoch)


def older_epoch(first: PlannedEpoch, driver: Driver) -> PlannedEpoch:
    return plan(None, driver.sink.id, salt=1)


def a_first_epoch_that_is_held(first: PlannedEpoch, driver: Driver) -> PlannedEpoch:
    return plan(plan(None, driver.sink.id, first=1, salt=1).epoch, driver.sink.id, first=2, salt=1)


EVENTS = {
    gap: ("E207", r"is at epoch 2, but it once confirmed epoch 3"),
    other_history: ("E210", r"epoch 2 and .* disagree"),
    other_epoch: ("E210", r"epoch 2 and .* disagree"),
    older_epoch: ("E210", r"epoch 1 and .* disagree"),
    a_first_epoch_that_is_held: ("E210", r"epoch 2 and .* disagree"),
}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_an_epoch_that_does_not_follow_has_the_code_of_its_event(
    harness: SinkHarness, event: Callable[[PlannedEpoch, Driver], PlannedEpoch]
) -> None:
    code, words = EVENTS[event]
    with Scenario(harness) as story:
        driver = story.driver()
        first, second = driver.writes(), driver.writes()
        with pytest.raises(OnceOnlyError, match=words) as caught:
            driver.tries(event(first, driver))
        assert caught.value.code == code
        story.holds(first, second)


def test_a_later_epoch_on_a_fresh_target_is_a_sink_that_lost_what_it_held(harness: SinkHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver()
        with pytest.raises(OnceOnlyError) as caught:
            driver.tries(driver.plan(after=driver.plan().epoch))
        assert caught.value.code == "E207"


def test_a_fence_that_was_never_installed_does_not_stand(harness: SinkHarness) -> None:
    with Scenario(harness) as story:
        driver = story.driver(3)
        planned = driver.plan()
        driver.fence = Fence(4, "owner-4")
        with pytest.raises(OnceOnlyError, match="our fence is gone") as caught:
            driver.commits(planned, None)
        assert caught.value.code == "E508"


@pytest.mark.parametrize("fence", [Fence(2, "owner-3"), Fence(3, "another")], ids=["lower", "another owner"])
def test_a_fence_that_is_not_above_the_standing_one_is_superseded(harness: SinkHarness, fence: Fence) -> None:
    with Scenario(harness) as story:
        driver = story.driver(3)
        planned = driver.plan()
        driver.fence = fence
        with pytest.raises(Superseded) as caught:
            driver.commits(planned, None)
        assert caught.value.current_fence == Fence(3, "owner-3")
