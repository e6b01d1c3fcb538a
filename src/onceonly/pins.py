"""Versions that fit each other: the one place where the Spark and Delta lines are written down."""

from __future__ import annotations

SPARK_VERSION = "4.2.0"
"""The PySpark of the main line: the newest with jars of Delta and Kafka."""

SPARK_LINES = ("4.2", "4.3")
"""Minor versions of PySpark whose internals are known, oldest first. The first is the main line: it has all jars."""

DELTA_VERSION = "4.4.0"
"""Delta for the JVM and its Python package, always one version: another pair asks for a jar that was never built."""

DELTA_SPARK_LINES = ("4.0", "4.1", "4.2")
"""Minor versions of Spark that ``delta-spark`` of :data:`DELTA_VERSION` is built for."""

KAFKA_VERSION = "4.3.1"
"""The broker of the lab: the newest whose jars all resolve. The latest may need one that was not published."""

SCALA_LINE = "2.13"
"""Scala line of the jars."""


def line_of(version: str) -> str:
    """Minor version of a version: ``4.2`` of ``4.2.0``."""
    return ".".join(version.split(".")[:2])


def delta_artifact(spark_line: str) -> str:
    """Name of the Delta jar for a minor version of Spark: ``delta-spark_4.2_2.13``."""
    return f"delta-spark_{spark_line}_{SCALA_LINE}"


def kafka_artifact() -> str:
    """Name of the jar with Spark's Kafka source: ``spark-sql-kafka-0-10_2.13``."""
    return f"spark-sql-kafka-0-10_{SCALA_LINE}"
