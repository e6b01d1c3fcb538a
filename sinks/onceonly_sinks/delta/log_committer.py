"""Commit to a Delta table through deltalake, if it can.

Each commit is one log entry on the handle that it is given.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction, write_deltalake
from deltalake.transaction import AddAction

from onceonly.errors import mask
from onceonly.protocol.capabilities import AT
from onceonly_sinks.delta.columns import Column, arrow_schema, placeholder, written_otherwise
from onceonly_sinks.delta.log import store
from onceonly_sinks.delta.marker import METADATA_KEY, Note, pack
from onceonly_sinks.delta.merge import Kind, Merge, Say
from onceonly_sinks.delta.prepared import DataFile, HeldRows, Rows, StagedRows, WrittenFiles
from onceonly_sinks.delta.table import Table

# ---- Find Delta files that deltalake cannot rewrite or remove.
#
# Spark wrote most of them.

_FIRST = datetime(1677, 9, 22, tzinfo=timezone.utc)
_LAST = datetime(2262, 4, 11, tzinfo=timezone.utc)
"""deltalake reads Spark's INT96 as nanoseconds, whose calendar ends here: beyond it comes back another instant."""

ENCODED_NAMES = "a file of a partition whose name deltalake spells differently, so that it would not be removed"
"""Spark writes such a name into the log as it is; deltalake removes it with percent signs, and both copies stand."""


def rewrite_obstacle(table: Table) -> str | None:
    """Reason why deltalake may not rewrite files of the table. ``None`` if it may."""
    columns, parts = table.columns, table.partition_columns
    if (other := written_otherwise(columns, parts)) is not None:
        return other
    stamps = [column for column in columns if '"timestamp"' in column.type and column.name not in parts]
    if not stamps and not parts:
        return None
    files = _files(table)
    if parts and not _plainly_named(files):
        return ENCODED_NAMES
    far = [path for path in _far(files, stamps) if path not in table.without_int96]
    for path in far:
        if _holds_int96(table, path):
            return "timestamps before 1678 or after 2262 in files of Spark's, which deltalake reads as others"
        table.without_int96.add(path)
    return None


def removes_all(table: Table) -> bool:
    """Whether deltalake can remove every file of the table."""
    return not table.partition_columns or _plainly_named(_files(table))


def _files(table: Table) -> pa.Table:
    return pa.table(table.handle.get_add_actions(flatten=True))


def _plainly_named(files: pa.Table) -> bool:
    compute: Any = pc
    return bool(compute.all(compute.string_is_ascii(files.column("path")), min_count=0).as_py())


def _far(files: pa.Table, stamps: Sequence[Column]) -> Iterator[str]:
    """Files whose log statistics do not show that all timestamps fit nanoseconds."""
    compute: Any = pc
    for column in stamps:
        low, high = f"min.{column.name}", f"max.{column.name}"
        if not {low, high} <= {*files.column_names}:
            yield from _with_values(files, column)
            continue
        within = compute.and_(
            compute.greater_equal(files.column(low), _FIRST), compute.less_equal(files.column(high), _LAST)
        )
        rest = files.filter(compute.invert(compute.fill_null(within, fill_value=False)))
        yield from _with_values(rest, column)


def _with_values(files: pa.Table, column: Column) -> list[str]:
    compute: Any = pc
    nulls = f"null_count.{column.name}"
    if nulls in files.column_names:
        empty = compute.equal(files.column(nulls), files.column("num_records"))
        files = files.filter(compute.invert(compute.fill_null(empty, fill_value=False)))
    return [str(path) for path in files.column("path").to_pylist()]


def _holds_int96(table: Table, path: str) -> bool:
    schema: Any = pq.ParquetFile(store(table.root, table.options).open_input_file(unquote(path))).schema
    return any(schema.column(at).physical_type == "INT96" for at in range(len(schema)))


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
        DeltaTable.create(
            self._root,
            placeholder(),
            mode="error",
            # An epoch goes through all files of the table, and each epoch brings one.
            configuration={_COMPACT: "true"},
            storage_options=self._options,
            # By default deltalake tries a creation that came second again, as version 1: it then replaces the table.
            **self._commit(note, retries=0),
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
        write_deltalake(
            handle,
            arrow_schema(schema).empty_table(),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=list(partition_by) or None,
            **self._commit(note),
        )

    def widen(self, handle: DeltaTable, note: Note, schema: Schema) -> None:
        """Add the columns that the table lacks, without rows.

        For commits that cannot bring their columns along. Files are committed without metadata. A merge by deltalake
        that evolves the schema gives the table another id.
        """
        self._write(handle, note, arrow_schema(schema).empty_table(), grow=True)

    def expire(self, handle: DeltaTable, note: Note, before_ms: int) -> None:
        """Delete seen ids of before an instant, milliseconds since 1970. Commits nothing if there are none."""
        instant = datetime(1970, 1, 1) + timedelta(milliseconds=before_ms)
        handle.delete(f"{AT} < '{instant.isoformat(timespec='microseconds')}Z'", **self._commit(note))

    def _write(self, handle: DeltaTable, note: Note, rows: pa.Table, *, grow: bool) -> None:
        write_deltalake(
            handle,
            rows,
            mode="overwrite" if note.replaces else "append",
            schema_mode="merge" if grow else None,
            **self._commit(note),
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
            **self._commit(note),
        )
        # In one commit, as a row that meets none of the batch's leaves: where nothing can meet, every row does.
        merger = merger.when_not_matched_by_source_delete() if note.replaces else merger
        merge.build(merger, rows.column_names, _SAY).execute()
        if handle.version() == before:
            self._add(handle, [], note)

    def _add(self, handle: DeltaTable, files: Sequence[DataFile], note: Note) -> None:
        now = time.time_ns() // 1_000_000
        actions: list[Any] = [AddAction(file.path, file.size, file.partition, now, True, file.stats) for file in files]
        handle.create_write_transaction(
            actions,
            "overwrite" if note.replaces else "append",
            handle.schema(),
            partition_by=list(handle.metadata().partition_columns) or None,
            **self._commit(note),
        )

    def _commit(self, note: Note, retries: int | None = None) -> Any:
        """Arguments of each call that commits: the note, its transaction, and no hooks."""
        # Without a time, a table with a retention for application versions would forget this one at once.
        transaction = Transaction(note.app, pack(self._sink, *note.packed), time.time_ns() // 1_000_000)
        properties = CommitProperties({METADATA_KEY: note.text}, retries, [transaction])
        return {"commit_properties": properties, "post_commithook_properties": no_hooks()}


def no_hooks() -> PostCommitHookProperties:
    """Disable post-commit hooks. Checkpoints have their own policy, and a failed hook looks like a failed commit."""
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

EXPIRE_EVERY = 50
"""Epochs with ids from the opening on, between two deletions of expired ones. A deletion reads each file that holds
some, and writes again what is left of it."""

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
                "sink %s: version %d is committed, but not its maintenance. Without any, epochs get slower: %s: %s",
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
        if _KEPT_FROM_COMPACTION & set(handle.protocol().writer_features or ()) or rewrite_obstacle(self._table):
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
    files = pa.table(handle.get_add_actions(flatten=True))
    small = files.filter(pc.field("size_bytes") < TARGET)
    parts = [name for name in small.column_names if name.startswith("partition.")]
    sizes = small.group_by(parts).aggregate([("size_bytes", "sum"), ("size_bytes", "count")])
    several = sizes.filter(pc.field("size_bytes_count") > 1)
    return pc.sum(several.column("size_bytes_sum")).as_py() or 0
