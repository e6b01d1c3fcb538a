"""Read rows of a DataFrame on Spark Connect, by public calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.spark import digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


def hashed(df: DataFrame, leave_out: frozenset[str]) -> DataFrame:
    """Add the hash of the row as the last column."""
    return df.select("*", digest.row_hash(df.schema, leave_out).alias(digest.HASH))


class Observation:
    """A DataFrame whose first action computes its digest and the aggregates ``beside``."""

    def __init__(self, df: DataFrame, found: digest.Observable, beside: Sequence[Column] = ()) -> None:
        from pyspark.sql import Observation

        self._found = Observation()
        hashed = df.select("*", *found.hashes.values()) if found.hashes else df
        observed = hashed.observe(self._found, *found.metrics, *beside)
        self.dataframe: DataFrame = observed.drop(*found.hashes) if found.hashes else observed

    def get(self) -> Mapping[str, Any]:
        """Return the metrics by name. Waits for the end of the first action."""
        values: Mapping[str, Any] = self._found.get
        return values


class Collected:
    """Collect all rows in one table. The job begins with the first row.

    Larger epochs go by executors or by staged files.
    """

    def __init__(self, df: DataFrame) -> None:
        self._df = df

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._df.toArrow().to_batches()

    def close(self) -> None:
        """Do nothing: no resource is held between two batches."""
