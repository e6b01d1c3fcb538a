"""The demo, end to end and small: real SIGKILLs, one sink and three at once, and the JSON that it promises."""

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
    assert json.loads((keep / "report.json").read_text()) == document
    assert (document["rows_in"], document["kills"], document["restarts"]) == (ROWS, 1, 1)
    page = (keep / "report.html").read_text()
    assert page.count("EXACTLY ONCE</h1>") == 2
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
