"""How a table fits a screen: texts are wrapped between words, and what has no blank is never cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

GAP = 2
"""Columns of the screen between two columns of a table."""

_READABLE = 16
"""A text is not squeezed into fewer columns than this, where it needs more."""


_NAME = 24
"""A word of more columns than this may stand below its row, so that the others need not wait for it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns stand side by side.

    Attributes:
        widths: of each column that does, by its place.
        below: places of those that do not: their values stand on lines of their own, below the row.
    """

    widths: dict[int, int]
    below: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of the screen that a row takes."""
        return _total(self.widths.values())

    def beneath(self, row: Sequence[str]) -> list[int]:
        """Places of a row's values that stand below it."""
        return sorted([*self.below, *(at for at, width in self.widths.items() if _word(row[at]) > width)])


def fitted(rows: Sequence[Sequence[str]], width: int) -> Layout:
    """Fit a table into a screen.

    Args:
        rows: the header, then the rows.
        width: columns of the screen.
    """
    columns = list(zip(*rows, strict=True))
    wanted = {at: max(map(_longest_line, column)) for at, column in enumerate(columns)}
    if _total(wanted.values()) <= width:
        return Layout(wanted, ())
    # What a column is as wide as: the values that stand in it, not one that will stand below its row.
    short = {at: [cell for cell in column if _word(cell) <= _NAME] for at, column in enumerate(columns)}
    wanted = {at: max(map(_longest_line, cells), default=0) for at, cells in short.items()}
    least = {at: _least(cells, wanted[at]) for at, cells in short.items()}
    beside = [at for at in wanted if at == 0 or min(map(_word, columns[at][1:]), default=0) <= _NAME]
    while len(beside) > 1 and _total(least[at] for at in beside) > width:
        beside.remove(max(beside[1:], key=lambda at: (wanted[at], at)))
    widths = {at: wanted[at] for at in beside}
    while _total(widths.values()) > width:
        loose = [at for at in beside if widths[at] > least[at]]
        if not loose:
            break
        widths[max(loose, key=lambda at: widths[at])] -= 1
    return Layout(widths, tuple(at for at in wanted if at not in widths))


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def _longest_line(cell: str) -> int:
    return max(map(cell_len, cell.splitlines()), default=0)


def _word(cell: str) -> int:
    """Length of its longest word."""
    return max(map(cell_len, cell.split()), default=0)


def _least(cells: Sequence[str], wanted: int) -> int:
    """Columns without which a word would be cut, or a text be hard to read."""
    return max(max(map(_word, cells), default=0), min(wanted, _READABLE))
