"""Drivers for one job: one comes up while another works. Their JVM outlives them (L3), or is their own (L4)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from onceonly.jars import delta_jars, fast_options
from onceonly.session.archive import JvmArchive
from onceonly.session.environment import variables
from onceonly_lab.chaos.pipeline import Pipeline
from onceonly_lab.chaos.task import Task
from onceonly_lab.cluster import StandaloneCluster
from onceonly_lab.driver import Driver
from onceonly_lab.level import Level
from onceonly_lab.nursery import Nursery
from onceonly_lab.warm import WarmJvm

_PROGRAM = "onceonly_lab.chaos.program"
_PATH = "PYTHONPATH"


class Crew:
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
        self._nursery: Nursery | None = None
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
            nursery = Nursery(_PROGRAM, self._folder / "nursery.log", path)
            self._nursery = self._running.enter_context(nursery)
        making = self._archive.making() if self._archive and not self._archive.made else {}
        self._ready = self._hire(making)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for driver in [*self._working, *([self._ready[0]] if self._ready else [])]:
            driver.close()
        if self._archive is not None:
            self._archive.discard()
        self._running.close()

    def start(self, task: Task) -> Driver:
        """Give the driver that waits its task, and let another one come up."""
        driver, told = self._ready or self._hire()
        task.save(told)
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
        told = log.with_suffix(".json")
        said, environment = (told, json.dumps(self._options)), {**self._environment, **(more or {})}
        if self._nursery is not None:
            return Driver.forked(self._nursery, *said, log=log, env=environment), told
        return Driver.module(_PROGRAM, *said, log=log, env=environment), told

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
