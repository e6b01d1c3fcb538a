"""Read a table as of an epoch, by its receipt's version."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError

from onceonly.errors import refuse
from onceonly.protocol.capabilities import CHANGED, SIGN, EpochExpired, NotVersioned, Span, refuse_own
from onceonly.spark.digest import quote
from onceonly_checkpoints.epoch import Receipt
from onceonly_sinks.delta import log as log_of_table
from onceonly_sinks.delta import row_counts
from onceonly_sinks.delta.columns import is_placeholder
from onceonly_sinks.delta.ladder import ChangePolicy, Effect
from onceonly_sinks.delta.read import changes_of, owners_of
from onceonly_sinks.delta.table import Table, paths_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_LOG_CAUSE = "the table was restored, or created again; or its log was cleaned up (delta.logRetentionDuration)"
_FILES_CAUSE = "VACUUM removed files of versions older than delta.deletedFileRetentionDuration"
_NUMBERED = "DeltaSink(..., tuning=DeltaTuning(epoch_column=...)) numbers rows, from a new table on"


def check(table: Table, at: Receipt) -> DeltaTable:
    """Open the version of an epoch. Raises ``EpochExpired`` if any of it is missing."""
    newest = _holding(table, at)
    opened = _version(table, version_of(at))
    if missing := _missing(table, opened, newest):
        raise EpochExpired(f"{missing} of the data files of version {version_of(at)} are gone", _FILES_CAUSE)
    return opened


def _holding(table: Table, at: Receipt) -> DeltaTable:
    newest, version = table.reopen(), version_of(at)
    if newest is None or table.identity != at.identity:
        raise EpochExpired("the table is another one than it was, or is gone", _LOG_CAUSE)
    if newest.version() < version:
        raise EpochExpired(f"the table ends at version {newest.version()}, before version {version}", _LOG_CAUSE)
    entry = table.log.entry(version)
    note = entry.note if entry else None
    if entry is not None and (note is None or note.marker is None or note.marker.epoch.chain != at.chain):
        raise EpochExpired(f"version {version} is not the epoch that it was", _LOG_CAUSE)
    return newest


def _version(table: Table, version: int) -> DeltaTable:
    try:
        return DeltaTable(table.root, version=version, storage_options=table.options)
    except (DeltaError, FileNotFoundError) as error:
        left = min(table.log.versions(), default=version)
        raise EpochExpired(
            f"its log no longer holds version {version}; it begins with version {left}", _LOG_CAUSE
        ) from error


def _missing(table: Table, opened: DeltaTable, newest: DeltaTable) -> int:
    """Count missing data files of a version. Files of the newest version count as present."""
    if not table.is_local:
        return 0  # to read one is what tells it there
    return len(table.absent(set(paths_of(opened)) - set(paths_of(newest))))


def read(table: Table, epoch_column: str | None, at: Receipt, since: Receipt | None, *, merged: bool) -> pa.Table:
    """Read the rows through deltalake alone. Raises as :meth:`DeltaSink.read_at`."""
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


def read_changes(table: Table, epoch_column: str | None, at: Receipt, since: Receipt | None) -> pa.Table:
    """Read the change data feed of the epochs' versions. Raises as :meth:`DeltaSink.read_changes`."""
    newest, last = _holding(table, at), version_of(at)
    first = version_of(since) + 1 if since and _holding(table, since) else 0
    columns = [field for field in dataset(table, newest).schema if field.name != epoch_column]
    refuse_own(column.name for column in columns)
    epochs = _epochs_by_version(table, first, last)
    try:
        # deltalake refuses a range without versions, and raises a bare Exception if a file is gone.
        feed = pa.table(newest.load_cdf(starting_version=min(first, last), ending_version=last).read_all())
    except Exception as error:
        if "not found" not in str(error):
            raise
        if "%25" in str(error):
            raise NotVersioned(
                "a partition value of its change data feed has a character that deltalake cannot find a file by",
                "read the feed by Spark: .option('readChangeFeed', True)",
            ) from error
        raise EpochExpired("a file of its change data feed is gone", _FILES_CAUSE) from error
    feed = feed.slice(0, feed.num_rows if first <= last else 0)
    kinds: list[Any] = feed[_KIND].to_pylist()
    versions: list[Any] = feed[_VERSION].to_pylist()
    signs = pa.array([_SIGNS[kind] for kind in kinds], pa.int16())
    numbers = pa.array([epochs[version] for version in versions], pa.int64())
    rows = feed.select([column.name for column in columns]).cast(pa.schema(columns))
    signed = rows.append_column(CHANGED, numbers).append_column(SIGN, signs)
    return signed.sort_by([(CHANGED, "ascending"), (SIGN, "ascending")])


_SIGNS = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}
_KIND, _VERSION, _FEED = "_change_type", "_commit_version", "delta.enableChangeDataFeed"


def _epochs_by_version(table: Table, first: int, last: int) -> Mapping[int, int]:
    """Epochs of these versions. Raises ``NotVersioned``: another writer changed rows, or a version has no feed."""
    entries, has_feed = [], first > 0 and _has_feed(_version(table, first - 1).metadata().configuration)
    epochs: dict[int, int] = {}
    off = 0
    for version in range(first, last + 1):
        text = table.log.text(version)
        if text is None:
            raise EpochExpired(f"its log no longer holds version {version}", _LOG_CAUSE)
        entry = log_of_table.parse(version, text, table.log.app)
        entries.append(entry)
        for line in text.split("\n") if '"metaData"' in text else ():
            if settings := json.loads(line or "{}").get("metaData"):
                has_feed = _has_feed(settings.get("configuration") or {})
        marker = entry.note.marker if entry.note else None
        epochs[version] = marker.epoch.number if marker else 0
        if entry.effect is not Effect.NONE and not has_feed:
            off = epochs[version]
    changes = log_of_table.disturbances(entries, table.identity, -1, ChangePolicy.NOTHING)
    if off or changes:
        point = "read the table once by onceonly.read_at(), and its changes after that epoch"
        uri = table.uri.replace("`", "``")
        option = f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ({_FEED} = true); then {point}"
        reason = f"the change data feed of the table was off up to epoch {off}"
        raise NotVersioned(
            *((reason, option) if off else (f"another program changed rows: {changes[0].detail}", point))
        )
    return epochs


def _has_feed(configuration: Mapping[str, str | None]) -> bool:
    return configuration.get(_FEED) == "true"


def version_of(receipt: Receipt) -> int:
    """The version of an epoch."""
    version = receipt.at("version")
    assert isinstance(version, int), receipt
    return version


# ---- Rows of a table by the epoch that brought them, file by file: by deltalake alone, without Spark.


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
    owners = owners_of(table)
    if owners is None or None in owners.values():
        return None
    named = {name_of(unquote(path)): owner for path, owner in owners.items() if owner and span[0] <= owner <= span[1]}
    return _by_file(dataset(table, handle), named)


def dataset(table: Table, handle: DeltaTable) -> Any:
    """The rows of an opened version. Raises E508: deltalake does not read such a table."""
    options: Any = ds.ParquetReadOptions  # whose stubs want every argument
    # Arrow's own file system, as its threads may close a file after the last line of a program. One that is written in
    # Python aborts the interpreter's exit then.
    files = log_of_table.store(table.root, None) if table.is_local else None
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


def newest_rows(table: Table) -> Any | None:
    """The rows of the newest version. ``None`` before the first batch. Raises as :func:`dataset`."""
    if table.look().head != table.followed.head():  # the log was cleaned up, or replaced
        table.reopen()
    return None if not table.is_open or is_placeholder(table.columns) else dataset(table, table.handle)


def _numbered(rows: Any, column: str, span: Span) -> Rows:
    field: Any = ds.field(column)
    for batch in rows.to_batches(filter=(field >= span[0]) & (field <= span[1])):
        for row in batch.to_pylist():
            yield row.pop(column), row


def _by_file(rows: Any, owners: Mapping[str, int]) -> Rows:
    fragments = [
        (owners[name_of(fragment.path)], fragment)
        for fragment in rows.get_fragments()
        if name_of(fragment.path) in owners
    ]
    for epoch, fragment in sorted(fragments, key=lambda pair: pair[0]):
        for batch in fragment.to_batches(schema=rows.schema):
            yield from ((epoch, row) for row in batch.to_pylist())


def name_of(path: str) -> str:
    """The name of a data file, by which a fragment is found again: paths come in several spellings."""
    return path.rpartition("/")[2]
