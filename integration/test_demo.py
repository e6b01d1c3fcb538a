"""Both acts of the demo, end to end: real SIGKILLs, the JSON and the report that they promise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kill, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

ROWS = 4_000
ALONE, TOGETHER = "postgres", ("postgres", "kafka", "delta")


def test_after_real_kills_the_wrapped_jobs_are_exact_and_the_plain_one_is_not(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    command = [sys.executable, "-m", "onceonly_lab.demo", "--output", "json", "--keep", str(keep)]
    command += ["--rows", str(ROWS), "--kills", "1", "--seed", "11", "--sink", ALONE, "--sink", "several"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    report = keep / "demo-report"
    assert json.loads((report / "report.json").read_text()) == document
    assert (document["rows_in"], document["kills"], document["restarts"]) == (ROWS, 1, 1)
    page = (report / "audit.html").read_text()
    assert page.count("EXACTLY ONCE</h1>") == 2
    assert (report / "index.html").read_text().count("EXACTLY ONCE</h1>") == 1
    assert str(report / "index.html") in ran.stderr.splitlines()[-1]
    assert document["moments"]["several"][0] in page
    plain, several = document["plain"][ALONE], document["several"]
    assert (plain["missing"], plain["doubled"] > 0) == (0, True)
    assert list(several["sinks"]) == list(TOGETHER)
    for sink in (document["onceonly"][ALONE], *several["sinks"].values()):
        assert (sink["rows"], sink["missing"], sink["doubled"], sink["audit"]) == (ROWS, 0, 0, "EXACTLY ONCE")
        assert sink["skipped"] >= 1
    assert (several["kills"], several["epochs_differing"], several["verdict"]) == (1, [], "EXACTLY ONCE")
    (moment,) = document["moments"]["several"]
    first, *others = (int(epoch) for epoch in re.findall(r"holds (\d+)", moment))
    assert others == [first - 1] * 2, "the kill fell after the first of three commits"


def test_windows_sessions_an_idle_writer_and_reads_show_their_figures_under_two_kills(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "onceonly_lab.demo", "--windows", "--seed", "11", "--output", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["kills"], document["verdict"]) == (2, "EXACTLY ONCE")
    shown = {name: claim["shown"] for name, claim in document["claims"].items()}
    assert shown["sum"] == {"totals": [5, 7, 10, 25, 39], "sum": 51}
    assert len(shown["designs"]) == 18 * 3 + 3
    assert {row[5] for row in shown["results"]} == {"EARLY", "ON_TIME", "LATE"}
    assert shown["results"] == shown["second table"]
    assert (shown["writers"][0], shown["writers"][2]) == (1, 0)
    assert shown["reads"] == {"mixed_through_views": 0, "tables_were_mixed": True}
    report = tmp_path / "demo-report"
    files = {path.name: path.read_text() for path in report.iterdir()}
    assert files.keys() == {"index.html", "audit.html", "report.json", "windows.svg", "necessity.svg", "reads.svg"}
    assert json.loads(files["report.json"]) == document
    assert sum(map(len, files.values())) < 3_000_000
    assert all(name in ran.stderr.splitlines()[-1] for name in files)
    assert document["moments"][0] in files["index.html"]
