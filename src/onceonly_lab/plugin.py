"""Pytest plugin with the fixture ``chaos``, options and markers.

It loads nothing else of ours until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_lab.chaos.pipeline import Pipeline
    from onceonly_lab.chaos.result import Result

MARKERS = (
    "chaos_level(level): how real a chaos test is: L3 (drivers are killed, their JVM lives on) or L4 (cold processes)",
    "chaos_only(action): a chaos test plays schedules with this action only: kill, pause, 'lose answer', 'lose ledger'",
)

_SAID = "onceonly.chaos"
"""Name of a test's property: what a campaign in it went through."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of a whole run; a test's own arguments are its defaults."""
    group = parser.getgroup("chaos", "onceonly: jobs under faults")
    group.addoption("--chaos-seed", type=int, metavar="S", help="draw the schedules from this seed")
    group.addoption("--chaos-budget", metavar="TIME", help="longest time for each chaos test: 90s, 3m")
    group.addoption("--chaos-at-least", metavar="N", help="what each chaos test must go through: '20 kills, 8 cells'")
    group.addoption("--chaos-level", choices=("L3", "L4"), help="how real: L3 (warm JVM) or L4 (cold processes)")
    group.addoption("--chaos-replay", metavar="FILE", help="play only this schedule, in every chaos test that is run")


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what each chaos test went through: a dot says only that it passed."""
    reports = [
        report for group in terminalreporter.stats.values() for report in group if hasattr(report, "user_properties")
    ]
    lines = dict.fromkeys(
        (report.nodeid, str(text)) for report in reports for name, text in report.user_properties if name == _SAID
    )
    if lines:
        terminalreporter.section("chaos")
    for nodeid, text in lines:
        terminalreporter.write_line(f"{nodeid}: {text}")


@pytest.fixture
def chaos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    """Break a job: ``chaos(job, budget="3m").assert_exactly_once()``. Its schedules are shown with ``-s``."""

    def run(job: Pipeline, budget: str | float = "3m", *, seed: int = 1, at_least: str | None = None) -> Result:
        from onceonly_lab.chaos import campaign
        from onceonly_lab.schedule import Action, Level, load_schedule

        get_option = request.config.getoption
        folder = tmp_path_factory.mktemp("chaos")
        level = get_option("--chaos-level") or _marked(request, "chaos_level")
        file = get_option("--chaos-replay")
        if file is not None:
            return noted(campaign.replay(load_schedule(file), job, folder, level and Level(level)))
        only = _marked(request, "chaos_only")
        seed_option = get_option("--chaos-seed")
        return noted(
            campaign.chaos(
                job,
                folder,
                get_option("--chaos-budget") or budget,
                seed=seed if seed_option is None else seed_option,
                level=Level(level or Level.WARM),
                only=only and Action(only),
                at_least=get_option("--chaos-at-least") or at_least,
                progress=print,
            )
        )

    def noted(result: Result) -> Result:
        # A report's own properties travel from a worker of pytest-xdist, too.
        request.node.user_properties.append((_SAID, result.sentence))
        return result

    return run


def _marked(request: pytest.FixtureRequest, name: str) -> Any:
    marker = request.node.get_closest_marker(name)
    return marker.args[0] if marker else None
