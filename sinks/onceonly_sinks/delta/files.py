"""Write Parquet data files on executors, with exact statistics.

The task needs only pyarrow. A file without a log entry is invisible, so a file is a finished preparation. One log entry
commits it, and deleting it abandons it. Task attempts write under names of their own. Only files of winning attempts
are committed.
"""

from __future__ import annotations

import errno
import hashlib
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Attempt
from onceonly_sinks.delta.columns import with_epoch
from onceonly_sinks.delta.log import store
from onceonly_sinks.delta.schema_compatibility import Demands, IncompatibleSchema, Shape
from onceonly_sinks.delta.statistics import Statistics

_ROW_GROUP = 256 * 1024
_HOPELESS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""What running the task again will not mend: answered, so that the driver can say it."""

_HELD = 128 * 1024 * 1024
"""Bytes of rows that are held before they are sorted by partition: a partition gets a file for each time it occurs."""


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """Task that writes one Parquet file per nonempty Spark partition, or per table partition in it. Picklable.

    ``root`` is the table's directory or URI, as executors reach it. Values of ``partition_by`` columns go into the log,
    not into the files. ``options`` are deltalake's storage options for URIs.
    """

    root: str
    shape: Shape
    epoch_column: str | None
    epoch: int
    demands: Demands
    partition_by: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def __call__(self, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        """Write the rows. Returns the files, or the column with a value beyond it, or the system's error number."""
        out = _Files(self.root, attempt.partition, dict(self.options))
        try:
            self._write(out, batches)
            return {"files": out.close(), "wrong": None, "errno": None}
        except IncompatibleSchema as wrong:
            out.remove()
            # The rest is consumed as well: an iterator that is left early would look like a task that ended early.
            for _ in batches:
                continue
            return {"files": [], "wrong": [wrong.column, wrong.reason], "errno": None}
        except BaseException as error:
            out.remove()
            if isinstance(error, OSError) and error.errno in _HOPELESS:
                return {"files": [], "wrong": None, "errno": error.errno}
            raise

    def _write(self, out: _Files, batches: Iterator[pa.RecordBatch]) -> None:
        held: list[pa.Table] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = self._shaped(batch)
            if not self.partition_by:
                out.add(rows)
                continue
            held.append(rows)
            size += rows.nbytes
            if size >= _HELD:
                self._sort_out(out, held)
                held, size = [], 0
        if held:
            self._sort_out(out, held)

    def _sort_out(self, out: _Files, held: Sequence[pa.Table]) -> None:
        for values, part in partitions(pa.concat_tables(held), self.partition_by):
            out.begin(values)
            out.add(part)
            out.end()

    def _shaped(self, batch: pa.RecordBatch) -> pa.Table:
        rows = self.shape.shaped(with_epoch(pa.table(batch), self.epoch_column, self.epoch))
        if (broken := self.demands.broken(rows)) is not None:
            raise IncompatibleSchema(*broken)
        return rows


Values = tuple[tuple[str, str | None], ...]
"""Partition columns with their values as the log spells them."""


def partitions(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """Split rows by partition, each once, without the partition columns.

    Raises ``IncompatibleSchema`` if the log has no spelling for a value.
    """
    if not rows.num_rows:
        return

    numbers: Any = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    met: list[Values] = [()]
    for name in by:
        column, texts = _numbered(name, rows.column(name))
        # Numbered anew after each column: by the values that met, not by all that could, which 64 bits may not count.
        both: Any = pc.add(pc.multiply(numbers, len(texts)), column).dictionary_encode()
        pairs = (divmod(pair, len(texts)) for pair in both.dictionary.to_pylist())
        met = [(*met[before], (name, texts[index])) for before, index in pairs]
        numbers = both.indices.cast(pa.int64())
    order = pc.array_sort_indices(numbers)
    # The stubs of pyarrow do not know the function by name.
    runs: Any = pc.call_function("run_end_encode", [numbers.take(order)])
    sorted_rows, begin = rows.drop_columns(list(by)).take(order), 0
    for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield met[number], sorted_rows.slice(begin, end - begin)
        begin = end


Numbered = tuple[Any, list[str | None]]
"""Per row the number of its value, and the values as the log spells them."""


def _numbered(name: str, column: Any) -> Numbered:
    """Number values by their spelling in the log. Nulls and empty texts are one partition."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    try:
        texts = [_spelled(value) for value in encoded.dictionary.to_pylist()]
    except UnicodeDecodeError as error:
        raise IncompatibleSchema(name, "bytes that are no UTF-8 text cannot be the value of a partition") from error
    except (OverflowError, ValueError) as error:
        raise IncompatibleSchema(
            name, "a date before the year 1 or after 9999 cannot be the value of a partition"
        ) from error
    numbers: dict[str | None, int] = {}
    text_numbers = pa.array([numbers.setdefault(text, len(numbers)) for text in texts], pa.int64())
    return text_numbers.take(encoded.indices), list(numbers)


def _spelled(value: Any) -> str | None:
    """Spell a partition value as the log does, where an empty text and null are equal.

    An instant gets its zone. Without one, a reader takes it for a local time of its session.
    """
    match value:
        case bool():
            text = "true" if value else "false"
        case float() if math.isinf(value):
            text = "Infinity" if value > 0 else "-Infinity"
        case float() if math.isnan(value):
            text = "NaN"
        case datetime() if value.tzinfo is not None:
            text = f"{value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case Decimal():
            text = format(value, "f")
        case bytes():
            text = value.decode()
        case _:
            text = "" if value is None else str(value)
    return text or None


class _Files:
    """The files of one task attempt. Only one is open at a time, as a task may meet more partitions than files."""

    def __init__(self, root: str, number: int, options: dict[str, str]) -> None:
        self._data_directory = DataDirectory(root, options)
        self._number = number
        self._values: Values = ()
        self._open: _File | None = None
        self._closed: list[dict[str, Any]] = []

    def begin(self, values: Values) -> None:
        self._values = values

    def add(self, rows: pa.Table) -> None:
        if self._open is None:
            name = f"part-{self._number:05d}-{uuid.uuid4()}-c000.snappy.parquet"
            self._open = _File(self._data_directory, name, rows.schema)
        self._open.write(rows)

    def end(self) -> None:
        if self._open is not None:
            self._closed.append({**self._open.close(), "partition": dict(self._values)})
            self._open = None

    def close(self) -> list[dict[str, Any]]:
        self.end()
        return self._closed

    def remove(self) -> None:
        if self._open is not None:
            self._open.remove()
        for file in self._closed:
            self._data_directory.remove(file["path"])
        self._open, self._closed = None, []


class _File:
    """One Parquet file with its statistics. Rows are held until they fill a row group."""

    def __init__(self, where: DataDirectory, name: str, schema: pa.Schema) -> None:
        self._name = name
        self._data_directory = where
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
        self._data_directory.remove(self._name)


class DataDirectory:
    """A table's directory, on a disk that driver and executors share, or in an object store."""

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        self._store = store(root, options)

    def create(self, name: str) -> Any:
        """Open a file for writing, whose name no other has."""
        return self._store.open_output_stream(name)

    def size(self, name: str) -> int | None:
        """Size of a file as this process sees it. ``None`` if it is missing."""
        info = self._store.get_file_info(name)
        return int(info.size) if info.is_file else None

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        if self._store.get_file_info(name).is_file:
            self._store.delete_file(name)


def gone(sink: str, holds: str) -> OnceOnlyError:
    """Refuse (E508) a table that lost a data file with rows of ours. ``holds`` says what they are."""
    cause, remedy = "another program or VACUUM removed it", "restore it from a backup"
    return refuse("E508", sink=sink, reason=f"a data file with {holds} is gone", cause=cause, next=remedy)


# ---- Name and remove Spark's staging folders beside a table.


STAGING = "_onceonly_staging"
"""In the table's directory; Delta and its VACUUM pass over names that begin with an underscore."""

_ATTEMPT = re.compile(r"g(\d+)-e\d+-[0-9a-f]{32}")


def root_of(app: str) -> str:
    """Staging folder of one application, relative to the table."""
    return f"{STAGING}/{hashlib.sha256(app.encode()).hexdigest()[:16]}"


def attempt(app: str, generation: int, epoch: int) -> str:
    """A folder for one attempt at an epoch, relative to the table. It is never used twice."""
    return f"{root_of(app)}/g{generation}-e{epoch}-{uuid.uuid4().hex}"


def is_older(name: str, generation: int) -> bool:
    """Whether a folder's name is that of an attempt of a lower generation."""
    named = _ATTEMPT.fullmatch(name)
    return named is not None and int(named[1]) < generation


def delete(root: str, options: Mapping[str, str] | None, folder: str) -> None:
    """Delete a folder of a table, if it exists. Never fails: leftovers are invisible, and swept later.

    ``root`` is a directory or URI, and ``folder`` is relative to it. ``options`` are deltalake's storage options.
    """
    with suppress(Exception):
        store(root, options).delete_dir(folder)


def sweep(root: str, options: Mapping[str, str] | None, app: str, generation: int) -> None:
    """Delete folders that lower generations staged."""
    base = root_of(app)
    for info in store(root, options).get_file_info(pa_fs.FileSelector(base, allow_not_found=True)):
        if is_older(info.base_name, generation):
            delete(root, options, f"{base}/{info.base_name}")
