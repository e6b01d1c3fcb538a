"""A standalone Spark cluster on this machine: a master and workers, whose executors are processes that can be killed.

PySpark's own package holds all of it. Executors belong to their worker and not to the driver, so they outlive neither
the cluster nor a SIGKILL, and are found by what they were started with.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from onceonly_lab.kafka.process import GuardedProcess
from onceonly_lab.ports import free_ports

MEMORY_MB = 600
"""Of one executor."""

_EXECUTOR = "CoarseGrainedExecutorBackend"
_UP_S = 90.0
_END_S = 10.0
_POLL_S = 0.05
_DAEMON_MB = 256


class ClusterDown(RuntimeError):
    """The cluster did not come up; the text is what the process that ended printed last, else its master."""


class StandaloneCluster:
    """A master and workers with one core each. A context manager; its end ends all of them and their executors.

    Args:
        folder: for logs and working directories.
        workers: how many.
        environment: what workers, and so executors, find in their environment beside this process's own.
    """

    def __init__(self, folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self._folder, self._workers = folder, workers
        self._environment = dict(environment or {})
        self._port, self._page = free_ports(2)
        self._processes: dict[Path, GuardedProcess] = {}

    @property
    def address(self) -> str:
        """Value of ``spark.master``."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def options(self) -> dict[str, str]:
        """Settings of a session that runs here: an executor of one core on each worker."""
        return {
            "spark.master": self.address,
            "spark.executor.memory": f"{MEMORY_MB}m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(self._workers),
        }

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            master = "org.apache.spark.deploy.master.Master"
            self._start("master", master, "--port", str(self._port), "--webui-port", str(self._page))
            for number in range(self._workers):
                place, page = self._folder / f"worker{number}", free_ports(1)[0]
                worker = "org.apache.spark.deploy.worker.Worker"
                resources = ("--cores", "1", "--memory", f"{MEMORY_MB}M", "--work-dir", str(place))
                self._start(f"worker{number}", worker, self.address, *resources, "--webui-port", str(page))
            self._await_workers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self, name: str, class_: str, *arguments: str) -> None:
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        environment = {
            **os.environ,
            **self._environment,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": f"{_DAEMON_MB}m",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), class_, "--host", "127.0.0.1", *arguments]
        log = self._folder / f"{name}.log"
        self._processes[log] = GuardedProcess(command, self._folder / name, log, environment)

    def _await_workers(self) -> None:
        master, deadline = self._folder / "master.log", time.monotonic() + _UP_S
        while master.read_text(errors="replace").count("Registering worker") < self._workers:
            ended = next((log for log, one in self._processes.items() if not one.running), None)
            if ended or time.monotonic() > deadline:
                raise ClusterDown("\n".join((ended or master).read_text(errors="replace").splitlines()[-10:]))
            time.sleep(_POLL_S)

    def _end(self) -> None:
        """Executors first: their workers would start others."""
        for one in reversed(self._processes.values()):
            one.end(signal.SIGKILL, _END_S)
        for executor in self._executors():
            with suppress(psutil.NoSuchProcess):
                executor.kill()
        self._processes = {}

    def _executors(self) -> list[psutil.Process]:
        return [one for one in _with_argument(_EXECUTOR) if str(self._folder) in _directory(one)]


def kill_executor(application: str) -> bool:
    """SIGKILL one executor of an application; whether there was one."""
    for one in _with_argument(_EXECUTOR):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if application in one.cmdline():
                one.kill()
                return True
    return False


def _with_argument(word: str) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if any(part.endswith(word) for part in one.cmdline()):
                found.append(one)
    return found


def _directory(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except psutil.Error:
        return ""
