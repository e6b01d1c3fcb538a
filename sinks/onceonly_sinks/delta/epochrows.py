"""Rows of a table by the epoch that brought them, file by file: by deltalake alone, without Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from onceonly.errors import refuse
from onceonly.protocol.capabilities import Span
from onceonly_sinks.delta import row_counts
from onceonly_sinks.delta.read import changes_of
from onceonly_sinks.delta.table import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

Rows = Iterator[tuple[int, Mapping[str, Any]]]


def of(table: Table, epoch_column: str | None, span: Span) -> Rows | None:
    """The rows of these epochs that stand: by their own column, else by the file that holds them.

    ``None`` where a file may hold rows of several epochs.

    Raises:
        DestinationError: E508, deltalake does not read such a table.
    """
    handle = table.reopen()
    if handle is None:
        return iter(())
    if epoch_column is not None:
        return _numbered(dataset(table, handle), epoch_column, span)
    try:
        owners = row_counts.owners(changes_of(table))
    except row_counts.CannotTell as reason:
        log.info("rows of the epochs in %s cannot be told apart: %s", table.uri, reason)
        return None
    if None in owners.values():
        return None
    named = {name_of(unquote(path)): owner for path, owner in owners.items() if owner and span[0] <= owner <= span[1]}
    return _by_file(dataset(table, handle), named)


def dataset(table: Table, handle: DeltaTable) -> Any:
    """The rows of an opened version.

    Raises:
        DestinationError: E508, deltalake does not read such a table.
    """
    import pyarrow.dataset as ds
    from deltalake.exceptions import DeltaProtocolError

    options: Any = ds.ParquetReadOptions  # whose stubs want every argument
    try:
        # Else Spark's INT96 is read as nanoseconds, which the year 9999 is beyond.
        return handle.to_pyarrow_dataset(parquet_read_options=options(coerce_int96_timestamp_unit="us"))
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
    found = [(owners[name_of(one.path)], one) for one in rows.get_fragments() if name_of(one.path) in owners]
    for epoch, fragment in sorted(found, key=lambda one: one[0]):
        for batch in fragment.to_batches(schema=rows.schema):
            yield from ((epoch, row) for row in _rows(batch))


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return batch.to_pylist()


def name_of(path: str) -> str:
    """The name of a data file, by which a fragment is found again: paths come in several spellings."""
    return path.rpartition("/")[2]
