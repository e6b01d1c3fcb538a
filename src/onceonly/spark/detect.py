"""Choose the engine of a DataFrame, and the PySpark line."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, refuse
from onceonly.spark.engine import SparkEngine, is_remote
from onceonly.spark.versions import LINES, SparkVersion, minor_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def engine_for(df: DataFrame) -> SparkEngine:
    """Return the engine of a DataFrame's session, without a call to Spark (E113: other PySpark, or too old Connect)."""
    of = line()
    if not is_remote(df):
        return _classic(of)
    if not of.spark_connect:
        raise _without_connect(of)
    return _connect()


def line() -> SparkVersion:
    """Return the line of the imported PySpark, without a call to Spark (E113: unknown)."""
    import pyspark

    return line_of(pyspark.__version__)


def installed(package: str = "pyspark") -> str | None:
    """Return the version of a package, PySpark's also where it is no distribution, or ``None`` without one."""
    if package == "pyspark" and (loaded := sys.modules.get(package)):
        return str(loaded.__version__)
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def line_of(version: str) -> SparkVersion:
    """Return the line of a version of PySpark (E113: unknown)."""
    minor = minor_of(version)
    if minor not in LINES:
        raise _unknown(version)
    return LINES[minor]


def _unknown(version: str) -> OnceOnlyError:
    oldest, *_, newest = LINES
    if _order(minor_of(version)) < _order(oldest):
        than, next_ = "older", f"use a runtime with Spark {oldest} to {newest}"
    else:
        than, next_ = "newer", f"upgrade onceonly, or use a runtime with Spark {newest}"
    return refuse(
        "E113",
        problem=f"PySpark {version} is {than} than this onceonly knows ({oldest} to {newest}).",
        cause="another PySpark was installed, or the platform's runtime brings it",
        next=next_,
    )


def _order(minor: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in minor.split("."))


def _without_connect(of: SparkVersion) -> OnceOnlyError:
    oldest = next(line.minor for line in LINES.values() if line.spark_connect)
    return refuse(
        "E113",
        problem=f"Spark Connect needs PySpark {oldest} or newer; this is {of.minor}.",
        cause="a Spark Connect session of an older runtime",
        next=f"use a classic session, or a runtime with Spark {oldest} or newer",
    )


@cache
def _classic(of: SparkVersion) -> SparkEngine:
    from onceonly.spark.classic import ClassicEngine

    return ClassicEngine(of)


@cache
def _connect() -> SparkEngine:
    from onceonly.spark.connect.engine import ConnectEngine

    return ConnectEngine()


def refuse_data_source() -> OnceOnlyError:
    """Make the error for ``format("onceonly")`` where PySpark has no data sources in Python."""
    oldest = next(line.minor for line in LINES.values() if line.data_source)
    return refuse(
        "E113",
        problem=f'format("onceonly") needs PySpark {oldest} or newer; this is {installed()}.',
        cause="an older PySpark has no data sources in Python",
        next=f"use foreachBatch with exactly_once(...), or a runtime with Spark {oldest} or newer",
    )
