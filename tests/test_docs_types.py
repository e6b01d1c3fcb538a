"""What the documentation shows passes a user's type checker, too: mypy and pyright, each with its own defaults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs import ROOT, blocks

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))

_CONTEXT = """
from typing import Any
from pyspark.sql import SparkSession
orders: Any = None
dsn = path = checkpoint = history = "somewhere"
"""
"""What a reader of the README has already."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The examples and the README's blocks, as files of a user."""
    folder = tmp_path_factory.mktemp("shown")
    shown = blocks((ROOT / "README.md").read_text())
    code = "".join(f"{block.code}\n" for block in shown if block.info in {"python", "python spark"})
    assert "exactly_once(" in code
    (folder / "readme.py").write_text(f"{_CONTEXT}{code}")
    for example in EXAMPLES:
        (folder / example.name).write_text(example.read_text())
    return sorted(map(str, folder.glob("*.py")))


def complaints(*command: str) -> list[str]:
    """The lines in which a checker calls something an error."""
    folder = Path(command[-1]).parent  # a checker reads the settings of the project that it stands in
    answer = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=folder, check=False)
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    return [line for line in answer.stdout.splitlines() if "error:" in line]


def test_mypy_takes_what_the_documentation_shows(shown: list[str]) -> None:
    assert complaints("mypy", "--config-file=", "--ignore-missing-imports", *shown) == []


def test_pyright_takes_what_the_documentation_shows(shown: list[str], tmp_path: Path) -> None:
    assert complaints("pyright", "--pythonpath", sys.executable, *shown) == []


def test_the_checkers_see_a_sink_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from onceonly import exactly_once\n\nexactly_once(1)\n")
    assert complaints("mypy", "--config-file=", "--ignore-missing-imports", str(wrong))
    assert complaints("pyright", "--pythonpath", sys.executable, str(wrong))
