"""A nursery forks drivers that are processes like any others: own session, own files, own end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from onceonly_lab.driver import Driver
from onceonly_lab.nursery import Nursery

pytestmark = pytest.mark.kill

PROGRAM = """
import os, sys, time

LOADED = []


def come_up():
    LOADED.append(os.getpid())


def main(argv):
    from onceonly_lab.driver import end_with_parent

    end_with_parent()
    print("up", os.getpid(), os.getsid(0), LOADED, os.environ.get("COLOUR"), flush=True)
    print("a word", file=sys.stderr)
    if argv[0] == "stay":
        print("no newline, no flush", end="")
        time.sleep(60)
    return int(argv[0])
"""


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    (tmp_path / "program.py").write_text(PROGRAM)
    with Nursery("program", tmp_path / "nursery.log", {"PYTHONPATH": str(tmp_path)}) as made:
        yield made


def forked(nursery: Nursery, folder: Path, number: int, wish: str, colour: str = "") -> Driver:
    return Driver.forked(nursery, wish, log=folder / f"driver-{number}", env={"COLOUR": colour})


def up(driver: Driver) -> list[str]:
    return driver.wait_for(lambda line: line.startswith("up"), 30).split()[1:]


def test_a_driver_leads_a_session_says_its_own_words_and_ends_with_its_own_code(nursery, tmp_path):
    drivers = [forked(nursery, tmp_path, code, str(code), f"colour-{code}") for code in range(4)]
    loaded = set()
    for code, driver in enumerate(drivers):
        pid, session, origin, colour = up(driver)
        assert driver.wait(30) == code
        assert (int(pid), int(session)) == (driver.pid, driver.pid)
        assert colour == f"colour-{code}"
        assert driver.err.read_text() == "a word\n"
        loaded.add(origin)
        driver.close()
    assert len(loaded) == 1, "each loaded for itself"


def test_a_driver_is_stopped_woken_and_killed_and_what_it_had_said_is_there(nursery, tmp_path):
    with forked(nursery, tmp_path, 1, "stay") as driver:
        up(driver)
        driver.stop()
        while psutil.Process(driver.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        driver.resume()
        assert driver.poll() is None
        os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait(30) == -signal.SIGKILL
        assert driver.out.read_text().endswith("no newline, no flush")


def test_drivers_end_with_their_nursery(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    with Nursery("program", tmp_path / "nursery.log", {"PYTHONPATH": str(tmp_path)}) as nursery:
        drivers = [forked(nursery, tmp_path, number, "stay") for number in range(2)]
        lives = [psutil.Process(int(up(driver)[0])) for driver in drivers]
    _, left = psutil.wait_procs(lives, 30)
    assert left == []


def test_a_nursery_that_cannot_load_says_why(tmp_path):
    with (
        Nursery("nowhere", tmp_path / "nursery.log", {}) as nursery,
        pytest.raises(ChildProcessError, match="No module named 'nowhere'"),
    ):
        forked(nursery, tmp_path, 1, "0")
