"""What tests on Spark Connect share: one server and one session. A process that has a classic session can have none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.connect.streams import ConnectStream
from integration.processes import REPOSITORY
from integration.servers import PostgresAddress
from pyspark.sql import SparkSession

from onceonly_lab.servers.connect import ConnectServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """The server of tests that let it live."""
    with ConnectServer(tmp_path_factory.mktemp("connect"), REPOSITORY) as made:
        yield made


@pytest.fixture(scope="session")
def mortal(any_postgres: PostgresAddress, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """The server of tests that kill it. Postgres is there first: its password is in the environment then."""
    with ConnectServer(tmp_path_factory.mktemp("mortal"), REPOSITORY) as made:
        yield made


@pytest.fixture(scope="session")
def remote(server: ConnectServer) -> Iterator[SparkSession]:
    """A session of Spark Connect."""
    # Not ``getOrCreate``: a session of a server that a test has killed may still be the active one.
    made: SparkSession = SparkSession.builder.remote(server.url).create()
    yield made
    made.stop()


@pytest.fixture
def connected(remote: SparkSession, tmp_path: Path) -> ConnectStream:
    """A file source and the query over it."""
    return ConnectStream(remote, tmp_path)
