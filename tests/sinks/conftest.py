"""One embedded Postgres for all tests of this folder, with a database of its own for each test that asks."""

import itertools
from collections.abc import Iterator

import pytest

from onceonly.lab.postgres import EmbeddedPostgres, temporary_postgres

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    with temporary_postgres() as server:
        yield server


@pytest.fixture
def dsn(postgres: EmbeddedPostgres) -> str:
    return postgres.database(f"test_{next(_numbers)}")
