"""Demands that the tests noticed enough of the line mutants that mutmut made; prints the score and who survived."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

STATS = Path("mutants/mutmut-cicd-stats.json")


def main(percent: float) -> int:
    """Return 0 if at least so many percent were killed."""
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    subprocess.run([mutmut, "export-cicd-stats"], check=True, stdout=subprocess.DEVNULL)
    stats = json.loads(STATS.read_text())
    killed = stats["killed"] + stats["timeout"] + stats["segfault"]
    print(subprocess.run([mutmut, "results"], check=True, capture_output=True, text=True).stdout, end="")
    score = 100 * killed / stats["total"] if stats["total"] else 0.0
    print(f"{killed} of {stats['total']} mutants killed: {score:.1f} %, wanted {percent:.0f} %")
    return 0 if score >= percent else 1


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1])))
