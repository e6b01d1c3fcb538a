"""Describe demands of a destination on values, for Spark and Python.

Spark checks them beside the rows, Python in a test. The vocabulary is closed and not SQL: a condition means different
things in different dialects, and a null check above all. Further demands stay with the destination, which refuses the
row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from onceonly.errors.options import misused

_UUID = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class NotNull:
    """The value is not null. All other demands skip null."""


@dataclass(frozen=True, slots=True)
class Between:
    """A whole number within a range, both ends included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Digits:
    """A number that fits these digits without rounding. ``scale``: number of digits behind the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Characters:
    """A text of at most ``most`` characters."""

    most: int


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text in UTF-8 without the character NUL."""


@dataclass(frozen=True, slots=True)
class Uuid:
    """A text that is a UUID, in hexadecimal digits with or without hyphens."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of ``texts``."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bytes:
    """Binary data of exactly ``exactly`` bytes."""

    exactly: int


@dataclass(frozen=True, slots=True)
class Ticks:
    """A time no finer than a multiple of so many microseconds, a divisor of a second."""

    microseconds: int


@dataclass(frozen=True, slots=True)
class AfterEpoch:
    """A time at least a millisecond after the beginning of 1970, in UTC."""


@dataclass(frozen=True, slots=True)
class Named:
    """A structure whose field ``part`` is not null."""

    part: str


Demand: TypeAlias = (
    NotNull | Between | Digits | Characters | PlainText | Uuid | OneOf | Bytes | Ticks | AfterEpoch | Named
)
"""What can be demanded of a value."""

_FEW = 5


def _words(demand: Demand) -> str:  # noqa: PLR0911 - a table
    match demand:
        case NotNull():
            return "not null"
        case Between(least, most):
            return f"from {least} to {most}"
        case Digits(precision, scale):
            return f"at most {precision} digits, {scale} of them behind the point"
        case Characters(most):
            return f"at most {most} characters"
        case PlainText():
            return "text in UTF-8 without NUL"
        case Uuid():
            return "a UUID"
        case OneOf(texts):
            return f"one of {', '.join(texts[:_FEW])}{' ...' if len(texts) > _FEW else ''}"
        case Bytes(exactly):
            return f"{exactly} bytes"
        case Ticks(microseconds):
            return f"a multiple of {microseconds} microseconds"
        case AfterEpoch():
            return "after 1970-01-01 00:00 UTC"
        case Named(part):
            return f"with a {part}"


def _meets(value: Any, demand: Demand) -> bool:  # noqa: PLR0911 - a table
    match demand:
        case NotNull():
            return value is not None
        case Between(least, most):
            return bool(least <= value <= most)
        case Digits(precision, scale):
            scaled = Fraction(value) * 10**scale
            return bool(scaled.denominator == 1 and abs(scaled.numerator) < 10**precision)
        case Characters(most):
            return bool(len(value) <= most)
        case PlainText():  # a Python text is UTF-8
            return "\0" not in value
        case Uuid():
            return _UUID.fullmatch(value.replace("-", "")) is not None
        case OneOf(texts):
            return value in texts
        case Bytes(exactly):
            return len(value) == exactly
        case Ticks(microseconds):
            return bool(value.microsecond % microseconds == 0)
        case AfterEpoch():
            since: timedelta = value - datetime(1970, 1, 1, tzinfo=timezone.utc if value.tzinfo else None)
            return since.total_seconds() >= 0.001
        case Named(part):
            return value[part] is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """A demand on the values of a column of the sink's rows.

    ``each``: whether the column holds arrays and the demand is on each of their elements.
    """

    column: str
    demand: Demand
    each: bool = False

    @property
    def says(self) -> str:
        """The rule in words, without a value."""
        return f"{self.column}: {'each ' if self.each else ''}{_words(self.demand)}"

    def met(self, value: Any) -> bool:
        """Whether a value of the column meets it, as Arrow converts it to Python."""
        return all(
            (element is None and not isinstance(self.demand, NotNull)) or _meets(element, self.demand)
            for element in self._values_to_check(value)
        )

    def _values_to_check(self, value: Any) -> Iterator[Any]:
        if not self.each:
            yield value
        elif value is not None:
            yield from value


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row of the sink, in Spark SQL. Null counts as false."""

    name: str
    sql: str

    @property
    def says(self) -> str:
        """The rule in words, without a value."""
        return f"constraint {self.name}"


# ---- Checks of many rows together.

_TOKENS = re.compile(r"""'(?:[^'\\]|\\.)*'|"[^"]*"|`[^`]*`|(?P<open>(?P<name>\b[A-Za-z_]\w*)?\s*\()|(?P<close>\))""")
_NO_CALLS = frozenset({"and", "or", "not", "in", "between", "when", "then", "else", "case", "is"})
_UNTOLD = re.compile(r"\b(select|filter|over|within)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on all rows of an epoch, or of a table, together. Null counts as false.

    ``sql`` is in the dialect of where the rows are. ``of`` names the output that has them. Empty for all good rows.
    """

    name: str
    sql: str
    of: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no text (E110)."""
        texts: list[Any] = [self.name, self.sql]  # callers are not all typed
        if not all(isinstance(text, str) and text.strip() for text in texts):
            problem = f"A check {self.name!r}: {self.sql!r} is no condition in SQL by its name."
            raise misused(problem, "both are texts", 'give a mapping: {"balanced": "sum(debit) = sum(credit)"}')

    @property
    def figures(self) -> tuple[str, ...]:
        """Its outermost calls, whose values a refusal gives. Empty where their text alone would mean something else."""
        found: list[str] = []
        opened: list[int | None] = []
        for token in () if _UNTOLD.search(self.sql) else _TOKENS.finditer(self.sql):
            if token["open"]:
                inside = any(start is not None for start in opened)
                is_call = (token["name"] or "and").lower() not in _NO_CALLS
                opened.append(token.start() if is_call and not inside else None)
            elif token["close"] and opened and (start := opened.pop()) is not None:
                found.append(self.sql[start : token.end()])
        return tuple(dict.fromkeys(found))


_SHOWN = (int, float, Decimal, date, type(None))
"""Types of figures that are shown: a text or a structure may be a row."""


@dataclass(frozen=True, slots=True)
class BrokenCheck:
    """A check that does not hold. ``values`` are those of its figures, empty if they are not known."""

    check: Check
    values: tuple[object, ...] = ()

    @property
    def text(self) -> str:
        """Condition and figures. No row is in it."""
        pairs = zip(self.check.figures, self.values, strict=False)
        shown = [(call, "null" if value is None else value) for call, value in pairs if isinstance(value, _SHOWN)]
        figures = ", ".join(f"{call}: {value}" for call, value in shown)
        return f"{self.check.sql} is not true{f' ({figures})' if figures else ''}"
