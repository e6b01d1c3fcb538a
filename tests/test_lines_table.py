"""The README's table of Sparks says what was run and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def lines_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lines_table", ROOT / "scripts/lines_table.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_readme_says_what_the_last_run_of_all_lines_found(lines_table: ModuleType) -> None:
    """make lines runs them; scripts/lines_table.py writes the table."""
    made = lines_table.table(json.loads((ROOT / "docs/lines.json").read_text()))
    assert made in (ROOT / "README.md").read_text()


def test_what_nobody_ran_is_called_untried_and_a_failure_stands_out(lines_table: ModuleType) -> None:
    ran = {"line": "4.0", "pyspark": "4.0.5", "python": "3.12.1", "passed": 50, "failed": 2, "skipped": 1, "reason": ""}
    rows = dict(row.strip("| \n").split(" | ", 1) for row in lines_table.table([ran]).splitlines())
    assert rows["3.5"] == "untried | untried | untried | untried | Delta 3.3.3 | jars of 3.5.7"
    assert rows["4.0"].split(" | ")[:4] == [
        "untried",
        "untried",
        "4.0.5: **2 failed**, 50 passed, 1 skipped",
        "untried",
    ]
    assert rows["4.3"].endswith("no jar: refused | no jars: refused")
