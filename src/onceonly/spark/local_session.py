"""Local session for a command, unless the process has one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def local_session(name: str, starting: Callable[[], None], *, kafka: bool = False) -> Generator[SparkSession]:
    """Give a session with Delta's jars, and on request Kafka's, and end it if it was started here.

    ``starting`` is called before a start, which takes seconds. ``name`` is that of the started application.

    Raises:
        ConfigurationError: E110 there is no Java, or no way to the jars.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    from onceonly.spark.jars import fast_session

    starting()
    session = fast_session(SparkSession.builder.master("local[*]").appName(name), kafka=kafka, quick_compile=False)
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
