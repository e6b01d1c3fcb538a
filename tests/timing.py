"""A pytest plugin: where the seconds of a run go, by test, phase and fixture, as JSON (``--times FILE``)."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

PROPERTY = "fixture"
"""Name of a test's property: a fixture that was set up for it, with its scope and its seconds."""

_LEAST_S = 0.01
"""Fixtures that are quicker than this are part of their test's set-up."""

_nested: list[float] = []
"""Seconds of the fixtures that each fixture now being set up has asked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", metavar="FILE", help="write down where the seconds of the run went, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--times") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Times(config, Path(config.getoption("--times"))))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = yield
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["collection"] = [time.perf_counter() - wall, time.process_time() - cpu]
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    start = time.perf_counter()
    _nested.append(0.0)
    try:
        return (yield)
    finally:
        seconds = time.perf_counter() - start
        own = seconds - _nested.pop()
        if _nested:
            _nested[-1] += seconds
        if own >= _LEAST_S:
            # `request.node` of a session fixture is the session; the test that waits for it is this one.
            request._pyfuncitem.user_properties.append((PROPERTY, [fixturedef.argname, fixturedef.scope, own]))


class _Times:
    """Collects reports in the process that the user started, and writes them at the end."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._config, self._file, self._start = config, file, time.perf_counter()
        self._tests: dict[str, dict[str, Any]] = {}
        self._collection: list[list[float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests.setdefault(report.nodeid, {"outcome": "passed", "fixtures": []})
        test[report.when] = test.get(report.when, 0.0) + report.duration
        if report.outcome != "passed":
            test["outcome"] = report.outcome
        if report.when == "teardown":
            test["fixtures"] = [value for name, value in report.user_properties if name == PROPERTY]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist ends, and hands over what it measured."""
        self._collection += [node.workeroutput["collection"]] if "collection" in node.workeroutput else []

    def pytest_sessionfinish(self) -> None:
        run = {
            "wall": time.perf_counter() - self._start,
            "workers": int(self._config.getoption("numprocesses", None) or 0),
            "collection": self._collection,
            "tests": self._tests,
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(run), encoding="utf-8")
