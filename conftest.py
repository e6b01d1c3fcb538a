"""How patient tests are, in which order they run, ``--sample N``, ``--kills N``, and the lab's fixture ``chaos``.

A sample is N of the chosen tests, and kills are drawn among many, each by a seed that is printed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["onceonly_lab.plugin", "tests.connections", "tests.timing", "tests.refusal_length"]

_NEEDS = {"spark", "connect", "postgres", "kafka", "browser", "containers", "kill", "waysout", "source"}
"""Markers of tests that need a server or another process."""

_APART = {"slow", "docs", "lab"}
"""Markers of tests that have a target of their own."""

_LEAVES = frozenset(
    {
        "subprocess",
        "multiprocessing",
        "pty",
        "typer.testing",
        "deltalake",
        "onceonly_lab.servers",
        "onceonly_lab.demo.command",
        "onceonly_lab.conformance.SinkConformance",
        "onceonly_lab.conformance.claims_kills",
    }
)
"""Modules or parts of them that start processes, run commands (which may start some), write tables or kill writers."""

_IMPORT = re.compile(r"^\s*(?:from ([\w.]+) import ([\w, ]*)|import ([\w.]+))", re.MULTILINE)
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n|\n)+", re.MULTILINE)

_WAYS = ("connect", "source")
"""Markers of ways in that reports of a run tell, so that ``scripts/lines.py`` can count each by itself."""

_STARTING = {"postgres", "kafka", "chromium", "run"}
"""Fixtures that start a server, or run a command; whatever asks for them through others asks for them, too."""

# A busy machine must not turn a slow example into a failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--drawn", type=int, default=24, metavar="N", help="walk out of N pairs of losses and dumps")
    parser.addoption("--drawn-seed", type=int, metavar="SEED", help="draw the same ones again")
    parser.addoption("--sample", type=int, metavar="N", help="run N of the chosen tests, drawn at random")
    parser.addoption("--sample-seed", type=int, metavar="SEED", help="draw the same ones again")
    parser.addoption("--kills", type=int, default=20, metavar="N", help="kills of a campaign on Spark Connect")
    parser.addoption("--kill-seed", type=int, metavar="SEED", help="draw the same kills again")
    parser.addoption("--ways-out", metavar="FOLDER", help="write down what following the ways out has found")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--sample") is not None and config.getoption("--sample-seed") is None:
        config.option.sample_seed = random.randrange(1_000_000)
    if config.getoption("--drawn-seed") is None:
        config.option.drawn_seed = random.randrange(1_000_000)
    if config.getoption("--kill-seed") is None:
        config.option.kill_seed = random.randrange(1_000_000)


def pytest_report_header(config: pytest.Config) -> list[str]:
    found: list[str] = []
    if config.getoption("--sample") is not None:
        found += [f"sample: {config.getoption('--sample')} tests, --sample-seed {config.getoption('--sample-seed')}"]
    if "connect" in str(config.getoption("-m")).split(" and ")[0]:
        found += [f"Spark Connect: {config.getoption('--kills')} kills, --kill-seed {config.getoption('--kill-seed')}"]
    if "waysout" in str(config.getoption("-m")):
        found += [f"ways out: {config.getoption('--drawn')} drawn, --drawn-seed {config.getoption('--drawn-seed')}"]
    return found


def pytest_itemcollected(item: pytest.Item) -> None:
    if _is_pure(item):
        item.add_marker("pure")
    item.user_properties += [("way", name) for name in _WAYS if item.get_closest_marker(name)]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: Any, items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    wanted = config.getoption("--sample")
    if wanted is None:
        return
    drawn = set(random.Random(config.getoption("--sample-seed")).sample(items, min(wanted, len(items))))
    config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
    items[:] = [item for item in items if item in drawn]


def _is_pure(item: pytest.Item) -> bool:
    """Whether a test needs nothing but this process and a disk; read from the test itself, so none is listed."""
    marks = {mark.name for mark in item.iter_markers()}
    if marks & (_NEEDS | _APART) or _STARTING & set(getattr(item, "fixturenames", ())):
        return False
    return _stays(item.path, item.config.rootpath)


@cache
def _stays(path: Path, root: Path) -> bool:
    """Whether a file of ``tests`` imports nothing that leaves the process, nor do the tests' files that it imports."""
    if path.relative_to(root).parts[0] != "tests":
        return False
    found, following = set[Path](), [path]
    while following:
        file = following.pop()
        if file not in found:
            found.add(file)
            names = list(_imported(file.read_text()))
            if any(f"{name}.".startswith(f"{leaves}.") for name in names for leaves in _LEAVES):
                return False
            files = (root.joinpath(*name.split(".")).with_suffix(".py") for name in names)
            following += [one for one in files if one.is_file()]
    return True


def _imported(text: str) -> Iterator[str]:
    """Every module that a text imports, but for types; what it takes out of one may be a module, too."""
    for within, parts, whole in _IMPORT.findall(_FOR_TYPES.sub("", text)):
        yield within or whole
        yield from (f"{within}.{part.split()[0]}" for part in parts.split(",") if part.strip())


def _turn(item: pytest.Item) -> int:
    """Tests without Spark first: some need a process that has none. Then killed drivers, the longest of all."""
    if item.path.relative_to(item.config.rootpath).parts[0] == "tests":
        return 0
    return 1 if item.get_closest_marker("kill") else 2
