"""The demo, end to end and small: real SIGKILLs, both sinks, and the JSON that it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kill, pytest.mark.postgres]

ROWS = 4_000


def test_after_real_kills_the_wrapped_job_is_exact_and_the_plain_one_is_not(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    command = [sys.executable, "-m", "onceonly.lab.demo", "--output", "json", "--keep", str(keep)]
    command += ["--rows", str(ROWS), "--kills", "2", "--seed", "11"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert json.loads((keep / "report.json").read_text()) == document
    assert (document["rows_in"], document["kills"], document["restarts"]) == (ROWS, 2, 2)
    for sink in document["onceonly"].values():
        assert (sink["rows"], sink["missing"], sink["doubled"], sink["audit"]) == (ROWS, 0, 0, "EXACTLY ONCE")
        assert sink["skipped"] >= 1
    for sink in document["plain"].values():
        assert (sink["missing"], sink["doubled"] > 0) == (0, True)
