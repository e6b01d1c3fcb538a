"""Spark Connect server of PySpark's own package, on the loopback.

It can be started, killed and restarted, and is ended by its id.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import psutil
import pyspark

from onceonly.spark import detect
from onceonly.spark.jars import delta_jars, fast_options, kafka_source_jars
from onceonly_lab.servers.brokerprocess import GuardedProcess
from onceonly_lab.servers.ports import free_ports
from onceonly_lab.session.launch import QUIET, JvmArchive

if TYPE_CHECKING:
    from typing_extensions import Self

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"

_UP_S = 120.0
_END_S = 60.0
_POLL_S = 0.1


HOME = Path(pyspark.__file__).parent
"""Where the installed package has its Spark, with ``bin`` in it."""


class ServerDown(RuntimeError):
    """The server did not come up; the text is what it printed last."""


class ConnectServer:
    """A server on a port that stays the same over restarts, with Spark's Delta and Kafka source where there are jars.

    A context manager starts it, and kills it at its end.

    Args:
        folder: for its log; workers begin there, too.
        modules: where workers find the modules of callbacks, beside what is installed.
        quick_compile: let the JVM compile quickly rather than well: short runs win, benchmarks lose.
    """

    def __init__(self, folder: Path, modules: Path | None = None, *, quick_compile: bool = True) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self._modules = modules
        self._quick_compile = quick_compile
        [self._port] = free_ports(1)
        self._process: GuardedProcess | None = None
        line = detect.line()
        # Spark's own Delta where there is one: a sink must not take it for one that it can reach.
        self._delta, self._kafka = line.delta is not None, line.kafka is not None
        jars = [*(delta_jars() if self._delta else ()), *(kafka_source_jars() if self._kafka else ())]
        self._archive = JvmArchive("connect", jars, always=QUIET)

    @property
    def url(self) -> str:
        """For ``SparkSession.builder.remote``."""
        return f"sc://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the server's JVM."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, **environment: str) -> None:
        """Start it, and wait until it takes connections. A start before is ended, also one that somebody else killed.

        Args:
            environment: what this start alone finds in its environment.
        """
        self.kill()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._archive.made:
            self._make_archive()
        self._launch(self._archive.options(), environment)

    def kill(self) -> None:
        """SIGKILL the JVM. Its workers are processes of their own, which this leaves as they are."""
        if self._process is not None:
            self._process.end(signal.SIGKILL, _END_S)

    def workers(self) -> list[psutil.Process]:
        """Processes that run callbacks, as children of the server."""
        with suppress(psutil.NoSuchProcess):
            return [child for child in psutil.Process(self.pid).children() if is_worker(child)]
        return []

    def _make_archive(self) -> None:
        """Most of a start is loading classes: the first on a machine writes them down for the others."""
        self._launch(self._archive.making_options(), {})
        assert self._process is not None
        self._process.end(signal.SIGTERM, _END_S)
        self._archive.keep()

    def _launch(self, java: tuple[str, ...], once: Mapping[str, str]) -> None:
        settings = {
            **fast_options(delta=self._delta, kafka=self._kafka, quick_compile=self._quick_compile),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
        }
        arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(HOME / "bin" / "spark-submit"), "--class", _MAIN, "--name", "connect", "--master", "local[2]"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_SUBMIT_OPTS": " ".join(java),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(map(str, filter(None, [self._modules, os.environ.get("PYTHONPATH")]))),
            **once,
        }
        environment.pop("SPARK_REMOTE", None)
        environment.pop("SPARK_CONNECT_MODE_ENABLED", None)
        self._process = GuardedProcess(
            [*command, *arguments, "spark-internal"], self.folder / "server", self.log, env=environment
        )
        self._await_port()

    def _await_port(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _UP_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            if not self._process.running or time.monotonic() > deadline:
                raise ServerDown(self.log.read_text(errors="replace")[-3000:])
            time.sleep(_POLL_S)


def is_worker(process: psutil.Process) -> bool:
    """Whether a process runs callbacks of a query."""
    with suppress(psutil.Error):
        return any("foreach_batch_worker" in part for part in process.cmdline())
    return False
