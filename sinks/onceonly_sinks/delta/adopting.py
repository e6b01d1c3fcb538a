"""Makes files that a batch lies in already the table's own: by hard link, else by copy. No row is written twice."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly_checkpoints.storage import flush_directory
from onceonly_sinks.delta.demands import NULL, Demands, refusal
from onceonly_sinks.delta.files import LocalPlace
from onceonly_sinks.delta.footers import told
from onceonly_sinks.delta.logcommitter import DataFile
from onceonly_sinks.delta.statistics import Statistics, covered

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 256 * 1024
"""Read at a time."""


def adopt(
    sink: str, held: pa.Schema, demands: Demands, files: Sequence[Path], root: Path
) -> tuple[list[DataFile], LocalPlace]:
    """Link files into a table's directory under names of their own.

    A link shares the bytes and not the name, so removing the staged file later takes nothing from the table.

    Args:
        sink: for messages.
        held: columns of the table, in Arrow's types; the files hold exactly these.
        demands: what the values must be.
        files: Parquet files with rows.
        root: the table's directory.

    Returns:
        The files as the log names them, and where they lie.

    Raises:
        DestinationError: E503, a value that the table does not allow.
        OSError: a file can be neither linked nor copied; those that were are gone again.
    """
    where, names, adopted = LocalPlace(str(root)), list[str](), list[DataFile]()
    try:
        for number, file in enumerate(files):
            names.append(f"part-{number:05d}-{uuid.uuid4()}-c000.snappy.parquet")
            _link(file, root / names[-1])
            adopted.append(_counted(sink, held, demands, file, names[-1]))
        flush_directory(root)
    except BaseException:
        for name in names:
            where.remove(name)
        raise
    return adopted, where


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:
        # Another disk, or one without links.
        shutil.copyfile(file, target)
        with target.open("rb") as copy:
            os.fsync(copy.fileno())


def _counted(sink: str, held: pa.Schema, demands: Demands, file: Path, name: str) -> DataFile:
    """The file with its statistics; rows are decoded only for what its footer does not tell."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    asked = (*demands.required, *demands.read)
    wanted = {field.name: field for field in (*covered(held), *(held.field(name) for name in asked))}
    statistics = Statistics()
    with pq.ParquetFile(file) as opened:
        count = opened.metadata.num_rows
        known = told(opened.metadata, pa.schema(wanted.values()))
        for column, found in known.items():
            if found.nulls and column in demands.required:
                raise refusal(sink, column, NULL)
            statistics.take(wanted[column], found)
        rest = pa.schema([field for column, field in wanted.items() if column not in known])
        read = [name for name in wanted if name in demands.read or name in rest.names]
        for rows in opened.iter_batches(_ROWS, columns=read) if read else ():
            table = pa.table(rows)
            if (broken := demands.broken(table)) is not None:
                raise refusal(sink, *broken)
            statistics.add(table.select(rest.names).cast(rest))
        return DataFile(name, file.stat().st_size, count, statistics.text(count), {})
