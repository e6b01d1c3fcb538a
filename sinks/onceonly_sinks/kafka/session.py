"""Add the Kafka source to a Spark session builder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.spark import detect

_CLASS_PATHS = ("spark.jars", "spark.driver.extraClassPath")
_GROUP = "org.apache.spark"

Builder = TypeVar("Builder")


@checks_arguments
def with_kafka(builder: Builder, jars: Sequence[Path | str] = ()) -> Builder:
    """Add ``format("kafka")`` to a ``SparkSession.builder``. As a source, and as Spark's own sink.

    The package is added to the user's, never put in their place. If the jar is already on the class path, nothing is
    added. Call it before ``getOrCreate``. Pass the builder all settings of packages and jars first. ``KafkaSink`` does
    not need it.

    Spark fetches the package and its dependencies from its registry at the start. If one part is missing there, Spark
    does not start. It raises only ``JAVA_GATEWAY_EXITED``, and names the part on standard error. Then pass the jars as
    files, which are used instead of the package. ``onceonly.spark.jars.kafka_source_jars()`` fetches them.

    Raises:
        ConfigurationError: E108 PySpark is not installed. E113 it is not known.
    """
    spark = detect.installed()
    if spark is None:
        raise refuse("E108", what="with_kafka()", package="pyspark", extra="spark")
    for name, value in settings(dict(getattr(builder, "_options", {})), spark, jars).items():
        builder = builder.config(name, value)  # type: ignore[attr-defined]
    return builder


def settings(present: dict[str, Any], spark: str, jars: Sequence[Path | str] = ()) -> dict[str, str]:
    """Settings to add to the builder's ``present`` ones.

    ``spark`` is Spark's version. The package is of the same line, in the version that this distribution was tried with:
    not every patch of PySpark has one. ``jars`` are used instead of the package.
    """
    version = detect.line_of(spark)
    artifact = version.kafka_jar
    line = artifact.rpartition("_")[0]
    packages = str(present.get("spark.jars.packages") or "")
    if line in packages or any(line in str(present.get(name) or "") for name in _CLASS_PATHS):
        return {}
    if jars:
        return {"spark.jars": _joined(present.get("spark.jars"), map(str, jars))}
    return {"spark.jars.packages": _joined(packages, [f"{_GROUP}:{artifact}:{version.kafka or spark}"])}


def _joined(present: object, added: Iterable[str]) -> str:
    parts = [part.strip() for part in str(present or "").split(",") if part.strip()]
    return ",".join(dict.fromkeys([*parts, *added]))
