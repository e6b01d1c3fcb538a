"""One Kafka broker for all tests of a session, with a proxy before its clients and one before itself; a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
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
