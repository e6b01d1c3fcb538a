"""``python -m onceonly.lab.fuzzer``: play schedules of seeds, or one from a file, report, exit 1 on a failure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from onceonly.lab.fuzzer.draw import PLAYED
from onceonly.lab.fuzzer.fuzz import Fuzzed, broken, fingerprint, fuzz
from onceonly.lab.fuzzer.play import Played, play
from onceonly.lab.schedule import Schedule, UnreadableSchedule

SCHEDULES = 5000
FAILED, UNREADABLE = 1, 3


def main(arguments: list[str] | None = None) -> int:
    """Play; 0 where every schedule holds, 1 where one fails, 3 where a document cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m onceonly.lab.fuzzer", description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help=f"how many; default {SCHEDULES}")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first")
    parser.add_argument("--replay", type=Path, help="a schedule's document")
    given = parser.parse_args(arguments)
    if given.replay is not None:
        return _replay(given.replay)
    fuzzed = fuzz(given.seed, given.schedules)
    print(*_report(given.seed, fuzzed), sep="\n")
    return FAILED if fuzzed.failed else 0


def _replay(path: Path) -> int:
    try:
        played = play(Schedule.parse(path.read_text(encoding="utf-8")))
    except (OSError, UnreadableSchedule) as wrong:
        print(f"{path}: {wrong}", file=sys.stderr)
        return UNREADABLE
    print(*_told(played), sep="\n")
    return FAILED if broken(played) else 0


def _told(played: Played) -> Iterator[str]:
    yield played.schedule.line
    width = len(str(len(played.steps)))
    for number, words in enumerate(played.steps, start=1):
        yield f"{number:>{width}}. {words}"
    if played.violation is not None:
        yield f"{played.violation.name}: {played.violation.words}"
    name = broken(played)
    yield f"history {fingerprint(played.history)[:16]}: {name or 'every invariant holds'}"


def _report(seed: int, fuzzed: Fuzzed) -> Iterator[str]:
    yield (
        f"{fuzzed.schedules:,} schedules from seed {seed}, {fuzzed.steps:,} steps, "
        f"{fuzzed.seconds:.1f} s of processor, {fuzzed.rate:,} schedules/s"
    )
    yield "acted: " + ", ".join(f"{action} {times:,}" for action, times in fuzzed.acted.most_common())
    unreached = [point for point in PLAYED if not fuzzed.passed[point]]
    yield f"points passed: {len(PLAYED) - len(unreached)} of {len(PLAYED)}"
    if unreached:
        yield "never passed: " + ", ".join(unreached)
    if fuzzed.failed is None or fuzzed.shrunk is None:
        yield "every invariant holds, and the checker finds nothing"
        return
    smaller = fuzzed.shrunk
    yield f"{smaller.name} with seed {fuzzed.failed.schedule.seed}; made smaller in {smaller.replays} replays:"
    yield smaller.schedule.text
    yield from _told(fuzzed.failed)


if __name__ == "__main__":
    sys.exit(main())
