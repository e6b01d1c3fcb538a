"""A Spark whose JVM outlives its Python drivers: they are killed for real, and nobody waits for another JVM.

Of a PySpark driver the Python process is where ``foreachBatch`` runs, so a SIGKILL of it alone is a crash like any
other, and a nastier one: tasks that it had started go on. What dies with a JVM only a cold driver shows.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway: Any = launch_gateway()
    # py4j numbers callbacks from 0 in each process. When the JVM collects one of a dead driver's, it tells whoever
    # lives by then to drop that number: so no two drivers may use the same.
    gateway.gateway_property.pool.next_id = time.time_ns()
    jvm = gateway.jvm
    found = getattr(jvm, "org.apache.spark.sql.classic.SparkSession").getDefaultSession()
    if found.isEmpty():
        first: SparkSession = builder.getOrCreate()
        return first
    shared = found.get()
    for execution in list(shared.sharedState().activeStreamingQueries().values()):
        execution.stop()
    java_context = jvm.JavaSparkContext(shared.sparkContext())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    return SparkSession(context, shared.newSession())
