"""Numbers for values: a world becomes a short tuple of integers, and what was computed for its parts is found again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)

Codes = tuple[int, ...]
"""The numbers of a world's parts, in their places."""


class Table(Generic[Value]):
    """Equal values get one number, counted from 0 in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self.values: list[Value] = []

    def number(self, value: Value) -> int:
        """The number of a value."""
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self.values)
            self.values.append(value)
        return known

    def encode(self, values: Iterable[Value]) -> Codes:
        """The numbers of several."""
        return tuple(self.number(value) for value in values)

    def decode(self, codes: Iterable[int]) -> tuple[Value, ...]:
        """Inverse of :meth:`encode`."""
        return tuple(self.values[code] for code in codes)
