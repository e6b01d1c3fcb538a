"""A line of Spark whose packages cannot be had is skipped out loud, or fails where that is demanded; what counts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import lines

ROOT = Path(__file__).parents[1]


def test_the_lowest_versions_are_the_lower_bounds_of_the_project_for_all_but_pyspark() -> None:
    lowest, usual = (set(lines.requirements("4.2", low)) for low in (True, False))
    assert {"pyspark[connect]==4.2.*", "sqlalchemy==2.0.28", "deltalake==1.6.6", "psycopg[binary]==3.2.8"} <= lowest
    bounded = {one for one in usual - lowest if ">=" in one and not one.startswith("pyspark")}
    assert {one.replace(">=", "==").partition(",")[0] for one in bounded} == lowest - usual


@pytest.mark.slow
@pytest.mark.parametrize(("required", "code"), [("0", 0), ("1", 1)])
def test_a_line_that_the_index_refuses_is_skipped_with_a_line_or_fails_where_lines_are_required(
    tmp_path: Path, required: str, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    index = {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0"}
    settings = {**os.environ, **index, "PIP_NO_CACHE_DIR": "1", "ONCEONLY_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "scripts.lines", "4.0"],
        cwd=ROOT,
        env={**settings, "REQUIRE_LINES": required},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4.0: skipped, the index refuses it: No matching distribution found" in done.stdout
    assert done.returncode == code
    assert list((tmp_path / "lines").iterdir()) == [], "an environment that was cut short is not taken for one"


def test_a_line_without_spark_connect_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "scripts.lines", "3.5", "--connect"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == "3.5 has no Spark Connect that runs a callback; these have: 4.0, 4.1, 4.2, 4.3\n"
    assert done.returncode == 1


@pytest.mark.slow
def test_tests_on_spark_connect_are_counted_with_the_others_and_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Both are skipped here or need nothing: one of a process with a classic session, one of a process without.
    files = {(markers, test) for markers, *tests in lines.TESTS for test in tests if test.endswith("/test_line.py")}
    assert len(files) == 2
    monkeypatch.setattr(lines, "TESTS", sorted(files, reverse=True))
    chosen = "test_this_line_is_one_that_is_known or test_a_spark_connect_that_is_too_old"
    found = lines.run(lines.main_line(), ["-k", chosen])
    assert (found.passed, found.failed, found.skipped) == (1, 0, 1)
    assert found.connect == {"passed": 0, "failed": 0, "skipped": 1}
    assert found.format == {"passed": 0, "failed": 0, "skipped": 0}


def test_a_process_that_told_of_nothing_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "TESTS", (("connect", "integration/connect/test_gone.py"),))
    assert lines.run(lines.main_line(), []).failed >= 1


def test_a_python_that_is_not_here_is_named_with_the_variable_that_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["lines", "4.2", "--python", "3.13"])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("PYENV_ROOT", "/nowhere")
    with pytest.raises(SystemExit, match="ONCEONLY_PYTHON_3_13=/path/to/python"):
        lines.main()
