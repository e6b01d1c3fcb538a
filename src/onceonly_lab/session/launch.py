# pyright: reportPrivateUsage=false
"""``start``: start a session with resolved packages and archived classes.

The start takes only the time that this machine has learned to need.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from onceonly.spark.detect import installed
from onceonly.spark.jars import cache_directory, find_java
from onceonly_checkpoints.storage import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# ---- Environment variables for a while: how a JVM that PySpark starts is told what no setting can say.


@contextmanager
def variables(values: Mapping[str, str]) -> Generator[None]:
    """Set variables of this process; afterwards they are what they were."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# ---- Which jars Spark found for ``spark.jars.packages`` the last time: it resolves them at every start otherwise.
#
# A coordinate with a fixed version never changes its meaning. What is remembered is what Spark itself had resolved;
# where one file of it is gone or has another size, Spark resolves again.

PACKAGES, JARS = "spark.jars.packages", "spark.jars"

# By any of these the same coordinates may mean other files.
_OTHER_MEANING = ("spark.jars.excludes", "spark.jars.repositories", "spark.jars.ivy")
_SETTINGS = "spark.jars.ivySettings"
_FIXED = re.compile(r"[\w.-]+:[\w.-]+:\d[\w.-]*")


def packages_key(options: Mapping[str, Any]) -> str | None:
    """What the jars of these settings are remembered under; ``None`` where they may mean other jars tomorrow.

    Args:
        options: of a session's builder.
    """
    coordinates = split(options.get(PACKAGES))
    fixed = all(_FIXED.fullmatch(coordinate) and not coordinate.endswith("-SNAPSHOT") for coordinate in coordinates)
    if not coordinates or not fixed or options.get(_SETTINGS):
        return None
    key_parts = [installed() or "", *coordinates, *(f"{name}={options.get(name) or ''}" for name in _OTHER_MEANING)]
    return hashlib.sha256("\n".join(key_parts).encode()).hexdigest()[:16]


def recall(key: str, cache: Path | None = None) -> tuple[Path, ...] | None:
    """The jars, in Spark's order; ``None`` if they are not known or not what they were."""
    try:
        entries = json.loads(_note(key, cache).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    jars = tuple(Path(path) for path, _ in entries)
    same = all(jar.is_file() and jar.stat().st_size == size for jar, (_, size) in zip(jars, entries, strict=True))
    return jars if same else None


def remember(key: str, jars: Sequence[Path], cache: Path | None = None) -> None:
    """Note what Spark resolved; nothing where a jar brings Python code, which only a package puts on Python's path."""
    if not jars or any(_brings_python(jar) for jar in jars):
        return
    note = _note(key, cache)
    note.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=note.parent, prefix=".note-", delete=False) as file:
        json.dump([[str(jar), jar.stat().st_size] for jar in jars], file)
    Path(file.name).replace(note)


def resolved(started: str, builder_jars: str | None) -> tuple[Path, ...]:
    """The jars that Spark added to those that the user named.

    Args:
        started: ``spark.jars`` of the running context.
        builder_jars: ``spark.jars`` of the builder.
    """
    named = {Path(jar).name for jar in split(builder_jars)}
    return tuple(jar for jar in local(split(started)) if jar.name not in named)


def local(jars: Iterable[str]) -> tuple[Path, ...]:
    """The jars among these paths and URIs that lie on this machine."""
    return tuple(path for path in map(local_path, jars) if path.is_absolute() and path.is_file())


def split(text: object) -> list[str]:
    """Parts of a list that is separated by commas."""
    return [part.strip() for part in str(text or "").split(",") if part.strip()]


def _note(key: str, cache: Path | None) -> Path:
    return (cache or cache_directory()) / "packages" / f"{key}.json"


def _brings_python(jar: Path) -> bool:
    with zipfile.ZipFile(jar) as opened:
        return any(name.endswith(".py") for name in opened.namelist())


# ---- An archive of the classes that a JVM loads (application class-data sharing): a session in 2.1 s, not 3.7.
#
# A Spark driver, like a Kafka broker, spends most of its first seconds on loading and checking the same classes as
# the last time. Where an archive does not fit (another Java, another class path), the JVM ignores it and loads them
# as ever.

_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""An archive that does not fit is passed over without a word: it is a matter of seconds, never of results."""

SMALL = ("-XX:+UseSerialGC", "-Xlog:disable")
"""For programs that live for seconds."""


class JvmArchive:
    """The archive of one program, for this Java, this Spark and these jars.

    Args:
        program: names the archive; programs that load other classes want one of their own.
        jars: what is on the class path besides Spark, in its order.
        cache: default :func:`onceonly.spark.jars.cache_directory`.
        always: options with and without an archive.
    """

    def __init__(
        self,
        program: str,
        jars: Sequence[Path | str] = (),
        cache: Path | None = None,
        *,
        always: Sequence[str] = SMALL,
    ) -> None:
        key = "\n".join([_java(), installed() or "", *map(str, jars)])
        folder = (cache or cache_directory()) / "jvm"
        self.path = folder / f"{program}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
        self._always = tuple(always)
        self._made: Path | None = None

    @property
    def made(self) -> bool:
        """Whether there is one."""
        return self.path.is_file()

    def options(self) -> tuple[str, ...]:
        """For a JVM that uses the archive, if there is one."""
        return (*self._always, f"-XX:SharedArchiveFile={self.path}") if self.made else self._always

    def making_options(self) -> tuple[str, ...]:
        """For a JVM that makes the archive when it exits, some seconds more. Then call :meth:`keep`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._made = Path(tempfile.mkdtemp(prefix="making-", dir=self.path.parent)) / "classes.jsa"
        return (*self._always, f"-XX:ArchiveClassesAtExit={self._made}")

    def environment(self) -> dict[str, str]:
        """:meth:`options` for a Spark driver."""
        return _environment(self.options())

    def making(self) -> dict[str, str]:
        """:meth:`making_options` for a Spark driver."""
        return _environment(self.making_options())

    def keep(self) -> None:
        """Keep what a driver made. Only once its JVM has ended by itself: half an archive crashes every later JVM."""
        if self._made is not None and self._made.is_file():
            self._made.replace(self.path)
        self.discard()

    def discard(self) -> None:
        """Forget what a driver made or was making. May repeat."""
        if self._made is not None:
            shutil.rmtree(self._made.parent, ignore_errors=True)
            self._made = None


def end_jvm(session: object) -> int:
    """Stop a Spark session, wait for its JVM, which may have an archive to write, and return that one's exit code."""
    # ``stop`` ends the application and leaves the JVM; its process is known to the gateway alone, and it ends with its
    # standard input.
    spark = cast("Any", session)
    process = spark.sparkContext._gateway.proc
    spark.stop()
    process.stdin.close()
    return int(process.wait())


def _environment(options: Sequence[str]) -> dict[str, str]:
    user_options = os.environ.get(_JAVA_OPTIONS, "")
    return {_JAVA_OPTIONS: " ".join([*user_options.split(), *options])}


def _java() -> str:
    """What tells one Java from another without starting it, which takes a tenth of a second or more."""
    program = find_java()
    if program is None:
        return ""
    real = Path(program).resolve()
    modules = real.parent.parent / "lib" / "modules"
    about = (modules if modules.is_file() else real).stat()
    return f"{real} {about.st_size} {about.st_mtime_ns}"


# ---- The start itself; where this machine knows nothing, an ordinary one.


_CLASS_PATH = "spark.driver.extraClassPath"

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
    # A builder has no public way to say what it was told; without it there is nothing to know, and nothing is lost.
    options = dict(getattr(builder, "_options", {}))
    if not _starts_jvm(options):
        session: SparkSession = builder.getOrCreate()
        return session
    beginning = begin(options)
    if not beginning.archive.made:
        log.info("no class archive for this class path yet; to make one: onceonly lab prepare-session")
    java = beginning.archive.options()
    return begun(builder, options, beginning, (*QUIET, *java) if java else ())


def begun(builder: Any, options: Mapping[str, Any], beginning: Beginning, java: tuple[str, ...]) -> SparkSession:
    """Start a JVM with these options of Java, and remember what it found out."""
    for name, value in beginning.options.items():
        builder = builder.config(name, value)
    environment = dict(beginning.environment)
    if java:
        # Ours first: of what both say about logging, the user's holds. A setting would hide spark-defaults.conf's.
        user_options = os.environ.get(_JAVA_OPTIONS, "")
        environment[_JAVA_OPTIONS] = f"{' '.join(map(shlex.quote, java))} {user_options}".strip()
    threading.Thread(target=_import_ahead, name="onceonly-imports", daemon=True).start()
    with variables(environment):
        session: SparkSession = builder.getOrCreate()
    if beginning.unknown:
        jars = resolved(session.sparkContext.getConf().get(JARS, ""), options.get(JARS))
        remember(beginning.unknown, jars)
    return session


def begin(options: Mapping[str, Any], cache: Path | None = None) -> Beginning:
    """What is known for a builder's options.

    Args:
        options: of the builder.
        cache: default :func:`onceonly.spark.jars.cache_directory`.
    """
    key = packages_key(options)
    cached_jars = recall(key, cache) if key else None
    added, own = cached_jars or (), local(split(options.get(JARS)))
    path = [*os.environ.get(_LAST_ON_PATH, "").split(os.pathsep), *map(str, (*own, *added))]
    path = [entry for entry in path if entry]
    environment = {_LAUNCHER: os.environ.get(_LAUNCHER) or _SHORT_LIVED}
    if own or added:
        environment[_LAST_ON_PATH] = os.pathsep.join(path)
    first = str(options.get(_CLASS_PATH) or "")
    archive = JvmArchive("session", [first, *path], cache, always=())
    return Beginning(_settings(options, added), environment, archive, key if cached_jars is None else None)


def _settings(options: Mapping[str, Any], added: tuple[Path, ...]) -> dict[str, str]:
    if not added:
        return {}
    settings = {PACKAGES: ""}
    if not one_jvm(options):
        # Executors elsewhere fetch them from the driver; here they are on the one class path there is.
        settings[JARS] = ",".join([*split(options.get(JARS)), *map(str, added)])
    return settings


def one_jvm(options: Mapping[str, Any]) -> bool:
    """Whether driver and executors are one JVM."""
    master = str(options.get("spark.master") or "")
    return master == "local" or master.startswith("local[")


def _starts_jvm(options: Mapping[str, Any]) -> bool:
    from pyspark import SparkContext

    connect = "spark.remote" in options or "SPARK_REMOTE" in os.environ
    # Where a JVM runs already, its class path stands. ``spark-submit`` says so in a variable, PySpark in a private.
    there = "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None
    return not connect and not there


def _import_ahead() -> None:
    for name in _NEEDED_LATER:
        # Whoever needs it and lacks it is told so by whoever imports it.
        with suppress(ImportError):
            import_module(name)
