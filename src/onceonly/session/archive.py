"""An archive of the classes that a JVM loads (application class-data sharing), which halves its start.

A Spark driver, like a Kafka broker, spends most of its first seconds on loading and checking the same classes as the
last time. Where an archive does not fit (another Java, another class path), the JVM ignores it and loads them as ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from onceonly.cache import cache_directory
from onceonly.pins import SPARK_VERSION

_VARIABLE = "SPARK_SUBMIT_OPTS"

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""An archive that does not fit is passed over without a word: it is a matter of seconds, never of results."""

SMALL = ("-XX:+UseSerialGC", "-Xlog:disable")
"""For programs that live for seconds."""


class JvmArchive:
    """The archive of one program, for this Java, this Spark and these jars.

    Args:
        program: names the archive; programs that load other classes want one of their own.
        jars: what is on the class path besides Spark, in its order.
        cache: default ``onceonly.cache.cache_directory()``.
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
        key = "\n".join([_java(), SPARK_VERSION, *map(str, jars)])
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
    spark = cast("Any", session)
    process = spark.sparkContext._gateway.proc
    spark.stop()
    process.stdin.close()
    return int(process.wait())


def _environment(options: Sequence[str]) -> dict[str, str]:
    given = os.environ.get(_VARIABLE, "")
    return {_VARIABLE: " ".join([*given.split(), *options])}


def _java() -> str:
    """What tells one Java from another without starting it, which takes a tenth of a second or more."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if program is None:
        return ""
    real = Path(program).resolve()
    modules = real.parent.parent / "lib" / "modules"
    about = (modules if modules.is_file() else real).stat()
    return f"{real} {about.st_size} {about.st_mtime_ns}"
