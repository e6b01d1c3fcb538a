"""Exactly-once sinks for PySpark Structured Streaming, with a receipt for every epoch.

``.foreachBatch(exactly_once(PostgresSink(dsn, table="orders")))`` is the one line that changes.
"""

from onceonly.errors import OnceOnlyError
from onceonly.readpoint import ReadPoint, read_point
from onceonly.wrap import ExactlyOnce, exactly_once

__all__ = ["ExactlyOnce", "OnceOnlyError", "ReadPoint", "exactly_once", "read_point"]
