"""What the documentation shows passes a user's type checker, too: mypy and pyright, each with its own defaults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs import FILE, ROOT, blocks

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))

PAGES = sorted(
    page
    for page in (ROOT / "docs").rglob("*.md")
    if any(block.info in {"python", "python spark"} for block in blocks(page.read_text()))
)
"""Pages with code that the other tests run."""

_SESSION = """
from pyspark.sql import SparkSession
spark: SparkSession = SparkSession.builder.getOrCreate()
dsn = "postgresql://127.0.0.1/shop"
"""
"""What a reader of such a page has already."""

_CONTEXT = """
from typing import Any
from pyspark.sql import SparkSession
orders: Any = None
dsn = path = checkpoint = history = "somewhere"
"""
"""What a reader of the README has already."""

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The examples and the blocks of README and pages, as files of a user."""
    folder = tmp_path_factory.mktemp("shown")
    shown = blocks((ROOT / "README.md").read_text())
    code = "".join(f"{block.code}\n" for block in shown if block.info in {"python", "python spark"})
    assert "exactly_once(" in code
    (folder / "readme.py").write_text(f"{_CONTEXT}{code}")
    for page in PAGES:
        for block in blocks(page.read_text()):
            if file := FILE.fullmatch(block.info):
                (folder / file["path"]).write_text(f"{block.code}\n")
        code = "".join(
            f"{block.code}\n" for block in blocks(page.read_text()) if block.info in {"python", "python spark"}
        )
        name = "_".join(page.relative_to(ROOT / "docs").with_suffix("").parts).replace("-", "_")
        (folder / f"{name}.py").write_text(f"{_SESSION}{code}")
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


def test_pages_with_code_are_among_what_is_checked(shown: list[str]) -> None:
    assert len(PAGES) >= 8
    assert {"tutorial.py", "how_to_write_a_sink.py", "guarantees.py"} <= {Path(file).name for file in shown}


def test_the_checkers_see_a_sink_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from onceonly import exactly_once\n\nexactly_once(1)\n")
    assert complaints("mypy", "--config-file=", "--ignore-missing-imports", str(wrong))
    assert complaints("pyright", "--pythonpath", sys.executable, str(wrong))
