# pyright: reportPrivateUsage=false
"""``start``: a session in the time that this machine has learned to need; where it knows nothing, an ordinary one."""

from __future__ import annotations

import logging
import os
import shlex
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.session import packages
from onceonly.session.archive import QUIET, JvmArchive
from onceonly.session.environment import variables
from onceonly.session.packages import JARS, PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_CLASS_PATH = "spark.driver.extraClassPath"

_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"

_LAST_ON_PATH = "SPARK_DIST_CLASSPATH"
"""Spark puts it behind its own jars, so that a package hides none of them, and before the JVM starts, so that an
archive may hold its classes."""

_LAUNCHER = "SPARK_LAUNCHER_OPTS"
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the JVM that does nothing but spell the command line of the other one."""

_NEEDED_LATER = ("pandas", "pyarrow.parquet", "pyspark.sql.pandas.types", "sqlalchemy.dialects.sqlite")
"""Modules that the first batch would import; while the JVM starts, Python has nothing to do."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a session starts from.

    Attributes:
        options: to set over the builder's.
        environment: to set while the JVM starts.
        archive: of the classes on this path, made or not.
        unknown: under which the jars of the packages are to be remembered; ``None``: nothing new will be seen.
    """

    options: Mapping[str, str]
    environment: Mapping[str, str]
    archive: JvmArchive
    unknown: str | None


def start(builder: Any) -> SparkSession:
    """``builder.getOrCreate()``, faster from the second time on.

    Packages are given to Spark as the files that it resolved the last time, and classes come out of an archive if
    ``prepare`` has made one. Nothing of it changes what runs: the files are the same, they lie behind Spark's own jars
    as ever, and whatever does not fit is passed over.

    It takes a driver that starts its own JVM (``python driver.py``). Under ``spark-submit``, on Spark Connect and where
    the process has a session already, it is ``getOrCreate()`` and no more.

    Args:
        builder: ``SparkSession.builder`` with all its settings.
    """
    options = dict(getattr(builder, "_options", {}))
    if not _starts_jvm(options):
        session: SparkSession = builder.getOrCreate()
        return session
    beginning = begin(options)
    if not beginning.archive.made:
        log.info("no class archive for this class path yet; to make one: onceonly session prepare")
    java = beginning.archive.options()
    return begun(builder, options, beginning, (*QUIET, *java) if java else ())


def begun(builder: Any, options: Mapping[str, Any], beginning: Beginning, java: tuple[str, ...]) -> SparkSession:
    """Start a JVM with these options of Java, and remember what it found out."""
    for name, value in beginning.options.items():
        builder = builder.config(name, value)
    environment = dict(beginning.environment)
    if java:
        # Ours first: of what both say about logging, the user's holds. A setting would hide spark-defaults.conf's.
        given = os.environ.get(_JAVA_OPTIONS, "")
        environment[_JAVA_OPTIONS] = f"{' '.join(map(shlex.quote, java))} {given}".strip()
    threading.Thread(target=_import_ahead, name="onceonly-imports", daemon=True).start()
    with variables(environment):
        session: SparkSession = builder.getOrCreate()
    if beginning.unknown:
        found = packages.resolved(session.sparkContext.getConf().get(JARS, ""), options.get(JARS))
        packages.remember(beginning.unknown, found)
    return session


def begin(options: Mapping[str, Any], cache: Path | None = None) -> Beginning:
    """What is known for a builder's options.

    Args:
        options: of the builder.
        cache: default ``onceonly.cache.cache_directory()``.
    """
    key = packages.key(options)
    known = packages.recall(key, cache) if key else None
    added, own = known or (), packages.local(packages.split(options.get(JARS)))
    path = [*os.environ.get(_LAST_ON_PATH, "").split(os.pathsep), *map(str, (*own, *added))]
    path = [entry for entry in path if entry]
    environment = {_LAUNCHER: os.environ.get(_LAUNCHER) or _SHORT_LIVED}
    if own or added:
        environment[_LAST_ON_PATH] = os.pathsep.join(path)
    first = str(options.get(_CLASS_PATH) or "")
    archive = JvmArchive("session", [first, *path], cache, always=())
    return Beginning(_settings(options, added), environment, archive, key if known is None else None)


def _settings(options: Mapping[str, Any], added: tuple[Path, ...]) -> dict[str, str]:
    if not added:
        return {}
    settings = {PACKAGES: ""}
    if not is_local(options):
        # Executors elsewhere fetch them from the driver; here they are on the one class path there is.
        settings[JARS] = ",".join([*packages.split(options.get(JARS)), *map(str, added)])
    return settings


def is_local(options: Mapping[str, Any]) -> bool:
    """Whether driver and executors are one JVM."""
    master = str(options.get("spark.master") or "")
    return master == "local" or master.startswith("local[")


def _starts_jvm(options: Mapping[str, Any]) -> bool:
    from pyspark import SparkContext

    connect = "spark.remote" in options or "SPARK_REMOTE" in os.environ
    there = "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None
    return not connect and not there


def _import_ahead() -> None:
    for name in _NEEDED_LATER:
        # Whoever needs it and lacks it is told so by whoever imports it.
        with suppress(ImportError):
            import_module(name)
