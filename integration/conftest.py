"""What integration tests share: one JVM and one Postgres per session."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.company import Company
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import SparkSession

from onceonly.lab.jars import fast_session
from onceonly.lab.postgres import EmbeddedPostgres

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that all Spark tests share, with Delta."""
    session = fast_session(SparkSession.builder.master("local[2]").appName("integration"), delta=True)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """One server for all tests; each takes a database of its own."""
    # Not below pytest's own directory: the server runs as another user, and every session closes that one to others.
    with tempfile.TemporaryDirectory(prefix="onceonly-") as place, EmbeddedPostgres(Path(place) / "data") as server:
        yield server


@pytest.fixture(scope="session")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Drivers to kill, in processes of their own."""
    made = Company(tmp_path_factory.mktemp("drivers"))
    yield made
    made.close()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> FileStream:
    """A file source and the query over it."""
    return FileStream(spark, tmp_path)


@pytest.fixture
def pg(postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> PostgresTarget:
    """A table in a database of this test's own."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    return PostgresTarget(postgres.database(f"t{name}"))


@pytest.fixture
def delta(tmp_path: Path) -> DeltaTarget:
    """A table in this test's own directory."""
    return DeltaTarget(str(tmp_path / "table"))


@pytest.fixture(params=["postgres", "delta"])
def target(request: pytest.FixtureRequest) -> Any:
    """Each of the two destinations in turn."""
    return request.getfixturevalue("pg" if request.param == "postgres" else "delta")
