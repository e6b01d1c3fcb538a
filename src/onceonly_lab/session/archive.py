"""``prepare``: run a session once and keep its JVM archive.

The session has the same settings, and runs in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from onceonly.errors import refuse
from onceonly_lab.session.launch import QUIET, begin

_PROGRAM = "onceonly_lab.session.program"
_SECONDS = 600.0
_PROBE = {
    "spark.app.name": "onceonly lab prepare-session",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.eventLog.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""What is not the user's: nothing but files below a temporary directory is touched, and there are few rows."""

_BRIEF = "-XX:TieredStopAtLevel=1"
"""Compile quickly: the classes of an archive are the same."""


def prepare(builder: Any) -> Path:
    """Make ready what ``start`` begins from, in a session of a process of its own: once per image or machine.

    The session runs on this machine whatever the builder's master is, reads and writes in a temporary directory only,
    and takes about a minute of processor time, the first time also what it takes to fetch the packages.

    Args:
        builder: ``SparkSession.builder`` with all the settings of packages, jars and class paths that the driver has.

    Returns:
        The archive of classes.

    Raises:
        ConfigurationError: E110, the session did not start, or Java made no archive.
    """
    options = {name: str(value) for name, value in getattr(builder, "_options", {}).items()}
    if begin(options).unknown:
        _run(options, ())
    archive = begin(options).archive
    try:
        _run(options, archive.making_options())
        archive.keep()
    finally:
        archive.discard()
    if not archive.made:
        raise _failed(
            "Java made no archive of its classes", "a directory with files on the class path (SPARK_CONF_DIR)"
        )
    return archive.path


def _run(options: dict[str, str], java: tuple[str, ...]) -> None:
    # Settings may hold secrets, which command lines show to everybody.
    request = json.dumps(
        {"options": {**options, **_PROBE, "spark.master": "local[2]"}, "java": [*QUIET, _BRIEF, *java]}
    )
    command = [sys.executable, "-m", _PROGRAM]
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise _failed("The session did not end", f"no answer within {_SECONDS:g} s") from None
    if done.returncode:
        raise _failed("The session could not be started", done.stderr[-2000:])


def _failed(problem: str, cause: str) -> Exception:
    return refuse(
        "E110",
        problem=f"{problem}, so nothing was prepared.",
        cause=cause,
        next="start the same session with getOrCreate(), and see: onceonly doctor",
    )
