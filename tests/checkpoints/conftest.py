"""What tests of the ledger share: one embedded Postgres per session, and a ledger in each kind of database."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.postgres import EmbeddedPostgres

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("ledger") / "data") as server:
        yield server


@pytest.fixture
def postgres_url(postgres: EmbeddedPostgres) -> str:
    """An empty database of one's own."""
    return postgres.database(f"ledger_{next(_numbers)}")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a ledger that does not exist yet, in each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    """An open, empty ledger."""
    ledger = SqlLedger(url)
    ledger.open()
    yield ledger
    ledger.close()
