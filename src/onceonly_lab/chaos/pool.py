"""Driver pool: start the next driver while another works.

Also holds the resources that the runs of one job share.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly.spark.jars import delta_jars, fast_options
from onceonly_lab.chaos.cells import Cell
from onceonly_lab.chaos.destinations import Destination, Servers
from onceonly_lab.chaos.environment import Task
from onceonly_lab.chaos.pipeline import Pipeline
from onceonly_lab.driver import Driver
from onceonly_lab.forkserver import ForkServer
from onceonly_lab.history import History
from onceonly_lab.schedule import Level, Loss, Schedule
from onceonly_lab.servers.spark import StandaloneCluster, WarmJvm
from onceonly_lab.session.launch import JvmArchive, variables

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- Drivers for one job: one comes up while another works. Their JVM outlives them (L3), or is their own (L4).

_PROGRAM = "onceonly_lab.chaos.program"
_PATH = "PYTHONPATH"


class DriverPool:
    """Hires drivers ahead and gives them their tasks. A context manager; its end leaves none of them running.

    Args:
        job: what they run.
        level: whose JVM they have.
        folder: for tasks and logs.
    """

    def __init__(self, job: Pipeline, level: Level, folder: Path) -> None:
        self._job = job
        self._level = level
        self._folder = folder
        self._options = {
            "spark.master": "local[2]",
            "spark.app.name": "onceonly-lab",
            **fast_options(),
            **job.options,
        }
        self._environment: dict[str, str] = {}
        self._running = ExitStack()
        self._ready: tuple[Driver, Path] | None = None
        self._working: list[Driver] = []
        self._hired = 0
        self._archive: JvmArchive | None = None
        self._fork_server: ForkServer | None = None
        self._cluster = StandaloneCluster(folder / "cluster", job.workers, self._path()) if job.workers else None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path()
        if self._cluster is not None:
            self._options |= self._running.enter_context(self._cluster).options
        # Workers of a warm JVM inherit from it; they must find the user's modules, and run this interpreter.
        with variables({**path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}):
            self._environment = {**path, "SPARK_LOCAL_IP": "127.0.0.1", **self._jvm()}
        if self._level is not Level.COLD:
            fork_server = ForkServer(_PROGRAM, self._folder / "fork server.log", path)
            self._fork_server = self._running.enter_context(fork_server)
        making = self._archive.making() if self._archive and not self._archive.made else {}
        self._ready = self._hire(making)
        return self

    def __exit__(self, *_: object) -> None:
        for driver in [*self._working, *([self._ready[0]] if self._ready else [])]:
            driver.close()
        if self._archive is not None:
            self._archive.discard()
        self._running.close()

    def start(self, task: Task) -> Driver:
        """Give the driver that waits its task, and let another one come up."""
        driver, task_file = self._ready or self._hire()
        task.save(task_file)
        self._working.append(driver)
        self._ready = self._hire()
        return driver

    def dismiss(self, driver: Driver) -> None:
        """Leave nothing of a driver."""
        driver.close()
        self._working.remove(driver)
        if self._archive is not None and not self._archive.made:
            self._archive.keep()
            self._environment |= self._archive.environment()

    def _hire(self, more: Mapping[str, str] | None = None) -> tuple[Driver, Path]:
        self._hired += 1
        log = self._folder / f"driver-{self._hired:03d}"
        task_file = log.with_suffix(".json")
        arguments, environment = (task_file, json.dumps(self._options)), {**self._environment, **(more or {})}
        if self._fork_server is not None:
            return Driver.forked(self._fork_server, *arguments, log=log, env=environment), task_file
        return Driver.module(_PROGRAM, *arguments, log=log, env=environment), task_file

    def _path(self) -> dict[str, str]:
        return {_PATH: os.pathsep.join(dict.fromkeys([_folder_of(self._job), *filter(None, sys.path)]))}

    def _jvm(self) -> Mapping[str, str]:
        if self._level is Level.COLD:
            # The first driver runs without faults, and so to its end: its JVM makes the archive of the others.
            self._archive = JvmArchive("lab", delta_jars())
            return self._archive.environment()
        return self._running.enter_context(WarmJvm(self._options, self._folder / "jvm.log")).environment()


def _folder_of(job: Pipeline) -> str:
    return str(Path(job.function.__code__.co_filename).resolve().parent)


# ---- What the runs of one job share, and what one run left behind.


@dataclass(frozen=True, slots=True)
class Stage:
    """What the runs of one job share.

    Attributes:
        job: what is run.
        level: how real.
        folder: everything lies here.
        pool: drivers.
        servers: databases and brokers.
        began: when it was begun to be set, by the monotonic clock.
    """

    job: Pipeline
    level: Level
    folder: Path
    pool: DriverPool
    servers: Servers
    began: float

    def checkpoint(self, name: str) -> Path:
        """Where the checkpoint of a run lies."""
        return self.folder / name / "checkpoint"


@dataclass(slots=True)
class Played:
    """One run.

    Attributes:
        schedule: what was to happen.
        file: the recorded history.
        history: the same, read.
        sinks: destinations that the job asked for.
        struck: places of faults that came to act.
        operated: losses that came to act.
        passed: how often each point was passed.
        drivers: how many were started.
        kills: drivers that SIGKILL ended, each followed by a look at every sink.
        split: whether a driver died between the commits of two sinks.
        woken: drivers that were stopped, and woke up when others had gone on.
        callbacks: batches that the last driver was offered.
        ended: how the last driver ended: ``done`` or the code of its refusal.
        words: what it said then.
        seconds: wall time.
    """

    schedule: Schedule
    file: Path
    history: History | None = None
    sinks: list[Destination] = field(default_factory=list[Destination])
    struck: set[int] = field(default_factory=set[int])
    operated: set[Loss] = field(default_factory=set[Loss])
    passed: Counter[Point] = field(default_factory=Counter[Point])
    drivers: int = 0
    kills: int = 0
    split: bool = False
    woken: int = 0
    callbacks: int = 0
    ended: str = ""
    words: str = ""
    seconds: float = 0.0

    @property
    def unstruck(self) -> tuple[str, ...]:
        """What of the schedule never came to act, in words."""
        faults = (fault.line for at, fault in enumerate(self.schedule.faults) if at not in self.struck)
        losses = (f"{loss.what} before {loss.before}" for loss in self.schedule.losses if loss not in self.operated)
        return (*faults, *losses)


def unpolled(job: str, sink: str, reason: str) -> Exception:
    """The refusal to judge what nobody can read."""
    cause = "the job writes elsewhere, or other columns than the lab was told"
    return refuse("E118", sink=sink, job=job, reason=reason, cause=cause)


def cut_to(schedule: Schedule, drivers: int) -> Schedule | None:
    """The first drivers of a schedule, and what is lost before the one after them; ``None`` without any."""
    if drivers >= schedule.incarnations:
        return schedule
    faults = tuple(fault for fault in schedule.faults if fault.incarnation <= drivers)
    losses = tuple(loss for loss in schedule.losses if loss.before <= drivers + 1)
    return replace(schedule, incarnations=drivers, faults=faults, losses=losses) if faults else None


def struck_cells(played: Played) -> Iterator[Cell]:
    """Points and actions that came together in a run."""
    for at in played.struck:
        yield played.schedule.faults[at].point, played.schedule.faults[at].action
