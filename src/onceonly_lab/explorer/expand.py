"""Expand worlds into their successors, many at once.

A step is computed once for all worlds that look the same to it. Rows are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from onceonly_lab.explorer.moves import Codes, Move, MoveTable, Table

# ---- Numbers for rows of integers, many at once: exact, in arrays, so that millions of worlds fit and are found
# again.

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
        new_numbers = np.empty(len(met), np.int64)
        new_numbers[met] = np.arange(len(self._keys), len(self._keys) + len(met))
        numbers[fresh] = new_numbers
        self._keys = np.insert(self._keys, at[fresh], unique[fresh])
        self._numbers = np.insert(self._numbers, at[fresh], new_numbers)
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
        flat = [entry for sublist in lists for entry in sublist]
        if flat:
            self._entries = np.concatenate((self._entries, np.array(flat, np.int64)))
        lengths = np.array([len(sublist) for sublist in lists], np.int64)
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


# ---- Where worlds can go from here, many at once: what a step sees is computed once, by the production code.
#
# A world is three numbers: of what the drivers share, of the older driver, of the newer one. Of the millions of
# worlds few differ in what any one step looks at, so each step is asked of ``MoveTable`` once, and spread over the
# worlds in arrays.

_UNCHANGED = -1
_UNKNOWN = -1


class _Drivers(IntEnum):
    """What an event does to the drivers."""

    STAY = 0
    ONE_STARTS = 1
    ALL_DIE = 2
    ONE_STARTS_ALONE = 3


@dataclass(frozen=True)
class _Kind:
    """Steps that look at the same places: what each saw, and its outcomes (driver afterwards, number of the edit).

    ``heads``: whether of the targets it is only fence and newest marker.
    """

    columns: list[int]
    heads: bool
    seen: Fold
    outcomes: Lists


class _Map:
    """A function of codes, over arrays; asked once for each code."""

    def __init__(self, ask: Callable[[int], int]) -> None:
        self._ask = ask
        self._known = np.full(64, _UNKNOWN, np.int64)

    def __call__(self, codes: Matrix | Ints) -> Ints:
        if codes.size and codes.max() >= len(self._known):
            self._known = np.concatenate((self._known, np.full(codes.max() + 1, _UNKNOWN, np.int64)))
        for code in np.unique(codes[self._known[codes] == _UNKNOWN]).tolist():
            self._known[code] = self._ask(code)
        return self._known[codes]


class _Edits:
    """What moves change of what drivers share, by number; 0 changes nothing."""

    def __init__(self, width: int) -> None:
        self._table: Table[tuple[tuple[int, int], ...]] = Table()
        self._rows = np.full((64, width), _UNCHANGED, np.int32)
        self._table.number(())

    def number(self, columns: tuple[tuple[int, int], ...]) -> int:
        """The number of an edit: columns with what stands there afterwards."""
        number = self._table.number(columns)
        if number >= len(self._rows):
            self._rows = np.concatenate((self._rows, np.full_like(self._rows, _UNCHANGED)))
        for column, code in columns:
            self._rows[number, column] = code
        return number

    def made(self, rows: Matrix, numbers: Ints) -> Matrix:
        """The rows after their edits."""
        edits = self._rows[numbers]
        return np.where(edits == _UNCHANGED, rows, edits)


class Expander:
    """Successors of worlds.

    Args:
        moves: the bound's moves.
    """

    def __init__(self, moves: MoveTable) -> None:
        self._moves = moves
        self._older, self._newer = moves.bound.slots
        start = (*moves.start[: self._older], *moves.start[self._newer + 1 :])
        self.shared = Fold(len(start))
        self._edits = _Edits(len(start))
        self._kinds: list[_Kind] = []
        self._kind_numbers: Table[tuple[bool, tuple[int, ...]]] = Table()
        self._kind_of = _Map(self._kind)
        self._head_of = _Map(moves.head)
        self._events = Lists(3)
        self.shared.of(np.array([start], np.int32))
        self.start = np.array([[0, moves.nothing, moves.nothing]], np.int32)

    def codes(self, shared: int, older: int, newer: int) -> Codes:
        """A world as the move table knows it."""
        row = self.shared.row(shared)
        return (*row[: self._older], older, newer, *row[self._older :])

    def successors(self, worlds: Matrix) -> tuple[Ints, Matrix]:
        """Every move out of some worlds: which of them it leaves, by place, and the world it leads to."""
        left, reached = zip(self._steps(worlds, 1), self._steps(worlds, 2), *self._happenings(worlds), strict=True)
        after = np.concatenate(reached)
        alone = (after[:, 1] == self._moves.nothing) & (after[:, 2] != self._moves.nothing)
        after[alone, 1:] = after[alone, :0:-1]
        return np.concatenate(left), after

    # ---- steps of drivers

    def _steps(self, worlds: Matrix, slot: int) -> tuple[Ints, Matrix]:
        living = np.flatnonzero(worlds[:, slot] != self._moves.nothing)
        pairs, which = np.unique(paired(worlds[living, slot], worlds[living, 0]), return_inverse=True)
        owner, driver, shared = self._outcomes(pairs)
        lengths = np.bincount(owner, minlength=len(pairs))
        origins, at = spread((np.cumsum(lengths) - lengths)[which], lengths[which])
        left = living[origins]
        after = worlds[left]
        after[:, 0], after[:, slot] = shared[at], driver[at]
        return left, after

    def _outcomes(self, pairs: Ints) -> tuple[Ints, Ints, Ints]:
        """What becomes of a driver and of what it shares: which pair, by place, in order; driver; shared."""
        drivers, shared = halves(pairs)
        kinds = self._kind_of(drivers)
        owners, entries = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
        for number in np.unique(kinds):
            at = np.flatnonzero(kinds == number)
            owner, outcomes = self._outcomes_of(self._kinds[number], drivers[at], shared[at])
            owners.append(at[owner])
            entries.append(outcomes)
        owner, entry = np.concatenate(owners), np.concatenate(entries)
        order = np.argsort(owner, kind="stable")
        owner, entry = owner[order], entry[order]
        return owner, entry[:, 0], self._edited(shared[owner], entry[:, 1])

    def _outcomes_of(self, kind: _Kind, drivers: Ints, shared: Ints) -> tuple[Ints, NDArray[np.int64]]:
        views = np.column_stack((drivers.astype(np.int32), self.shared[shared][:, kind.columns]))
        if kind.heads:
            targets = slice(1, 1 + self._moves.bound.staging)
            views[:, targets] = self._head_of(views[:, targets])
        numbers, fresh = kind.seen.of(views)
        pairs = zip(shared[fresh].tolist(), drivers[fresh].tolist(), strict=True)
        kind.outcomes.extend([self._asked(*pair) for pair in pairs])
        return kind.outcomes.each(numbers)

    def _asked(self, shared: int, driver: int) -> list[tuple[int, ...]]:
        moves = self._moves.of_driver(self.codes(shared, driver, self._moves.nothing), self._older)
        return [self._outcome(move, driver) for move in moves]

    def _outcome(self, move: Move, driver: int) -> tuple[int, int]:
        """The driver after a move, and the edit."""
        return dict(move.updates).get(self._older, driver), self._edit(move)

    def _edit(self, move: Move) -> int:
        places = [(index, code) for index, code in move.updates if index not in (self._older, self._newer)]
        return self._edits.number(tuple((self._column(index), code) for index, code in places))

    def _column(self, index: int) -> int:
        return index if index < self._older else index - 2

    def _kind(self, code: int) -> int:
        """Which kind of step a driver takes next."""
        places, heads = self._moves.places(code), self._moves.sees_heads_alone(code)
        if heads:
            places = tuple(index for index in places if index != self._moves.bound.staging)
        number = self._kind_numbers.number((heads, places))
        if number == len(self._kinds):
            columns = [self._column(index) for index in places]
            self._kinds.append(_Kind(columns, heads, Fold(1 + len(places)), Lists(2)))
        return number

    # ---- everything else

    def _happenings(self, worlds: Matrix) -> list[tuple[Ints, Matrix]]:
        self._events.extend([self._told(number) for number in range(self._events.count, self.shared.count)])
        left, events = self._events.each(worlds[:, 0].astype(np.int64))
        after = worlds[left]
        after[:, 0] = self._edited(after[:, 0].astype(np.int64), events[:, 0])
        fresh, nothing = events[:, 1], self._moves.nothing
        dies, starts = events[:, 2] == _Drivers.ALL_DIE, events[:, 2] == _Drivers.ONE_STARTS
        alone = events[:, 2] == _Drivers.ONE_STARTS_ALONE
        after[dies | alone, 1:] = nothing
        after[alone, 1] = fresh[alone]
        full = starts & (after[:, 2] != nothing)
        in_place_of_newer = after[full]
        in_place_of_newer[:, 2] = fresh[full]
        after[full, 1] = after[full, 2]
        first = starts & (after[:, 1] == nothing)
        after[first, 1] = fresh[first]
        second = starts & ~first
        after[second, 2] = fresh[second]
        return [(left, after), (left[full], in_place_of_newer)]

    def _told(self, shared: int) -> list[tuple[int, ...]]:
        nothing = self._moves.nothing
        return [self._event(*happening) for happening in self._moves.happenings(self.codes(shared, nothing, nothing))]

    def _event(self, fatal: bool, move: Move) -> tuple[int, int, int]:
        fresh = dict(move.updates).get(self._older)
        if fresh is not None:
            starts = _Drivers.ONE_STARTS_ALONE if self._moves.bound.alone else _Drivers.ONE_STARTS
            return self._edit(move), fresh, starts
        return self._edit(move), self._moves.nothing, _Drivers.ALL_DIE if fatal else _Drivers.STAY

    def _edited(self, shared: Ints, edits: Ints) -> Ints:
        """The numbers of what drivers share, after the edits."""
        after: Ints = shared.copy()
        changed = np.flatnonzero(edits)
        if len(changed):
            pairs, which = np.unique(paired(shared[changed], edits[changed]), return_inverse=True)
            before, numbers = halves(pairs)
            edited_numbers, _ = self.shared.of(self._edits.made(self.shared[before], numbers))
            after[changed] = edited_numbers[which]
        return after
