"""The driver helper starts, watches, stops and kills whole process trees, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from onceonly_lab.driver import Driver, DriverEnded, DriverSilent

pytestmark = pytest.mark.kill

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
apart = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
print("pids", os.getpid(), child.pid, apart.pid, flush=True)
count = 0
while True:
    count += 1
    print("tick", count, flush=True)
    time.sleep(0.02)
"""

PARENT = """
import sys, time
from pathlib import Path
from onceonly_lab.driver import Driver
child = [
    "import time",
    "from onceonly_lab.driver import end_with_parent",
    "end_with_parent()",
    "print('up', flush=True)",
    "time.sleep(60)",
]
driver = Driver.command([sys.executable, "-c", "; ".join(child)], Path(sys.argv[1]))
driver.wait_for(lambda line: line == "up", 30)
print(driver.pid, flush=True)
time.sleep(60)
"""


def started(program: str, folder: Path) -> Driver:
    return Driver.command([sys.executable, "-c", program], folder / "driver")


def family(driver: Driver) -> list[int]:
    line = driver.wait_for(lambda line: line.startswith("pids"), 30)
    return [int(pid) for pid in line.split()[1:]]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def test_a_kill_takes_the_whole_tree_also_a_child_in_a_group_of_its_own(tmp_path: Path) -> None:
    with started(FAMILY, tmp_path) as driver:
        pids = family(driver)
        assert all(alive(pid) for pid in pids)
        assert driver.kill() == -signal.SIGKILL
        assert not any(alive(pid) for pid in pids)


def test_leaving_the_context_leaves_no_process(tmp_path: Path) -> None:
    def fail() -> None:
        with started(FAMILY, tmp_path) as driver:
            pids.extend(family(driver))
            raise ZeroDivisionError

    pids: list[int] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 3
    assert not any(alive(pid) for pid in pids)


def test_children_of_a_driver_that_ended_by_itself_are_swept(tmp_path: Path) -> None:
    with started(FAMILY.replace("while True", "while count < 2"), tmp_path) as driver:
        pids = family(driver)
        assert driver.wait(30) == 0
    assert not any(alive(pid) for pid in pids)


def test_a_kill_that_came_too_late_is_told_by_the_exit_code(tmp_path: Path) -> None:
    with started("raise SystemExit(3)", tmp_path) as driver:
        driver.wait(30)
        assert driver.kill() == 3


def test_a_stopped_driver_says_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    with started(FAMILY, tmp_path) as driver:
        pids = family(driver)
        driver.stop()
        assert within(5, lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids))
        driver.lines()
        with pytest.raises(DriverSilent):
            driver.wait_for(lambda line: line.startswith("tick"), 0.3)
        driver.resume()
        driver.wait_for(lambda line: line.startswith("tick"), 30)


def test_a_stopped_driver_can_be_killed(tmp_path: Path) -> None:
    with started(FAMILY, tmp_path) as driver:
        pids = family(driver)
        driver.stop()
    assert not any(alive(pid) for pid in pids)


def test_lines_after_the_one_waited_for_are_kept_and_half_lines_wait(tmp_path: Path) -> None:
    program = "import time; print('a\\nb\\nc', flush=True); print('half', end='', flush=True); time.sleep(60)"
    with started(program, tmp_path) as driver:
        assert driver.wait_for(lambda line: line == "a", 30) == "a"
        assert driver.lines() == ["b", "c"]
        assert driver.lines() == []


def test_last_words_survive_a_driver_that_failed(tmp_path: Path) -> None:
    with started("raise RuntimeError('out of luck')", tmp_path) as driver, pytest.raises(DriverEnded, match="luck"):
        driver.wait_for(lambda line: False, 30)


def test_a_driver_that_ends_with_its_parent_dies_when_the_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "child")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert within(10, lambda: not alive(pid))
