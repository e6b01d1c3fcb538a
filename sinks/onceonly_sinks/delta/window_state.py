"""Keep window state in a Delta table, and recall due windows.

Each epoch merges its windows into the table. A recall reads one version under the fence: a commit based on it needs an
unmoved head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.dataset as ds

from onceonly.protocol.capabilities import CHANGED, STATE_KEY, OpenWindow, StateRow, StateWanted
from onceonly.protocol.guard import check_recalled
from onceonly_sinks.delta.files import gone
from onceonly_sinks.delta.table import Table

if TYPE_CHECKING:
    from onceonly.protocol.batch import AsOf

SUFFIX = "_state"


def recall(table: Table, request: StateWanted, as_of: AsOf) -> list[StateRow]:
    """Rows of state, each once. Raises E226: a row was written by the epoch itself, by a later one, or by none."""
    clock, time = ds.field("wake_clock"), ds.field("wake_time")
    keys = {*request.keys, *(key for key, _, _ in request.places)}
    wanted: Any = ds.field("key").isin(pa.array(sorted(keys), pa.string()))
    if request.wake_clock is not None:
        wanted |= clock <= request.wake_clock
    if request.wake_time is not None:
        wanted |= time <= request.wake_time
    found = (row for batch in _batches(table, as_of.series, wanted) for row in batch.to_pylist())
    return check_recalled(table.sink, request.select(found), as_of)


def count(table: Table, since: int) -> int:
    """Number of open windows, from rows of epoch ``since`` and later."""
    return sum(batch.num_rows for batch in _batches(table, since, None))


def open_windows(table: Table, since: int, key: str | None, limit: int | None) -> Iterator[OpenWindow]:
    """Open windows, in the order of their next wake-up. ``None`` for ``key`` or ``limit`` means all."""
    if batches := list(_batches(table, since, None if key is None else ds.field("key") == key)):
        order: Any = [(name, "ascending") for name in ("wake_time", *STATE_KEY)]
        ordered = pa.Table.from_batches(batches).sort_by(order).slice(0, limit)
        for batch in ordered.to_batches(max_chunksize=_PAGE):
            for row in batch.to_pylist():
                yield OpenWindow(StateRow.of(row), row["wake_clock"], row["wake_time"])


_PAGE = 1000
"""Rows that become objects at once."""


def _batches(table: Table, since: int, wanted: Any) -> Iterator[pa.RecordBatch]:
    """Rows of the newest version that count, of those the wanted ones. ``None``: all."""
    from onceonly_sinks.delta.read_at import newest_rows

    rows, epoch = newest_rows(table), cast("Any", ds.field(CHANGED))
    try:
        for batch in rows.to_batches(filter=(epoch >= since) | epoch.is_null()) if rows is not None else ():
            # Not by the scan: a merge by deltalake leaves files of string views, which Arrow compares with no text.
            yield batch if wanted is None else batch.filter(wanted)
    except FileNotFoundError as error:
        raise gone(table.sink, "window state") from error
