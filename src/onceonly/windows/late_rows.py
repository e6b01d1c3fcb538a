"""Select late rows, with their window and horizon, for their sink.

A late row came after its window was closed. The sink gets it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from onceonly.spark import frames
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import Partial, times_of
from onceonly.windows.rules.step import Row, key_text

START, CLOSED, HORIZON = "window_start", "window_end", "horizon"
"""Columns behind those of the row: its window, and what was noted when it came."""

ADDED = (START, CLOSED, HORIZON)


@dataclass(frozen=True, slots=True)
class LateRowContext:
    """Rule for late rows: the windows' definition, the rows' columns and the noted time of the epoch before.

    If that is ``None``, only rows without a time are late.
    """

    definition: Definition
    columns: StructType
    complete_until: int | None

    def late(self, end: int | None) -> bool:
        """Whether a window with this end takes no rows any more. ``None`` is for a row without a time."""
        if end is None:
            return True
        return self.complete_until is not None and self.definition.closes(end) <= self.complete_until


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Groups of rows from Spark.

    ``spans`` has the windows of each group, or ``None`` for rows without a time. ``rows`` has those of each group that
    may be late, as a list of structures.
    """

    spans: Sequence[Sequence[tuple[int, int]] | None]
    rows: Any


def of_rows(
    setting: LateRowContext, rows: Sequence[Row], structs: Sequence[Any], partials: Sequence[Partial]
) -> pa.Table:
    """Return late ones among rows of the driver.

    ``rows`` are as windows took them. ``structs`` has the same rows as structures, piece by piece. ``partials`` are
    their results, for the windows of sessions.
    """
    at: list[int] = []
    starts: list[int | None] = []
    ends: list[int | None] = []
    for index, row in enumerate(rows):
        for start, end in _windows(setting, row, partials):
            if setting.late(end):
                at.append(index)
                starts.append(start)
                ends.append(end)
    selected = pa.chunked_array(structs).take(pa.array(at, pa.int64())) if structs else None
    return _table(setting, selected.combine_chunks() if selected is not None else None, starts, ends)


def _windows(setting: LateRowContext, row: Row, partials: Sequence[Partial]) -> list[tuple[int | None, int | None]]:
    if row.time is None:
        return [(None, None)]
    definition, time = setting.definition, row.time
    if not definition.sessions:
        return list(definition.spans(time, row.own))
    key = key_text(definition, row.key)
    return [
        (partial.window_key.start, partial.window_key.end)
        for partial in partials
        if partial.window_key.key == key and partial.window_key.start <= time < partial.window_key.end
    ]


def of_pieces(setting: LateRowContext, pieces: Sequence[RowGroup]) -> pa.Table:
    """Return late ones among groups of rows."""
    starts: list[int | None] = []
    ends: list[int | None] = []
    selected: list[Any] = []
    for piece in pieces:
        for at, spans in enumerate(piece.spans):
            own: Any = piece.rows.slice(at, 1).flatten()
            for start, end in [(None, None)] if spans is None else spans:
                if len(own) and setting.late(end):
                    selected.append(own)
                    starts += [start] * len(own)
                    ends += [end] * len(own)
    return _table(setting, pa.concat_arrays(selected) if selected else None, starts, ends)


def _table(setting: LateRowContext, rows: Any, starts: Sequence[int | None], ends: Sequence[int | None]) -> pa.Table:
    schema = frames.in_arrow(setting.columns)
    if rows is None:
        batch = pa.RecordBatch.from_pylist([], schema=schema)
    else:
        batch = frames.cast(pa.RecordBatch.from_arrays(rows.flatten(), names=schema.names), schema)
    horizons = [setting.complete_until] * len(starts)
    arrays = [*batch.columns, *(times_of(setting.definition, times) for times in (starts, ends, horizons))]
    return pa.Table.from_arrays(arrays, names=[*schema.names, START, CLOSED, HORIZON])
