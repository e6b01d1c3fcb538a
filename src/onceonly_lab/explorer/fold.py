"""Numbers for rows of integers, many at once: exact, in arrays, so that millions of worlds fit and are found again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
"""One dimension: one integer for each row."""

Matrix = NDArray[np.int32]
"""Two dimensions: rows of codes."""

_HALF = 32


def paired(high: NDArray[np.integer], low: NDArray[np.integer]) -> Ints:
    """Two columns of numbers below 2**31 in one."""
    return (high.astype(np.int64) << _HALF) | low


def halves(pairs: Ints) -> tuple[Ints, Ints]:
    """Inverse of :func:`paired`."""
    return pairs >> _HALF, pairs & ((1 << _HALF) - 1)


class _Numbers:
    """Numbers for integers, counted from 0 in the order in which they are met."""

    def __init__(self) -> None:
        self._keys = np.empty(0, np.int64)
        self._numbers = np.empty(0, np.int64)

    def of(self, values: Ints) -> tuple[Ints, Ints]:
        """The number of each, and where each that is new stands first."""
        unique, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        at = np.searchsorted(self._keys, unique)
        fresh = np.ones(len(unique), np.bool_)
        inside = at < len(self._keys)
        fresh[inside] = self._keys[at[inside]] != unique[inside]
        numbers = np.empty(len(unique), np.int64)
        numbers[~fresh] = self._numbers[at[~fresh]]
        met = np.argsort(first[fresh])
        given = np.empty(len(met), np.int64)
        given[met] = np.arange(len(self._keys), len(self._keys) + len(met))
        numbers[fresh] = given
        self._keys = np.insert(self._keys, at[fresh], unique[fresh])
        self._numbers = np.insert(self._numbers, at[fresh], given)
        return numbers[inverse], first[fresh][met]


class Fold:
    """Equal rows get one number, counted from 0 in the order in which they are met.

    Args:
        width: columns of a row.
    """

    def __init__(self, width: int) -> None:
        self._tables = [_Numbers() for _ in range(max(1, width - 1))]
        self._rows = np.empty((64, width), np.int32)
        self.count = 0

    def __getitem__(self, numbers: Ints) -> Matrix:
        return self._rows[numbers]

    def row(self, number: int) -> list[int]:
        """The row of one number."""
        row: list[int] = self._rows[number].tolist()
        return row

    def span(self, first: int, last: int) -> Matrix:
        """The rows of the numbers from ``first`` to before ``last``."""
        return self._rows[first:last]

    def of(self, rows: Matrix) -> tuple[Ints, Ints]:
        """The number of each row, and where each row that is new stands first, by number."""
        numbers: Ints = rows[:, 0].astype(np.int64)
        fresh = np.empty(0, np.int64)
        for at, table in enumerate(self._tables, start=1):
            numbers, fresh = table.of(paired(numbers, rows[:, at]) if at < rows.shape[1] else numbers)
        self._keep(rows[fresh])
        return numbers, fresh

    def _keep(self, rows: Matrix) -> None:
        after = self.count + len(rows)
        if after > len(self._rows):
            larger = np.empty((2 * after, self._rows.shape[1]), np.int32)
            larger[: self.count] = self._rows[: self.count]
            self._rows = larger
        self._rows[self.count : after] = rows
        self.count = after


class Lists:
    """Many lists of integers behind each other, each found by its number.

    Args:
        width: integers of one entry.
    """

    def __init__(self, width: int) -> None:
        self._entries = np.empty((0, width), np.int64)
        self._starts = np.zeros(1, np.int64)

    @property
    def count(self) -> int:
        """How many lists there are."""
        return len(self._starts) - 1

    def extend(self, lists: list[list[tuple[int, ...]]]) -> None:
        """Add lists, with the next numbers."""
        if not lists:
            return
        flat = [entry for one in lists for entry in one]
        if flat:
            self._entries = np.concatenate((self._entries, np.array(flat, np.int64)))
        lengths = np.array([len(one) for one in lists], np.int64)
        self._starts = np.concatenate((self._starts, self._starts[-1] + np.cumsum(lengths)))

    def each(self, numbers: Ints) -> tuple[Ints, NDArray[np.int64]]:
        """Every entry of the lists: which of ``numbers`` it belongs to, by place, and the entry."""
        starts = self._starts[numbers]
        owner, at = spread(starts, self._starts[numbers + 1] - starts)
        return owner, self._entries[at]


def spread(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Ranges one after the other: which one each index belongs to, by place, and the index."""
    owner = np.repeat(np.arange(len(starts)), lengths)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owner, starts[owner] + within
