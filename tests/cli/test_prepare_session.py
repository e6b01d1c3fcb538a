"""``onceonly lab prepare-session`` takes a builder by its name, and refuses a wrong name before it starts Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run

JOB = """
class Builder:
    getOrCreate = None
builder = Builder()
def make(): return builder
session = 3
"""


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's in the current directory."""
    (tmp_path / "their_job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere", *sys.path])


@pytest.mark.parametrize(
    "name", ["their_job", "their_job:", "their_job:nothing", "their_job:session", "absent:builder"]
)
def test_what_is_no_builder_is_refused_by_name(run: Run, name: str) -> None:
    result = run("lab", "prepare-session", name)
    assert result.exit_code == 3  # the lab failed; 2 means inconclusive there
    assert name in result.output
    assert "ONCE-E110" in result.output


@pytest.mark.parametrize("name", ["their_job:builder", "their_job:make"])
def test_a_builder_and_a_function_that_makes_it_mean_the_same(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[str] = []
    monkeypatch.setattr(
        "onceonly_lab.session.prepare", lambda builder: given.append(type(builder).__name__) or tmp_path
    )
    assert run("lab", "prepare-session", name).exit_code == 0
    assert given == ["Builder"]
