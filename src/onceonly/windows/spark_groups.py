"""Join groups of rows from Spark into partial results of windows.

A group is a slice of time of one key. All its rows are in the same windows. A session is a group by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onceonly.protocol.row_times import RowTimes
from onceonly.windows import late_rows
from onceonly.windows.rules.assigners import Span
from onceonly.windows.rules.local_partials import joined, key_text
from onceonly.windows.rules.spec import Definition
from onceonly.windows.rules.state import Partial, WindowKey
from onceonly.windows.spark_aggregates import Aggregated, cells

if TYPE_CHECKING:
    import pyarrow as pa

KEY, VALUE = "onceonly key ", "onceonly value "
ROWS, MARKS, FIRST, LAST, LATE, ROW = (f"onceonly {name}" for name in ("rows", "marks", "first", "last", "late", "row"))
"""Columns of groups; those of keys and values end in a number."""


class Groups:
    """All groups of a batch, piece by piece, with number and times of their rows."""

    def __init__(self, definition: Definition, values: Sequence[Aggregated]) -> None:
        self._is = definition
        self._values = tuple(values)
        self._slices: dict[tuple[Any, ...], list[Partial]] = {}
        self.rows = 0
        self.times = RowTimes()

    def join(self, piece: pa.RecordBatch) -> None:
        """Add a piece of groups."""
        firsts, lasts, rows = (cells(piece.column(name)) for name in (FIRST, LAST, ROWS))
        self._count(rows, firsts, lasts, cells(piece.column(LATE)))
        keys = [cells(piece.column(f"{KEY}{at}")) for at in range(len(self._is.key_kinds))]
        told = zip(rows, cells(piece.column(MARKS)), firsts, lasts, strict=True)
        for key, values, one in zip(side_by_side(keys, len(rows)), self._read(piece), told, strict=True):
            if one[2] is not None:
                self._slices.setdefault(key, []).append(Partial(_NOWHERE, values, *one))

    def late(self, piece: pa.RecordBatch) -> late_rows.RowGroup:
        """The groups of a piece with rows that may be late."""
        own: Any = piece.column(ROW)
        at = [place for place, count in enumerate(own.value_lengths().to_pylist()) if count]
        firsts, lasts = cells(piece.column(FIRST)), cells(piece.column(LAST))
        spans = [None if firsts[one] is None else self._spans(firsts[one], lasts[one]) for one in at]
        return late_rows.RowGroup(spans, own.take(_numbers(at)))

    def partials(self) -> list[Partial]:
        """One partial result for each window."""
        return [
            window for key, slices in self._slices.items() for window in self._windows(key_text(self._is, key), slices)
        ]

    def _spans(self, first: int, last: int) -> list[Span]:
        window = self._is.panes.window
        return [(first, window.of(last)[0][1])] if self._is.sessions else window.of(first)

    def _windows(self, key: str, slices: list[Partial]) -> Iterator[Partial]:
        slices.sort(key=_first)
        ranges: dict[Span, tuple[int, int]] = {}
        for at, one in enumerate(slices):
            for span in self._spans(one.first, one.last):
                ranges[span] = (ranges.get(span, (at, at))[0], at + 1)
        begin, end, sum_ = 0, 0, None
        # Neighbours among windows hold nearly the same slices, and where a key has few of them, the very same ones.
        for span, (first, behind) in sorted(ranges.items()):
            if sum_ is None or first != begin:
                sum_, begin, end = slices[first], first, first + 1
            if behind > end:
                sum_, end = joined(self._is, _NOWHERE, [sum_, *slices[end:behind]]), behind
            yield sum_._replace(place=WindowKey(key, *span))

    def _read(self, piece: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        each: list[list[Any]] = []
        begin = 0
        for value in self._values:
            end = begin + len(value.columns)
            own = [cells(piece.column(f"{VALUE}{at}")) for at in range(begin, end)]
            each.append([value.read(one) for one in side_by_side(own, piece.num_rows)])
            begin = end
        return zip(*each, strict=True)

    def _count(self, rows: list[int], firsts: list[Any], lasts: list[Any], late: list[int]) -> None:
        past = self.times
        untimed = sum(count for count, first in zip(rows, firsts, strict=True) if first is None)
        ends = [time for time in (*firsts, *lasts, past.first, past.last) if time is not None]
        first, last = min(ends, default=None), max(ends, default=None)
        self.times = RowTimes(first, last, past.late + sum(late), past.untimed + untimed)
        self.rows += sum(rows)


_NOWHERE = WindowKey("", 0, 0)
"""Of a slice, which is a part of windows and none itself."""


def _first(one: Partial) -> int:
    return one.first


def _numbers(at: Sequence[int]) -> pa.Array[Any]:
    import pyarrow as pa

    return pa.array(at, pa.int64())


def side_by_side(columns: Sequence[list[Any]], count: int) -> list[tuple[Any, ...]]:
    """Rows of columns. Without columns, ``count`` empty rows."""
    return list(zip(*columns, strict=True)) if columns else [()] * count
