"""Real Spark for the lab: standalone cluster and warm JVM.

The cluster's executors can be killed. The JVM outlives its drivers.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from onceonly_lab.servers.brokerprocess import GuardedProcess
from onceonly_lab.servers.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self


# ---- A standalone Spark cluster on this machine: a master and workers, whose executors are processes that can be
# killed.
#
# PySpark's own package holds all of it. Executors belong to their worker and not to the driver, so they outlive
# neither the cluster nor a SIGKILL, and are found by what they were started with.

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
                directory, page = self._folder / f"worker{number}", free_ports(1)[0]
                worker = "org.apache.spark.deploy.worker.Worker"
                resources = ("--cores", "1", "--memory", f"{MEMORY_MB}M", "--work-dir", str(directory))
                self._start(f"worker{number}", worker, self.address, *resources, "--webui-port", str(page))
            self._await_workers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
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
            ended = next((log for log, process in self._processes.items() if not process.running), None)
            if ended or time.monotonic() > deadline:
                raise ClusterDown("\n".join((ended or master).read_text(errors="replace").splitlines()[-10:]))
            time.sleep(_POLL_S)

    def _end(self) -> None:
        """Executors first: their workers would start others."""
        for process in reversed(self._processes.values()):
            process.end(signal.SIGKILL, _END_S)
        for executor in self._executors():
            with suppress(psutil.NoSuchProcess):
                executor.kill()
        self._processes = {}

    def _executors(self) -> list[psutil.Process]:
        return [process for process in _with_argument(_EXECUTOR) if str(self._folder) in _directory(process)]


def kill_executor(application: str) -> bool:
    """SIGKILL one executor of an application; whether there was one."""
    for process in executors(application):
        with suppress(psutil.NoSuchProcess):
            process.kill()
            return True
    return False


def executors(application: str) -> list[psutil.Process]:
    """Processes of the executors of an application."""
    found: list[psutil.Process] = []
    for process in _with_argument(_EXECUTOR):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if application in process.cmdline():
                found.append(process)
    return found


def _with_argument(word: str) -> list[psutil.Process]:
    processes: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(part.endswith(word) for part in process.cmdline()):
                processes.append(process)
    return processes


def _directory(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except psutil.Error:
        return ""


# ---- A Spark whose JVM outlives its Python drivers: they are killed for real, and nobody waits for another JVM.
#
# Of a PySpark driver the Python process is where ``foreachBatch`` runs, so a SIGKILL of it alone is a crash like any
# other, and a nastier one: tasks that it had started go on. What dies with a JVM only a cold driver shows.

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_END_SECONDS = 10.0


class WarmJvm:
    """A JVM that drivers attach to, one after another. Use as a context manager.

    Args:
        options: Spark's settings, as a session's builder takes them.
        log: file for what the JVM prints.
    """

    def __init__(self, options: Mapping[str, str], log: Path) -> None:
        self._options = dict(options)
        self._log = log
        self._gateway: Any = None

    def __enter__(self) -> Self:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf(loadDefaults=False).setAll(list(self._options.items()))
        with self._log.open("wb") as log:
            self._gateway = launch_gateway(conf, {"stdout": log, "stderr": subprocess.STDOUT})
        return self

    def __exit__(self, *_: object) -> None:
        process = self._gateway.proc
        self._gateway.close()
        # The JVM reads its stdin, and ends with it.
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return int(self._gateway.proc.pid)

    def environment(self) -> dict[str, str]:
        """For a driver that calls :func:`attach`."""
        parameters = self._gateway.gateway_parameters
        return {_PORT: str(parameters.port), _SECRET: parameters.auth_token}


def is_warm() -> bool:
    """Whether this process was given a JVM to attach to."""
    return _PORT in os.environ


def attach(builder: Any) -> SparkSession:
    """A session of one's own in the JVM that this process was given; what an earlier driver left running is ended.

    Args:
        builder: used by the first driver, whose Spark the others share.
    """
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway: Any = launch_gateway()
    # py4j numbers callbacks from 0 in each process. When the JVM collects one of a dead driver's, it tells whoever
    # lives by then to drop that number: so no two drivers may use the same.
    gateway.gateway_property.pool.next_id = time.time_ns()
    jvm = gateway.jvm
    package = "org.apache.spark.sql" if pyspark.__version__.startswith("3.") else "org.apache.spark.sql.classic"
    default_session = getattr(jvm, f"{package}.SparkSession").getDefaultSession()
    if default_session.isEmpty():
        first: SparkSession = builder.getOrCreate()
        return first
    shared = default_session.get()
    for execution in list(shared.sharedState().activeStreamingQueries().values()):
        if execution is not None:  # one that ends while it is asked for
            execution.stop()
    java_context = jvm.JavaSparkContext(shared.sparkContext())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    return SparkSession(context, shared.newSession())
