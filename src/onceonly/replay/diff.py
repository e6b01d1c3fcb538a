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
    """What is different in a range.

    Attributes:
        columns: the columns that both sides have, by which they are compared.
        only_before: columns that only the first has.
        only_after: columns that only the second has.
        less: how many rows only the first has.
        more: how many rows only the second has.
        examples: some of them, each behind ``-`` or ``+``.
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
    """Compare rows of epochs.

    Args:
        before: what the first target holds, with the column of ``protocol.EPOCH``.
        after: what the second one does.
        old: first and last epoch of each range of the first.
        new: the same of the second.
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
