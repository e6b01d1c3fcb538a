"""Prepare a Spark session builder for Delta tables."""

from __future__ import annotations

from typing import Any, TypeVar

from onceonly.errors import refuse
from onceonly.errors.options import checks_arguments
from onceonly.spark import detect
from onceonly.spark.versions import Delta, minor_of
from onceonly_checkpoints.install import pip

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_CLASS_PATHS = ("spark.jars", "spark.driver.extraClassPath")

Builder = TypeVar("Builder")


@checks_arguments
def with_delta(builder: Builder) -> Builder:
    """Prepare a ``SparkSession.builder`` for Delta tables.

    Packages and extensions are added to the user's, never replaced. If the Delta jar is already on the class path, no
    package is added. Call it before ``getOrCreate``. Pass the builder all settings of packages, jars and extensions
    first. Returns the builder, for chaining.

    Raises:
        ConfigurationError: E108 PySpark is not installed. E111 it has no jar of Delta, or the installed ``delta-spark``
            does not match it. E113 it is not known.
    """
    built = check_pair(detect.installed(), detect.installed("delta-spark"))
    for name, value in settings(dict(getattr(builder, "_options", {})), built).items():
        builder = builder.config(name, value)  # type: ignore[attr-defined]
    return builder


def settings(present: dict[str, Any], built: Delta) -> dict[str, str]:
    """Settings to add to the builder's ``present`` ones. ``built`` is the Delta release for this Spark."""
    added = {
        "spark.sql.extensions": _joined(present.get("spark.sql.extensions"), EXTENSION),
        "spark.sql.catalog.spark_catalog": CATALOG,
    }
    if not any("delta-spark" in str(present.get(name, "")) for name in _CLASS_PATHS):
        packages = str(present.get("spark.jars.packages") or "")
        if built.name not in packages:
            added["spark.jars.packages"] = _joined(packages, f"io.delta:{built.jar}:{built.version}")
    return added


def check_pair(pyspark: str | None, delta: str | None) -> Delta:
    """The Delta release for a PySpark. Raises E108, E111 or E113 for versions that do not fit.

    ``delta`` is the version of the Python package ``delta-spark``. ``None``: not installed. Only MERGE needs it.
    """
    if pyspark is None:
        raise refuse("E108", what="with_delta()", package="pyspark", extra="spark")
    built = detect.line_of(pyspark).delta
    if built is None:
        from onceonly.spark.jars import delta_unbuilt

        raise delta_unbuilt(pyspark)
    if delta is not None and minor_of(delta) != minor_of(built.version):
        raise refuse(
            "E111",
            problem=f"PySpark {pyspark} and the Python package delta-spark {delta} do not fit.",
            cause=f"the jar of Delta for this Spark is of version {built.version}, and the package must be, too",
            next=f"{pip(f'delta-spark=={built.version}')}, or uninstall it: only MERGE by Spark needs it",
        )
    return built


def _joined(present: object, added: str) -> str:
    parts = [part.strip() for part in str(present or "").split(",") if part.strip()]
    return ",".join(parts if added in parts else [*parts, added])
