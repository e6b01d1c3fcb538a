"""Pane rows and window state as rows of Arrow, in Spark's types."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.protocol.capabilities import GONE
from onceonly.windows.rules import json_values
from onceonly.windows.rules.assigners import LEAST
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import OpenWindowState, WindowKey, WindowResult
from onceonly_checkpoints.epoch_time import END

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = 1024
"""By which state is divided among executors."""

_MICROS = 1000
_FARTHEST = END // _MICROS


def pane_table(definition: Definition, rows: Sequence[WindowResult]) -> pa.Table:
    """The rows that sinks get for an epoch.

    As upserts, only the last row of each window remains.

    Raises:
        ConfigurationError: E146, a value that the type of its column does not hold.
    """
    upserts = definition.panes.rows == "upserts"
    if upserts:
        rows = list({row.place: row for row in rows if row.kind != "-U"}.values())
    columns: dict[str, pa.Array[Any]] = {**_keys(definition, rows), **_bounds(definition, rows)}
    for at, (name, kind) in enumerate(zip(definition.panes.values, definition.value_kinds, strict=True)):
        columns[name] = _values(name, kind, at, rows)
    columns |= _sent(definition, rows)
    if upserts:
        columns["deleted"] = json_values.array("boolean", [row.sign < 0 for row in rows])
    return _table(columns)


def _keys(definition: Definition, rows: Sequence[WindowResult]) -> dict[str, pa.Array[Any]]:
    parsed = {key: json.loads(key) for key in {row.place.key for row in rows}}
    return {
        name: json_values.array(kind, [json_values.decode(kind, parsed[row.place.key][at]) for row in rows])
        for at, (name, kind) in enumerate(zip(definition.panes.keys, definition.key_kinds, strict=True))
    }


def _values(name: str, kind: str, at: int, rows: Sequence[WindowResult]) -> pa.Array[Any]:
    values = [json_values.decode(kind, row.values[at]) for row in rows]
    try:
        return json_values.array(kind, values)
    except (OverflowError, ValueError, TypeError) as error:
        wide = next(row for row, value in zip(rows, values, strict=True) if not _fits(kind, value))
        raise _too_wide(name, kind, wide) from error


def _fits(kind: str, value: Any) -> bool:
    try:
        json_values.array(kind, [value])
    except (OverflowError, ValueError, TypeError):
        return False
    return True


def _too_wide(name: str, kind: str, row: WindowResult) -> Exception:
    start, end = (None if one in (LEAST, END) else one for one in (row.place.start, row.place.end))
    way = (
        f'give the query a new name, and take a wider type: {name}=Sum("CAST(... AS DECIMAL(38, 0))"); or one that'
        f' rounds: {name}=Sum("CAST(... AS DOUBLE)", approximate=True)'
    )
    cause = "a sum that grew past its type, or an Aggregate whose value() gives another kind than it says"
    return refuse("E146", value=name, window=f"[{start}, {end})", key=row.place.key, type=kind, cause=cause, next=way)


def _bounds(definition: Definition, rows: Sequence[WindowResult]) -> dict[str, pa.Array[Any]]:
    return {
        "window_start": times_of(definition, [row.place.start for row in rows]),
        "window_end": times_of(definition, [row.place.end for row in rows]),
    }


def _sent(definition: Definition, rows: Sequence[WindowResult]) -> dict[str, pa.Array[Any]]:
    return {
        "kind": json_values.array("string", [row.kind for row in rows]),
        "sign": json_values.array("smallint", [row.sign for row in rows]),
        "timing": json_values.array("string", [row.timing for row in rows]),
        "pane": json_values.array("int", [row.pane for row in rows]),
        "final": json_values.array("boolean", [row.final for row in rows]),
        "fired_at": json_values.array("timestamp", [row.fired_at * _MICROS for row in rows]),
        "watermark": times_of(definition, [row.watermark for row in rows]),
        "seq": json_values.array("bigint", [row.seq for row in rows]),
    }


def times_of(definition: Definition, times: Sequence[int | None]) -> pa.Array[Any]:
    """Times of the unit in Arrow. A missing bound is null, and so is an instant outside the range of timestamps."""
    known = [None if time in (None, LEAST, END) else time for time in times]
    if definition.unit == "integer":
        return json_values.array("bigint", list(known))
    return json_values.array(
        "timestamp", [None if one is None or abs(one) > _FARTHEST else one * _MICROS for one in known]
    )


def state_table(kept: Sequence[OpenWindowState], gone: Sequence[WindowKey]) -> pa.Table:
    """Rows of state that an epoch changes: written and deleted ones."""
    places = (*(one.place for one in kept), *gone)
    none = len(gone)
    columns: Mapping[str, pa.Array[Any]] = {
        "key": json_values.array("string", [one.key for one in places]),
        "start": json_values.array("bigint", [one.start for one in places]),
        "stop": json_values.array("bigint", [one.end for one in places]),
        "body": json_values.array("string", [*(one.body for one in kept), *[""] * none]),
        "wake_clock": json_values.array("bigint", [*(one.wake_clock for one in kept), *[None] * none]),
        "wake_time": json_values.array("bigint", [*(one.wake_time for one in kept), *[END] * none]),
        "bucket": json_values.array("smallint", [bucket(one.key) for one in places]),
        GONE: json_values.array("boolean", [*[False] * len(kept), *[True] * none]),
    }
    return _table(columns)


def bucket(key: str) -> int:
    """The bucket of a key's state."""
    return zlib.crc32(key.encode()) % BUCKETS


def _table(columns: Mapping[str, pa.Array[Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.table(dict(columns))
