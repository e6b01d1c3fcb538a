"""Fetch the jars for Delta and Kafka, once per Spark line."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.spark import detect
from onceonly.spark.versions import LINES, SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ---- Where this machine keeps what can be made or fetched again: jars, class archives, what a start has found out.


def cache_directory() -> Path:
    """``$ONCEONLY_CACHE``, else ``onceonly`` in the user's cache directory."""
    if chosen := os.environ.get("ONCEONLY_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "onceonly"


# ---- Versions that fit each other; those that go with a line of Spark stand in ``lines``.


def pyspark_version(what: str) -> str:
    """Return the version of the installed PySpark, which ``what`` needs (E108: there is none)."""
    version = detect.installed()
    if version is None:
        raise refuse("E108", what=what, package="pyspark", extra="spark")
    return version


def delta_unbuilt(pyspark: str) -> OnceOnlyError:
    """Make E111, for a PySpark whose line Delta was never built for."""
    built = ", ".join(line.minor for line in LINES.values() if line.delta)
    return refuse(
        "E111",
        problem=f"PySpark {pyspark} has no jar of Delta.",
        cause=f"each Spark needs a jar of its own, and Delta has one for Spark {built}",
        next="leave with_delta() out: a DeltaSink commits by deltalake, which needs no jar, "
        "unless tuning=DeltaTuning(committer='spark')",
    )


# ---- Jars by their coordinates, and a session that starts quickly on small data.
#
# ``spark.jars.packages`` resolves again at every start, 1.5 to 3 s with a warm cache, and brings 35 jars where two are
# used. Here the Ivy that PySpark ships fetches the named jars without their dependencies, and they go onto the class
# path of driver and executors: ``spark.jars`` would have them loaded by another class loader, whose classes no archive
# of the JVM holds.

_FETCH_SECONDS = 300.0

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" useMavenMetadata="false"{root}/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A jar by its coordinate. If ``whole``, its dependencies are fetched, too."""

    group: str
    name: str
    version: str
    with_dependencies: bool = False

    @property
    def file(self) -> str:
        """File name."""
        return f"{self.name}-{self.version}.jar"

    @property
    def dependency(self) -> str:
        """Its line in an Ivy file."""
        reach = 'conf="jars->runtime,master"' if self.with_dependencies else 'conf="jars->master" transitive="false"'
        return f'<dependency org="{self.group}" name="{self.name}" rev="{self.version}" {reach}/>'


def delta_jars(cache: Path | None = None) -> list[Path]:
    """Return the two jars for reading, writing, MERGE and streaming of Delta, fetched on first use.

    They are kept in ``cache``, by default :func:`cache_directory`.

    Raises:
        ConfigurationError: E108 no PySpark. E110 no Java, or no answer from the registry. E111 there are none for this
            PySpark. E113 it is unknown.
    """
    version = pyspark_version("Fetching jars of Delta")
    line = detect.line_of(version)
    if line.delta is None:
        raise delta_unbuilt(version)
    names = (line.delta.jar, "delta-storage")
    return fetched([Artifact("io.delta", name, line.delta.version) for name in names], cache)


def kafka_source_jars(cache: Path | None = None) -> list[Path]:
    """Return the four jars of Spark's Kafka source and sink.

    Raises:
        ConfigurationError: E110 there are none for this PySpark. Others, see :func:`delta_jars`.
    """
    version = pyspark_version("Fetching jars of Spark's Kafka source")
    line = detect.line_of(version)
    if line.kafka is None:
        versions = ", ".join(line.minor for line in LINES.values() if line.kafka)
        raise misused(
            f"No jars of Spark's Kafka source are known for PySpark {version}.",
            f"those of Spark {versions} were tried, and each Spark needs its own",
            "with_kafka(builder): Spark then fetches the package of its own version, if there is one",
        )
    return fetched(_kafka_source(line, line.kafka), cache)


def _kafka_source(line: SparkVersion, version: str) -> Sequence[Artifact]:
    return (
        Artifact("org.apache.spark", line.kafka_jar, version),
        Artifact("org.apache.spark", f"spark-token-provider-kafka-0-10_{line.scala}", line.kafka_tokens),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
    )


def fetched(artifacts: Sequence[Artifact], cache: Path | None) -> list[Path]:
    """Return the files of jars, in their order, fetched into the cache if missing (E110, see :func:`delta_jars`)."""
    folder = (cache or cache_directory()) / "jars"
    paths = [folder / artifact.file for artifact in artifacts]
    missing = [artifact for artifact, path in zip(artifacts, paths, strict=True) if not path.is_file()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(missing, folder)
    return paths


def _fetch(artifacts: Sequence[Artifact], folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
        run_ivy(artifacts, Path(work), folder)
        for artifact in artifacts:
            # A rename within one directory: a download that was cut short is never taken for a jar.
            (Path(work) / "lib" / artifact.file).replace(folder / artifact.file)


def run_ivy(artifacts: Sequence[Artifact], work: Path, folder: Path) -> None:
    """Fetch jars into ``work/lib``. A failure (E110) tells the user to put them into ``folder``."""
    lines = "".join(artifact.dependency for artifact in artifacts)
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="onceonly" module="jars"/>'
        f'<configurations><conf name="jars"/></configurations><dependencies>{lines}</dependencies></ivy-module>'
    )
    mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    (work / "settings.xml").write_text(_SETTINGS.format(root=f' root="{mirror}"' if mirror else ""))
    command = [java_program(), "-jar", str(jar_of_pyspark("ivy-*.jar")), "-settings", str(work / "settings.xml")]
    command += ["-cache", str(work / "ivy"), "-ivy", str(work / "ivy.xml"), "-confs", "jars"]
    command += ["-retrieve", str(work / "lib" / "[artifact]-[revision](-[classifier]).[ext]")]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS)
        output, failed = answer.stdout[-2000:], answer.returncode != 0
    except subprocess.TimeoutExpired:
        output, failed = f"no answer within {_FETCH_SECONDS:g} s", True
    absent = [artifact.file for artifact in artifacts if not (work / "lib" / artifact.file).is_file()]
    if failed or absent:
        names = ", ".join(absent) or f"that {', '.join(artifact.file for artifact in artifacts)} need"
        raise misused(
            f"The jars {names} could not be fetched from Maven Central.",
            "no network, a proxy that Java does not know, or a registry without them; output of Ivy:\n" + output,
            f"open the network once, name a mirror in DEFAULT_ARTIFACT_REPOSITORY, or put the files into {folder}",
        )


def find_java() -> str | None:
    """Return the path of ``java`` as :func:`java_program`, or ``None`` without one."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java") if home else "java")


def java_program() -> str:
    """Return the path of ``java`` in ``$JAVA_HOME``, else the first on the path (E110: there is none)."""
    java, home = find_java(), os.environ.get("JAVA_HOME")
    if java is None:
        raise misused(
            "Java is not installed.",
            f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH",
            "Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17;"
            " others: https://adoptium.net",
        )
    return java


def jar_of_pyspark(pattern: str) -> Path:
    """Return a jar of PySpark by its file name's pattern (E108: no PySpark, or it has no such jar)."""
    spec = importlib.util.find_spec("pyspark")
    for location in spec.submodule_search_locations or () if spec else ():
        for jar in (Path(location) / "jars").glob(pattern):
            return jar
    raise refuse("E108", what="Fetching jars", package="pyspark", extra="spark")


def fast_options(
    *, delta: bool = True, kafka: bool = False, quick_compile: bool = True, cache: Path | None = None
) -> Mapping[str, str]:
    """Return settings of a session for small data on one machine, with the jars of Delta and Kafka on request.

    With ``quick_compile`` the JVM compiles quickly rather than well: short runs win, benchmarks lose.
    """
    jars = [*(delta_jars(cache) if delta else []), *(kafka_source_jars(cache) if kafka else [])]
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # 10,000 by default: VACUUM of a small table would then be as many tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Else the driver takes the address of a network card, while the machine's name may lead to the loopback.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if quick_compile:
        # A second or more of a short run; of a long one the compiled code stays slow.
        options["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"
    if jars:
        path = os.pathsep.join(str(jar) for jar in jars)
        options |= {"spark.driver.extraClassPath": path, "spark.executor.extraClassPath": path}
    return {**options, **_DELTA_OPTIONS} if delta else options


_DELTA_OPTIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # 50 by default: each snapshot of a small table would then be 50 tasks. The first write and read take 5.7 s and not
    # 9.5 to 12; an append with an application version takes half a second and not four.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def fast_session(builder: Any, delta: bool = True, *, kafka: bool = False, quick_compile: bool = True) -> SparkSession:
    """Start a session that is quick on small data, overriding the same keys in ``builder``, which has a master.

    Workers run this interpreter, not any other ``python3`` on the path. Other arguments are those of
    :func:`fast_options`.

    Raises:
        ConfigurationError: E110, see :func:`delta_jars`.
    """
    # PySpark's own choice is ``python3`` on the path, even with a local master: an environment without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = fast_options(delta=delta, kafka=kafka, quick_compile=quick_compile)
    for name, value in options.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


# ---- Local session for a command, unless the process has one.


@contextmanager
def local_session(name: str, starting: Callable[[], None], *, kafka: bool = False) -> Generator[SparkSession]:
    """Give a session with Delta's jars, and on request Kafka's, and end it if it was started here.

    ``starting`` is called before a start, which takes seconds. E110: there is no Java, or no way to the jars.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return

    starting()
    session = fast_session(SparkSession.builder.master("local[*]").appName(name), kafka=kafka, quick_compile=False)
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
