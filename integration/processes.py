"""Real drivers to kill, stop and race: started ahead of their task, heard through their lines, and none left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
from integration.jobs import Job, Task
from integration.stage import Scene

from onceonly_lab.driver import Driver
from onceonly_lab.forkserver import ForkServer
from onceonly_lab.servers.spark import WarmJvm
from onceonly_lab.session.launch import JvmArchive

PATIENCE_S = 240.0
"""How long a driver may take for one step on a busy machine."""

D = TypeVar("D", bound=Driver)

REPOSITORY = Path(__file__).resolve().parent.parent
"""Where modules of tests are found by other processes."""


class Drivers:
    """Has drivers ready and reads what they said: while one works, the session of the next is coming up.

    Args:
        folder: for tasks and logs.
        environment: of the drivers.
        fork_server: forks them; ``None``: each starts from nothing.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], fork_server: ForkServer | None = None) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._fork_server = fork_server
        self._working: list[Driver] = []
        self._ready: tuple[Driver, Path] | None = None
        self._hired = 0

    def start(self, *jobs: Job, **said: Any) -> Driver:
        """Give the driver that waits its task, and let another one come up."""
        self._let_go()
        driver, task = self._ready or self._hire()
        Task(jobs, **said).save(task)
        self._working.append(driver)
        self._ready = self._hire()
        return driver

    def finish(self, *jobs: Job, **said: Any) -> Driver:
        """Run a driver to the end of its input; a fault that it was given must have struck in each query."""
        driver = self.start(*jobs, **said)
        code = driver.wait(PATIENCE_S)
        assert (code, last(driver)["event"]) == (0, "done"), driver.last_words()
        armed = [wish.partition(":")[0] for wish in filter(None, said.get("fault", "").split(","))]
        struck = [told["point"] for told in story(driver) if told["event"] == "struck"]
        assert sorted(struck) == sorted(armed * len(jobs)), f"armed: {armed}, struck: {struck}"
        return driver

    def close(self) -> None:
        """Leave no driver running. May repeat."""
        for driver in [*self._working, *([self._ready[0]] if self._ready else [])]:
            driver.close()
        self._working, self._ready = [], None

    def _hire(self) -> tuple[Driver, Path]:
        self._hired += 1
        return _hire(self._folder / f"driver-{self._hired:03d}", self._environment, Driver, self._fork_server)

    def _let_go(self) -> None:
        for driver in [driver for driver in self._working if driver.poll() is not None]:
            driver.close()
            self._working.remove(driver)


class Rival(Driver):
    """A driver in a warm JVM that stops and wakes with it, as though both were one process group."""

    jvm: WarmJvm

    def stop(self) -> None:
        """SIGSTOP Python, its workers and the JVM."""
        super().stop()
        os.kill(self.jvm.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT all of them."""
        os.kill(self.jvm.pid, signal.SIGCONT)
        super().resume()

    def close(self) -> None:
        """Leave nothing of Python running, and the JVM awake."""
        os.kill(self.jvm.pid, signal.SIGCONT)
        super().close()


class Rivals(Drivers):
    """Drivers that live side by side, each in a warm JVM that no other one uses meanwhile.

    Args:
        folder: for tasks and logs.
        jvms: as many as drivers may live at once.
        fork_server: forks them.
    """

    def __init__(self, folder: Path, jvms: Sequence[WarmJvm], fork_server: ForkServer) -> None:
        super().__init__(folder, {}, fork_server)
        self._jvms = list(jvms)

    def start(self, *jobs: Job, **said: Any) -> Driver:
        """Start a driver in a JVM that is free."""
        self._let_go()
        taken = {driver.jvm for driver in self._working if isinstance(driver, Rival)}
        jvm = next(jvm for jvm in self._jvms if jvm not in taken)
        self._hired += 1
        driver, task = _hire(self._folder / f"rival-{self._hired:03d}", jvm.environment(), Rival, self._fork_server)
        driver.jvm = jvm
        Task(jobs, **said).save(task)
        self._working.append(driver)
        return driver


def fork_server(folder: Path) -> ForkServer:
    """Forks drivers of a warm JVM."""
    return ForkServer("integration.jobs", folder / "fork server.log", {}, REPOSITORY)


def _hire(
    log: Path, environment: Mapping[str, str], kind: type[D] = Driver, fork_server: ForkServer | None = None
) -> tuple[D, Path]:
    task = log.with_suffix(".json")
    if fork_server is not None:
        return kind.forked(fork_server, task, log=log, env=environment), task
    return kind.module("integration.jobs", task, log=log, env=environment, cwd=REPOSITORY), task


def make_archive(archive: JvmArchive, folder: Path) -> None:
    """Make the class archive of the drivers' JVMs: most of a short life is loading classes."""
    scene = Scene(folder / "archive", "delta", str(folder / "archive" / "table"))
    scene.inbox.fill(2)
    driver, task = _hire(folder / "archivist", archive.making())
    Task((scene.job(), scene.job(unique=True, checkpoint=scene.root / "second", ledger=None))).save(task)
    driver.wait(PATIENCE_S)
    driver.close()
    archive.keep()


def story(driver: Driver) -> list[dict[str, Any]]:
    """All events that a driver told."""
    return [json.loads(line) for line in driver.out.read_text().splitlines() if line.startswith("{")]


def last(driver: Driver) -> dict[str, Any]:
    return story(driver)[-1]


def await_event(driver: Driver, event: str) -> dict[str, Any]:
    """Wait until a driver tells of an event."""
    line = driver.wait_for(lambda text: text.startswith("{") and json.loads(text)["event"] == event, PATIENCE_S)
    return dict(json.loads(line))


def was_killed(driver: Driver) -> bool:
    """Wait for the end of a driver; whether SIGKILL was what ended it, in the middle of a batch."""
    return driver.wait(PATIENCE_S) == -9 and "done" not in {said["event"] for said in story(driver)}


def begun(driver: Driver) -> dict[str, int]:
    """The last batch that each query of a driver began."""
    return {said["query"]: said["batch"] for said in story(driver) if said["event"] == "begin"}


def await_stopped(driver: Driver) -> None:
    """Wait until a driver has stopped itself by SIGSTOP, then stop its JVM, too."""
    until(lambda: psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED, "the driver stops itself")
    driver.stop()


def refused_with(driver: Driver, *codes: str) -> bool:
    """Wait for the end of a driver; whether it failed with one of our codes."""
    code = driver.wait(PATIENCE_S)
    said = driver.err.read_text()
    return code == 1 and any(f"[ONCE-{one}]" in said for one in codes)


def await_end_of_session(session: int) -> None:
    """Wait until no process of a session lives: a JVM and its workers may outlive the program that began it."""
    until(lambda: not _in_session(session), "the session ends")


def stopped_in(session: int) -> list[psutil.Process]:
    """Processes of a session that are stopped, as a fault point leaves them."""
    return [process for process, status in _in_session(session) if status == psutil.STATUS_STOPPED]


def kill_session(session: int) -> None:
    """SIGKILL the group that leads a session, and demand that Spark's workers, stopped or not, go with it."""
    stopped = stopped_in(session)
    os.killpg(session, signal.SIGKILL)
    for worker in stopped:
        worker.send_signal(signal.SIGCONT)
    await_end_of_session(session)


def _in_session(session: int) -> list[tuple[psutil.Process, str]]:
    """Processes of a session, those aside that have ended, each with its status."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                found.append((process, process.status()))
    return [(process, status) for process, status in found if status != psutil.STATUS_ZOMBIE]


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)
