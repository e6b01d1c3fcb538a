"""Find Delta files that deltalake cannot rewrite or remove.

Spark wrote most of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from onceonly_checkpoints.storage import is_local
from onceonly_sinks.delta.columns import written_otherwise
from onceonly_sinks.delta.log import remote

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly_sinks.delta.columns import Column
    from onceonly_sinks.delta.table import Table

_FIRST = datetime(1677, 9, 22, tzinfo=timezone.utc)
_LAST = datetime(2262, 4, 11, tzinfo=timezone.utc)
"""deltalake reads Spark's INT96 as nanoseconds, whose calendar ends here: beyond it comes back another instant."""

NAMES = "a file of a partition whose name deltalake spells otherwise, so that it would not be removed"
"""Spark writes such a name into the log as it is; deltalake removes it with percent signs, and both copies stand."""


def obstacle(table: Table) -> str | None:
    """Reason why deltalake may not rewrite files of the table. ``None`` if it may."""
    columns, parts = table.columns, table.partition_columns
    if (other := written_otherwise(columns, parts)) is not None:
        return other
    stamps = [column for column in columns if '"timestamp"' in column.type and column.name not in parts]
    if not stamps and not parts:
        return None
    files = _files(table)
    if parts and not _plainly_named(files):
        return NAMES
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
    import pyarrow as pa

    return pa.table(table.handle.get_add_actions(flatten=True))


def _plainly_named(files: pa.Table) -> bool:
    import pyarrow.compute as pc

    compute: Any = pc
    return bool(compute.all(compute.string_is_ascii(files.column("path")), min_count=0).as_py())


def _far(files: pa.Table, stamps: Sequence[Column]) -> Iterator[str]:
    """Files whose log statistics do not show that all timestamps fit nanoseconds."""
    import pyarrow.compute as pc

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
    import pyarrow.compute as pc

    compute: Any = pc
    nulls = f"null_count.{column.name}"
    if nulls in files.column_names:
        empty = compute.equal(files.column(nulls), files.column("num_records"))
        files = files.filter(compute.invert(compute.fill_null(empty, fill_value=False)))
    return [str(path) for path in files.column("path").to_pylist()]


def _holds_int96(table: Table, path: str) -> bool:
    import pyarrow.parquet as pq

    name = unquote(path)
    source: Any = (
        Path(table.root) / name if is_local(table.root) else remote(table.root, table.options).open_input_file(name)
    )
    schema: Any = pq.ParquetFile(source).schema
    return any(schema.column(at).physical_type == "INT96" for at in range(len(schema)))
