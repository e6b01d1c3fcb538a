"""A Spark session for a command that reads rows: a local one of its own, unless the process has one."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onceonly.cli.output import talk
from onceonly.errors import refuse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(wanted: bool) -> Generator[SparkSession | None]:
    """Give a session with Delta's jars, and end it where it was started here.

    Args:
        wanted: whether there shall be one at all; otherwise pyspark is not even loaded.

    Raises:
        ConfigurationError: E108 PySpark is not installed; E110 there is no Java, or no way to the jars.
    """
    if not wanted:
        yield None
        return
    if importlib.util.find_spec("pyspark") is None:
        raise refuse("E108", what="audit --deep", package="pyspark", distribution="onceonly", extra="spark")
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    from onceonly.jars import fast_session

    talk("Starting Spark ...")
    session = fast_session(SparkSession.builder.master("local[*]").appName("onceonly audit"), quick_compile=False)
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
