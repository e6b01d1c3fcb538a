"""The input of a job: Parquet files, one for each micro-batch, and the entries that tell the checker what they hold."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onceonly_lab.chaos.pipeline import Pipeline
from onceonly_lab.history import Entry, Kind, Op, Range, Row

_OLDEST = 1_700_000_000
"""Time of the first file: the file source goes by modification time, a second apart in the order of their numbers."""


def write_source(job: Pipeline, folder: Path, batches: int, rows: int) -> None:
    """Write the input.

    Args:
        job: knows the rows.
        folder: is made.
        batches: how many files.
        rows: of each.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for batch, numbers in enumerate(_cut(batches, rows)):
        path = folder / f"{batch:05d}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(job.made(number)) for number in numbers]), path)
        os.utime(path, (_OLDEST + batch, _OLDEST + batch))


def source_entries(job: Pipeline, batches: int, rows: int) -> Iterator[Entry]:
    """The same rows for the checker."""
    for batch, numbers in enumerate(_cut(batches, rows)):
        made = map(job.made, numbers)
        listed = tuple(Row(str(row[job.identity]), key=_text(row, job.key)) for row in made)
        yield Entry("source", Kind.OK, Op.INPUT, slice=(Range("files", batch, batch + 1),), rows=listed)


def _text(row: Mapping[str, Any], column: str | None) -> str | None:
    found = row[column] if column is not None else None
    return None if found is None else str(found)


def _cut(batches: int, rows: int) -> Iterator[range]:
    return (range(batch * rows, (batch + 1) * rows) for batch in range(batches))
