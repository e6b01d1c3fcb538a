"""A batch that is already in memory, for the conformance suite and notebooks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Attempt, Estimate, Task
from onceonly.trim import Trim
from onceonly_checkpoints.epoch import Digest
from onceonly_checkpoints.storage import file_system

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class ArrowBatch:
    """The ``Batch`` contract over an Arrow table; each of ``partitions`` slices plays one Spark partition.

    Args:
        table: the rows.
        partitions: how many partitions ``on_executors`` sees.
        duplicate_attempt: run every task twice and let the second attempt win, as Spark does after a lost executor.
    """

    def __init__(self, table: pa.Table, partitions: int = 2, *, duplicate_attempt: bool = False) -> None:
        self._table = table
        self._partitions = partitions
        self._duplicate = duplicate_attempt

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._table.schema

    @property
    def estimate(self) -> Estimate:
        """Exact size."""
        return Estimate(self._table.num_rows, self._table.nbytes)

    @property
    def dataframe(self) -> DataFrame:
        """There is none.

        Raises:
            TypeError: always.
        """
        raise TypeError("an in-memory batch has no DataFrame")

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the table's own chunks."""
        yield from self._table.to_batches()

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run the task in this process, once (or twice) per partition."""
        answers: list[Mapping[str, Any]] = []
        size = -(-self._table.num_rows // self._partitions) if self._table.num_rows else 0
        for partition in range(self._partitions):
            part = self._table.slice(partition * size, size)
            if self._duplicate:
                task(Attempt(partition, partition * 10 + 1), iter(part.to_batches()))
            answers.append(task(Attempt(partition, partition * 10), iter(part.to_batches())))
        return answers

    def write(self, directory: str) -> None:
        """Write the rows as one Parquet file per partition, below a path or a URL."""
        import pyarrow.parquet as pq

        files, place = file_system(directory)
        files.makedirs(place)
        size = max(1, -(-self._table.num_rows // self._partitions))
        for partition in range(self._partitions):
            with files.open(f"{place}/part-{partition:05d}.parquet", "wb") as file:
                pq.write_table(self._table.slice(partition * size, size), file)

    def reread(self, paths: tuple[str, ...]) -> ArrowBatch:
        """A batch over Parquet files."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = [pq.read_table(path).cast(self.schema) for path in paths]
        return ArrowBatch(pa.concat_tables(tables) if tables else self.schema.empty_table(), self._partitions)

    def trimmed(self, trim: Trim) -> ArrowBatch:
        """The rows whose position is not in an epoch yet."""
        kept = [trim.keeps(row) for row in self._table.to_pylist()]
        return ArrowBatch(self._table.filter(kept), self._partitions, duplicate_attempt=self._duplicate)

    def digest(self) -> Digest:
        """Digest over the Python form of the rows; not comparable with one that Spark computed."""
        high = low = 0
        for row in self._table.to_pylist():
            value = int.from_bytes(hashlib.sha256(repr(sorted(row.items())).encode()).digest()[:8], "big")
            high += value >> 32
            low += value & 0xFFFFFFFF
        return Digest(self._table.num_rows, high, low)
