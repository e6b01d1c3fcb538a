"""Data source writer in tasks: one file for each attempt.

Each attempt reports its file by a message. Nothing here opens a sink, a ledger or a checkpoint: executors need no more
than pyarrow and xxhash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from onceonly.spark import detect, digest, frames
from onceonly.spark.batch import DICTIONARY_BYTES
from onceonly.spark.datasource.partition_files import PartitionFile
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.storage import file_system, is_local

_ROWS_PER_GROUP = 64 * 1024
"""Rows that a task holds before they go into its file as one group: what is read back at once, too."""


@dataclass(frozen=True)
class Message(WriterCommitMessage):  # type: ignore[misc]
    """Spark's message from a task to the commit."""

    part: PartitionFile


Commit = Callable[[Mapping[str, str], "StructType", Sequence[PartitionFile], int], None]
"""Commits a batch: options, columns, what tasks wrote, its id. A function of a module, which pickles by its name."""

_Writer: Any = getattr(datasource, detect.line().stream_writer)


class Writer(_Writer):  # type: ignore[misc]
    """Write and commit one batch through ``format("onceonly")``. Tasks write to ``directory``, a path or URL."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, directory: str, leave_out: frozenset[str], commit: Commit
    ) -> None:
        self._options, self._schema, self._directory = dict(options), schema, directory
        self._leave_out = leave_out
        self._commit = commit

    def write(self, iterator: Iterator[Any]) -> Message:
        """Write the rows of one attempt of one task into a file of its own."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a task of Spark runs on an executor, and nowhere else")
        batch_id = context.getLocalProperty("streaming.sql.batchId") or "-1"
        query_id = context.getLocalProperty("sql.streaming.queryId") or ""
        run_id = context.getLocalProperty("spark.jobGroup.id") or ""
        # Ids of attempts begin anew with each driver, so that they name a file within a run alone.
        folder = f"{self._directory}/{run_id}/{batch_id}"
        path = f"{folder}/{context.partitionId()}-{context.taskAttemptId()}.parquet"
        schema = frames.in_arrow(self._schema)
        size, rows_digest = self._write(detect.line().batches(iterator, schema), schema, path)
        return Message(PartitionFile(query_id, run_id, int(batch_id), path if size else "", size, rows_digest))

    def _write(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, path: str) -> tuple[int, Digest]:
        """Return bytes of the file, and the digest of the rows. Without rows there is no file."""
        hashed = digest.hashing(self._schema, self._leave_out)
        if hashed is None:
            raise RuntimeError("the columns were not checked before the tasks began")
        rows_digest = Digest(0, left_out=tuple(sorted(self._leave_out)))
        with _File(path, schema) as file:
            for batch in batches:
                rows_digest += hashed(batch)
                file.add(batch)
        return file.size, rows_digest

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch to every sink, or prove that it is committed."""
        parts = [message.part for message in messages if isinstance(message, Message)]
        self._commit(self._options, self._schema, parts, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Change nothing: Spark calls this after a commit whose outcome may be unknown."""


class _File:
    """Parquet file of one attempt, made with its first row, flushed when whole, removed otherwise."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._stream: IO[bytes] | None = None
        self._writer: Any = None
        self.size = 0

    def __enter__(self) -> _File:
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        # Columns under their own names and types; a cast of none forgets how many rows there are.
        typed_batch = batch.rename_columns(self._schema.names).cast(self._schema) if self._schema.names else batch
        self._held.append(typed_batch)
        self._rows += typed_batch.num_rows
        if self._rows >= _ROWS_PER_GROUP:
            self._put()

    def _put(self) -> None:
        if self._stream is None:
            files, location = file_system(self._path)
            files.makedirs(location.rpartition("/")[0], exist_ok=True)
            stream: IO[bytes] = files.open(location, "wb")
            self._stream = stream
            self._writer = pq.ParquetWriter(stream, self._schema, dictionary_pagesize_limit=DICTIONARY_BYTES)
        self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
        self._held, self._rows = [], 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None and self._rows:
            self._put()
        if self._stream is None:
            return
        files, location = file_system(self._path)
        try:
            self._writer.close()
            if is_local(self._path):
                self._stream.flush()
                os.fsync(self._stream.fileno())
        finally:
            self._stream.close()
            if kind is not None:
                with suppress(OSError):
                    files.rm_file(location)
        self.size = int(files.size(location)) if kind is None else 0
