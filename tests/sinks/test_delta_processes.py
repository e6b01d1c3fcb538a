"""Drivers as real processes on one Delta table: they race, are killed, and are stopped between check and commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from tests.sinks.delta_harness import DeltaHarness

from onceonly_lab.conformance.scenario import Scenario, plan

ROOT = Path(__file__).parents[2]
SECONDS = 120.0


@contextmanager
def worker(path: Path, owner: str, last: int, limit: int = 1 << 20, **env: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.sinks.delta_worker", str(path), owner, str(last), str(limit)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | env, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def exact(harness: DeltaHarness, last: int) -> None:
    """The table holds the epochs 1 to ``last``, each once, with its rows and its marker."""
    plans = []
    for _ in range(last):
        plans.append(plan(plans[-1].epoch if plans else None, "delta:rows", rows=5))
    with Scenario(harness) as story:
        story.holds(*plans)
        assert story.reader().recount() == dict.fromkeys(range(1, last + 1), 5)


@pytest.mark.parametrize(
    "limit", [pytest.param(0, id="executors"), pytest.param(1 << 20, id="driver", marks=pytest.mark.slow)]
)
def test_three_drivers_that_keep_fencing_each_other_out_write_every_epoch_once(tmp_path: Path, limit: int) -> None:
    harness, last = DeltaHarness(tmp_path), 15
    with ExitStack() as stack:
        drivers = [stack.enter_context(worker(harness.path, f"driver-{n}", last, limit)) for n in range(3)]
        for driver in drivers:
            assert driver.wait(SECONDS) == 0
    exact(harness, last)


def test_drivers_killed_at_random_moments_leave_no_epoch_out_and_none_twice(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    harness, last = DeltaHarness(tmp_path), 25
    for kill in range(4):
        with worker(harness.path, f"victim-{kill}", last, chance.choice([0, 1 << 20])) as victim:
            assert victim.stdout is not None
            victim.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.1))
    with worker(harness.path, "survivor", last) as survivor:
        assert survivor.wait(SECONDS) == 0
    exact(harness, last)


@pytest.mark.parametrize("point", ["commit.sent", "prepare.sent", "install.sent"])
def test_a_driver_killed_at_a_named_point_leaves_a_table_that_goes_on(tmp_path: Path, point: str) -> None:
    harness, last = DeltaHarness(tmp_path), 6
    hit = 1 if point == "install.sent" else 3
    with worker(harness.path, "victim", last, ONCEONLY_FAULT=f"{point}:kill:{hit}") as victim:
        assert victim.wait(SECONDS) == -signal.SIGKILL
    with worker(harness.path, "survivor", last) as survivor:
        assert survivor.wait(SECONDS) == 0
    exact(harness, last)


def test_a_driver_that_was_stopped_wakes_up_and_changes_nothing(tmp_path: Path) -> None:
    harness, last = DeltaHarness(tmp_path), 8
    with worker(harness.path, "zombie", 4, ONCEONLY_FAULT="prepare.sent:stop:3") as zombie:
        deadline = time.monotonic() + SECONDS
        while psutil.Process(zombie.pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with worker(harness.path, "owner", last) as owner:
            assert owner.wait(SECONDS) == 0
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(SECONDS) == 0
    exact(harness, last)
