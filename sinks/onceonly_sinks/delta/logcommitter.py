"""Commits through deltalake: each method makes one log entry on the handle it is given, never reloaded in between.

A handle that has not seen our newest commit fails: the application id conflicts. That, and not the number, is the
fence.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly_sinks.delta.columns import arrow_schema, placeholder
from onceonly_sinks.delta.marker import METADATA_KEY, Note, pack
from onceonly_sinks.delta.merge import Kind, Merge, Say

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that a commit makes visible.

    Attributes:
        path: relative to the table.
        size: bytes.
        rows: rows in it.
        stats: statistics, the JSON text of the add action.
        partition: partition columns with their values as the log spells them.
    """

    path: str
    size: int
    rows: int
    stats: str
    partition: Mapping[str, str | None]


class LogCommitter:
    """Makes commits of one sink.

    Args:
        sink: sink id, for messages.
        root: the table's directory or URI.
        options: storage options of deltalake.
    """

    def __init__(self, sink: str, root: str, options: dict[str, str] | None) -> None:
        self._sink = sink
        self._root = root
        self._options = options

    def create(self, note: Note) -> None:
        """Create the table for its fence, with a column that the first batch's replace; only one driver gets there."""
        from deltalake import DeltaTable

        DeltaTable.create(
            self._root,
            placeholder(),
            mode="error",
            storage_options=self._options,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )

    def mark(self, handle: DeltaTable, note: Note) -> None:
        """Commit a note without rows: a fence, or the marker of an epoch without any."""
        self._add(handle, [], note)

    def define(self, handle: DeltaTable, note: Note, schema: Schema, partition_by: Sequence[str]) -> None:
        """Give a table that still has its placeholder the columns of the first batch; its id stays."""
        from deltalake import write_deltalake

        write_deltalake(
            handle,
            arrow_schema(schema).empty_table(),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=list(partition_by) or None,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )

    def widen(self, handle: DeltaTable, note: Note, schema: Schema) -> None:
        """Add the columns that the table lacks, without rows.

        For what cannot bring its columns along: files are committed without metadata, and a merge by deltalake that
        evolves the schema gives the table another id.
        """
        self.append_rows(handle, note, arrow_schema(schema).empty_table(), grow=True)

    def append_rows(self, handle: DeltaTable, note: Note, rows: pa.Table, *, grow: bool = False) -> None:
        """Write rows from memory and commit them; ``grow``: with the columns that the table lacks."""
        from deltalake import write_deltalake

        write_deltalake(
            handle,
            rows,
            mode="append",
            schema_mode="merge" if grow else None,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )

    def append_files(self, handle: DeltaTable, note: Note, files: Sequence[DataFile]) -> None:
        """Commit files that were written already."""
        self._add(handle, files, note)

    def merge(self, handle: DeltaTable, note: Note, rows: pa.Table, merge: Merge) -> None:
        """Merge rows from memory. Where nothing changes deltalake commits nothing: then the note goes alone."""
        before = handle.version()
        merger = handle.merge(
            rows,
            merge.on,
            source_alias="s",
            target_alias="t",
            error_on_type_mismatch=True,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )
        merge.build(merger, rows.column_names, _SAY).execute()
        if handle.version() == before:
            self.mark(handle, note)

    def _add(self, handle: DeltaTable, files: Sequence[DataFile], note: Note) -> None:
        from deltalake.transaction import AddAction

        now = time.time_ns() // 1_000_000
        actions: list[Any] = [AddAction(file.path, file.size, file.partition, now, True, file.stats) for file in files]
        handle.create_write_transaction(
            actions,
            "append",
            handle.schema(),
            partition_by=list(handle.metadata().partition_columns) or None,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )

    def _properties(self, note: Note) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        now = time.time_ns() // 1_000_000
        # Without a time, a table with a retention for application versions would forget this one at once.
        transaction = Transaction(note.app, pack(self._sink, *note.packed), now)
        return CommitProperties(custom_metadata={METADATA_KEY: note.text}, app_transactions=[transaction])


def no_hooks() -> PostCommitHookProperties:
    """Checkpoints have their own policy; a hook that fails would make a commit look failed."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


_SAY: Mapping[Kind, Say] = {
    "update": lambda merger, values, condition: merger.when_matched_update(values, condition),
    "delete": lambda merger, _, condition: merger.when_matched_delete(condition),
    "insert": lambda merger, values, condition: merger.when_not_matched_insert(values, condition),
}
