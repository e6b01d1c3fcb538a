"""Groups of rows, and their partial results as Spark aggregates.

A group is a slice of time of one key, whose rows are all in the same windows. A session is a group by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from onceonly.protocol.row_times import RowTimes
from onceonly.spark.digest import quote
from onceonly.windows import late_rows
from onceonly.windows.epoch_step import collector_paused
from onceonly.windows.rules import json_values
from onceonly.windows.rules.assigners import DAY, Custom, Global, Sessions, Sliding, Span, Tumbling, Window, wrong
from onceonly.windows.rules.json_values import Json, as_json
from onceonly.windows.rules.spec import Definition, Windows
from onceonly.windows.rules.state import Partial, WindowKey
from onceonly.windows.rules.step import joined, key_text
from onceonly.windows.rules.values import Aggregate, Count, CountDistinct, Last, Max, Mean, Min, Sum, Value, encoded
from onceonly_checkpoints.epoch_time import END

# ---- Partial results of windows as Spark aggregates.
#
# Spark gives values in its own types. The driver spells them by the rules of
# :mod:`onceonly.windows.rules.json_values`, so that a partial result has the same text from Spark and from Python.

Read = Callable[[Sequence[Any]], Json]

_LOW = 2**32
"""A ``bigint`` is summed up in halves: both sums fit into one, however large the values are."""

_EXACT_DIGITS = 28
"""Up to which a sum of decimals has Spark's ten digits more; beyond them it may end in null, or in an error."""

_HALF = 19
"""Digits of the lower half of longer ones."""

_EXACT = Context(prec=96)

_DOUBLE_DIGITS = 17
"""No double is spelled with more."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Spark's aggregates for a value, in SQL or as Columns. ``read`` makes a partial result of their :func:`cells`."""

    columns: tuple[str | Column, ...]
    read: Read


def aggregated(value: Value, columns: Sequence[str], of: Sequence[str]) -> Aggregated:
    """Return the aggregates of a value over columns.

    ``columns`` are its inputs in Spark SQL, in order, and ``of`` their kinds. Each should be a column, because each is
    used more than once. Raises ``TypeError``: the value is of a class that only Python computes.
    """
    match value:
        case Count():
            return Aggregated((f"count({columns[0] if columns else 1})",), lambda row: as_json(row[0]))
        case Sum():
            return _sum(columns[0], of[0])
        case Mean():
            return _mean(columns[0], of[0])
        case Min() | Max() | CountDistinct():
            return _one_column(value, columns[0], of[0])
        case Last():
            return _last(columns, of)
        case Aggregate():
            return Aggregated((value.partial(),), _parsed)
        case _:
            raise TypeError(f"{type(value).__name__} is no Aggregate, so Spark does not know how to compute it")


def cells(column: pa.Array[Any]) -> list[Any]:
    """Convert a column of Arrow to Python, with instants as microseconds since 1970."""
    kind: Any = column.type
    if pa.types.is_list(kind):
        sets: Any = column
        flat, ends = cells(sets.values), sets.offsets.to_pylist()
        return [flat[begin:end] for begin, end in pairwise(ends)]
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    listed: list[Any] = column.to_pylist()
    return listed


def _one_column(value: Min | Max | CountDistinct, column: str, kind: str) -> Aggregated:
    if not isinstance(value, CountDistinct):
        return Aggregated((f"{'min' if isinstance(value, Min) else 'max'}({column})",), encoded(kind))
    fold = value.over("", [kind])

    def different(row: Sequence[Any]) -> Json:
        return fold.merge((), [json_values.encode(kind, each) for each in row[0]])

    return Aggregated((f"collect_set({column})",), different)


def _parsed(row: Sequence[Any]) -> Json:
    return None if row[0] is None else as_json(json.loads(row[0], parse_float=_double))


def _double(text: str) -> float:
    """Read a number with a point or an exponent.

    Raises E140: it has more digits than a double, so it was a decimal and would be rounded.
    """
    digits = len(Decimal(text).normalize(_EXACT).as_tuple().digits)
    if digits > _DOUBLE_DIGITS:
        problem = f"partial() gives a number of {digits} digits, which Python would round to a double"
        remedy = (
            "give it as text, to_json(struct(CAST(sum(x) AS STRING))), and read it with Decimal in merge() and value()"
        )
        raise wrong(problem, "an Aggregate over a decimal", remedy)
    return float(text)


def _sum(column: str, kind: str) -> Aggregated:
    size = json_values.decimal(kind)
    if kind == "bigint":
        return Aggregated((f"sum(shiftright({column}, 32))", f"sum({column} & {_LOW - 1}L)"), _joined)
    if size is None:
        return Aggregated((f"sum({column})",), encoded("double" if kind in json_values.FLOATS else "bigint"))
    if size[0] <= _EXACT_DIGITS:
        return Aggregated((f"sum({column})",), encoded(kind))
    return _long_sum(column, *size)


def _joined(halves: Sequence[Any]) -> Json:
    high, low = halves
    return None if high is None else int(high * _LOW + low)


def _long_sum(column: str, digits: int, scale: int) -> Aggregated:
    # Its unscaled digits, split as text: arithmetic of decimals rounds what has too many of them.
    text = f"CAST({column} AS STRING)"
    plain = f"lpad(replace(replace({text}, '-', ''), '.', ''), {digits + 1}, '0')"
    sign = f"IF({column} < 0, -1, 1)"
    high = f"CAST(substring({plain}, 1, {digits + 1 - _HALF}) AS DECIMAL(20,0)) * {sign}"
    low = f"CAST(substring({plain}, {digits + 2 - _HALF}, {_HALF}) AS DECIMAL(20,0)) * {sign}"

    def read(row: Sequence[Any]) -> Json:
        if row[0] is None:
            return None
        unscaled = int(row[0]) * 10**_HALF + int(row[1])
        return format(Decimal(unscaled).scaleb(-scale, _EXACT), "f")

    return Aggregated((f"sum({high})", f"sum({low})"), read)


def _mean(column: str, kind: str) -> Aggregated:
    total = _sum(column, kind)

    def read(row: Sequence[Any]) -> Json:
        return [total.read(row[:-1]), row[-1]] if row[-1] else None

    return Aggregated((*total.columns, f"count({column})"), read)


def _last(columns: Sequence[str], of: Sequence[str]) -> Aggregated:
    (value, by), (kind, by_kind) = columns, of
    # A structure is greater by its first part that is, and null is less than any value.
    last = f"max(CASE WHEN {by} IS NOT NULL THEN struct({by} AS by, {value} AS value) END)"

    def read(row: Sequence[Any]) -> Json:
        return None if row[0] is None else [json_values.encode(by_kind, row[0]), json_values.encode(kind, row[1])]

    return Aggregated((f"{last}.by", f"{last}.value"), read)


# ---- Time slices and groups of rows as partial results of windows.

KEY, VALUE = "onceonly key ", "onceonly value "
ROWS, MARKS, FIRST, LAST, LATE, ROW = (f"onceonly {name}" for name in ("rows", "marks", "first", "last", "late", "row"))
OWN_START, OWN_END = "onceonly start", "onceonly end"
"""Columns of groups; those of keys and values end in a number."""


class Groups:
    """All groups of a batch, read piece by piece, with Spark's aggregates of each value.

    ``rows`` and ``times`` are those of all groups.
    """

    def __init__(self, definition: Definition, values: Sequence[Aggregated]) -> None:
        self._is = definition
        self._values = tuple(values)
        self._slices: dict[tuple[Any, ...], list[Partial]] = {}
        self.rows = 0
        self.times = RowTimes()

    @collector_paused()
    def join(self, piece: pa.RecordBatch) -> None:
        """Add a piece."""
        firsts, lasts, rows = (cells(piece.column(name)) for name in (FIRST, LAST, ROWS))
        self._count(rows, firsts, lasts, cells(piece.column(LATE)))
        keys = [cells(piece.column(f"{KEY}{at}")) for at in range(len(self._is.key_kinds))]
        measures = zip(rows, cells(piece.column(MARKS)), firsts, lasts, strict=True)
        columns = side_by_side(keys, len(rows)), self._read(piece), own_windows(self._is.panes, piece), measures
        for key, values, own, measure in zip(*columns, strict=True):
            if measure[2] is not None:
                window_key = WindowKey("", *own) if self._is.panes.bounds else _NOWHERE
                self._slices.setdefault(key, []).append(Partial(window_key, values, *measure))

    def late(self, piece: pa.RecordBatch) -> late_rows.RowGroup:
        """Return the groups of a piece with rows that may be late."""
        own: Any = piece.column(ROW)
        at = [index for index, count in enumerate(own.value_lengths().to_pylist()) if count]
        firsts, lasts, named = cells(piece.column(FIRST)), cells(piece.column(LAST)), own_windows(self._is.panes, piece)
        spans = [
            None if firsts[index] is None else self._spans(firsts[index], lasts[index], named[index]) for index in at
        ]
        return late_rows.RowGroup(spans, own.take(pa.array(at, pa.int64())))

    @collector_paused()
    def partials(self) -> list[Partial]:
        """Return one partial result for each window, and forget the groups."""
        left = self._slices
        return [window for key in [*left] for window in self._windows(key_text(self._is, key), left.pop(key))]

    def _spans(self, first: int, last: int, own: Span) -> list[Span]:
        return [(first, self._is.spans(last)[0][1])] if self._is.sessions else self._is.spans(first, own)

    def _windows(self, key: str, slices: list[Partial]) -> Iterator[Partial]:
        slices.sort(key=lambda partial: partial.first)
        ranges: dict[Span, tuple[int, int]] = {}
        for at, partial in enumerate(slices):
            for span in self._spans(partial.first, partial.last, partial.window_key[1:]):
                ranges[span] = (ranges.get(span, (at, at))[0], at + 1)
        begin, end, sum_ = 0, 0, None
        # Neighbours among windows hold nearly the same slices, and where a key has few of them, the very same ones.
        for span, (first, behind) in sorted(ranges.items()):
            if sum_ is None or first != begin:
                sum_, begin, end = slices[first], first, first + 1
            if behind > end:
                sum_, end = joined(self._is, _NOWHERE, [sum_, *slices[end:behind]]), behind
            yield Partial(WindowKey(key, *span), *sum_[1:])

    def _read(self, piece: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        each: list[list[Any]] = []
        begin = 0
        for value in self._values:
            end = begin + len(value.columns)
            own = [cells(piece.column(f"{VALUE}{at}")) for at in range(begin, end)]
            each.append([value.read(row) for row in side_by_side(own, piece.num_rows)])
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


def own_windows(panes: Windows, piece: pa.RecordBatch) -> Sequence[Any]:
    """Return the windows that rows or groups of a piece name, if they name theirs."""
    if not panes.bounds:
        return [_NOWHERE[1:]] * piece.num_rows
    return side_by_side([cells(piece.column(OWN_START)), cells(piece.column(OWN_END))], piece.num_rows)


def side_by_side(columns: Sequence[list[Any]], count: int) -> list[tuple[Any, ...]]:
    """Return rows of columns, or ``count`` empty ones without a column."""
    return list(zip(*columns, strict=True)) if columns else [()] * count


# ---- Time slices as Spark columns: rows that share all windows.
#
# Sliding windows overlap, and a row in sixty of them would be sixty rows. So Spark groups by slices, of which two lie
# between one window's beginning and the next. The reader of the partial results joins slices to windows. Days of a
# zone are cut wherever one of them may begin. The idea is that of paired windows (Krishnamurthy, Wu, Franklin: On-
# the-fly sharing for streamed aggregation, 2006).

SLICE, NOWHERE = "onceonly slice", "onceonly nowhere"
"""Columns that rows are grouped by, beside their keys."""

_BEGINS = "onceonly begins"


def sliced(window: Window, rows: DataFrame, time: str, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return rows with their slice, and the columns to group them by beside their keys.

    Rows without a time have no window and no key. Otherwise they would be as many groups as there are keys. ``time`` is
    a column of ``bigint``, quoted as the keys are.
    """
    if isinstance(window, Custom):
        own = [quote(OWN_START), quote(OWN_END)]
        return _keyless(rows, time, [*keys, *own]), own
    if isinstance(window, Sessions):
        spread = f"IF({time} IS NULL, spark_partition_id(), -1) AS {quote(NOWHERE)}"
        return _sessions(window, _keyless(rows, time, keys, spread), time, keys)
    return _keyless(rows, time, keys).selectExpr("*", f"{_slice(window, time)} AS {quote(SLICE)}"), [quote(SLICE)]


def _keyless(rows: DataFrame, time: str, keys: Sequence[str], *more: str) -> DataFrame:
    rest = [name for name in map(quote, rows.columns) if name not in keys]
    return rows.selectExpr(*[f"IF({time} IS NULL, NULL, {key}) AS {key}" for key in keys], *rest, *more)


def _slice(window: Window, time: str) -> str:
    """Return the number of a row's slice, in Spark SQL, or null if the row has no time."""
    match window:
        case Tumbling(timezone=None):
            size, offset = window.numbers
            return f"{time} - pmod({time} - {offset}L, {size}L)"
        case Tumbling():
            return _days(time, window.cuts)
        case Sliding():
            return _paired(time, *window.numbers)
        case _:
            return f"IF({time} IS NULL, NULL, 0L)"


def _paired(time: str, size: int, every: int) -> str:
    # Windows begin at multiples of ``every``, and end where what is over of their size is.
    past, over = f"pmod({time}, {every}L)", size % every
    return f"{time} - {past}" + (f" + IF({past} < {over}L, 0L, {over}L)" if over else "")


def _days(time: str, cuts: Sequence[int]) -> str:
    """Cut by Python's database of time zones, as everywhere, from the driver: Java's may be of another year."""
    past = f"pmod({time}, {DAY}L)"
    begun = "".join(f" WHEN {past} >= {cut}L THEN {cut}L" for cut in reversed(cuts))
    return f"{time} - {past} + CASE{begun} ELSE {cuts[-1] - DAY}L END"


def _sessions(window: Sessions, rows: DataFrame, time: str, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Number the sessions of a key.

    Rows without a time are spread over the tasks that read them, so that one task need not sort them all.
    """
    by = f"PARTITION BY {', '.join((*keys, quote(NOWHERE)))} ORDER BY {time}"
    # An end is not in its session: who comes right then begins another.
    goes_on = f"{time} IS NULL OR {time} - lag({time}) OVER ({by}) < {window.number}L"
    begun = rows.selectExpr("*", f"IF({goes_on}, 0, 1) AS {quote(_BEGINS)}")
    # Rows of one time are all counted for each of them, so it does not matter which of them begins.
    parted = begun.selectExpr("*", f"sum({quote(_BEGINS)}) OVER ({by}) AS {quote(SLICE)}")
    return parted, [quote(NOWHERE), quote(SLICE)]


def late_before(definition: Definition, complete_until: int | None) -> int | None:
    """Return the time before which rows are of windows that ``complete_until`` closed, or ``None`` if it closed none.

    It is exact except for sessions and windows of your own, where the time of a row does not tell the end of its
    window: there it is an upper bound.
    """
    if complete_until is None:
        return None
    if complete_until >= END:
        return END
    return _closed_before(definition.panes.window, complete_until - definition.lateness)


def _closed_before(window: Window, passed: int) -> int | None:
    """Return the same for windows that end at ``passed`` or before it."""
    match window:
        case Global():
            return None
        case Custom():
            return passed
        case Sessions():
            return passed - window.number + 1
        case Sliding():
            size, every = window.numbers
            return (passed - size) // every * every + size
        case Tumbling():
            return window.of(passed)[0][0]
