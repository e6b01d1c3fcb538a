"""Whoever looks at a healthy pipeline while it writes, at whatever moment, is told that nothing is to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.core.several import Pipeline

COMMANDS = (
    ("audit", "--limit", "1"),
    ("status", "--in-doubt"),
    ("audit", "--limit", "1"),
    ("status", "--watch", "--count", "1"),
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Pipeline]:
    """A real driver that stages every epoch and commits it to three sinks, one after the other, until the test ends."""
    pipeline = Pipeline(tmp_path)
    driver, over, died = pipeline.driver(), threading.Event(), list[BaseException]()
    driver.writes(1)

    def write() -> None:
        number = 1
        try:
            while not over.wait(0.01):
                number += 1
                driver.writes(number)
        except BaseException as error:
            died.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    yield pipeline
    over.set()
    thread.join()
    assert not died


@pytest.mark.parametrize("looks", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_a_healthy_pipeline_is_clean_whenever_one_looks(run: Run, running: Pipeline, looks: int) -> None:
    env = {"ONCEONLY_LEDGER": str(running.root / "ledger.db")}
    told: list[str] = []
    for look in range(looks):
        found = run(*COMMANDS[look % len(COMMANDS)], **env)
        if found.exit_code or "next: restart" in found.stdout or "IN DOUBT" in found.stdout:
            told.append(f"{COMMANDS[look % len(COMMANDS)]}: {found.exit_code}\n{found.stdout}{found.stderr}")
    epochs = len(running.ledger.epochs("orders"))
    print(f"{looks} looks while {epochs} epochs were written")
    assert epochs > looks / 10, "the pipeline did not run beside the looks"
    assert not told, "\n".join(told[:3])
