"""Slice rows by time with Spark, so that windows share partial results.

All rows of a slice are in the same windows. Sliding windows overlap, and a row in sixty of them would be sixty rows.
So Spark groups by slices, two between the starts of neighbouring windows. The driver joins the partial results of
slices to windows. Days of a time zone are cut at each time at which one may begin. The idea is that of paired windows
(Krishnamurthy, Wu, Franklin: On-the-fly sharing for streamed aggregation, 2006).
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
    """Rows with their slice, and the columns to group them by beside their keys.

    Rows without a time are in no window and get no key. Else they would form as many groups as there are keys.
    ``time``, a ``bigint``, and ``keys`` are quoted columns.
    """
    if isinstance(window, Sessions):
        return _sessions(window, _keyless(rows, time, keys, _spread(time)), time, keys)
    return _keyless(rows, time, keys).selectExpr("*", f"{_slice(window, time)} AS {quote(SLICE)}"), [quote(SLICE)]


def _keyless(rows: DataFrame, time: str, keys: Sequence[str], *more: str) -> DataFrame:
    rest = [name for name in map(quote, rows.columns) if name not in keys]
    return rows.selectExpr(*[f"IF({time} IS NULL, NULL, {key}) AS {key}" for key in keys], *rest, *more)


def _slice(window: Window, time: str) -> str:
    """Number of a row's slice, in Spark SQL. Null if the row has no time."""
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
    """Slices by days of a zone.

    The driver asks Python's database of time zones, as everywhere. Java's may be of another year.
    """
    past = f"pmod({time}, {DAY}L)"
    begun = "".join(f" WHEN {past} >= {cut}L THEN {cut}L" for cut in reversed(cuts))
    return f"{time} - {past} + CASE{begun} ELSE {cuts[-1] - DAY}L END"


def _sessions(window: Sessions, rows: DataFrame, time: str, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """A session's number among those of its keys.

    Rows without a time are spread over the tasks that read them, so that no task has to sort them all.
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
    """Time before which rows of closed windows are. ``None`` if no window was closed.

    ``noted`` is the time that the epoch before noted. The result is exact except for sessions. A session may end later
    than one row alone shows, so there it is an upper bound.
    """
    if noted is None:
        return None
    if noted >= END:
        return END
    return _closed_before(definition.panes.window, noted - definition.lateness)


def _closed_before(window: Window, passed: int) -> int | None:
    """The same, if windows that end at ``passed`` or before it are closed."""
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
