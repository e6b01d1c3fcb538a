"""A pytest plugin: a test fails if a refusal that it composed, in this process, has more than twelve lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest

from onceonly.errors import OnceOnlyError

MOST, WIDTH = 12, 120
_FOLDER = re.compile(r"/[^\s'\"]*/pytest-[^/\s]*/(?:popen-gw\d+/)?[^/\s]+")
"""A test's own folder: as long as its name, and not the user's."""

_composed: list[str] = []


def lines_of(message: str) -> int:
    """Lines of a message on a terminal."""
    lines = _FOLDER.sub("/srv/onceonly", message).splitlines()
    return sum(max(1, math.ceil(len(line) / WIDTH)) for line in lines)


def pytest_configure() -> None:
    compose = OnceOnlyError.__init__

    def kept(error: OnceOnlyError, code: str, **details: object) -> None:
        compose(error, code, **details)
        _composed.append(str(error))

    OnceOnlyError.__init__ = kept  # type: ignore[method-assign,assignment]


@pytest.fixture(autouse=True)
def refusals_are_short() -> Iterator[None]:
    _composed.clear()
    yield
    assert [message for message in _composed if lines_of(message) > MOST] == []
