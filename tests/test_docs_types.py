"""What the documentation shows passes a user's type checker, too: mypy and pyright, each with its own defaults."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs import FILE, README, ROOT, blocks

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
servers = secure_servers = "127.0.0.1:9092"
"""
"""What a reader of such a page has already."""

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The examples and the blocks of README and pages, as files of a user."""
    folder = tmp_path_factory.mktemp("shown")
    [(program, code)] = [
        (file["path"], block.code) for block in blocks(README.read_text()) if (file := FILE.fullmatch(block.info))
    ]
    assert "exactly_once(" in code
    (folder / program).write_text(f"{code}\n")
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
    assert {"shop.py", "tutorial.py", "how_to_write_a_sink.py"} <= {Path(file).name for file in shown}


def test_the_checkers_see_a_sink_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from onceonly import exactly_once\n\nexactly_once(1)\n")
    assert complaints("mypy", "--config-file=", "--ignore-missing-imports", str(wrong))
    assert complaints("pyright", "--pythonpath", sys.executable, str(wrong))


def test_checkers_infer_what_a_user_gets_and_find_each_misspelt_argument(tmp_path: Path) -> None:
    text = (ROOT / "tests" / "typing" / "user.py").read_text()
    (tmp_path / "user.py").write_text(text)
    wrong = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")]
    assert len(wrong) >= 12
    for command in (["mypy", "--config-file="], ["pyright", "--pythonpath", sys.executable]):
        told = complaints(*command, str(tmp_path / "user.py"))
        assert sorted({int(re.findall(r"user\.py:(\d+)", line)[0]) for line in told}) == wrong, (command[0], told)
