"""``python -m onceonly.lab.explorer [BOUND ...]``: explore bounds by name, report, exit 1 on a violation."""

from __future__ import annotations

import argparse
import sys

from onceonly.lab.explorer.bounds import BOUNDS
from onceonly.lab.explorer.report import lines
from onceonly.lab.explorer.search import search

VIOLATED, INCOMPLETE = 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Explore; 0 where every bound is complete and nothing is violated, 1 on a violation, 2 where one is incomplete."""
    parser = argparse.ArgumentParser(prog="python -m onceonly.lab.explorer", description=__doc__)
    parser.add_argument("bounds", nargs="*", choices=[[], *BOUNDS], default=["sinks", "checkpoint"], metavar="BOUND")
    parser.add_argument("--limit", type=float, help="seconds of processor after which a search stops, incomplete")
    given = parser.parse_args(arguments)
    worst = 0
    for name in given.bounds:
        found = search(BOUNDS[name], given.limit)
        print(f"{name}:", *lines(found), sep="\n  ", flush=True)
        worst = max(worst, INCOMPLETE if not found.complete and found.violation is None else 0)
        if found.violation is not None:
            return VIOLATED
    return worst


if __name__ == "__main__":
    sys.exit(main())
