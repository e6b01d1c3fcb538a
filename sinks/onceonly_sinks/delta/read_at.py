"""Read a table as of an epoch, by its receipt's version."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from onceonly.errors import refuse
from onceonly.protocol.capabilities import EpochExpired, NotVersioned, Span
from onceonly.spark.digest import quote
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.delta import row_counts
from onceonly_sinks.delta.read import changes_of
from onceonly_sinks.delta.table import Table, paths_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


_LOG_CAUSE = "the table was restored, or created again; or its log was cleaned up (delta.logRetentionDuration)"
_FILES_CAUSE = "VACUUM removed files of versions older than delta.deletedFileRetentionDuration"
_NUMBERED = "DeltaSink(..., tuning=DeltaTuning(epoch_column=...)) numbers rows, from a new table on"


def check(table: Table, at: Receipt) -> DeltaTable:
    """Open the version of an epoch. Raises ``EpochExpired`` if any of it is missing."""
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
            f"its log no longer holds version {version}; it begins with version {left}", _LOG_CAUSE
        ) from error
    if missing := _missing(table, opened, newest):
        raise EpochExpired(f"{missing} of the data files of version {version} are gone", _FILES_CAUSE)
    return opened


def _missing(table: Table, opened: DeltaTable, newest: DeltaTable) -> int:
    """Count missing data files of a version. Files of the newest version count as present."""
    if not table.is_local:
        return 0  # to read one is what tells it there
    return len(table.absent(set(paths_of(opened)) - set(paths_of(newest))))


def read(table: Table, epoch_column: str | None, at: Receipt, since: Receipt | None, *, merged: bool) -> pa.Table:
    """Read the rows through deltalake alone. Raises as :meth:`DeltaSink.read_at`."""
    import pyarrow.dataset as ds

    files = dataset(table, check(table, at))
    later = _later(table, at, since, epoch_column, merged=merged) if since else frozenset[str]()
    try:
        if since is not None and epoch_column is None:
            return _of_files(files, later)
        condition = None if since is None or epoch_column is None else ds.field(epoch_column) > since.epoch
        rows: pa.Table = files.to_table(filter=condition)
    except FileNotFoundError as error:
        raise EpochExpired("a data file of its version is gone", _FILES_CAUSE) from error
    return rows


def _of_files(dataset: Any, files: Collection[str]) -> pa.Table:
    import pyarrow as pa

    batches = [
        batch
        for fragment in dataset.get_fragments()
        if name_of(fragment.path) in files
        for batch in fragment.to_batches(schema=dataset.schema)
    ]
    return pa.Table.from_batches(batches, schema=dataset.schema)


def frame(
    table: Table, spark: SparkSession, epoch_column: str | None, at: Receipt, since: Receipt | None, *, merged: bool
) -> DataFrame:
    """Read the rows through Spark's Delta. Raises as :meth:`DeltaSink.frame_at`."""
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
    """Names of the files with rows of later epochs only. Not used with an epoch column.

    Raises ``NotVersioned`` if the log cannot tell.
    """
    if merged:
        raise NotVersioned("after a merge, rows of later epochs are not known", "leave since= out")
    if epoch_column is not None:
        return frozenset()
    changes = [change for change in changes_of(table) if change.entry.version <= version_of(at)]
    try:
        owners = row_counts.owners(changes)
    except row_counts.CannotTell as reason:
        raise NotVersioned(f"which rows are of later epochs is not known: {reason}", _NUMBERED) from reason
    if None in owners.values():
        raise NotVersioned("files hold rows of several epochs, since they were put together", _NUMBERED)
    return frozenset(name_of(unquote(path)) for path, owner in owners.items() if owner and owner > since.epoch)


def select(table: Table, at: Receipt, since: Receipt | None) -> str:
    """The statement for Spark's Delta. Raises as :meth:`DeltaSink.select_at`."""
    check(table, at)
    if since is not None:
        raise NotVersioned("no statement finds the rows of later epochs", "leave since= out")
    uri = table.uri.replace("`", "``")
    return f"SELECT * FROM delta.`{uri}` VERSION AS OF {version_of(at)}"


def version_of(receipt: Receipt) -> int:
    """The version of an epoch."""
    version = receipt.at("version")
    assert isinstance(version, int), receipt
    return version


# ---- Rows of a table by the epoch that brought them, file by file: by deltalake alone, without Spark.


log = logging.getLogger(__name__)

Rows = Iterator[tuple[int, Mapping[str, Any]]]


def of(table: Table, epoch_column: str | None, span: Span) -> Rows | None:
    """The current rows of these epochs: by their own column, else by the file that holds them.

    ``None`` if a file may hold rows of several epochs. Raises E508: deltalake does not read such a table.
    """
    handle = table.reopen()
    if handle is None:
        return iter(())
    if epoch_column is not None:
        return _numbered(dataset(table, handle), epoch_column, span)
    try:
        owners = row_counts.owners(changes_of(table))
    except row_counts.CannotTell as reason:
        log.info("rows of the epochs in %s cannot be separated: %s", table.uri, reason)
        return None
    if None in owners.values():
        return None
    named = {name_of(unquote(path)): owner for path, owner in owners.items() if owner and span[0] <= owner <= span[1]}
    return _by_file(dataset(table, handle), named)


def dataset(table: Table, handle: DeltaTable) -> Any:
    """The rows of an opened version. Raises E508: deltalake does not read such a table."""
    import pyarrow.dataset as ds
    from deltalake.exceptions import DeltaProtocolError
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    options: Any = ds.ParquetReadOptions  # whose stubs want every argument
    # Arrow's own file system, as its threads may close a file after the last line of a program. One that is written in
    # Python aborts the interpreter's exit then.
    files = SubTreeFileSystem(table.root, LocalFileSystem()) if table.is_local else None
    try:
        # Else Spark's INT96 is read as nanoseconds, which the year 9999 is beyond.
        read_options = options(coerce_int96_timestamp_unit="us")
        return handle.to_pyarrow_dataset(filesystem=files, parquet_read_options=read_options)
    except DeltaProtocolError as error:
        raise refuse(
            "E508",
            sink=table.sink,
            reason=f"deltalake does not read this table ({error})",
            cause="the table has a feature that only Spark's Delta reads",
            next=f'read it with Spark: spark.read.format("delta").load("{table.uri}")',
        ) from error


def _numbered(rows: Any, column: str, span: Span) -> Rows:
    import pyarrow.dataset as ds

    field: Any = ds.field(column)
    for batch in rows.to_batches(filter=(field >= span[0]) & (field <= span[1])):
        for row in _rows(batch):
            yield row.pop(column), row


def _by_file(rows: Any, owners: Mapping[str, int]) -> Rows:
    fragments = [
        (owners[name_of(fragment.path)], fragment)
        for fragment in rows.get_fragments()
        if name_of(fragment.path) in owners
    ]
    for epoch, fragment in sorted(fragments, key=lambda pair: pair[0]):
        for batch in fragment.to_batches(schema=rows.schema):
            yield from ((epoch, row) for row in _rows(batch))


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return batch.to_pylist()


def name_of(path: str) -> str:
    """The name of a data file, by which a fragment is found again: paths come in several spellings."""
    return path.rpartition("/")[2]
