"""Run the four scripts with their limits, and lower a limit to a figure that beats it.

    python scripts/house/ratchet.py          compare; exit status 1 where a figure is past its limit, or far below it
    python scripts/house/ratchet.py --lower  write each figure that beats its limit over it

A limit is never raised by this script, nor lowered past its target, the number in its comment.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
SCRIPTS = ("dialect", "prose", "rooms", "carried")
LIMIT = re.compile(r"^(--(?:max|min)) ([\w.]+)=([\d.]+)(\s*# *([\d.]*\d))?", re.M)


def measured(script: str, limits: pathlib.Path) -> tuple[dict[str, float], int]:
    """Run a script with its limits and pass on what it prints; return its figures and its exit status."""
    command = [sys.executable, str(FOLDER / f"{script}.py"), f"@{limits}"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(run.stdout, end="", flush=True)
    head = run.stdout.partition("\n")[0].partition(": ")[2]
    return {name: float(number) for name, number in (pair.split(" ") for pair in head.split("  "))}, run.returncode


def worse(kind: str, one: float, other: float) -> bool:
    """Whether one figure is worse than another, for a limit that begins with ``--max`` or ``--min``."""
    return one > other if kind.startswith("--max") else one < other


def lowered(text: str, figures: dict[str, float]) -> str:
    """Return the text of a file of limits with each figure that beats its limit in the limit's place."""

    def better(match: re.Match[str]) -> str:
        kind, name, limit, comment, target = match.groups()
        figure = figures.get(name, float(limit))
        tight = float(target) if target and worse(kind, float(target), figure) else figure
        return f"{kind} {name}={tight:.10g}{comment or ''}" if worse(kind, float(limit), tight) else match[0]

    return LIMIT.sub(better, text)


def main() -> int:
    """Measure, compare, and lower where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true")
    options = parser.parse_args()
    status = 0
    for script in SCRIPTS:
        path = FOLDER / "limits" / f"{script}.txt"
        figures, failed = measured(script, path)
        status = max(status, failed)
        if options.lower:
            path.write_text(lowered(path.read_text(encoding="utf-8"), figures), encoding="utf-8")
    return 0 if options.lower else status


if __name__ == "__main__":
    sys.exit(main())
