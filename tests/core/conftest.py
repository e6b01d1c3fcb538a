"""Pipelines into several sinks, in the states that tests start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.several import Pipeline, left_behind

from onceonly import faults
from onceonly_checkpoints.manifest import NAME


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.disarm()


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


@pytest.fixture
def behind(tmp_path: Path) -> Pipeline:
    return left_behind(tmp_path)


@pytest.fixture
def bereft(behind: Pipeline) -> Pipeline:
    """And its staged bytes are gone."""
    for directory in behind.staged():
        (directory / NAME).unlink()
    return behind
