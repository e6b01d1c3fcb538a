"""Diff the rows of two targets as bags, by recorded epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.protocol import EPOCH
from onceonly.spark.digest import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

SHOWN = 10
"""Rows of each side that are brought to the driver."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences of the rows of a range.

    Attributes:
        columns: columns of both sides, by which rows are compared.
        less: number of rows of the first side only.
        more: number of rows of the second side only.
        examples: some of these rows, each after ``-`` or ``+``.
    """

    columns: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    less: int
    more: int
    examples: tuple[tuple[str, Row], ...]


def difference(
    before: DataFrame, after: DataFrame, old: Sequence[tuple[int, int]], new: Sequence[tuple[int, int]]
) -> Difference:
    """Compare rows of epochs. Both frames have the column of ``protocol.EPOCH``.

    ``old`` are the first and last epochs of each range in ``before``, and ``new`` those of the same ranges in
    ``after``.
    """
    return compared(_of(before, old), _of(after, new))


def compared(before: DataFrame, after: DataFrame) -> Difference:
    """Compare all rows of both."""
    columns = [name for name in after.columns if name in before.columns]
    left, right = before.select(list(map(quote, columns))), after.select(list(map(quote, columns)))
    gone, come = left.exceptAll(right), right.exceptAll(left)
    examples = [("-", row) for row in gone.limit(SHOWN).collect()] + [("+", row) for row in come.limit(SHOWN).collect()]
    return Difference(
        columns=tuple(columns),
        only_before=tuple(name for name in before.columns if name not in after.columns),
        only_after=tuple(name for name in after.columns if name not in before.columns),
        less=gone.count(),
        more=come.count(),
        examples=tuple(examples),
    )


def _of(rows: DataFrame, epochs: Sequence[tuple[int, int]]) -> DataFrame:
    from pyspark.sql import functions as f

    number = f.col(quote(EPOCH))
    wanted = f.lit(False)
    for first, last in epochs:
        wanted |= number.between(first, last)
    return rows.where(wanted).drop(EPOCH)
