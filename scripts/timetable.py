"""Prints where the seconds of the last ``make test`` went; ``--page`` writes the page of the documentation, too."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TIMES = ROOT / ".cache" / "test-time.json"
PAGE = ROOT / "docs" / "how-it-is-proven" / "test-time.md"

JVMS = frozenset({"spark", "warm_jvms", "connect_server"})
"""Fixtures that start a JVM with Spark."""

SERVERS = frozenset({"postgres", "kafka", "_kafka_proxies", "any_postgres", "any_kafka", "loaded"})
"""Fixtures that start a server."""

_FILES, _FIXTURES = 25, 12
_HEAD = """# Where the tests' time goes

You see here which tests take the time of `make test`. You need it when you make tests faster. The unit is the *worker
second*: one second of one worker, also while it waits for a server, a killed process or the JVM.

`make test-time ARGS="--page"` writes this page from the last `make test`. This one ran on two idle cores.

"""


def phases(run: Mapping[str, Any]) -> dict[str, float]:
    """Worker seconds by phase; their sum is what the workers spent on tests and on collecting them."""
    seconds: Counter[str] = Counter({"collection": sum(wall for wall, _ in run["collection"])})
    for test in run["tests"].values():
        fixtures: Counter[str] = Counter()
        for name, _, own in test["fixtures"]:
            fixtures[_kind(name)] += own
        seconds["JVM start"] += fixtures["JVM start"]
        seconds["server start"] += fixtures["server start"]
        seconds["set-up"] += max(0.0, test.get("setup", 0.0) - fixtures["JVM start"] - fixtures["server start"])
        seconds["call"] += test.get("call", 0.0)
        seconds["tear-down"] += test.get("teardown", 0.0)
    return dict(seconds)


def by_file(run: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """Cases and worker seconds by file, the most expensive first."""
    cases: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for name, test in run["tests"].items():
        file = name.partition("::")[0]
        cases[file] += 1
        seconds[file] += sum(test.get(phase, 0.0) for phase in ("setup", "call", "teardown"))
    return {file: (cases[file], spent) for file, spent in seconds.most_common()}


def by_fixture(run: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """How often a fixture was set up and its seconds, without those of the fixtures that it asks for."""
    times: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for name, scope, own in (entry for test in run["tests"].values() for entry in test["fixtures"]):
        times[f"{name} ({scope})"] += 1
        seconds[f"{name} ({scope})"] += own
    return {name: (times[name], spent) for name, spent in seconds.most_common()}


def report(run: Mapping[str, Any]) -> str:
    """The tables, as Markdown."""
    cpu = max((cpu for _, cpu in run["collection"]), default=0.0)
    summary = f"{len(run['tests'])} cases in {run['wall']:.0f} s on {run['workers']} workers"
    summary += f"; collection takes {cpu:.1f} s of CPU in each.\n" if cpu else ".\n"
    folders: Counter[str] = Counter()
    for file, (_, spent) in by_file(run).items():
        folders["/".join(file.split("/")[:-1])] += spent
    parts = (
        _table(("phase", "worker seconds"), ((name, f"{spent:.0f}") for name, spent in phases(run).items())),
        _table(("folder", "worker seconds"), ((name, f"{spent:.0f}") for name, spent in folders.most_common())),
        _table(("file", "cases", "worker seconds"), _rows(by_file(run), _FILES)),
        _table(("fixture", "set up", "worker seconds"), _rows(by_fixture(run), _FIXTURES)),
    )
    return "\n".join((summary, *parts))


def _kind(fixture: str) -> str:
    return "JVM start" if fixture in JVMS else "server start" if fixture in SERVERS else "set-up"


def _rows(found: Mapping[str, tuple[int, float]], most: int) -> Iterator[tuple[str, str, str]]:
    for name, (count, spent) in list(found.items())[:most]:
        yield f"`{name}`", str(count), f"{spent:.1f}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    """Return 2 where no run was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page of the documentation")
    if not TIMES.is_file():
        print("no run was measured yet: make test")
        return 2
    text = report(json.loads(TIMES.read_text(encoding="utf-8")))
    if parser.parse_args().page:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(_HEAD + text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
