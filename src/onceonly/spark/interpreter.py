"""Check the executors' Python after a task has failed.

A job of its own checks whether executors can run Python tasks. It runs only after a failure: most epochs never run
Python on executors, depending on their size and sinks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = ("pyarrow", "onceonly", "onceonly_checkpoints", "onceonly_sinks")
"""What a task imports, whatever it does."""

_NOT_STARTED = ("org.apache.spark.api.python.PythonException", "java.io.IOException")
"""What Spark makes of an interpreter that is not there, or that is of another release than the driver's."""


def refusal(session: SparkSession) -> Exception | None:
    """Return why tasks in Python cannot run on the executors, or ``None`` if they can, or if that is unknown.

    On Spark Connect the server's executors cannot be checked from here.
    """
    context: Any = getattr(session, "sparkContext", None)
    if context is None or not (problem := _problem(context)):
        return None
    return refuse("E157", python=context.pythonExec, problem=problem, driver=sys.executable)


def _problem(context: Any) -> str:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    needed = _NEEDED

    def asked(_: Iterator[int]) -> Iterator[tuple[str, list[str]]]:
        # Within a function, and so sent as it is: over there is perhaps no package of ours to look it up in.
        import importlib
        import sys

        lacks: list[str] = []
        for name in needed:
            try:
                importlib.import_module(name)
            except ImportError as error:
                lacks.append(f"{name} ({error})")
        yield sys.executable, lacks

    try:
        [(place, lacks)] = context.parallelize([0], 1).mapPartitions(asked).collect()
    except (Py4JError, PySparkException) as error:
        java = _causes(error)
        return f"it does not run a task: {java[0]}" if java else ""
    return f"{place} cannot import {', '.join(lacks)}" if lacks else ""


def _causes(error: Exception) -> list[str]:
    """List Java's error texts about an interpreter, the outermost first. Of a traceback, its last line."""
    found: list[str] = []
    java: Any = getattr(error, "java_exception", None)
    while java is not None:
        if java.getClass().getName() in _NOT_STARTED:
            found.append(str(java.getMessage()).strip().splitlines()[-1])
        java = java.getCause()
    return found
