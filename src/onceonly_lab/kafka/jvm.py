"""How the broker's programs are run: jars, options, class archive, and the directory that every node starts from."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from onceonly.cache import cache_directory
from onceonly.jars import java_program
from onceonly.pins import KAFKA_VERSION
from onceonly.session.archive import JvmArchive
from onceonly_lab.jars import kafka_broker_jars

_OPTIONS = (
    "-Xms96m",
    "-Xmx256m",
    "-Xss256k",
    "-XX:MaxDirectMemorySize=64m",
    # A broker of a test lives for seconds: code that is compiled quickly beats code that is compiled well.
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_FORMAT_SECONDS = 120.0


class KafkaJvm:
    """Kafka's programs, from jars that are fetched on first use.

    Args:
        options: JVM options that win over the small and quick ones.
        cache: default ``onceonly.cache.cache_directory()``.

    Raises:
        ConfigurationError: E110, no Java, no PySpark or no answer from the registry.
    """

    def __init__(self, options: Sequence[str] = (), cache: Path | None = None) -> None:
        jars = kafka_broker_jars(cache)
        # An archive fits one class path, in one order.
        self._path = os.pathsep.join(str(jar) for jar in jars)
        self._options = tuple(options)
        self._template = (cache or cache_directory()) / "kafka" / f"formatted-{KAFKA_VERSION}"
        self.archive = JvmArchive(f"kafka-{KAFKA_VERSION}", jars, cache)

    def command(self, main: str, *arguments: str | Path, archive: Sequence[str] | None = None) -> list[str]:
        """Command line of one of Kafka's classes.

        Args:
            main: the class, for example ``kafka.tools.StorageTool``.
            arguments: its arguments.
            archive: options of :attr:`archive`; default, those that use it.
        """
        options = (*_OPTIONS, *(self.archive.options() if archive is None else archive), *self._options)
        return [java_program(), *options, "-cp", self._path, main, *map(str, arguments)]

    def format(self, properties: Path, data: Path) -> None:
        """Make ``data`` a directory that a node can start on; ``properties`` names it.

        A formatted directory is the same for every single node but for its ids, so one is made and copied ever after.

        Raises:
            CalledProcessError: Kafka refused.
        """
        if not self._template.is_dir():
            self._make_template(properties, data)
        shutil.copytree(self._template, data, dirs_exist_ok=True)

    def _make_template(self, properties: Path, data: Path) -> None:
        command = self.command("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", properties)
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FORMAT_SECONDS)
        self._template.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".formatted-", dir=self._template.parent) as work:
            copy = shutil.copytree(data, Path(work) / "data")
            try:
                copy.rename(self._template)
            except OSError:
                # Another process was first.
                if not self._template.is_dir():
                    raise


def _cluster_id() -> str:
    # The leading letter: an id that begins with a dash would be taken for an option.
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()[1:]
