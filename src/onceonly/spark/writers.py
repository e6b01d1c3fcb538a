# pyright: reportPrivateUsage=false
"""Read stream and output mode of a ``DataStreamWriter``: PySpark's private names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["DataStreamWriter", "StreamingQuery", "output_of", "stream_of"]


def output_of(writer: Any) -> str:
    """Return the output mode of a writer of Spark Connect, or empty if it is not set, or set later."""
    return str(getattr(getattr(writer, "_write_proto", None), "output_mode", "")).lower()


def stream_of(writer: Any) -> DataFrame | None:
    """Return the stream of a writer, to inspect before the start, or ``None`` if this PySpark keeps it elsewhere."""
    if not type(writer).__module__.startswith("pyspark.sql.connect"):
        found: DataFrame | None = getattr(writer, "_df", None)
        return found
    from pyspark.sql.connect.dataframe import DataFrame as Remote

    plan = getattr(getattr(writer, "_write_stream", None), "_child", None)
    session = getattr(writer, "_session", None)
    made: Any = Remote(plan, session) if plan is not None and session is not None else None
    return made
