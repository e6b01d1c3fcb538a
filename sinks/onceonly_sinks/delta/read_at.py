"""Rows of a table as of an epoch: the version that its receipt names, as long as log and files are there."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from onceonly.protocol import EpochExpired, NotVersioned
from onceonly.spark.digest import quote
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.delta import epochrows, row_counts
from onceonly_sinks.delta.read import changes_of
from onceonly_sinks.delta.table import Table, paths_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_LOG_CAUSE = "the table was set back, or made anew; or its log was cleaned up (delta.logRetentionDuration)"
_FILES_CAUSE = "VACUUM removed files of versions older than delta.deletedFileRetentionDuration"
_NUMBERED = "DeltaSink(..., epoch_column=...) numbers rows, from a new table on"


def check(table: Table, at: Receipt) -> DeltaTable:
    """See that the version of an epoch can be read; return it, opened.

    Raises:
        EpochGone: it cannot.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    newest, version = table.reopen(), version_of(at)
    if newest is None or table.identity != at.identity:
        raise EpochExpired("the table is another one than it was, or is gone", _LOG_CAUSE)
    if newest.version() < version:
        raise EpochExpired(f"the table ends at version {newest.version()}, before version {version}", _LOG_CAUSE)
    entry = table.log.entry(version)
    note = entry.note if entry else None
    if entry is not None and (note is None or note.marker is None or note.marker.epoch.chain != at.chain):
        raise EpochExpired(f"version {version} is not the epoch that it was", _LOG_CAUSE)
    try:
        opened = DeltaTable(table.root, version=version, storage_options=table.options)
    except (DeltaError, FileNotFoundError) as error:
        left = min(table.log.versions(), default=version)
        raise EpochExpired(
            f"its log no longer tells version {version}; it begins with version {left}", _LOG_CAUSE
        ) from error
    if missing := _missing(table, opened, newest):
        raise EpochExpired(f"{missing} of the data files of version {version} are gone", _FILES_CAUSE)
    return opened


def _missing(table: Table, opened: DeltaTable, newest: DeltaTable) -> int:
    """How many data files of a version are gone. Those that the newest one has are not asked for."""
    if not table.is_local:
        return 0  # to read one is what tells it there
    return len(table.absent(set(paths_of(opened)) - set(paths_of(newest))))


def read(table: Table, epoch_column: str | None, at: Receipt, since: Receipt | None, *, merged: bool) -> pa.Table:
    """The rows, by deltalake alone.

    Raises:
        EpochGone: they are not all there any more.
        NotVersioned: only later rows are asked for, and the table does not tell them.
        DestinationError: E508, deltalake does not read such a table.
    """
    import pyarrow.dataset as ds

    dataset = epochrows.dataset(table, check(table, at))
    later = _later(table, at, since, epoch_column, merged=merged) if since else frozenset[str]()
    try:
        if since is not None and epoch_column is None:
            return _of_files(dataset, later)
        wanted = None if since is None or epoch_column is None else ds.field(epoch_column) > since.epoch
        rows: pa.Table = dataset.to_table(filter=wanted)
    except FileNotFoundError as error:
        raise EpochExpired("a data file of its version is gone", _FILES_CAUSE) from error
    return rows


def _of_files(dataset: Any, files: Collection[str]) -> pa.Table:
    import pyarrow as pa

    batches = [
        batch
        for fragment in dataset.get_fragments()
        if epochrows.name_of(fragment.path) in files
        for batch in fragment.to_batches(schema=dataset.schema)
    ]
    return pa.Table.from_batches(batches, schema=dataset.schema)


def frame(
    table: Table, spark: SparkSession, epoch_column: str | None, at: Receipt, since: Receipt | None, *, merged: bool
) -> DataFrame:
    """The rows, through Spark's Delta; raises as :func:`read`."""
    from pyspark.sql import functions as f

    check(table, at)
    rows = spark.read.format("delta").option("versionAsOf", version_of(at)).load(table.uri)
    if since is None:
        return rows
    later = _later(table, at, since, epoch_column, merged=merged)
    if epoch_column is not None:
        return rows.where(f.col(quote(epoch_column)) > since.epoch)
    return rows.where(f.col("_metadata.file_name").isin(list(later)))


def _later(table: Table, at: Receipt, since: Receipt, epoch_column: str | None, *, merged: bool) -> frozenset[str]:
    """Names of the files with rows of later epochs alone; not asked for where a column numbers rows.

    Raises:
        NotVersioned: the log does not tell.
    """
    if merged:
        raise NotVersioned("a merge does not tell which rows are of later epochs", "leave since= out")
    if epoch_column is not None:
        return frozenset()
    changes = [one for one in changes_of(table) if one.entry.version <= version_of(at)]
    try:
        owners = row_counts.owners(changes)
    except row_counts.CannotTell as reason:
        raise NotVersioned(f"which rows are of later epochs is not known: {reason}", _NUMBERED) from reason
    if None in owners.values():
        raise NotVersioned("files hold rows of several epochs, since they were put together", _NUMBERED)
    return frozenset(
        epochrows.name_of(unquote(path)) for path, owner in owners.items() if owner and owner > since.epoch
    )


def select(table: Table, at: Receipt, since: Receipt | None) -> str:
    """The statement for Spark's Delta.

    Raises:
        EpochGone: the version cannot be read.
        NotVersioned: only later rows are asked for.
    """
    check(table, at)
    if since is not None:
        raise NotVersioned("no statement tells which rows are of later epochs", "leave since= out")
    place = table.uri.replace("`", "``")
    return f"SELECT * FROM delta.`{place}` VERSION AS OF {version_of(at)}"


def version_of(receipt: Receipt) -> int:
    """The version of an epoch."""
    found = receipt.at("version")
    assert isinstance(found, int), receipt
    return found
