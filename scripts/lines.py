"""Runs the tests of a line of PySpark, in an environment of its own: ``make line L=3.5``; all lines: ``make lines``.

All tests of Spark Connect on a line: ``make connect L=4.1``.

What a line needs (PySpark and our dependencies, a gigabyte) is installed once and kept in the user's cache, for
all checkouts that ask for the same; ``.venv-L`` in the checkout holds our own code and a path to it. A line that the
index does not give is skipped with a printed line; with ``REQUIRE_LINES=1`` it fails.

``PY=3.12`` takes another Python, found as ``make first-hour`` finds it.

``LOWEST=1`` installs the lowest version of everything that ``pyproject.toml`` allows, and runs the tests of sinks and
checkpoints, too: a lower bound is true where they pass.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomllib
from scripts.first_hour import find_python, version_of
from scripts.first_hour_plan import PYTHONS

from onceonly.spark.jars import cache_directory
from onceonly.spark.versions import LINES, minor_of

ROOT = Path(__file__).parent.parent
LAB = ROOT / "src" / "onceonly_lab"
TESTS = (
    (
        "not connect",
        *(
            f"integration/test_{name}.py"
            for name in ("line", "line_format", "golden_digests", "forks", "wrapper", "demands")
        ),
    ),
    ("not slow", "integration/test_kafka_by_tasks.py"),
    ("connect", "integration/connect/test_line.py"),
)
"""Processes: which markers run, and of which files. One that has a classic session can have none of Spark Connect."""

LOWEST_TESTS = (
    TESTS[0],
    (
        "not slow",
        "tests/checkpoints",
        *(
            str(path.relative_to(ROOT))
            for kind in ("postgres", "delta", "sql")
            for path in sorted(ROOT.glob(f"tests/sinks/test_{kind}_*.py"))
        ),
    ),
)
"""The same with the lowest versions that are allowed."""

CONNECT = (("connect and not kill", "integration/connect"), ("connect and kill", "integration/connect"))
"""The same for ``make connect``."""

WAYS = {"connect": "connect", "source": "format"}
"""Markers of the ways in whose tests are counted by themselves, too, and what the result calls them."""

EXTRAS = ("spark", "postgres", "delta", "kafka", "cli")
RESULT = ROOT / "docs" / "lines.json"
_PTH = "onceonly-line.pth"
_FORGOTTEN_S = 30 * 24 * 3600.0

_UNCLOSED = "ignore:unclosed <socket:ResourceWarning"
_IGNORED = {
    "3.5": (
        _UNCLOSED,
        "ignore:The distutils package:DeprecationWarning",
        "ignore:distutils Version:DeprecationWarning",
    ),
    "4.0": (_UNCLOSED,),
    "4.1": (_UNCLOSED,),
}
"""Warnings that a PySpark gives against itself, and that are errors elsewhere. ``collect`` leaves its socket to the
garbage collector before 4.2."""

_IGNORED_LOWEST = ("ignore:'click.utils.get_:DeprecationWarning",)
"""Of old Typer, which goes with new Click."""


@dataclass(frozen=True)
class Outcome:
    """What a line's tests came to.

    Attributes:
        line: ``4.2``.
        pyspark: its version; empty where none was installed.
        python: version of the interpreter.
        passed: tests.
        failed: tests, errors among them.
        skipped: tests.
        reason: why nothing was run; empty where something was.
        connect: passed, failed and skipped ones among them that run on Spark Connect.
        format: the same of those that write by ``format("onceonly")``.
    """

    line: str
    pyspark: str
    python: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reason: str = ""
    connect: Mapping[str, int] = field(default_factory=dict)
    format: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.reason:
            return f"{self.line}: skipped, {self.reason}"
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return f"{self.line}: {counts} (PySpark {self.pyspark}, Python {self.python})"


class RefusedByIndex(Exception):
    """The package index did not give what a line needs."""


# ---- Environments.


def requirements(line: str, lowest: bool = False) -> list[str]:
    """All that a line's environment holds besides our own code, as pip takes it.

    Args:
        line: ``4.2``.
        lowest: the lowest version that is allowed of each; PySpark, which is the line's, and tools of tests aside.
    """
    project, lab = (_project(folder) for folder in (ROOT, LAB))
    ours = project["project"]
    found = list(ours["dependencies"])
    for extra in EXTRAS:
        found += ours["optional-dependencies"][extra]
    found += lab["project"]["dependencies"]
    # The line's own comes below: the extra ends where Delta and Kafka have no jars.
    found = [one for one in found if not one.startswith("pyspark")]
    if lowest:
        found = [re.sub(r">=([^,]+).*", r"==\1", one) for one in found]
    # What a client of Spark Connect needs each PySpark says for itself. The bounds of 3.5 do not go with the rest: pip
    # would take an older patch of it. There a client only has to be told that it is refused.
    client = [f"pyspark[connect]=={line}.*"]
    if not LINES[line].spark_connect:
        client = [f"pyspark=={line}.*", "grpcio", "grpcio-status", "googleapis-common-protos"]
    found += [*client, *project["dependency-groups"]["line"]]
    return sorted({one for one in found if not one.startswith("onceonly")})


def _project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def packages(line: str, lowest: bool = False, base: str = sys.executable) -> Path:
    """The environment of an interpreter with what a line needs, made where there is none.

    Raises:
        RefusedByIndex: something of it cannot be had.
    """
    wanted = requirements(line, lowest)
    version = _output(base, "import sys; print(sys.version)")
    key = hashlib.sha256("\n".join([version, *wanted]).encode()).hexdigest()[:12]
    place = cache_directory() / "lines" / f"{line}-{key}"
    _forget_old(place)
    if place.is_dir():
        place.touch()
        return place
    print(f"installing PySpark {line} and what it needs into {place}", file=sys.stderr, flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{line}-", dir=place.parent))
    try:
        _run(base, "-m", "venv", str(making))
        pip = [str(making / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, "install", *wanted], capture_output=True, text=True, check=False)
        if "ResolutionImpossible" in done.stderr:
            raise SystemExit(f"line {line}: our own requirements contradict each other\n{done.stderr}")
        if done.returncode:
            raise RefusedByIndex(_last_line(done.stderr))
        # A rename: an environment that was cut short is never taken for one. Another process may have been first.
        if not place.is_dir():
            making.rename(place)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return place


def _forget_old(place: Path) -> None:
    """Delete environments of other needs that no checkout has asked for in a month."""
    for other in place.parent.glob(f"{place.name.partition('-')[0]}-*"):
        if other != place and time.time() - other.stat().st_mtime > _FORGOTTEN_S:
            shutil.rmtree(other, ignore_errors=True)


def environment(line: str, lowest: bool = False, base: str = sys.executable) -> Path:
    """The Python of a line's environment in this checkout.

    The main line's is that of ``.venv``, unless it is lowest or asked for by another interpreter.

    Raises:
        RefusedByIndex: something of it cannot be had.
    """
    other = "" if base == sys.executable else f"-py{version_of(base)}"
    if line == main_line() and not lowest and not other:
        return ROOT / ".venv" / "bin" / "python"
    held = packages(line, lowest, base)
    here = ROOT / f".venv-{line}{other}{'-lowest' if lowest else ''}"
    python = here / "bin" / "python"
    stamp = "\n".join([str(held), *((folder / "pyproject.toml").read_text() for folder in (ROOT, LAB))])
    noted = here / ".installed"
    if noted.is_file() and noted.read_text() == stamp:
        return python
    shutil.rmtree(here, ignore_errors=True)
    _run(base, "-m", "venv", "--without-pip", str(here))
    (folder,) = here.glob("lib/python*/site-packages")
    (below,) = held.glob("lib/python*/site-packages")
    (folder / _PTH).write_text(f"{below}\n")
    install = [str(held / "bin" / "python"), "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps"]
    _run(*install, "--editable", str(ROOT), "--editable", str(LAB))
    noted.write_text(stamp)
    return python


def main_line() -> str:
    """The line of ``.venv``, in which everything else runs."""
    return minor_of(_version(ROOT / ".venv" / "bin" / "python"))


def _version(python: Path) -> str:
    return _output(str(python), "from importlib.metadata import version; print(version('pyspark'))")


def _output(python: str, program: str) -> str:
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def _last_line(text: str) -> str:
    said = [line for line in text.splitlines() if line.startswith("ERROR")] or text.splitlines() or ["pip said nothing"]
    return said[-1].removeprefix("ERROR: ")


# ---- Tests.


def run(line: str, arguments: Sequence[str], lowest: bool = False, base: str = sys.executable) -> Outcome:
    """Run the tests of a line, each process after the other; what they print goes to standard output."""
    here = _output(base, "import platform; print(platform.python_version())")
    try:
        python = environment(line, lowest, base)
    except RefusedByIndex as refused:
        return Outcome(line, "", here, reason=f"the index refuses it: {refused}")
    found = {name: Counter[str]() for name in ("all", *WAYS.values())}
    with tempfile.TemporaryDirectory() as folder:
        for number, (markers, *tests) in enumerate(LOWEST_TESTS if lowest else TESTS):
            report = Path(folder) / f"report-{number}.xml"
            ignored = [part for one in (_IGNORED_LOWEST if lowest else ()) for part in ("-W", one)]
            pytest(line, python, markers, *tests, *ignored, f"--junitxml={report}", *arguments)
            _count(report, found, demanded=not arguments)
    # A line of which nothing ran has not passed.
    found["all"]["failed"] += int(not found["all"].total())
    told = {name: {kind: counts[kind] for kind in ("passed", "failed", "skipped")} for name, counts in found.items()}
    return Outcome(line, _version(python), here, **told["all"], connect=told["connect"], format=told["format"])


def pytest(line: str, python: Path, markers: str, *arguments: str) -> int:
    """Run one process of tests in a line's environment, and return its exit code."""
    ignored = [part for one in _IGNORED.get(line, ()) for part in ("-W", one)]
    command = [str(python), "-m", "pytest", "-q", "-m", markers, *ignored, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _count(report: Path, found: Mapping[str, Counter[str]], *, demanded: bool) -> None:
    """Add what a process of tests came to. One without a report has failed, one without tests if any are demanded."""
    there = report.is_file()
    cases = list(ET.parse(report).getroot().iter("testcase")) if there else []
    found["all"]["failed"] += int(not there or (demanded and not cases))
    for case in cases:
        kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
        came_to = next((kinds[part.tag] for part in case if part.tag in kinds), "passed")
        ways = [WAYS[str(told.get("value"))] for told in case.iter("property") if told.get("name") == "way"]
        for name in ("all", *ways):
            found[name][came_to] += 1


def run_connect(line: str, arguments: Sequence[str]) -> int:
    """Run all tests of Spark Connect on a line, and return an exit code.

    Raises:
        SystemExit: the line has no Spark Connect.
    """
    able = [one.minor for one in LINES.values() if one.spark_connect]
    if line not in able:
        raise SystemExit(f"{line} has no Spark Connect that runs a callback; these have: {', '.join(able)}")
    try:
        python = environment(line)
    except RefusedByIndex as refused:
        print(Outcome(line, "", "", reason=f"the index refuses it: {refused}"))
        return int(_required())
    return max([pytest(line, python, *process, *arguments) for process in CONNECT])


def _required() -> bool:
    return os.environ.get("REQUIRE_LINES") == "1"


def drawn() -> str:
    """One of the lines that ``.venv`` is not, by the hash of the commit: the same for each run of one commit."""
    others = [line for line in LINES if line != main_line()]
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    commit = asked.stdout.strip() or "0"
    line = others[int(commit, 16) % len(others)]
    print(f"line {line}, drawn from {', '.join(others)} by commit {commit[:12]}", flush=True)
    return line


def keep(outcomes: Sequence[Outcome]) -> None:
    """Write outcomes down; those of other versions of Python stay."""
    known = [Outcome(**load) for load in json.loads(RESULT.read_text())] if RESULT.exists() else []
    ran = {(outcome.line, minor_of(outcome.python)) for outcome in outcomes if not outcome.reason}
    kept = [one for one in known if (one.line, minor_of(one.python)) not in ran]
    held = sorted([*kept, *(one for one in outcomes if not one.reason)], key=lambda one: (one.line, one.python))
    RESULT.write_text(json.dumps([asdict(one) for one in held], indent=1) + "\n")
    print(f"written to {RESULT.relative_to(ROOT)}; scripts/lines_table.py brings it into docs/install.md")


def main() -> int:
    """Run the lines that are named, or all."""
    # Without abbreviations: the rest is pytest's, which has --collect-only.
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("line", choices=[*LINES, "drawn", "all"], help="a minor version; one by the commit; or all")
    parser.add_argument("--lowest", action="store_true", help="with the lowest versions that pyproject.toml allows")
    parser.add_argument("--python", choices=PYTHONS, help="another Python than that of .venv; keeps what came of it")
    parser.add_argument("--connect", action="store_true", help="all tests of Spark Connect on one line, nothing else")
    given, arguments = parser.parse_known_args()
    if given.connect:
        return run_connect(given.line, arguments)
    base = find_python(given.python) if given.python else sys.executable
    if base is None:
        variable = f"ONCEONLY_PYTHON_{given.python.replace('.', '_')}"
        raise SystemExit(f"no Python {given.python} here; name one: {variable}=/path/to/python")
    lines = list(LINES) if given.line == "all" else [drawn() if given.line == "drawn" else given.line]
    outcomes = [run(line, arguments, given.lowest, base) for line in lines]
    print("\n".join(map(str, outcomes)))
    if (given.line == "all" or given.python) and not arguments and not given.lowest:
        keep(outcomes)
    return int(any(outcome.failed or (outcome.reason and _required()) for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
