"""Where a run's seconds went: the plugin that measures, and the tables of ``scripts/timetable.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import timetable

RUN = {
    "wall": 12.0,
    "workers": 2,
    "collection": [[4.0, 3.0], [4.0, 3.5]],
    "tests": {
        "integration/test_a.py::test_one": {
            "setup": 11.0,
            "call": 2.0,
            "teardown": 0.5,
            "outcome": "passed",
            "fixtures": [["spark", "session", 8.0], ["postgres", "session", 1.0], ["world", "function", 1.5]],
        },
        "tests/test_b.py::test_two": {"setup": 0.0, "call": 1.0, "teardown": 0.0, "outcome": "passed", "fixtures": []},
    },
}


def test_each_second_belongs_to_one_phase() -> None:
    assert timetable.phases(RUN) == {
        "collection": 8.0,
        "JVM start": 8.0,
        "server start": 1.0,
        "set-up": 2.0,
        "call": 3.0,
        "tear-down": 0.5,
    }


def test_the_tables_name_files_folders_and_fixtures() -> None:
    text = timetable.report(RUN)
    rows = (
        "2 cases in 12 s on 2 workers; collection takes 3.5 s of CPU in each.",
        "| `integration/test_a.py` | 1 | 13.5 |",
        "| integration | 14 |",
        "| `spark (session)` | 1 | 8.0 |",
    )
    assert [row for row in rows if row not in text] == []


@pytest.mark.slow
def test_a_run_is_measured_by_phase_and_fixture_on_each_worker(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import time, pytest\n"
        "@pytest.fixture(scope='module')\ndef inner(): time.sleep(0.1)\n"
        "@pytest.fixture\ndef outer(inner): time.sleep(0.2)\n"
        "def test_one(outer): time.sleep(0.3)\n"
    )
    line = [sys.executable, "-m", "pytest", "-p", "tests.timing", "-n", "2", "--rootdir", str(tmp_path)]
    line += ["--times", str(tmp_path / "times.json"), str(tmp_path)]
    subprocess.run(line, cwd=timetable.ROOT, check=True, capture_output=True)
    run = json.loads((tmp_path / "times.json").read_text())
    [test] = run["tests"].values()
    own = {name: seconds for name, _, seconds in test["fixtures"]}
    assert own["inner"] >= 0.1
    assert 0.2 <= own["outer"] < test["setup"] - own["inner"] + 0.01
    assert test["call"] >= 0.3
    assert len(run["collection"]) == 2
