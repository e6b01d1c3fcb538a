"""Spark data source for ``writeStream.format("onceonly")``, which Spark finds by name.

Spark imports it at its first look-up of any Python data source. So this module imports nothing else, and imports
cleanly if PySpark has no data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # PySpark 3.5, or none

    def __getattr__(name: str) -> Any:
        """Refuse the data source if PySpark does not support any.

        Raises:
            ConfigurationError: E113.
            AttributeError: another name.
        """
        if name != "DefaultSource":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from onceonly.spark.detect import refuse_data_source

        raise refuse_data_source()
else:
    if TYPE_CHECKING:
        from pyspark.sql.types import StructType

    class DefaultSource(DataSource):  # type: ignore[misc]
        """The sink. For its options see "Spark Connect, declarative pipelines" in the documentation."""

        @classmethod
        def name(cls) -> str:
            """The argument of ``format()``."""
            return "onceonly"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
            """Make the writer of one batch.

            Raises:
                ConfigurationError: the query cannot work as it is written.
            """
            from onceonly.api.datasource import stream_writer

            return stream_writer(dict(self.options), schema, overwrite)

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            """Refuse a batch write.

            Raises:
                ConfigurationError: E110, always.
            """
            from onceonly.api.datasource import batch_writer

            return batch_writer()
