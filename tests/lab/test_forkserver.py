"""A fork server forks drivers that are processes like any others: own session, own files, own end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from onceonly_lab.driver import Driver
from onceonly_lab.forkserver import ForkServer

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
def fork_server(tmp_path: Path) -> Iterator[ForkServer]:
    (tmp_path / "program.py").write_text(PROGRAM)
    with ForkServer("program", tmp_path / "fork server.log", {"PYTHONPATH": str(tmp_path)}) as made:
        yield made


def forked(fork_server: ForkServer, folder: Path, number: int, wish: str, colour: str = "") -> Driver:
    return Driver.forked(fork_server, wish, log=folder / f"driver-{number}", env={"COLOUR": colour})


def up(driver: Driver) -> list[str]:
    return driver.wait_for(lambda line: line.startswith("up"), 30).split()[1:]


def test_a_kill_meets_a_driver_however_soon_it_comes(fork_server, tmp_path):
    """A group is killed by the id of its leader: who does not lead one yet would live on."""
    for number in range(100):
        with forked(fork_server, tmp_path, number, "stay") as driver:
            assert os.getpgid(driver.pid) == driver.pid
            assert driver.kill() == -signal.SIGKILL


def test_a_driver_leads_a_session_says_its_own_words_and_ends_with_its_own_code(fork_server, tmp_path):
    drivers = [forked(fork_server, tmp_path, code, str(code), f"colour-{code}") for code in range(4)]
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


def test_a_driver_is_stopped_woken_and_killed_and_what_it_had_said_is_there(fork_server, tmp_path):
    with forked(fork_server, tmp_path, 1, "stay") as driver:
        up(driver)
        driver.stop()
        while psutil.Process(driver.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        driver.resume()
        assert driver.poll() is None
        os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait(30) == -signal.SIGKILL
        assert driver.out.read_text().endswith("no newline, no flush")


def test_drivers_end_with_their_fork_server(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    with ForkServer("program", tmp_path / "fork server.log", {"PYTHONPATH": str(tmp_path)}) as fork_server:
        drivers = [forked(fork_server, tmp_path, number, "stay") for number in range(2)]
        lives = [psutil.Process(int(up(driver)[0])) for driver in drivers]
    _, left = psutil.wait_procs(lives, 30)
    assert left == []


def test_a_fork_server_that_cannot_load_says_why(tmp_path):
    with (
        ForkServer("nowhere", tmp_path / "fork server.log", {}) as fork_server,
        pytest.raises(ChildProcessError, match="No module named 'nowhere'"),
    ):
        forked(fork_server, tmp_path, 1, "0")
