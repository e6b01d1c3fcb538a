"""A world with a pipeline in it, and a way to run the command line inside this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from tests.audit.world import World
from typer.testing import CliRunner, Result

from onceonly.cli.app import app

Run = Callable[..., Result]

# typer builds the tree of commands for each call: 30 ms, more than most commands take. A program builds it once.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEDGER", "SINK", "QUERY", "OUTPUT", "DSN", "DEBUG"):
        monkeypatch.delenv(f"ONCEONLY_{name}", raising=False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).write_all()


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str, **env: str) -> Result:
        return CliRunner().invoke(app, list(arguments), env=env)

    return invoke


@pytest.fixture
def on(run: Run, world: World) -> Run:
    """Run a command on the world's ledger."""

    def invoke(*arguments: str, **env: str) -> Result:
        return run(*arguments, ONCEONLY_LEDGER=str(world.path), **env)

    return invoke


def document(result: Result) -> dict[str, Any]:
    """The JSON on stdout; nothing else may stand there."""
    found = json.loads(result.stdout)
    assert found["schema_version"] == 1
    return found


def assert_answerless(result: Result, *words: str) -> None:
    """Exit code 2, words on stderr, nothing on stdout, no traceback."""
    assert result.exit_code == 2, (result.stdout, result.stderr, result.exception)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
