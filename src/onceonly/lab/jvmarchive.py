"""An archive of the classes that a JVM loads (application class-data sharing), which halves its start.

A Spark driver, like a Kafka broker, spends most of its first seconds on loading and checking the same classes as the
last time. Where an archive does not fit (another Java, another class path), the JVM ignores it and loads them as ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from onceonly.lab.jars import cache_directory
from onceonly.pins import SPARK_VERSION

_VARIABLE = "SPARK_SUBMIT_OPTS"
_BASE = ("-XX:+UseSerialGC", "-Xlog:disable")


class JvmArchive:
    """The archive of one program, for this Java, this Spark and these jars.

    Args:
        program: names the archive; programs that load other classes want one of their own.
        jars: what is on the class path besides Spark, in its order.
        cache: default ``jars.cache_directory()``.
    """

    def __init__(self, program: str, jars: Sequence[Path] = (), cache: Path | None = None) -> None:
        version = subprocess.run([_java(), "-version"], capture_output=True, text=True, check=True).stderr
        key = "\n".join([version, SPARK_VERSION, *map(str, jars)])
        folder = (cache or cache_directory()) / "jvm"
        self.path = folder / f"{program}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
        self._made: Path | None = None

    @property
    def made(self) -> bool:
        """Whether there is one."""
        return self.path.is_file()

    def options(self) -> tuple[str, ...]:
        """For a JVM that uses the archive, if there is one."""
        return (*_BASE, f"-XX:SharedArchiveFile={self.path}") if self.made else _BASE

    def making_options(self) -> tuple[str, ...]:
        """For a JVM that makes the archive when it exits, some seconds more. Then call :meth:`keep`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._made = Path(tempfile.mkdtemp(prefix="making-", dir=self.path.parent)) / "classes.jsa"
        return (*_BASE, f"-XX:ArchiveClassesAtExit={self._made}")

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
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"
