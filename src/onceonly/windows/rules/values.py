"""Aggregates of windows: mergeable partial results, stored as JSON.

Over the kinds of its inputs, the user's value becomes a :class:`Fold`. The idea of a partial result that merges is
Beam's ``CombineFn``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Annotated, Any

from onceonly.errors import refuse
from onceonly.errors.options import at_least
from onceonly.windows.rules import json_values
from onceonly.windows.rules.assigners import wrong
from onceonly.windows.rules.json_values import Json, as_json

_MOST_DIGITS = 38
_HASHES = 2**64


@dataclass(frozen=True, slots=True)
class Fold:
    """A value over inputs of known kinds.

    Attributes:
        nothing: result of a pane without a row, decoded as JSON.
        of_row: the partial result of one row's inputs, ``None`` if they say nothing.
        merge: joins two partial results, none of which is ``None``.
        value: the result of a partial result, as JSON.
    """

    kind: str
    nothing: Json
    of_row: Callable[[Sequence[Any]], Json]
    merge: Callable[[Any, Any], Json]
    value: Callable[[Any], Json]

    def add(self, partial: Json, row: Sequence[Any]) -> Json:
        """Join one row's inputs to a partial result, which is ``None`` for no row."""
        return self.merged(partial, self.of_row(row))

    def merged(self, partial: Json, other: Json) -> Json:
        """Merge two partial results."""
        if partial is None:
            return other
        return partial if other is None else self.merge(partial, other)

    def result(self, partial: Json) -> Json:
        """Return the result of a partial result, or null if all rows had null."""
        return None if partial is None else self.value(partial)


class Value(ABC):
    """An aggregate of the rows of a window."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Its inputs: columns, or Spark SQL on one row."""

    @abstractmethod
    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return the value over inputs of these kinds, in the order of :attr:`inputs`.

        ``name`` is the column of the result.

        Raises:
            ConfigurationError: E140, no value of such inputs; E144, one that depends on the order of rows.
        """

    @property
    def spelled(self) -> list[Any]:
        """Canonical form, equal for equal meaning."""
        return [type(self).__name__, *self.inputs]


@dataclass(frozen=True, slots=True)
class OfColumn(Value):
    """A value of one column, or of Spark SQL on one row."""

    column: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)


@dataclass(frozen=True, slots=True)
class Count(Value):
    """Number of rows, or of non-null values of a column.

    Args:
        column: counted if it is not null. Default: each row.
    """

    column: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The column, if one was given."""
        return () if self.column is None else (self.column,)

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return a count of rows, 0 for none."""
        return Fold("bigint", 0, lambda row: 0 if row and row[0] is None else 1, _plus, as_json)


@dataclass(frozen=True, slots=True)
class CountDistinct(OfColumn):
    """Number of different values of a column, null not counted.

    The state of a window holds each of its values once. ``column`` may be Spark SQL on one row.
    """

    @property
    def most(self) -> int | None:
        """The number of values that state holds, the least ones. ``None`` for all."""
        return None

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return a count, 0 for none. The partial result has the values in order."""
        (kind,) = inputs
        _check_storable(name, self.column, kind)

        def merge(partial: Any, other: Any) -> Json:
            return sorted({*partial, *other}, key=json_values.ordering(kind))[: self.most]

        def of_row(row: Sequence[Any]) -> Json:
            return [] if row[0] is None else [json_values.encode(kind, row[0])]

        return Fold("bigint", 0, of_row, merge, self.counted)

    def counted(self, partial: Any) -> Json:
        """Return the count of a partial result."""
        return len(partial)


@dataclass(frozen=True, slots=True)
class ApproxCountDistinct(CountDistinct):
    """Estimated number of different values of a column, null not counted. Exact up to ``keep``.

    The estimate is the same in any order and grouping of rows, so a replay repeats it. It follows from the ``keep``
    least hashes (Beyer and others: On synopses for distinct-value estimation, 2007). Its standard error is
    ``1 / sqrt(keep)``, 1.6 % by default. Write a column with an odd name in backquotes.
    """

    keep: Annotated[int, at_least(16, "a number of hashes, at least 16", "4096")] = field(default=4096, kw_only=True)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The hash of the column."""
        return (f"IF(({self.column}) IS NULL, NULL, xxhash64({self.column}))",) if self.column.strip() else ("",)

    @property
    def most(self) -> int:
        """``keep``."""
        return self.keep

    def counted(self, partial: Any) -> Json:
        """Return the estimate: the density of hashes below the greatest that is kept."""
        if len(partial) < self.keep:
            return len(partial)
        estimate: int = (self.keep - 1) * _HASHES // (partial[-1] + _HASHES // 2 + 1)
        return estimate

    @property
    def spelled(self) -> list[Any]:
        """With the number of hashes."""
        return [type(self).__name__, self.column, self.keep]


@dataclass(frozen=True, slots=True)
class Sum(OfColumn):
    """The sum of a column, exact for whole numbers and decimals. Null if all are null.

    Args:
        column: a column, or Spark SQL on one row.
        approximate: take floating point as well, whose sum depends on the order of rows.
    """

    approximate: bool = field(default=False, kw_only=True)

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return a sum, 0 for no row: whole numbers as ``bigint``, decimals with ten digits more, as Spark's."""
        (kind,) = inputs
        _summed("Sum", name, self.column, kind, approximate=self.approximate)
        if size := json_values.decimal(kind):
            digits = min(size[0] + 10, _MOST_DIGITS)
            return Fold(f"decimal({digits},{size[1]})", "0", encoded(kind), _plus_digits, as_json)
        if kind in json_values.FLOATS:
            return Fold("double", 0.0, encoded(kind), _plus_floats, as_json)
        return Fold("bigint", 0, encoded(kind), _plus, as_json)


@dataclass(frozen=True, slots=True)
class Min(OfColumn):
    """Least value of a column or of Spark SQL on one row. Null if all are null."""

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return the least, by Spark's order of the kind."""
        return _extreme(name, self.column, inputs[0], min)


@dataclass(frozen=True, slots=True)
class Max(OfColumn):
    """Greatest value of a column or of Spark SQL on one row. Null if all are null."""

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return the greatest, by Spark's order of the kind."""
        return _extreme(name, self.column, inputs[0], max)


@dataclass(frozen=True, slots=True)
class Mean(OfColumn):
    """The mean of a column, from an exact sum: ``double`` for whole numbers, decimals with four digits more.

    Args:
        column: a column, or Spark SQL on one row.
        approximate: take floating point as well, whose sum depends on the order of rows.
    """

    approximate: bool = field(default=False, kw_only=True)

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return a mean, null for no row. The partial result is the sum and the count."""
        (kind,) = inputs
        _summed("Mean", name, self.column, kind, approximate=self.approximate)
        size = json_values.decimal(kind)
        plus = _plus_digits if size else _plus_floats if kind in json_values.FLOATS else _plus

        def merge(partial: Any, other: Any) -> Json:
            return [plus(partial[0], other[0]), partial[1] + other[1]]

        def of_row(row: Sequence[Any]) -> Json:
            return None if row[0] is None else [json_values.encode(kind, row[0]), 1]

        if size is None:
            return Fold("double", None, of_row, merge, _divided)
        scale = min(size[1] + 4, _MOST_DIGITS)
        step = Decimal(1).scaleb(-scale)

        def value(partial: Any) -> Json:
            mean = _EXACT.divide(Decimal(partial[0]), Decimal(partial[1]))
            return format(mean.quantize(step, ROUND_HALF_UP, _EXACT), "f")

        return Fold(f"decimal({min(size[0] + 4, _MOST_DIGITS)},{scale})", None, of_row, merge, value)


@dataclass(frozen=True, slots=True)
class Last(Value):
    """A column's value in the row that is last by another one. If two rows are, the greater value.

    Args:
        column: a column, or Spark SQL on one row.
        by: order of rows: a column, or Spark SQL on one row. A row without it does not count.
    """

    column: str
    by: str = field(kw_only=True)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The column, and the order of rows."""
        return (self.column, self.by)

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return the last value, null if it is null there. The partial result has the order and the value."""
        kind, by = inputs
        _check_storable(name, self.column, kind)
        _check_storable(name, self.by, by)
        of_value, of_by = json_values.ordering(kind), json_values.ordering(by)

        def sort_key(partial: Any) -> Any:
            return of_by(partial[0]), partial[1] is not None, None if partial[1] is None else of_value(partial[1])

        def later(partial: Any, other: Any) -> Json:
            return as_json(other if sort_key(other) > sort_key(partial) else partial)

        def of_row(row: Sequence[Any]) -> Json:
            return None if row[1] is None else [json_values.encode(by, row[1]), json_values.encode(kind, row[0])]

        return Fold(kind, None, of_row, later, lambda partial: partial[1])


class Aggregate(Value):
    """A value of your own: Spark computes partial results, and Python merges them.

    ``merge`` must give the same in any order and grouping, or a replay gives another result. Nothing checks that.
    """

    kind: str
    """Spark's type of the result, as ``simpleString`` spells it: ``"bigint"``."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """No inputs that must be known before."""
        return ()

    @abstractmethod
    def partial(self) -> Any:
        """Return a Column: a Spark aggregate that gives a partial result as JSON text, ``F.to_json(F.struct(...))``.

        Cast a decimal to text in it: a JSON number with a point is a float in :meth:`merge`.
        """

    @abstractmethod
    def merge(self, partial: Any, other: Any) -> Json:
        """Merge two partial results, which are parsed."""

    @abstractmethod
    def value(self, partial: Any) -> Json:
        """Return the result of a partial result: digits as text for a decimal, microseconds for an instant."""

    def over(self, name: str, inputs: Sequence[str]) -> Fold:
        """Return the fold of :meth:`merge` and :meth:`value`."""
        if not json_values.is_storable(getattr(self, "kind", "")):
            remedy = 'say the type of its result in the class: kind = "bigint"'
            raise wrong(
                f"{name}={type(self).__name__}() has no kind that can be kept", "kind is missing, or nested", remedy
            )

        def of_row(row: Sequence[Any]) -> Json:
            raise TypeError(f"{type(self).__name__} is computed by Spark, for {len(row)} inputs as well")

        return Fold(self.kind, None, of_row, self.merge, self.value)

    @property
    def spelled(self) -> list[Any]:
        """Its class, because its computation is not visible."""
        return [f"{type(self).__module__}.{type(self).__qualname__}", self.kind]


def _plus(partial: Any, other: Any) -> Any:
    return partial + other


_EXACT = Context(prec=2 * _MOST_DIGITS)
"""Python's own precision is less than a sum of Spark's decimals has."""


def _plus_digits(partial: str, other: str) -> str:
    return format(_EXACT.add(Decimal(partial), Decimal(other)), "f")


def _plus_floats(partial: Json, other: Json) -> Json:
    return json_values.encode("double", json_values.decode("double", partial) + json_values.decode("double", other))


def _divided(partial: Any) -> Json:
    total, count = partial
    # Whole numbers are divided as such: as floating point a large sum would be rounded before.
    return json_values.encode(
        "double", (json_values.decode("double", total) if isinstance(total, str) else total) / count
    )


def encoded(kind: str) -> Callable[[Sequence[Any]], Json]:
    """Return what encodes the first of a row's values, of this kind."""
    return lambda row: json_values.encode(kind, row[0])


def _extreme(name: str, column: str, kind: str, choose: Callable[..., Any]) -> Fold:
    _check_storable(name, column, kind)
    order = json_values.ordering(kind)

    def merge(partial: Any, other: Any) -> Json:
        return as_json(choose(partial, other, key=order))

    return Fold(kind, None, encoded(kind), merge, as_json)


def _check_storable(name: str, column: str, kind: str) -> None:
    if not json_values.is_storable(kind):
        remedy = "give one of text, numbers, times, bytes or true and false"
        raise wrong(f"{name} is of {column}, which is {kind}", "nested values have no order that lasts", remedy)


def _summed(value: str, name: str, column: str, kind: str, *, approximate: bool) -> None:
    if kind in json_values.FLOATS and not approximate:
        raise refuse("E144", value=value, column=column, type=kind, name=name)
    if kind not in (*json_values.INTEGERS, *json_values.FLOATS) and json_values.decimal(kind) is None:
        raise wrong(
            f"{name}={value}({column!r}) adds up {kind}", "it is no number", "give a column of numbers, or cast it"
        )
