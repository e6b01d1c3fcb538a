"""Pipelines into several sinks, in the states that tests start from."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.core.several import Pipeline, left_behind

from onceonly_checkpoints.manifest import NAME
from onceonly_checkpoints.storage import open_storage


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where rows are staged: on the disk, or in a store that fsspec reaches."""
    return str(tmp_path / "staging") if request.param == "disk" else f"memory://{uuid.uuid4().hex}/staging"


@pytest.fixture
def pipeline(tmp_path: Path, place: str) -> Pipeline:
    return Pipeline(tmp_path, staging=place)


@pytest.fixture
def behind(tmp_path: Path, place: str) -> Pipeline:
    return left_behind(tmp_path, place)


@pytest.fixture
def bereft(behind: Pipeline) -> Pipeline:
    """And its staged bytes are gone."""
    for address in behind.staged():
        open_storage(address).delete(NAME)
    return behind
