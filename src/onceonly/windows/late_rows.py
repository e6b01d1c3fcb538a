"""Select late rows, with their window and horizon, for their sink.

A late row came after its window was closed. The sink gets it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.spark import frames
from onceonly.windows.rules.arrow_rows import times_of
from onceonly.windows.rules.local_partials import Row, key_text
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import Partial

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

START, CLOSED, HORIZON = "window_start", "window_end", "horizon"
"""Columns behind those of the row: its window, and what was noted when it came."""

ADDED = (START, CLOSED, HORIZON)


@dataclass(frozen=True, slots=True)
class LateRowContext:
    """The conditions under which a row is late.

    ``noted`` is the time that the epoch before noted. With ``None``, only rows without a time are wanted.
    """

    definition: Definition
    columns: StructType
    noted: int | None

    def late(self, end: int | None) -> bool:
        """Whether a window with this end is closed. True for ``None``, a row without a time."""
        if end is None:
            return True
        return self.noted is not None and self.definition.closes(end) <= self.noted


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Groups of rows from Spark.

    ``spans`` are the windows of each group, or ``None`` for rows without a time. ``rows`` has a list of structures per
    group, those that may be late.
    """

    spans: Sequence[Sequence[tuple[int, int]] | None]
    rows: Any


def of_rows(
    setting: LateRowContext, rows: Sequence[Row], whole: Sequence[Any], partials: Sequence[Partial]
) -> pa.Table:
    """Late rows among rows of the driver.

    ``whole`` has the same rows as structures, piece by piece. Sessions take their windows from ``partials``.
    """
    import pyarrow as pa

    at: list[int] = []
    starts: list[int | None] = []
    ends: list[int | None] = []
    for place, row in enumerate(rows):
        for start, end in _windows(setting, row, partials):
            if setting.late(end):
                at.append(place)
                starts.append(start)
                ends.append(end)
    taken = pa.chunked_array(whole).take(pa.array(at, pa.int64())) if whole else None
    return _table(setting, taken.combine_chunks() if taken is not None else None, starts, ends)


def _windows(setting: LateRowContext, row: Row, partials: Sequence[Partial]) -> list[tuple[int | None, int | None]]:
    if row.time is None:
        return [(None, None)]
    definition, time = setting.definition, row.time
    if not definition.sessions:
        return list(definition.panes.window.of(time))
    key = key_text(definition, row.key)
    return [
        (partial.place.start, partial.place.end)
        for partial in partials
        if partial.place.key == key and partial.place.start <= time < partial.place.end
    ]


def of_pieces(setting: LateRowContext, pieces: Sequence[RowGroup]) -> pa.Table:
    """Late rows among groups of rows."""
    import pyarrow as pa

    starts: list[int | None] = []
    ends: list[int | None] = []
    taken: list[Any] = []
    for piece in pieces:
        for at, spans in enumerate(piece.spans):
            own: Any = piece.rows.slice(at, 1).flatten()
            for start, end in [(None, None)] if spans is None else spans:
                if len(own) and setting.late(end):
                    taken.append(own)
                    starts += [start] * len(own)
                    ends += [end] * len(own)
    return _table(setting, pa.concat_arrays(taken) if taken else None, starts, ends)


def _table(setting: LateRowContext, rows: Any, starts: Sequence[int | None], ends: Sequence[int | None]) -> pa.Table:
    import pyarrow as pa

    schema = frames.in_arrow(setting.columns)
    if rows is None:
        batch = pa.RecordBatch.from_pylist([], schema=schema)
    else:
        batch = frames.cast(pa.RecordBatch.from_arrays(rows.flatten(), names=schema.names), schema)
    noted = [setting.noted] * len(starts)
    arrays = [*batch.columns, *(times_of(setting.definition, one) for one in (starts, ends, noted))]
    return pa.Table.from_arrays(arrays, names=[*schema.names, START, CLOSED, HORIZON])
