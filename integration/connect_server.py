"""A Spark Connect server of the pip package, to start, to kill, and to start again on the same port."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from integration.processes import until

from onceonly_lab.driver import Driver
from onceonly_lab.servers.ports import free_ports

HOME = Path(pyspark.__file__).parent

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server on a port of this machine. Use as a context manager.

    Args:
        root: for logs.
        environment: of the server and its workers, beside this process's.
    """

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self._root, self._environment = root, dict(environment or {})
        [self.port] = free_ports(1)
        self.driver: Driver | None = None
        self._starts = 0

    @property
    def remote(self) -> str:
        """What a client is given."""
        return f"sc://127.0.0.1:{self.port}"

    def start(self, **environment: str) -> Driver:
        """Start the server and wait until it answers."""
        self._starts += 1
        given = {
            **self._environment,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **environment,
        }
        conf = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.shuffle.partitions": "2",
        }
        settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        command = [
            str(HOME / "bin" / "spark-submit"),
            "--class",
            _MAIN,
        ]
        command += ["--name", "connect", "--master", "local[2]", *settings, "spark-internal"]
        driver = Driver.command(command, self._root / f"connect-{self._starts}", given)
        self.driver = driver
        until(lambda: driver.poll() is not None or self._answers(), "the server answers")
        assert driver.poll() is None, driver.last_words()
        return driver

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> ConnectServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.driver is not None:
            self.driver.close()
