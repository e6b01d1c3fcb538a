"""How patient tests are, in which order they run, ``--sample N``, and the lab's fixture ``chaos``.

A sample is N of the chosen tests, drawn by a seed that is printed.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["onceonly_lab.plugin"]

# A busy machine must not turn a slow example into a failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, metavar="N", help="run N of the chosen tests, drawn at random")
    parser.addoption("--sample-seed", type=int, metavar="SEED", help="draw the same ones again")
    parser.addoption("--ways-out", metavar="FOLDER", help="write down what following the ways out has found")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--sample") is not None and config.getoption("--sample-seed") is None:
        config.option.sample_seed = random.randrange(1_000_000)


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getoption("--sample") is None:
        return None
    return f"sample: {config.getoption('--sample')} tests, --sample-seed {config.getoption('--sample-seed')}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: Any, items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    wanted = config.getoption("--sample")
    if wanted is None:
        return
    drawn = set(random.Random(config.getoption("--sample-seed")).sample(items, min(wanted, len(items))))
    config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
    items[:] = [item for item in items if item in drawn]


def _turn(item: pytest.Item) -> int:
    """Tests without Spark first: some need a process that has none. Then killed drivers, the longest of all."""
    if item.path.relative_to(item.config.rootpath).parts[0] == "tests":
        return 0
    return 1 if item.get_closest_marker("kill") else 2
