"""Batch over one file per partition, as tasks wrote them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from onceonly.errors import refuse
from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.protocol import Attempt, Estimate, Task
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.storage import file_system, is_local, make_directories

_ROWS_PER_BATCH = 64 * 1024


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """A task's message to the committing process. Without rows, its file's ``path`` is empty."""

    query_id: str
    run_id: str
    batch_id: int
    path: str
    size: int
    digest: Digest


class Files:
    """A batch over Parquet files. May be read any number of times, without a session. Times are in UTC."""

    def __init__(self, paths: Sequence[str], schema: pa.Schema) -> None:
        self._paths = tuple(paths)
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._schema

    @property
    def estimate(self) -> Estimate:
        """Unknown."""
        return Estimate(None, None)

    @property
    def dataframe(self) -> DataFrame:
        """Refuse (E150): there is none."""
        raise refuse(
            "E150",
            problem="rows would reach the sink through Spark",
            cause="the process that commits for a data source has no Spark session",
            next="use foreachBatch for this query: exactly_once(sink)",
        )

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        return _rows(self._paths, self._schema)

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run the task over each file, in this process."""
        return [task(Attempt(at, at), _rows([path], self._schema)) for at, path in enumerate(self._paths)]

    def digest(self) -> Digest:
        """Refuse (``RuntimeError``): the writer of the files knows their digest."""
        raise RuntimeError("the digest of these rows is in their manifest")


class Parts(Files):
    """Rows that the tasks of one batch wrote, from at least one message. Times are in UTC."""

    def __init__(self, parts: Sequence[PartitionFile], schema: pa.Schema) -> None:
        self._parts = [part for part in parts if part.path]
        self._digest = reduce(add, [part.digest for part in parts])
        super().__init__([part.path for part in self._parts], schema)

    @property
    def estimate(self) -> Estimate:
        """Exact rows, and their bytes in Arrow form by the schema."""
        return Estimate(self._digest.rows, self._digest.rows * max(1, schema_width(self._schema, TEXT_BYTES)))

    def digest(self) -> Digest:
        """Sum of the tasks' digests."""
        return self._digest

    def execute(self) -> Digest:
        """Return the digest: Spark has run the plan before it asks for a commit."""
        return self._digest

    def write(self, directory: str) -> None:
        """Put the files into a directory of this batch, by hard links without a copy if the disk allows it.

        ``FileNotFoundError``: a file is gone, or is not the one that was written.
        """
        if is_local(directory):
            make_directories(Path(directory))
        for part in self._parts:
            _put(part, f"{directory}/{part.path.rpartition('/')[2]}")

    def reread(self, paths: tuple[str, ...], schema: pa.Schema) -> Files:
        """Return rows from other files."""
        return Files(paths, schema)


def _rows(paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        files, location = file_system(path)
        with files.open(location, "rb") as stream, pq.ParquetFile(stream) as rows:
            for batch in rows.iter_batches(_ROWS_PER_BATCH):
                yield batch.cast(schema)


def _put(part: PartitionFile, target: str) -> None:
    files, source = file_system(part.path)
    if not files.exists(source) or int(files.size(source)) != part.size:
        # Named by where it was wanted: what is wrong is the place, which tasks and this process do not share.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target)
    if not is_local(target):
        files.copy(source, file_system(target)[1])
        return
    try:
        Path(target).hardlink_to(source)
    except FileNotFoundError:
        raise
    except OSError:  # a disk without hard links
        shutil.copyfile(source, target)
