"""The Spark session of a command that reads rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onceonly.cli.output import talk
from onceonly.errors import refuse

if TYPE_CHECKING:
    from onceonly.protocol import SparkSession


@contextmanager
def spark_session(wanted: bool, what: str = "audit --deep", *, kafka: bool = False) -> Generator[SparkSession | None]:
    """Give a session with Delta's jars, and end it where it was started here.

    Args:
        wanted: whether there shall be one at all; otherwise pyspark is not even loaded.
        what: the command that needs it.
        kafka: whether it needs the jars of Spark's Kafka source, too.

    Raises:
        ConfigurationError: E108 PySpark is not installed; E110 there is no Java, or no way to the jars.
    """
    if not wanted:
        yield None
        return
    if importlib.util.find_spec("pyspark") is None:
        raise refuse("E108", what=what, package="pyspark", distribution="onceonly", extra="spark")
    from onceonly.spark.local_session import local_session

    with local_session("onceonly audit", lambda: talk("Starting Spark ..."), kafka=kafka) as session:
        yield session
