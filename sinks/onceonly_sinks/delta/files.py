"""Data files written where the rows are: a task for executors that needs pyarrow alone, and exact statistics.

A file that no log entry names is invisible, so a file is a finished preparation: committing it is one entry, giving it
up is deleting it. Task attempts write under names of their own; only those of the attempts that won are committed.
"""

from __future__ import annotations

import errno
import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Attempt
from onceonly_sinks.delta.stores import is_local, remote

if TYPE_CHECKING:
    import pyarrow as pa

_INDEXED_COLUMNS = 32
"""Statistics cover the first columns, as Delta's own writers do."""

_LONGEST_TEXT = 128
_ROW_GROUP = 256 * 1024
_HOPELESS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""What running the task again will not mend: answered, so that the driver can say it."""

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """The task: one Parquet file per partition that has rows. Picklable.

    Attributes:
        root: the table's directory or URI, as executors reach it.
        schema: columns of the table, in its order; serialised Arrow.
        epoch_column: column that gets the epoch's number; ``None`` for none.
        epoch: that number.
        required: columns that may not be null.
        options: storage options of deltalake, for URIs.
    """

    root: str
    schema: bytes
    epoch_column: str | None
    epoch: int
    required: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def __call__(self, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        """Write the partition; answer path, size, rows and statistics, or what was wrong with a column."""
        out = _FileSink(
            self.root, f"part-{attempt.partition:05d}-{uuid.uuid4()}-c000.snappy.parquet", dict(self.options)
        )
        try:
            wrong = self._write(out, batches)
            size = out.close()
        except BaseException as error:
            out.remove()
            if isinstance(error, OSError) and error.errno in _HOPELESS:
                return {"path": None, "null": None, "errno": error.errno}
            raise
        if wrong or not out.rows:
            out.remove()
            return {"path": None, "null": wrong, "errno": None}
        stats = out.statistics.text(out.rows)
        return {"path": out.name, "size": size, "rows": out.rows, "stats": stats, "null": None, "errno": None}

    def _write(self, out: _FileSink, batches: Iterator[pa.RecordBatch]) -> str | None:
        wrong = None
        for batch in batches:
            # The rest is consumed as well: an iterator that is left early would look like a task that ended early.
            if batch.num_rows and wrong is None:
                table = self._shaped(batch)
                wrong = next((name for name in self.required if table.column(name).null_count), None)
                out.write(table)
        return wrong

    def _shaped(self, batch: pa.RecordBatch) -> pa.Table:
        import pyarrow as pa

        from onceonly_sinks.delta.columns import with_epoch

        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        return with_epoch(pa.table(batch), self.epoch_column, self.epoch).select(schema.names).cast(schema)


class _FileSink:
    """One Parquet file with its statistics; created with its first rows."""

    def __init__(self, root: str, name: str, options: dict[str, str]) -> None:
        self.name = name
        self.rows = 0
        self.statistics = Statistics()
        self._place = place(root, options)
        self._out: Any = None
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._out = self._place.create(self.name)
            self._writer = pq.ParquetWriter(self._out, table.schema, compression="snappy", store_schema=False)
        self._writer.write_table(table, row_group_size=_ROW_GROUP)
        self.statistics.add(table)
        self.rows += table.num_rows

    def close(self) -> int:
        if self._writer is None:
            return 0
        self._writer.close()
        size = int(self._out.tell())
        self._out.close()
        return size

    def remove(self) -> None:
        if self._out is None:
            return
        for part in (self._writer, self._out):
            # What broke the file breaks its end too, and the first failure is the one to tell.
            with suppress(Exception):
                part.close()
        self._place.remove(self.name)


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


class Statistics:
    """Smallest, greatest and null count per column, exact or left out: a wrong one makes readers skip rows."""

    def __init__(self) -> None:
        self._nulls: dict[str, int] = {}
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}
        self._without_range: set[str] = set()

    def add(self, table: pa.Table) -> None:
        """Take in rows."""
        import pyarrow.compute as pc
        from pyarrow import types

        for field in list(table.schema)[:_INDEXED_COLUMNS]:
            if types.is_nested(field.type):
                continue
            values = table.column(field.name)
            self._nulls[field.name] = self._nulls.get(field.name, 0) + values.null_count
            if not _orderable(field.type):
                continue
            if types.is_floating(field.type) and pc.any(pc.is_nan(values)).as_py():
                self._without_range.add(field.name)
            bounds: Any = pc.min_max(values)
            self._widen(field.name, bounds["min"].as_py(), bounds["max"].as_py())

    def _widen(self, name: str, least: Any, greatest: Any) -> None:
        if least is None:
            return
        self._least[name] = min(self._least.get(name, least), least)
        self._greatest[name] = max(self._greatest.get(name, greatest), greatest)

    def text(self, rows: int) -> str:
        """The ``stats`` of an add action."""
        least = {name: _json(value, math.floor) for name, value in self._least.items()}
        greatest = {name: _json(value, math.ceil) for name, value in self._greatest.items()}
        ranged = {
            name
            for name in least
            if name not in self._without_range and least[name] is not None and greatest[name] is not None
        }
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: least[name] for name in least if name in ranged},
                "maxValues": {name: greatest[name] for name in greatest if name in ranged},
                "nullCount": self._nulls,
            }
        )


def _orderable(kind: pa.DataType) -> bool:
    """Types whose range Delta's readers use and JSON holds exactly."""
    from pyarrow import types

    return bool(
        types.is_signed_integer(kind)
        or types.is_floating(kind)
        or types.is_string(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
    )


def _json(value: Any, towards: Callable[[float], int]) -> Any:
    """A bound in JSON; rounded outwards where Delta keeps milliseconds; ``None`` where it must be left out."""
    if isinstance(value, datetime):
        return _milliseconds(value, towards)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    return value


def _milliseconds(value: datetime, towards: Callable[[float], int]) -> str | None:
    whole = value.replace(microsecond=0)
    try:
        rounded = whole + towards(value.microsecond / 1000) * _MILLISECOND
    except OverflowError:
        return None
    text = rounded.replace(tzinfo=None).isoformat(sep="T", timespec="milliseconds")
    return f"{text}Z" if value.tzinfo is not None else text
