"""``with_delta``: gives a Spark session builder Delta's jars, extension and catalog, and leaves the rest as it is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from onceonly.errors import OnceOnlyError, refuse
from onceonly.pins import DELTA_SPARK_LINES, DELTA_VERSION, SPARK_VERSION, delta_artifact, line_of

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_CLASS_PATHS = ("spark.jars", "spark.driver.extraClassPath")

Builder = TypeVar("Builder")


def with_delta(builder: Builder) -> Builder:
    """Prepare a ``SparkSession.builder`` for Delta tables.

    Merges into what the builder already sets: packages and extensions are added to the user's, never replaced. Where
    the Delta jar is already on the class path no package is added. Call it before ``getOrCreate``; pass it all settings
    of packages, jars and extensions first.

    Args:
        builder: ``SparkSession.builder``; returned, for chaining.

    Raises:
        ConfigurationError: E108 PySpark is not installed; E111 the installed PySpark and Delta do not fit each other.
    """
    check_pair(_installed("pyspark"), _installed("delta-spark"))
    spark_line = line_of(_installed("pyspark") or SPARK_VERSION)
    for name, value in settings(dict(getattr(builder, "_options", {})), spark_line).items():
        builder = builder.config(name, value)  # type: ignore[attr-defined]
    return builder


def settings(present: dict[str, Any], spark_line: str) -> dict[str, str]:
    """What to set beside what is ``present``.

    Args:
        present: the builder's settings.
        spark_line: minor version of Spark, ``4.2``.
    """
    added = {
        "spark.sql.extensions": _joined(present.get("spark.sql.extensions"), EXTENSION),
        "spark.sql.catalog.spark_catalog": CATALOG,
    }
    if not any("delta-spark" in str(present.get(name, "")) for name in _CLASS_PATHS):
        artifact = delta_artifact(spark_line)
        packages = str(present.get("spark.jars.packages") or "")
        if artifact.rpartition("_")[0] not in packages:
            added["spark.jars.packages"] = _joined(packages, f"io.delta:{artifact}:{DELTA_VERSION}")
    return added


def check_pair(pyspark: str | None, delta: str | None) -> None:
    """Refuse versions for which no Delta jar was built.

    Args:
        pyspark: version of PySpark.
        delta: version of the Python package ``delta-spark``; ``None`` if it is not installed, which only MERGE needs.

    Raises:
        ConfigurationError: E108 or E111.
    """
    if pyspark is None:
        raise refuse("E108", what="with_delta()", package="pyspark", distribution="onceonly", extra="spark")
    wrong_delta = delta is not None and line_of(delta) != line_of(DELTA_VERSION)
    if wrong_delta or line_of(pyspark) not in DELTA_SPARK_LINES:
        raise _unfit(pyspark, delta)


def _unfit(pyspark: str, delta: str | None) -> OnceOnlyError:
    lines = ", ".join(DELTA_SPARK_LINES)
    return refuse("E111", pyspark=pyspark, delta=delta or DELTA_VERSION, lines=lines, good_delta=DELTA_VERSION)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _joined(present: object, added: str) -> str:
    parts = [part.strip() for part in str(present or "").split(",") if part.strip()]
    return ",".join(parts if added in parts else [*parts, added])
