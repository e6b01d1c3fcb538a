"""Runs the slow suites: all of them, the stalest, or some drawn by a seed; records when each last ran whole.

A suite is a file that has tests marked ``slow``, or a section of ``suites.toml``. ``check`` fails once a suite has not
run for fifty commits, so that none is forgotten because CI draws others. ``sample`` runs a small part of each section
that names one, and records nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "docs" / "how-it-is-proven" / "suites.json"
PAGE = RECORD.with_suffix(".md")
TIMES = ROOT / ".cache" / "suites-time.json"

MOST_COMMITS = 50
"""A suite that has not run for more commits than this is stale."""

UNKNOWN_S = 120.0
"""What a suite is taken to last until it has run."""

WORKERS = 3

_PYTEST = [str(ROOT / ".venv" / "bin" / "pytest"), "-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder"]
_SLOW = ["-m", "slow and not browser and not connect and not waysout and not source and not pooler"]
_HEAD = """# Suites beyond `make test`

Each file with tests marked `slow`, and each longer target. CI draws some of those that passed, by its commit; `make
nightly` runs all, and both record here what they ran. A suite that has not passed for {most} commits fails `make
check`. `python scripts/suites.py page` writes this page from what was recorded. Seconds are worker seconds for a file,
of which three pass at a time, and wall seconds for a target.

| suite | claims | seconds | result | ran at |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite, and its last whole run.

    Attributes:
        name: a path with tests, or a section of ``suites.toml``.
        claims: what it shows, in a sentence.
        run: its command; empty: the slow tests of the file.
        seconds: how long it took; 0: it has not run.
        result: ``12 passed``, or what went wrong.
        commit: at which it ran; empty: it has not run.
        ran: when that run began, in UTC. Ages are counted by it, since a rebase changes the commits.
        listed: when it was first seen. Its age is counted from then until it has passed.
    """

    name: str
    claims: str
    run: str = ""
    seconds: float = 0.0
    result: str = ""
    commit: str = ""
    ran: str = ""
    listed: str = ""

    @property
    def passed(self) -> bool:
        """Whether it passed when it last ran whole. One of which every test was skipped showed nothing."""
        return "passed" in self.result and not self.result.startswith("failed")

    @property
    def wall(self) -> float:
        """Seconds that it takes where every worker has something to do."""
        known = self.seconds or UNKNOWN_S
        return known if self.run else known / WORKERS


# ---- Which suites there are, and what is known of each.


def suites(recorded: Mapping[str, Mapping[str, object]]) -> list[Suite]:
    """All of them, with what was recorded; what was recorded of a suite that is no more is forgotten."""
    found = [Suite(name, entry["claims"], entry["run"]) for name, entry in _sections().items()]
    found += [Suite(path, headline(ROOT / path)) for path in slow_files()]
    kept = ("seconds", "result", "commit", "ran", "listed")
    new = {"listed": _now()}
    return [
        replace(suite, **{key: value for key, value in recorded.get(suite.name, new).items() if key in kept})
        for suite in found
    ]


def samples() -> list[str]:
    """Commands that run a small part of a suite, one for each section that has one."""
    return [entry["sample"] for entry in _sections().values() if "sample" in entry]


def _sections() -> dict[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = tomllib.loads((ROOT / "scripts" / "suites.toml").read_text(encoding="utf-8"))
    return sections


def slow_files() -> list[str]:
    """Files with tests that are marked ``slow``; asked of pytest, so that no list is kept by hand."""
    asked = [*_PYTEST[:1], "--collect-only", "-qq", *_SLOW, "tests", "integration"]
    answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    found = sorted(line.rpartition(":")[0] for line in answer.stdout.splitlines() if ".py: " in line)
    if not found:
        raise SystemExit(f"pytest collected no slow test:\n{answer.stdout}{answer.stderr}")
    return found


def headline(path: Path) -> str:
    """First sentence of a file with tests."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def load() -> dict[str, dict[str, object]]:
    """What was recorded, by suite."""
    recorded: dict[str, dict[str, object]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    return recorded


def save(found: Iterable[Suite]) -> None:
    """Record suites, and write the page."""
    found = sorted(found, key=lambda suite: suite.name)
    entries = {suite.name: {key: value for key, value in asdict(suite).items() if key != "name"} for suite in found}
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")


def page(found: Sequence[Suite]) -> str:
    """The page of the documentation, the longest first."""
    rows = (
        f"| `{suite.name}` | {suite.claims} | {f'{suite.seconds:.0f}' if suite.seconds else ''} "
        f"| {suite.result or 'not yet run'} | {suite.commit and f'`{suite.commit}`'} |\n"
        for suite in sorted(found, key=lambda suite: (-suite.seconds, suite.name))
    )
    return _HEAD.format(most=MOST_COMMITS) + "".join(rows)


# ---- Decisions.


def draw(found: Sequence[Suite], seconds: float, seed: int) -> list[Suite]:
    """Some suites that fit into a time, the longest first; every suite that has passed and fits alone may be drawn.

    What has not passed yet is for ``make nightly``: a change must not fail for a suite that failed before it.
    """
    shuffled = [suite for suite in found if suite.passed]
    random.Random(seed).shuffle(shuffled)
    drawn: list[Suite] = []
    for suite in shuffled:
        if suite.wall <= seconds:
            drawn.append(suite)
            seconds -= suite.wall
    return sorted(drawn, key=lambda suite: -suite.wall)


def shuffle(samples: Iterable[str], seed: int) -> list[str]:
    """Samples in an order of this seed: on a slow machine other ones are the last each time."""
    shuffled = sorted(samples)
    random.Random(seed).shuffle(shuffled)
    return shuffled


def age(suite: Suite, commits: Iterable[datetime]) -> int:
    """Commits that are younger than its last run; where that did not pass, than its place in the list."""
    begin = suite.ran if suite.passed else suite.listed
    return sum(datetime.fromisoformat(begin) < commit for commit in commits)


def stale(ages: Mapping[str, int]) -> list[str]:
    """What is wrong with the ages of suites, commits since the last run."""
    return [f"{name} has not run for {age} commits" for name, age in ages.items() if age > MOST_COMMITS]


# ---- Running them.


def run(wanted: Sequence[Suite], commit: str) -> list[Suite]:
    """Run suites and return them with their results: targets one after another, then all files on three workers."""
    return [*(run_target(suite, commit) for suite in wanted if suite.run), *_run_files(wanted, commit)]


def failed(found: Iterable[Suite]) -> list[str]:
    """Names of suites whose last run failed."""
    return [suite.name for suite in found if suite.result and not suite.passed]


def run_target(suite: Suite, commit: str) -> Suite:
    """Run a suite that is a target of the Makefile, and say what became of it."""
    start, ran = time.monotonic(), _now()
    print(f"== {suite.run}", flush=True)
    result = _outcome(suite.run)
    return replace(suite, seconds=round(time.monotonic() - start), result=result, commit=commit, ran=ran)


def run_samples(commands: Sequence[str], seconds: float) -> dict[str, str]:
    """Run commands, two at a time since each uses one core, begin none after a time, and say what became of each."""
    ends = time.monotonic() + seconds

    def one(command: str) -> str:
        start = time.monotonic()
        if start >= ends:
            return "not begun"
        with tempfile.TemporaryFile("w+") as output:
            result = _outcome(command, stdout=output, stderr=output)
            output.seek(0)
            # In one call: another command prints, too.
            print(f"== {command}\n{output.read()}{command}: {result}, {time.monotonic() - start:.0f} s", flush=True)
        return result

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(commands, pool.map(one, commands), strict=True))


def _outcome(command: str, **streams: Any) -> str:
    # What `make nightly ARGS=...` was given is meant for this script; make would hand it on to the target.
    env = {name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES")}
    code = subprocess.run(shlex.split(command), cwd=ROOT, env=env, check=False, **streams).returncode
    return "passed" if code == 0 else f"failed: exit code {code}"


def _run_files(wanted: Sequence[Suite], commit: str) -> list[Suite]:
    files = [suite.name for suite in wanted if not suite.run]
    if not files:
        return []
    TIMES.unlink(missing_ok=True)
    ran = _now()
    code = subprocess.run([*_PYTEST, *_SLOW, "--times", str(TIMES), *files], cwd=ROOT, check=False).returncode
    if not TIMES.is_file():
        return [replace(suite, result=f"failed: pytest ended with {code}") for suite in wanted if not suite.run]
    tests = json.loads(TIMES.read_text(encoding="utf-8"))["tests"]
    return [replace(_judged(suite, tests), commit=commit, ran=ran) for suite in wanted if not suite.run]


def _judged(suite: Suite, tests: Mapping[str, Mapping[str, object]]) -> Suite:
    mine = [test for name, test in tests.items() if name.partition("::")[0] == suite.name]
    spent = sum(float(str(test.get(phase, 0))) for test in mine for phase in ("setup", "call", "teardown"))
    counts = {kind: sum(test["outcome"] == kind for test in mine) for kind in ("failed", "passed", "skipped")}
    result = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    if counts["failed"] or not mine:
        result = f"failed: {result or 'no test ran'}"
    return replace(suite, seconds=round(spent, 1), result=result)


# ---- The command.


def main() -> int:
    """Return 1 if a suite fails or is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("draw", "nightly", "sample", "check", "page"))
    parser.add_argument("--minutes", type=float, help="draw: the time that there is; others: begin none after it")
    parser.add_argument("--seed", type=lambda text: int(text, 16), help="draw, sample: by another commit than this one")
    parser.add_argument("--only", action="append", metavar="NAME", help="nightly: this suite; may be given again")
    given = parser.parse_args()
    if given.what == "check":
        return _check()
    seed = int(_head(), 16) if given.seed is None else given.seed
    if given.what == "sample":
        return _sample(shuffle(samples(), seed), float("inf") if given.minutes is None else 60 * given.minutes)
    known = suites(load())
    if given.what == "page":
        save(known)
        return 0
    if given.what == "draw":
        return _draw(known, 60 * (given.minutes or 10), seed)
    return _nightly(known, given.only, given.minutes)


def _draw(known: Sequence[Suite], seconds: float, seed: int) -> int:
    drawn = draw(known, seconds, seed)
    print(f"drawn by --seed {seed:x} for {seconds / 60:.0f} minutes, {len(drawn)} of {len(known)} suites:", flush=True)
    print("".join(f"  {suite.name}\n" for suite in drawn), end="", flush=True)
    results = run(drawn, _head())
    save({suite.name: suite for suite in (*known, *results)}.values())
    lost = failed(results)
    print(f"{len(drawn) - len(lost)} suites passed, {len(lost)} failed{': ' if lost else ''}{', '.join(lost)}")
    return 1 if lost else 0


def _sample(commands: Sequence[str], seconds: float) -> int:
    results = run_samples(commands, seconds)
    for command, result in results.items():
        print(f"  {command}: {result}")
    return 1 if any(result.startswith("failed") for result in results.values()) else 0


def _nightly(known: Sequence[Suite], only: Sequence[str] | None, minutes: float | None) -> int:
    names = [suite.name for suite in known]
    if unknown := [name for name in only or () if name not in names]:
        print(f"there is no suite {', '.join(unknown)}; there are: {', '.join(names)}")
        return 2
    commit, ends = _head(), time.monotonic() + 60 * (minutes or float("inf"))
    wanted = [suite for suite in known if not only or suite.name in only]
    results = {suite.name: suite for suite in known}
    for group in _groups(wanted):
        if time.monotonic() < ends:
            results.update({suite.name: suite for suite in run(group, commit)})
            save(results.values())
    lost = failed(results[suite.name] for suite in wanted)
    print(f"{len(wanted)} suites, {len(lost)} failed{': ' if lost else ''}{', '.join(lost)}")
    return 1 if lost else 0


def _groups(wanted: Sequence[Suite]) -> list[list[Suite]]:
    """What is run together, the stalest first: a night that is too short comes to each in its turn."""
    commits = _commits()
    wanted = sorted(wanted, key=lambda suite: -age(suite, commits))
    targets, files = ([suite for suite in wanted if bool(suite.run) is kind] for kind in (True, False))
    # Each run of pytest starts servers and a JVM.
    groups = [files[at : at + 8] for at in range(0, len(files), 8)] + [[target] for target in targets]
    return sorted(groups, key=lambda group: -age(group[0], commits))


def _check() -> int:
    if not (ROOT / ".git").exists():
        print("suites: without a history their age is not known")
        return 0
    recorded = [Suite(name=name, **entry) for name, entry in load().items()]  # type: ignore[arg-type]
    commits = _commits()
    wrong = stale({suite.name: age(suite, commits) for suite in recorded})
    for line in wrong:
        print(f"suites: {line}: make nightly ARGS='--only {line.split()[0]}'")
    return 1 if wrong else 0


def _commits() -> list[datetime]:
    """When each commit of this history was committed."""
    return [datetime.fromtimestamp(int(line), timezone.utc) for line in _git("log", "--format=%ct").split()]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _head() -> str:
    return _git("rev-parse", "--short=12", "HEAD")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
