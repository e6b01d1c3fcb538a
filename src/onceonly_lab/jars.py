"""Jars that tests, benchmarks and servers of the lab need beside those of :mod:`onceonly.jars`."""

from __future__ import annotations

from pathlib import Path

from onceonly.cache import cache_directory
from onceonly.jars import Artifact, fetch_whole, fetched, jar_of_pyspark
from onceonly.pins import KAFKA_VERSION, SCALA_LINE

_JDBC = (Artifact("org.postgresql", "postgresql", "42.7.14"),)
_KAFKA_BROKER = (
    Artifact("org.apache.kafka", f"kafka_{SCALA_LINE}", KAFKA_VERSION, whole=True),
    # The binding of the line of slf4j-api that the broker brings; without one it says nothing when it fails.
    Artifact("org.slf4j", "slf4j-simple", "1.7.36", whole=True),
)


def postgres_jdbc_jar(cache: Path | None = None) -> Path:
    """The Postgres JDBC driver, for Spark's own writer in benchmarks.

    Raises:
        ConfigurationError: E110, see :func:`onceonly.jars.delta_jars`.
    """
    return fetched(_JDBC, cache)[0]


def kafka_broker_jars(cache: Path | None = None) -> list[Path]:
    """Everything that one Kafka broker needs, some 46 jars and 44 MB, sorted by name.

    Raises:
        ConfigurationError: E110, see :func:`onceonly.jars.delta_jars`.
    """
    folder = (cache or cache_directory()) / "jars" / f"kafka-{KAFKA_VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fetch_whole(_KAFKA_BROKER, folder)
    return sorted(folder.glob("*.jar"))


def hdfs_jars(cache: Path | None = None) -> list[Path]:
    """A small HDFS of the version whose client PySpark brings, that client, and what both log with.

    Args:
        cache: see :func:`onceonly.jars.delta_jars`.

    Raises:
        ConfigurationError: E108, they cannot be fetched.
    """
    with_it = [jar_of_pyspark(f"{name}-[0-9]*.jar") for name in _WITH_HDFS]
    version = with_it[0].stem.rpartition("-")[2]
    return [*with_it, *fetched([Artifact("org.apache.hadoop", "hadoop-client-minicluster", version)], cache)]


_WITH_HDFS = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jakarta.servlet-api",
    "javax.servlet-api",
    "jcl-over-slf4j",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
)
