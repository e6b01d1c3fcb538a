"""Commit to a Delta table and maintain it through deltalake.

Each commit is one log entry on the handle that it is given.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.errors import mask
from onceonly_sinks.delta.columns import arrow_schema, placeholder
from onceonly_sinks.delta.marker import METADATA_KEY, Note, pack
from onceonly_sinks.delta.merge import Kind, Merge, Say
from onceonly_sinks.delta.prepared import DataFile, HeldRows, Rows, StagedRows, WrittenFiles
from onceonly_sinks.delta.rewrite_check import obstacle
from onceonly_sinks.delta.table import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema


# ---- Commits: each method makes one log entry on the handle it is given, which is never reloaded in between.
#
# A handle that has not seen our newest commit fails: the application id conflicts. That, and not the number, is the
# fence.


class LogCommitter:
    """Makes commits of one sink. ``root`` is the table's directory or URI."""

    def __init__(self, sink: str, root: str, options: dict[str, str] | None) -> None:
        self._sink = sink
        self._root = root
        self._options = options

    def create(self, note: Note) -> None:
        """Create the table for its fence, with a placeholder column until the first batch. Only one driver succeeds."""
        from deltalake import DeltaTable

        DeltaTable.create(
            self._root,
            placeholder(),
            mode="error",
            storage_options=self._options,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )

    def send(self, handle: DeltaTable, note: Note, rows: Rows | None) -> None:
        """Make one log entry from rows in this process or in files. See :class:`Committer`."""
        match rows:
            case HeldRows(merge=None) if rows.table.num_rows:
                self._write(handle, note, rows.table, grow=rows.grow)
            case HeldRows(merge=Merge() as merge) if rows.table.num_rows:
                self._merge(handle, note, rows.table, merge)
            case WrittenFiles():
                rows.sent = True
                self._add(handle, rows.files, note)
            case None | HeldRows():
                self._add(handle, [], note)
            case StagedRows():
                raise TypeError("what Spark staged is committed by Spark")

    def define(self, handle: DeltaTable, note: Note, schema: Schema, partition_by: Sequence[str]) -> None:
        """Replace the placeholder column by the columns of the first batch. The table's id stays."""
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

        For commits that cannot bring their columns along. Files are committed without metadata. A merge by deltalake
        that evolves the schema gives the table another id.
        """
        self._write(handle, note, arrow_schema(schema).empty_table(), grow=True)

    def _write(self, handle: DeltaTable, note: Note, rows: pa.Table, *, grow: bool) -> None:
        from deltalake import write_deltalake

        write_deltalake(
            handle,
            rows,
            mode="overwrite" if note.replaces else "append",
            schema_mode="merge" if grow else None,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )

    def _merge(self, handle: DeltaTable, note: Note, rows: pa.Table, merge: Merge) -> None:
        """Merge rows from memory. If nothing changes, deltalake commits nothing, so the note is committed alone."""
        before = handle.version()
        merge = merge.anew if note.replaces else merge
        merger = handle.merge(
            rows,
            merge.on,
            source_alias="s",
            target_alias="t",
            error_on_type_mismatch=True,
            commit_properties=self._properties(note),
            post_commithook_properties=no_hooks(),
        )
        # In one commit, as a row that meets none of the batch's leaves: where nothing can meet, every row does.
        merger = merger.when_not_matched_by_source_delete() if note.replaces else merger
        merge.build(merger, rows.column_names, _SAY).execute()
        if handle.version() == before:
            self._add(handle, [], note)

    def _add(self, handle: DeltaTable, files: Sequence[DataFile], note: Note) -> None:
        from deltalake.transaction import AddAction

        now = time.time_ns() // 1_000_000
        actions: list[Any] = [AddAction(file.path, file.size, file.partition, now, True, file.stats) for file in files]
        handle.create_write_transaction(
            actions,
            "overwrite" if note.replaces else "append",
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
    """Disable post-commit hooks. Checkpoints have their own policy, and a failed hook looks like a failed commit."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


_SAY: Mapping[Kind, Say] = {
    "update": lambda merger, values, condition: merger.when_matched_update(values, condition),
    "delete": lambda merger, _, condition: merger.when_matched_delete(condition),
    "insert": lambda merger, values, condition: merger.when_not_matched_insert(values, condition),
}


# ---- What a sink does to its table between two commits: checkpoints, an end to old log files, and fewer small files.
#
# deltalake reads the log since the last checkpoint at every commit, lists the log's directory, and goes through all
# files of the table, so each of the three keeps an epoch from getting slower as its table gets older.

logger = logging.getLogger(__name__)

CHECKPOINT_EVERY = 20
"""Commits of ours between two checkpoints. A longer interval costs each epoch more than a checkpoint costs the
twentieth."""

CLEAN_UP_EVERY = 25
"""Checkpoints of ours between two clean-ups of log files past their retention."""

COMPACT_EVERY = 50
"""Commits of ours between two compactions: as many small files as Spark's writer waits for."""

TARGET = 100 * 1024 * 1024
"""Bytes of the files that compaction makes, and from which on it leaves a file alone: deltalake's own size."""

MOST = 1024 * 1024 * 1024
"""Bytes that one compaction may rewrite: seconds, in which the other sinks of an epoch wait. What piled up before the
table asked for compaction is OPTIMIZE's."""

_INTERVAL = "delta.checkpointInterval"
_CLEAN_UP = "delta.enableExpiredLogCleanup"
_COMPACT = "delta.autoOptimize.autoCompact"

_KEPT_FROM_COMPACTION = frozenset({"columnMapping", "deletionVectors"})
"""Features under which deltalake would have to translate what it rewrites; such a table is OPTIMIZE's, by Spark."""


class Maintenance:
    """Counts the commits of one sink and runs maintenance when due. It never fails, as the commit before it landed."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._commits = 0
        self._checkpoints = 0
        self._warned = False

    def committed(self, version: int) -> None:
        """Count our commit, the table's newest version. Compact, checkpoint and clean up when due."""
        self._commits += 1
        try:
            self._do_what_is_due()
        except Exception as error:  # noqa: BLE001  after the fact: without it others get slower, and nothing is lost
            logger.warning(
                "sink %s: version %d stands; no maintenance after it, and without any epochs get slower: %s: %s",
                self._table.sink,
                version,
                type(error).__name__,
                mask(str(error)),
            )
            self._table.drop_handle()

    def _do_what_is_due(self) -> None:
        handle = self._table.current()
        # A checkpoint by deltalake would drop what it does not know of the features that only Spark writes.
        if handle is None or self._table.needs_spark():
            return
        properties = handle.metadata().configuration
        if properties.get(_COMPACT) == "true" and not self._commits % COMPACT_EVERY:
            self._compact(handle)
        if self._commits % int(properties.get(_INTERVAL) or CHECKPOINT_EVERY):
            return
        handle.create_checkpoint()
        self._checkpoints += 1
        if not self._checkpoints % CLEAN_UP_EVERY and properties.get(_CLEAN_UP) != "false":
            handle.cleanup_metadata()
        # Only a new handle reads from the checkpoint instead of the entries before it.
        self._table.reopen()

    def _compact(self, handle: DeltaTable) -> None:
        if _KEPT_FROM_COMPACTION & set(handle.protocol().writer_features or ()) or obstacle(self._table):
            return
        size = rewritten(handle)
        if size <= MOST:
            handle.optimize.compact(target_size=TARGET, post_commithook_properties=no_hooks())
        elif not self._warned:
            self._warned = True
            logger.warning(
                "sink %s: %d MiB of small files are too many to compact between two epochs; OPTIMIZE the table once",
                self._table.sink,
                size >> 20,
            )


def rewritten(handle: DeltaTable) -> int:
    """Bytes of the files that a compaction would read and write again: two small ones or more in one partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    files = pa.table(handle.get_add_actions(flatten=True))
    small = files.filter(pc.field("size_bytes") < TARGET)
    parts = [name for name in small.column_names if name.startswith("partition.")]
    sizes = small.group_by(parts).aggregate([("size_bytes", "sum"), ("size_bytes", "count")])
    several = sizes.filter(pc.field("size_bytes_count") > 1)
    return pc.sum(several.column("size_bytes_sum")).as_py() or 0
