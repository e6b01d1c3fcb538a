"""Rows of a DataFrame on Spark Connect, by public calls: there is no JVM to ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.spark import digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


def hashed(df: DataFrame, leave_out: frozenset[str]) -> DataFrame:
    """The rows with their hash behind all columns."""
    return df.select("*", digest.row_hash(df.schema, leave_out).alias(digest.HASH))


class Observation:
    """A DataFrame whose digest is computed in the first action on it.

    Args:
        df: what to observe.
        found: what to compute in the first action.
        beside: aggregates in the same action.

    Attributes:
        dataframe: what to act on.
    """

    def __init__(self, df: DataFrame, found: digest.Observable, beside: Sequence[Column] = ()) -> None:
        from pyspark.sql import Observation

        self._found = Observation()
        hashed = df.select("*", *found.hashes.values()) if found.hashes else df
        observed = hashed.observe(self._found, *found.metrics, *beside)
        self.dataframe: DataFrame = observed.drop(*found.hashes) if found.hashes else observed

    def get(self) -> Mapping[str, Any]:
        """The metrics by name; waits for the end of the first action."""
        values: Mapping[str, Any] = self._found.get
        return values


class Collected:
    """All rows in one table: larger epochs go by executors or by staged files. The job begins with the first row.

    Args:
        df: what to collect.
    """

    def __init__(self, df: DataFrame) -> None:
        self._df = df

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._df.toArrow().to_batches()

    def close(self) -> None:
        """Nothing is held between two batches."""
