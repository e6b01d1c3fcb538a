"""Prepared rows that ``commit`` adds to a Delta table."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from onceonly_checkpoints.storage import flush_directory
from onceonly_sinks.delta.files import DataDirectory
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.merge import Merge
from onceonly_sinks.delta.schema_compatibility import NULL, Demands, refusal
from onceonly_sinks.delta.statistics import Statistics, covered, footer_statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# ---- What ``prepare`` hands to ``commit``: rows in this process, in data files that no log entry names, or staged.


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that a commit makes visible.

    ``path`` is relative to the table and ``size`` in bytes. ``stats`` is the JSON text of the add action. ``partition``
    has the partition columns with their values as the log spells them.
    """

    path: str
    size: int
    rows: int
    stats: str
    partition: Mapping[str, str | None]


@dataclass(slots=True)
class HeldRows:
    """Rows in this process.

    ``merge`` is ``None`` for an append. ``rows`` is the batch's row count. ``schema`` has the rows' columns in the
    table. ``grow`` is true if the table gets columns that it lacks. ``gone`` is true once they were abandoned.
    """

    table: pa.Table
    merge: Merge | None
    rows: int
    schema: Schema
    grow: bool = False
    gone: bool = False

    @property
    def widens_before(self) -> bool:
        """Whether the table must get its new columns in a version of their own."""
        return self.grow and self.merge is not None and self.table.num_rows > 0

    def abandon(self) -> None:
        """Release the rows."""
        self.gone = True
        self.table = self.table.schema.empty_table()


@dataclass(slots=True)
class WrittenFiles:
    """Data files in the table's directory.

    Shared attributes are as in :class:`HeldRows`. ``sent`` is true once a log entry may name the files. From then on
    they stay.
    """

    files: Sequence[DataFile]
    data_directory: DataDirectory
    schema: Schema
    grow: bool = False
    gone: bool = False
    sent: bool = False
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = sum(file.rows for file in self.files)

    @property
    def widens_before(self) -> bool:
        """Whether the table must get its new columns in a version of their own."""
        return self.grow and self.rows > 0

    def abandon(self) -> None:
        """Delete the files, unless a log entry may name them. VACUUM deletes leftovers without an entry."""
        # Once an entry was sent its answer may be lost: then the table may already read these files.
        if self.gone or self.sent:
            return
        self.gone = True
        for file in self.files:
            try:
                self.data_directory.remove(file.path)
            except OSError:
                continue


@dataclass(slots=True)
class StagedRows:
    """Rows in a folder beside the data, which no reader of the table sees.

    Shared attributes are as in :class:`HeldRows`. ``committer`` staged the rows, and ``frame`` belongs to its session.
    ``folder`` is relative to the table.
    """

    committer: StagingCommitter
    folder: str
    frame: DataFrame
    rows: int
    schema: Schema
    merge: Merge | None = None
    grow: bool = False
    gone: bool = False

    @property
    def widens_before(self) -> bool:
        """Always false: Spark adds new columns in the same commit."""
        return False

    def abandon(self) -> None:
        """Delete the folder. Committed rows were copied out of it."""
        if not self.gone:
            self.gone = True
            self.committer.discard(self.folder)


Rows: TypeAlias = HeldRows | WrittenFiles | StagedRows
"""What can be committed."""


class Committer(Protocol):
    """Makes log entries of one sink: through deltalake, or through Spark's Delta."""

    def send(self, handle: DeltaTable, note: Note, rows: Rows | None) -> None:
        """Make one log entry of a note and of rows, or of the note alone if there are none.

        ``handle`` is the table as it was read, and decides whether the entry conflicts. This committer must take the
        kind of ``rows``.
        """
        ...


class StagingCommitter(Committer, Protocol):
    """A committer that stages rows beside the table before it commits them."""

    def discard(self, folder: str) -> None:
        """Delete a folder of staged rows, if it exists."""
        ...


# ---- Makes files that a batch lies in already the table's own: by hard link, else by copy. No row is written twice.

_ROWS = 256 * 1024
"""Read at a time."""


def adopt(
    sink: str, held: pa.Schema, demands: Demands, files: Sequence[Path], root: Path
) -> tuple[list[DataFile], DataDirectory]:
    """Link files into a table's directory under new names.

    A link shares the bytes and not the name. Removing the staged file later takes nothing from the table. ``files``
    hold exactly the Arrow columns of ``held``. Returns the files as the log names them, and their directory.

    Raises E503 for a value that the table does not allow, and OSError if a file can be neither linked nor copied.
    Earlier links are then removed again.
    """
    where, names, adopted = DataDirectory(str(root)), list[str](), list[DataFile]()
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
    """The file with its statistics. Rows are decoded only for columns without statistics in the footer."""
    demanded_names = (*demands.required, *demands.read)
    fields = {field.name: field for field in (*covered(held), *(held.field(name) for name in demanded_names))}
    statistics = Statistics()
    with pq.ParquetFile(file) as opened:
        count = opened.metadata.num_rows
        footer_columns = footer_statistics(opened.metadata, pa.schema(fields.values()))
        for column, column_statistics in footer_columns.items():
            if column_statistics.nulls and column in demands.required:
                raise refusal(sink, column, NULL)
            statistics.take(fields[column], column_statistics)
        rest = pa.schema([field for column, field in fields.items() if column not in footer_columns])
        read = [name for name in fields if name in demands.read or name in rest.names]
        for rows in opened.iter_batches(_ROWS, columns=read) if read else ():
            table = pa.table(rows)
            if (broken := demands.broken(table)) is not None:
                raise refusal(sink, *broken)
            statistics.add(table.select(rest.names).cast(rest))
        return DataFile(name, file.stat().st_size, count, statistics.text(count), {})
