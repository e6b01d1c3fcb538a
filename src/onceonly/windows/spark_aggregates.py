"""Spark aggregates for partial results of windows.

Each value has columns, and a function that makes JSON of their cells. Spark gives values in its own types. The driver
spells them by :mod:`onceonly.windows.rules.json_values`, so Spark and Python give the same text for a partial result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from onceonly.windows.rules import json_values
from onceonly.windows.rules.assigners import wrong
from onceonly.windows.rules.json_values import Json, as_json
from onceonly.windows.rules.values import Aggregate, Count, Last, Max, Mean, Min, Sum, Value

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

Read = Callable[[Sequence[Any]], Json]

_LOW = 2**32
"""A ``bigint`` is summed up in halves: both sums fit into one, however large the values are."""

_EXACT_DIGITS = 28
"""Up to which a sum of decimals has Spark's ten digits more; beyond them it may end in null, or in an error."""

_HALF = 19
"""Digits of the lower half of longer ones."""

_EXACT = Context(prec=96)

_DOUBLE_DIGITS = 17
"""No double is spelled with more."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Spark's computation of a value: aggregates, and a function that makes a partial result of their :func:`cells`."""

    columns: tuple[str | Column, ...]
    read: Read


def aggregated(value: Value, columns: Sequence[str], of: Sequence[str]) -> Aggregated:
    """A value over its inputs, which are Spark SQL, in order, and of the kinds ``of``.

    Each input is used more than once, so each should be a column.

    Raises:
        TypeError: it is of a class that only Python computes.
    """
    match value:
        case Count():
            return Aggregated((f"count({columns[0] if columns else 1})",), _first)
        case Sum():
            return _sum(columns[0], of[0])
        case Mean():
            return _mean(columns[0], of[0])
        case Min() | Max():
            extreme = "min" if isinstance(value, Min) else "max"
            return Aggregated((f"{extreme}({columns[0]})",), _encoded(of[0]))
        case Last():
            return _last(columns, of)
        case Aggregate():
            return Aggregated((value.partial(),), _parsed)
        case _:
            raise TypeError(f"{type(value).__name__} is no Aggregate, so Spark does not know how to compute it")


def cells(column: pa.Array[Any]) -> list[Any]:
    """A column of Arrow in Python. Instants are microseconds since 1970."""
    import pyarrow as pa

    kind: Any = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    listed: list[Any] = column.to_pylist()
    return listed


def _first(row: Sequence[Any]) -> Json:
    return as_json(row[0])


def _encoded(kind: str) -> Read:
    return lambda row: json_values.encode(kind, row[0])


def _parsed(row: Sequence[Any]) -> Json:
    return None if row[0] is None else as_json(json.loads(row[0], parse_float=_double))


def _double(text: str) -> float:
    """A number with a point or an exponent.

    Raises:
        ConfigurationError: E140, it has more digits than a double, so it was a decimal and would be rounded.
    """
    digits = len(Decimal(text).normalize(_EXACT).as_tuple().digits)
    if digits > _DOUBLE_DIGITS:
        problem = f"partial() gives a number of {digits} digits, which Python would round to a double"
        way = (
            "give it as text, to_json(struct(CAST(sum(x) AS STRING))), and read it with Decimal in merge() and value()"
        )
        raise wrong(problem, "an Aggregate over a decimal", way)
    return float(text)


def _sum(column: str, kind: str) -> Aggregated:
    size = json_values.decimal(kind)
    if kind == "bigint":
        return Aggregated((f"sum(shiftright({column}, 32))", f"sum({column} & {_LOW - 1}L)"), _joined)
    if size is None:
        return Aggregated((f"sum({column})",), _encoded("double" if kind in json_values.FLOATS else "bigint"))
    if size[0] <= _EXACT_DIGITS:
        return Aggregated((f"sum({column})",), _encoded(kind))
    return _long_sum(column, *size)


def _joined(halves: Sequence[Any]) -> Json:
    high, low = halves
    return None if high is None else int(high * _LOW + low)


def _long_sum(column: str, digits: int, scale: int) -> Aggregated:
    # Its unscaled digits, split as text: arithmetic of decimals rounds what has too many of them.
    whole = f"CAST({column} AS STRING)"
    plain = f"lpad(replace(replace({whole}, '-', ''), '.', ''), {digits + 1}, '0')"
    sign = f"IF({column} < 0, -1, 1)"
    high = f"CAST(substring({plain}, 1, {digits + 1 - _HALF}) AS DECIMAL(20,0)) * {sign}"
    low = f"CAST(substring({plain}, {digits + 2 - _HALF}, {_HALF}) AS DECIMAL(20,0)) * {sign}"

    def read(row: Sequence[Any]) -> Json:
        if row[0] is None:
            return None
        unscaled = int(row[0]) * 10**_HALF + int(row[1])
        return format(Decimal(unscaled).scaleb(-scale, _EXACT), "f")

    return Aggregated((f"sum({high})", f"sum({low})"), read)


def _mean(column: str, kind: str) -> Aggregated:
    total = _sum(column, kind)

    def read(row: Sequence[Any]) -> Json:
        return [total.read(row[:-1]), row[-1]] if row[-1] else None

    return Aggregated((*total.columns, f"count({column})"), read)


def _last(columns: Sequence[str], of: Sequence[str]) -> Aggregated:
    (value, by), (kind, by_kind) = columns, of
    # A structure is greater by its first part that is, and null is less than any value.
    last = f"max(CASE WHEN {by} IS NOT NULL THEN struct({by} AS by, {value} AS value) END)"

    def read(row: Sequence[Any]) -> Json:
        return None if row[0] is None else [json_values.encode(by_kind, row[0]), json_values.encode(kind, row[1])]

    return Aggregated((f"{last}.by", f"{last}.value"), read)
