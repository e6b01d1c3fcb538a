"""The table of Sparks on the page of installation has what was run and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]


@pytest.fixture
def lines_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lines_table", ROOT / "scripts/lines_table.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_page_has_what_the_last_run_of_all_lines_found(lines_table: ModuleType) -> None:
    """make lines runs them; scripts/lines_table.py writes the table."""
    made = lines_table.table(json.loads((ROOT / "docs/lines.json").read_text()))
    assert made in (ROOT / "docs/install.md").read_text()


def test_what_nobody_ran_is_called_untried_and_a_failure_stands_out(lines_table: ModuleType) -> None:
    ran = {"line": "4.0", "pyspark": "4.0.5", "python": "3.12.1", "passed": 50, "failed": 2, "skipped": 1, "reason": ""}
    lines = lines_table.table([ran]).splitlines()
    rows = dict(line.strip("| ").split(" | ", 1) for line in lines if " | " in line)
    assert rows["3.5"] == "untried | untried | untried | untried | 3.3.3 | 3.5.7 | refused | refused"
    assert rows["4.0"].split(" | ")[:4] == [
        "untried",
        "untried",
        "4.0.5: **2 failed**, 50 passed, 1 skipped",
        "untried",
    ]
    assert rows["4.3"].endswith("none | none | untried | untried")


def test_ways_in_have_columns_of_their_own(lines_table: ModuleType) -> None:
    none, one = {"passed": 0, "failed": 0, "skipped": 0}, {"passed": 1, "failed": 0, "skipped": 1}
    broken, left_out = {"passed": 0, "failed": 1, "skipped": 0}, {"passed": 0, "failed": 0, "skipped": 2}
    ran = [
        {"line": line, "pyspark": f"{line}.1", "python": python, **one, "reason": "", "connect": way, "format": other}
        for line, python, way, other in (
            ("3.5", "3.11.7", one, left_out),
            ("4.0", "3.11.7", one, broken),
            ("4.1", "3.11.7", one, none),
            ("4.1", "3.13.1", broken, one),
            ("4.2", "3.11.7", left_out, none),
        )
    ]
    rows = {row[0]: row[-2:] for row in (line.strip("| ").split(" | ") for line in lines_table.table(ran).splitlines())}
    assert rows["3.5"] == ["refused", "refused"]
    assert rows["4.0"] == ["3.11: 1 passed, 1 skipped", "3.11: **1 failed**, 0 passed"]
    assert rows["4.1"][0] == "3.11: 1 passed, 1 skipped; 3.13: **1 failed**, 0 passed"
    assert rows["4.1"][1] == "3.13: 1 passed, 1 skipped"
    assert rows["4.2"] == ["untried", "untried"]
