"""``writeStream.format("onceonly")``: Spark finds this package by its name, wherever ``onceonly`` is installed.

Spark imports it at its first look-up of any Python data source, so this module imports nothing else, and imports
cleanly where PySpark has no data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # PySpark 3.5, or none

    def __getattr__(name: str) -> Any:
        """Refuse the data source where PySpark knows none.

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
        """The sink; see "Spark Connect, pipelines and SQL-minded jobs" in the documentation for its options."""

        @classmethod
        def name(cls) -> str:
            """What ``format()`` is given."""
            return "onceonly"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
            """What writes one batch.

            Raises:
                ConfigurationError: the query cannot work as it is written.
            """
            from onceonly.api.datasource import stream_writer

            return stream_writer(dict(self.options), schema, overwrite)

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            """There is none.

            Raises:
                ConfigurationError: E110, always.
            """
            from onceonly.api.datasource import batch_writer

            return batch_writer()
