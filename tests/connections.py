"""Connections of databases that a test opened end with it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

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
