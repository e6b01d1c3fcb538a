"""What a sink does to its table between two commits: checkpoints, an end to old log files, and fewer small files.

deltalake reads the log since the last checkpoint at every commit, lists the log's directory, and goes through all
files of the table, so each of the three keeps an epoch from getting slower as its table gets older.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly.errors import mask
from onceonly_sinks.delta.logcommitter import no_hooks
from onceonly_sinks.delta.table import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
    """Counts the commits of one sink, and does what is due. It never fails: the commit before it stands.

    Args:
        table: the table.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._commits = 0
        self._checkpoints = 0
        self._warned = False

    def committed(self, version: int) -> None:
        """Count a commit of ours, the table's newest version; compact, checkpoint and clean up where it is due."""
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
        if _KEPT_FROM_COMPACTION & set(handle.protocol().writer_features or ()):
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
