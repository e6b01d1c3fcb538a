"""One Kafka broker for all tests of a session, with a proxy before its clients and one before itself; a browser."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool
from tests.browser import chromium, shown

from onceonly import faults
from onceonly_lab.servers.kafka import EmbeddedKafka, temporary_kafka
from onceonly_lab.servers.kafkaproxy import KafkaProxy

__all__ = ["chromium", "shown"]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    """No fault stays armed behind a test, and none writes the checkpoint that stories name: all tests would see it."""
    yield
    faults.disarm()
    assert not Path("/ckpt").exists(), "a test has written to /ckpt: give its pipeline a checkpoint of its own"


_CONNECTIONS: list[Any] = []


@event.listens_for(Pool, "connect")
def _connected(connection: Any, _record: Any) -> None:
    _CONNECTIONS.append(connection)


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    """A test's connections end with it, as those of a process do: a driver that dies in it closes none.

    What was left to the collector warned where that came by, in whichever test it was. Fixtures of a wider scope have
    connected before.
    """
    _CONNECTIONS.clear()
    yield
    for connection in _CONNECTIONS:
        with suppress(Exception):  # it is closed, or belongs to another thread
            connection.close()
    _CONNECTIONS.clear()


@pytest.fixture(scope="session")
def _kafka_proxies() -> Iterator[tuple[KafkaProxy, KafkaProxy]]:
    with KafkaProxy() as clients, KafkaProxy() as inner:
        yield clients, inner


@pytest.fixture(scope="session")
def kafka(_kafka_proxies: tuple[KafkaProxy, KafkaProxy]) -> Iterator[EmbeddedKafka]:
    """``servers`` leads to it directly, ``proxied_servers`` through ``wire``."""
    clients, inner = _kafka_proxies
    with temporary_kafka(proxy=clients, internal_proxy=inner) as broker:
        yield broker


@pytest.fixture
def wire(kafka: EmbeddedKafka, _kafka_proxies: tuple[KafkaProxy, KafkaProxy]) -> Iterator[KafkaProxy]:
    """The proxy before the clients; its rules end with the test."""
    yield _kafka_proxies[0]
    _kafka_proxies[0].clear()


@pytest.fixture
def inner_wire(kafka: EmbeddedKafka, _kafka_proxies: tuple[KafkaProxy, KafkaProxy]) -> Iterator[KafkaProxy]:
    """The proxy before what the broker tells itself, transaction markers above all; its rules end with the test."""
    yield _kafka_proxies[1]
    _kafka_proxies[1].clear()
