"""What integration tests share: one JVM and one Postgres per session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
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
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """One server for all tests; each takes a database of its own."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server
