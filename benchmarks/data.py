"""The input: seeded Parquet files, one per epoch, generated once and kept."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from onceonly.spark.jars import cache_directory

_ORDERS = "id bigint, name string, at timestamp, amount decimal(12,2), quantity int, note string"

SCHEMAS = {
    "orders": _ORDERS,
    "orders for Kafka, too": f"{_ORDERS}, key string, value string",
    "messages": "id bigint, key string, value string",
}
"""Columns by kind of row, as Spark reads them: ``key`` is the id, ``note`` has 40 characters, ``value`` 200."""

SEED = 20130101
_NOTE, _VALUE = 40, 200
_BASE_US = 1_356_998_400_000_000
_FORMAT = 2
"""Raised when the rows change, so that an older input is not taken for this one."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One input.

    Attributes:
        name: as the bars call it.
        epochs: number of files; a file is an epoch.
        rows: rows per file.
        tasks: row groups per file, so that as many tasks can read it.
        kind: of row, as in :data:`SCHEMAS`.
    """

    name: str
    epochs: int
    rows: int
    tasks: int = 1
    kind: str = "orders"

    @property
    def total(self) -> int:
        """Rows of all files."""
        return self.epochs * self.rows

    @property
    def checksum(self) -> int:
        """Sum of the column ``id``."""
        return self.total * (self.total - 1) // 2


def generate(shape: Shape) -> Path:
    """The directory of a shape's files; made if it is not there."""
    kind = shape.kind.replace(", ", "-").replace(" ", "-")
    folder = cache_directory() / "benchmarks" / f"{_FORMAT}-{SEED}-{kind}-{shape.epochs}x{shape.rows}-{shape.tasks}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    random = np.random.default_rng(SEED)
    for number in range(shape.epochs):
        table = _MAKERS[shape.kind](random, number * shape.rows, shape.rows)
        group = -(-shape.rows // shape.tasks)
        pq.write_table(table, work / f"epoch-{number:05d}.parquet", row_group_size=group)
    try:
        # A rename: an input that was cut short is never taken for a whole one.
        work.rename(folder)
    except OSError:
        shutil.rmtree(work)
        if not folder.is_dir():
            raise
    return folder


def table(rows: int) -> pa.Table:
    """Rows of the same kind in memory."""
    return _table(np.random.default_rng(SEED), 0, rows)


def _table(random: np.random.Generator, first: int, rows: int) -> pa.Table:
    ids = np.arange(first, first + rows, dtype=np.int64)
    names = np.char.add("customer-", random.integers(0, 50_000, rows).astype(str))
    columns = {
        "id": pa.array(ids),
        "name": pa.array(names.tolist()),
        "at": pa.array(_BASE_US + ids * 1_000 + random.integers(0, 1_000, rows)).cast(pa.timestamp("us", "UTC")),
        "amount": _decimals(random.integers(-1_000_000, 99_999_999, rows)),
        "quantity": pa.array(random.integers(1, 1_000, rows).astype(np.int32)),
        "note": _texts(random, rows, _NOTE),
    }
    return pa.table(columns)


def _for_kafka_too(random: np.random.Generator, first: int, rows: int) -> pa.Table:
    made = _table(random, first, rows)
    made = made.append_column("key", made.column("id").cast(pa.string()))
    return made.append_column("value", _texts(random, rows, _VALUE))


def _messages(random: np.random.Generator, first: int, rows: int) -> pa.Table:
    ids = pa.array(np.arange(first, first + rows, dtype=np.int64))
    return pa.table({"id": ids, "key": ids.cast(pa.string()), "value": _texts(random, rows, _VALUE)})


_MAKERS = {"orders": _table, "orders for Kafka, too": _for_kafka_too, "messages": _messages}


def _decimals(cents: np.ndarray) -> pa.Array:
    # Two little-endian 64-bit halves: the number and its sign.
    halves = np.column_stack([cents, cents >> 63]).astype(np.int64)
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(halves.tobytes())])


def _texts(random: np.random.Generator, rows: int, length: int) -> pa.Array:
    text = random.bytes(rows * length // 2).hex().encode()
    offsets = np.arange(0, (rows + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text))
