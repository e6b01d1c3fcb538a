"""Checks of what Spark needs around itself: Java, jars, the workers' Python, a local address."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from onceonly.doctor import Check, State

JAVA = (17, 21)
"""Java releases that Spark is tested with."""

_VECTOR = "jdk.incubator.vector"
_GET_JAVA = "install a whole JRE of 17 or 21 (openjdk-17-jre-headless, or https://adoptium.net) and set JAVA_HOME"
_PATIENCE_S = 30


def all_checks() -> Iterator[Check]:
    """Everything around Spark."""
    yield java()
    yield spark_home()
    yield delta_jar()
    yield workers()
    yield local_address()


def java() -> Check:
    """The Java that Spark will start: its release, and a module that trimmed runtimes lack."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if path is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on PATH"
        return Check("java", State.PROBLEM, where, _GET_JAVA)
    answer = _run(path, "--list-modules")
    modules = {name: release for name, _, release in (line.partition("@") for line in answer.splitlines())}
    return judge_java(path, modules.get("java.base", ""), _VECTOR in modules)


def judge_java(path: str, release: str, vector: bool) -> Check:
    """Whether Spark starts on this Java."""
    major = release.partition(".")[0]
    if not major.isdigit() or int(major) < JAVA[0]:
        return Check("java", State.PROBLEM, f"{path} is {release or 'older than 9'}", _GET_JAVA)
    if not vector:
        return Check("java", State.PROBLEM, f"{path} ({release}) lacks the module {_VECTOR}", _GET_JAVA)
    if int(major) not in JAVA:
        said = f"{path} is {release}; Spark is tested on {' and '.join(map(str, JAVA))}"
        return Check("java", State.HINT, said, _GET_JAVA)
    return Check("java", State.OK, f"{release} with {_VECTOR} ({path})")


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def spark_home() -> Check:
    """``SPARK_HOME`` overrides the Spark inside the package, silently."""
    home = os.environ.get("SPARK_HOME")
    inside = _pyspark_folder()
    if home is None or inside is None or Path(home).resolve() == inside:
        return Check("SPARK_HOME", State.OK, home or "not set: the Spark of the pyspark package")
    return Check(
        "SPARK_HOME",
        State.HINT,
        f"{home} is used instead of the Spark inside the pyspark package",
        "unset SPARK_HOME, unless that Spark has the version of the pyspark package",
    )


def _pyspark_folder() -> Path | None:
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent.resolve() if found and found.origin else None


def delta_jar() -> Check:
    """The jar that belongs to the installed pair of PySpark and delta-spark."""
    try:
        spark, delta = version("pyspark"), version("delta-spark")
    except PackageNotFoundError as missing:
        return Check(
            "delta jar",
            State.HINT,
            f"{missing.name} is not installed",
            "pip install 'onceonly[delta-spark]'; only MERGE by Spark needs it",
        )
    jar = f"delta-spark_{'.'.join(spark.split('.')[:2])}_2.13-{delta}.jar"
    found = next((path for folder in _jar_folders() for path in folder.glob(f"**/*{jar}")), None)
    if found is not None:
        return Check("delta jar", State.OK, str(found))
    return Check(
        "delta jar",
        State.HINT,
        f"{jar} is not on this machine yet",
        "Spark fetches it at its first start with with_delta(...); offline, put it into the session's spark.jars",
    )


def _jar_folders() -> Iterator[Path]:
    inside = _pyspark_folder()
    candidates = [Path(os.environ["SPARK_HOME"]) / "jars"] if "SPARK_HOME" in os.environ else []
    candidates += [inside / "jars"] if inside else []
    home = Path.home()
    candidates += [*home.glob(".ivy2*"), home / ".m2" / "repository" / "io" / "delta"]
    return (folder for folder in candidates if folder.is_dir())


def workers() -> Check:
    """The Python that Spark's workers run, which is not the driver's unless somebody says so."""
    named = os.environ.get("PYSPARK_PYTHON")
    path = shutil.which(named or "python3")
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    if path is None:
        return Check("PYSPARK_PYTHON", State.PROBLEM, f"{named or 'python3'} is not on PATH", remedy)
    probe = "import sys, pandas, pyarrow; print('%d.%d' % sys.version_info[:2])"
    return judge_workers(named, path, _run(path, "-c", probe).strip())


def judge_workers(named: str | None, path: str, answer: str) -> Check:
    """Whether workers can run: the same Python release, with pandas and pyarrow."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    whose = f"PYSPARK_PYTHON is {path}" if named else f"not set, so workers run {path}"
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    if not answer:
        return Check("PYSPARK_PYTHON", State.PROBLEM, f"{whose}, which cannot import pandas and pyarrow", remedy)
    if answer != here:
        return Check("PYSPARK_PYTHON", State.PROBLEM, f"{whose}, which is {answer}; the driver is {here}", remedy)
    return Check("PYSPARK_PYTHON", State.OK, whose)


def local_address() -> Check:
    """Whether the host's name leads anywhere; on laptops and in containers it often does not."""
    given = os.environ.get("SPARK_LOCAL_IP")
    if given:
        return Check("SPARK_LOCAL_IP", State.OK, given)
    remedy = "export SPARK_LOCAL_IP=127.0.0.1, if Spark runs on this machine alone"
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return Check("SPARK_LOCAL_IP", State.HINT, f"not set, and the host name {name} does not resolve", remedy)
    if address.startswith("127."):
        return Check("SPARK_LOCAL_IP", State.HINT, f"not set, and {name} resolves to {address}", remedy)
    return Check("SPARK_LOCAL_IP", State.OK, f"not set; {name} resolves to {address}")
