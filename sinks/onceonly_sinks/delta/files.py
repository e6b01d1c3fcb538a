"""Data files written where the rows are: a task for executors that needs pyarrow alone, and exact statistics.

A file that no log entry names is invisible, so a file is a finished preparation: committing it is one entry, giving it
up is deleting it. Task attempts write under names of their own; only those of the attempts that won are committed.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Attempt
from onceonly_sinks.delta.columns import with_epoch
from onceonly_sinks.delta.statistics import Statistics
from onceonly_sinks.delta.stores import is_local, remote

if TYPE_CHECKING:
    import pyarrow as pa

_ROW_GROUP = 256 * 1024
_HOPELESS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""What running the task again will not mend: answered, so that the driver can say it."""


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """The task: one Parquet file per Spark partition, or per table partition in it, that has rows. Picklable.

    Attributes:
        root: the table's directory or URI, as executors reach it.
        schema: columns to write, in the table's order; serialised Arrow.
        epoch_column: column that gets the epoch's number; ``None`` for none.
        epoch: that number.
        required: columns that may not be null.
        partition_by: columns that the table is partitioned by; their values go into the log, not into the files.
        options: storage options of deltalake, for URIs.
    """

    root: str
    schema: bytes
    epoch_column: str | None
    epoch: int
    required: tuple[str, ...]
    partition_by: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def __call__(self, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        """Write the rows; answer the files, or the column with a forbidden null, or the system's error number."""
        out = _Files(self.root, attempt.partition, dict(self.options))
        try:
            wrong = self._write(out, batches)
            written = [] if wrong else out.close()
        except BaseException as error:
            out.remove()
            if isinstance(error, OSError) and error.errno in _HOPELESS:
                return {"files": [], "null": None, "errno": error.errno}
            raise
        if wrong:
            out.remove()
        return {"files": written, "null": wrong, "errno": None}

    def _write(self, out: _Files, batches: Iterator[pa.RecordBatch]) -> str | None:
        wrong = None
        for batch in batches:
            # The rest is consumed as well: an iterator that is left early would look like a task that ended early.
            if not batch.num_rows or wrong is not None:
                continue
            rows = self._shaped(batch)
            wrong = next((name for name in self.required if rows.column(name).null_count), None)
            for values, part in partitions(rows, self.partition_by):
                out.write(values, part)
        return wrong

    def _shaped(self, batch: pa.RecordBatch) -> pa.Table:
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        return with_epoch(pa.table(batch), self.epoch_column, self.epoch).select(schema.names).cast(schema)


Values = tuple[tuple[str, str | None], ...]
"""Partition columns with their values as the log spells them."""


def partitions(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """Split rows by partition; the partition columns are left out of each part."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not by:
        yield (), rows
        return
    for values in rows.select(by).group_by(list(by)).aggregate([]).to_pylist():
        chosen: Any = pa.scalar(True)
        for name, value in values.items():
            column = rows.column(name)
            # Equal to null is null, which would choose no row at all.
            same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
            chosen = pc.and_(chosen, same)
        yield (
            tuple((name, _spelled(value)) for name, value in values.items()),
            rows.filter(chosen).drop_columns(list(by)),
        )


def _spelled(value: Any) -> str | None:
    """A partition value as the log spells it; an empty text and null are one there."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class _Files:
    """The files of one task attempt, one per partition of the table."""

    def __init__(self, root: str, number: int, options: dict[str, str]) -> None:
        self._place = place(root, options)
        self._number = number
        self._files: dict[Values, _File] = {}

    def write(self, values: Values, rows: pa.Table) -> None:
        if values not in self._files:
            name = f"part-{self._number:05d}-{uuid.uuid4()}-c000.snappy.parquet"
            self._files[values] = _File(self._place, name, rows.schema)
        self._files[values].write(rows)

    def close(self) -> list[Mapping[str, Any]]:
        return [{**file.close(), "partition": dict(values)} for values, file in self._files.items()]

    def remove(self) -> None:
        for file in self._files.values():
            file.remove()


class _File:
    """One Parquet file with its statistics; rows are held until they fill a row group."""

    def __init__(self, where: LocalPlace | RemotePlace, name: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._name = name
        self._place = where
        self._rows = 0
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self._statistics = Statistics()
        self._out = where.create(name)
        self._writer = pq.ParquetWriter(self._out, schema, compression="snappy", store_schema=False)

    def write(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._held_rows += rows.num_rows
        if self._held_rows >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        rows = pa.concat_tables(self._held)
        self._held, self._held_rows = [], 0
        self._writer.write_table(rows, row_group_size=_ROW_GROUP)
        self._statistics.add(rows)
        self._rows += rows.num_rows

    def close(self) -> dict[str, Any]:
        if self._held:
            self._flush()
        self._writer.close()
        size = int(self._out.tell())
        self._out.close()
        return {"path": self._name, "size": size, "rows": self._rows, "stats": self._statistics.text(self._rows)}

    def remove(self) -> None:
        for part in (self._writer, self._out):
            # What broke the file breaks its end too, and the first failure is the one to tell.
            with suppress(Exception):
                part.close()
        self._place.remove(self._name)


class LocalPlace:
    """A table's directory on a disk that driver and executors share."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def create(self, name: str) -> Any:
        """Open a new file for writing."""
        return (self._root / name).open("xb")

    def size(self, name: str) -> int | None:
        """Size of a file as this process sees it; ``None`` if it is not there."""
        path = self._root / name
        return path.stat().st_size if path.is_file() else None

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        (self._root / name).unlink(missing_ok=True)


class RemotePlace:
    """A table's directory in an object store, through deltalake."""

    def __init__(self, root: str, options: dict[str, str]) -> None:
        self._store = remote(root, options)

    def create(self, name: str) -> Any:
        """Open a new file for writing."""
        return self._store.open_output_stream(name)

    def size(self, name: str) -> int | None:
        """Size of a file; ``None`` if it is not there."""
        info = self._store.get_file_info(name)
        return int(info.size) if info.is_file else None

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        if self._store.get_file_info(name).is_file:
            self._store.delete_file(name)


def place(root: str, options: Mapping[str, str]) -> LocalPlace | RemotePlace:
    """Where a table's data files lie."""
    return LocalPlace(root) if is_local(root) else RemotePlace(root, dict(options))
