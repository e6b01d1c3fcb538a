"""What ``prepare`` hands to ``commit``: rows in this process, or data files that no log entry names yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly_sinks.delta.files import LocalPlace, RemotePlace
from onceonly_sinks.delta.logcommitter import DataFile, LogCommitter
from onceonly_sinks.delta.marker import Note
from onceonly_sinks.delta.merge import Merge

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, Schema


@dataclass(slots=True)
class HeldRows:
    """Rows in this process."""

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
        """Let them go."""
        self.gone = True
        self.table = self.table.schema.empty_table()

    def send(self, committer: LogCommitter, handle: DeltaTable, note: Note) -> None:
        """Commit them."""
        if not self.table.num_rows:
            committer.mark(handle, note)
        elif self.merge is not None:
            committer.merge(handle, note, self.table, self.merge)
        else:
            committer.append_rows(handle, note, self.table, grow=self.grow)


@dataclass(slots=True)
class WrittenFiles:
    """Data files in the table's directory."""

    files: Sequence[DataFile]
    place: LocalPlace | RemotePlace
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
        """Delete them, unless a log entry may name them. What is left without an entry is VACUUM's."""
        # Once an entry was sent its answer may be lost: then the table may already read these files.
        if self.gone or self.sent:
            return
        self.gone = True
        for file in self.files:
            try:
                self.place.remove(file.path)
            except OSError:
                continue

    def send(self, committer: LogCommitter, handle: DeltaTable, note: Note) -> None:
        """Commit them; from then on they stay."""
        self.sent = True
        committer.append_files(handle, note, self.files)
