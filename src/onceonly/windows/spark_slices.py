"""Time slices as Spark columns: rows that share all windows.

Sliding windows overlap, and a row in sixty of them would be sixty rows. So Spark groups by slices, of which two lie
between one window's beginning and the next, and whoever has the partial results of slices joins them to windows. Days
of a zone are cut wherever one of them may begin. The
idea is that of paired windows (Krishnamurthy, Wu, Franklin: On-the-fly sharing for streamed aggregation, 2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onceonly.spark.digest import quote
from onceonly.windows.rules.assigners import DAY, Fixed, Global, Sessions, Sliding, Window
from onceonly.windows.rules.spec import Definition
from onceonly_checkpoints.epoch_time import END

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLICE, NOWHERE = "onceonly slice", "onceonly nowhere"
"""Columns that rows are grouped by, beside their keys."""

_BEGINS = "onceonly begins"


def sliced(window: Window, rows: DataFrame, time: str, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Rows with the slice that each is in, and the columns to group them by beside their keys.

    Rows without a time are in no window and of no key: else they were as many groups as there are keys.

    Args:
        window: of the definition.
        rows: with their keys and their time.
        time: a column of ``bigint``, quoted.
        keys: columns, quoted.
    """
    if isinstance(window, Sessions):
        return _sessions(window, _keyless(rows, time, keys, _spread(time)), time, keys)
    return _keyless(rows, time, keys).selectExpr("*", f"{_slice(window, time)} AS {quote(SLICE)}"), [quote(SLICE)]


def _keyless(rows: DataFrame, time: str, keys: Sequence[str], *more: str) -> DataFrame:
    rest = [name for name in map(quote, rows.columns) if name not in keys]
    return rows.selectExpr(*[f"IF({time} IS NULL, NULL, {key}) AS {key}" for key in keys], *rest, *more)


def _slice(window: Window, time: str) -> str:
    """A number that tells the slice of a row, in Spark SQL; null where the row has no time."""
    match window:
        case Fixed(timezone=None):
            size, offset = window.numbers
            return f"{time} - pmod({time} - {offset}L, {size}L)"
        case Fixed():
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
    """By Python's database of time zones, as anywhere, which the driver asks: Java's may be of another year."""
    past = f"pmod({time}, {DAY}L)"
    begun = "".join(f" WHEN {past} >= {cut}L THEN {cut}L" for cut in reversed(cuts))
    return f"{time} - {past} + CASE{begun} ELSE {cuts[-1] - DAY}L END"


def _sessions(window: Sessions, rows: DataFrame, time: str, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """A session's number among those of its keys.

    Rows without a time are spread over the tasks that read them: one task must not have to sort them all.
    """
    by = f"PARTITION BY {', '.join((*keys, quote(NOWHERE)))} ORDER BY {time}"
    # An end is not in its session: who comes right then begins another.
    goes_on = f"{time} IS NULL OR {time} - lag({time}) OVER ({by}) < {window.number}L"
    begun = rows.selectExpr("*", f"IF({goes_on}, 0, 1) AS {quote(_BEGINS)}")
    # Rows of one time are all counted for each of them, so it does not matter which of them begins.
    parted = begun.selectExpr("*", f"sum({quote(_BEGINS)}) OVER ({by}) AS {quote(SLICE)}")
    return parted, [quote(NOWHERE), quote(SLICE)]


def _spread(time: str) -> str:
    return f"IF({time} IS NULL, spark_partition_id(), -1) AS {quote(NOWHERE)}"


def late_before(definition: Definition, noted: int | None) -> int | None:
    """Rows of windows that were closed when so much was noted are before this time; ``None`` where none were.

    Exact but for sessions: one may end later than a row alone says, so there it is an upper bound.
    """
    if noted is None:
        return None
    if noted >= END:
        return END
    return _closed_before(definition.panes.window, noted - definition.lateness)


def _closed_before(window: Window, passed: int) -> int | None:
    """The same where windows that end at ``passed`` or before it are closed."""
    match window:
        case Global():
            return None
        case Sessions():
            return passed - window.number + 1
        case Sliding():
            size, every = window.numbers
            return (passed - size) // every * every + size
        case Fixed():
            return window.of(passed)[0][0]
