"""Row rules of a destination, judged in Spark or in Python.

A closed vocabulary and not SQL: what a condition means differs from one dialect to the next, and a check of null above
all. Whatever a destination demands beyond it stays with the destination, which refuses the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

_UUID = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class NotNull:
    """There is a value; all other demands leave null alone."""

    @property
    def says(self) -> str:
        """In words, without a value."""
        return "not null"

    def met(self, value: object) -> bool:
        """Whether a value meets it, as Arrow hands it to Python."""
        return value is not None


@dataclass(frozen=True, slots=True)
class Between:
    """A whole number within a range.

    Attributes:
        least: the lowest.
        most: the highest.
    """

    least: int
    most: int

    @property
    def says(self) -> str:
        """In words."""
        return f"from {self.least} to {self.most}"

    def met(self, value: int) -> bool:
        """Whether a number does."""
        return self.least <= value <= self.most


@dataclass(frozen=True, slots=True)
class Digits:
    """A number that needs no more digits than there are: nothing is rounded.

    Attributes:
        precision: of all digits.
        scale: of those behind the point.
    """

    precision: int
    scale: int

    @property
    def says(self) -> str:
        """In words."""
        return f"at most {self.precision} digits, {self.scale} of them behind the point"

    def met(self, value: Decimal | int) -> bool:
        """Whether a number does."""
        scaled: Fraction = Fraction(value) * 10**self.scale
        most: int = 10**self.precision - 1
        return scaled.denominator == 1 and abs(scaled.numerator) <= most


@dataclass(frozen=True, slots=True)
class Characters:
    """A text of so many characters.

    Attributes:
        most: of the longest.
    """

    most: int

    @property
    def says(self) -> str:
        """In words."""
        return f"at most {self.most} characters"

    def met(self, value: str) -> bool:
        """Whether a text does."""
        return len(value) <= self.most


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text in UTF-8 without the character NUL."""

    @property
    def says(self) -> str:
        """In words."""
        return "text in UTF-8 without NUL"

    def met(self, value: str) -> bool:
        """Whether a text does; one of Python's is UTF-8."""
        return "\0" not in value


@dataclass(frozen=True, slots=True)
class Uuid:
    """A text that is a UUID, in hexadecimal digits with or without hyphens."""

    @property
    def says(self) -> str:
        """In words."""
        return "a UUID"

    def met(self, value: str) -> bool:
        """Whether a text does."""
        return _UUID.fullmatch(value.replace("-", "")) is not None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some texts.

    Attributes:
        texts: these.
    """

    texts: tuple[str, ...]

    @property
    def says(self) -> str:
        """In words; of many, the first ones."""
        said = ", ".join(self.texts[:_FEW])
        return f"one of {said}{' ...' if len(self.texts) > _FEW else ''}"

    def met(self, value: str) -> bool:
        """Whether a text does."""
        return value in self.texts


@dataclass(frozen=True, slots=True)
class Bytes:
    """Binary data of a certain length.

    Attributes:
        exactly: how many bytes.
    """

    exactly: int

    @property
    def says(self) -> str:
        """In words."""
        return f"{self.exactly} bytes"

    def met(self, value: bytes) -> bool:
        """Whether bytes do."""
        return len(value) == self.exactly


@dataclass(frozen=True, slots=True)
class Ticks:
    """A time that is not finer than what is kept of it.

    Attributes:
        microseconds: what its microseconds are a multiple of; a divisor of a second.
    """

    microseconds: int

    @property
    def says(self) -> str:
        """In words."""
        return f"a multiple of {self.microseconds} microseconds"

    def met(self, value: datetime) -> bool:
        """Whether a time does."""
        return value.microsecond % self.microseconds == 0


@dataclass(frozen=True, slots=True)
class AfterEpoch:
    """A time that lies at least a millisecond after the beginning of 1970, in UTC."""

    @property
    def says(self) -> str:
        """In words."""
        return "after 1970-01-01 00:00 UTC"

    def met(self, value: datetime) -> bool:
        """Whether a time does."""
        from datetime import timezone

        since = value - datetime(1970, 1, 1, tzinfo=timezone.utc if value.tzinfo else None)
        return since.total_seconds() >= 0.001


@dataclass(frozen=True, slots=True)
class Named:
    """A structure of which one part is there.

    Attributes:
        part: its name.
    """

    part: str

    @property
    def says(self) -> str:
        """In words."""
        return f"with a {self.part}"

    def met(self, value: Mapping[str, Any]) -> bool:
        """Whether a structure does."""
        return value[self.part] is not None


_FEW = 5

Demand: TypeAlias = (
    NotNull | Between | Digits | Characters | PlainText | Uuid | OneOf | Bytes | Ticks | AfterEpoch | Named
)
"""What can be demanded of a value."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is demanded of the values of a column.

    Attributes:
        column: of the rows that the sink gets, as these spell it.
        demand: what of each value.
        each: whether the column holds arrays, and each of their elements is meant.
    """

    column: str
    demand: Demand
    each: bool = False

    @property
    def says(self) -> str:
        """In words, without a value."""
        return f"{self.column}: {'each ' if self.each else ''}{self.demand.says}"

    def met(self, value: Any) -> bool:
        """Whether a value of the column meets it, as Arrow hands it to Python."""
        demand: Any = self.demand
        return all((one is None and not isinstance(demand, NotNull)) or demand.met(one) for one in self._meant(value))

    def _meant(self, value: Any) -> Iterator[Any]:
        if not self.each:
            yield value
        elif value is not None:
            yield from value


@dataclass(frozen=True, slots=True)
class Condition:
    """What is demanded of a row, in Spark SQL; a null is no.

    Attributes:
        name: of it, in the destination.
        sql: over the columns of the rows that the sink gets.
    """

    name: str
    sql: str

    @property
    def says(self) -> str:
        """In words, without a value."""
        return f"constraint {self.name}"
