"""One Postgres for all tests of the lab in a session, and what schedules are played on, with proxies before it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.kafkaproxy import KafkaProxy
from onceonly_lab.servers.postgres import EmbeddedPostgres, temporary_postgres
from onceonly_lab.servers.postgresproxy import PostgresProxy
from onceonly_lab.stores.places import Broker, Servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    with temporary_postgres() as server:
        yield server


@pytest.fixture
def server(postgres: EmbeddedPostgres) -> EmbeddedPostgres:
    """The server, running: a test before may have killed or stopped it. It keeps its port."""
    postgres.start()
    return postgres


@pytest.fixture(scope="session")
def _servers(postgres: EmbeddedPostgres) -> Iterator[Servers]:
    with tempfile.TemporaryDirectory() as root, PostgresProxy(("127.0.0.1", postgres.port)) as wire:
        yield Servers(Path(root), (postgres, wire))


@pytest.fixture
def servers(server: EmbeddedPostgres, _servers: Servers) -> Servers:
    """What schedules without Kafka are played on."""
    return _servers


@pytest.fixture
def with_broker(servers: Servers, kafka: EmbeddedKafka, wire: KafkaProxy, inner_wire: KafkaProxy) -> Servers:
    """The same with a broker."""
    kafka.start()
    return replace(servers, kafka=Broker(kafka, wire, inner_wire))
