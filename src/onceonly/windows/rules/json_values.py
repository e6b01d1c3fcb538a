"""Encode values of Spark's types as exact JSON, and decode them.

Keys of windows and partial results use it. Encoded values keep their order by :func:`ordering`. A kind is the type as
Spark spells it (``simpleString``): ``bigint``, ``decimal(12,2)``, ``timestamp``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Json = None | bool | int | float | str | list[Any] | dict[str, Any]

INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
INSTANTS = ("timestamp", "timestamp_ntz")
_PLAIN = (*INTEGERS, "string", "boolean")

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_1970 = datetime(1970, 1, 1)
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def decimal(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal, or ``None`` for any other kind."""
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def is_storable(kind: str) -> bool:
    """Whether values of the kind can be stored."""
    return kind in (*_PLAIN, *FLOATS, *INSTANTS, "date", "binary") or decimal(kind) is not None


def encode(kind: str, value: Any) -> Json:
    """Encode a value as JSON: instants as microseconds, decimals as digits, bytes as hexadecimal, days as ISO 8601.

    ``value`` is as Arrow gives it in Python. An instant may be its microseconds since 1970 already.
    """
    if value is None or kind in _PLAIN:
        return as_json(value)
    if kind in FLOATS:
        return _float(float(value))
    if kind in INSTANTS:
        return int(value) if isinstance(value, int) else _micros(value)
    if kind == "date":
        return str(value.isoformat())
    if kind == "binary":
        return bytes(value).hex()
    return format(value, "f")


def decode(kind: str, value: Any) -> Any:
    """Invert :func:`encode` for Arrow, with instants as microseconds since 1970."""
    if value is None or kind in _PLAIN or kind in INSTANTS:
        return value
    if kind in FLOATS:
        return _NOT_NUMBERS[value] if isinstance(value, str) else float(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "binary":
        return bytes.fromhex(value)
    return Decimal(value)


def ordering(kind: str) -> Callable[[Any], Any]:
    """Return the sort key of encoded values in Spark's order: text by code points, NaN as the greatest."""
    if decimal(kind):
        return Decimal
    if kind in FLOATS:
        return _float_order
    return lambda value: value


def arrow(kind: str) -> pa.DataType:
    """Arrow's type of a kind."""
    import pyarrow as pa

    if size := decimal(kind):
        return pa.decimal128(*size)
    types: dict[str, Any] = {
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "float": pa.float32(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "date": pa.date32(),
        "binary": pa.binary(),
    }
    data_type: pa.DataType = types[kind]
    return data_type


def array(kind: str, values: list[Any]) -> pa.Array[Any]:
    """Return decoded values in Arrow."""
    import pyarrow as pa

    if kind in INSTANTS:
        return pa.array(values, pa.int64()).cast(arrow(kind))
    return pa.array(values, arrow(kind))


def as_json(value: Any) -> Json:
    """Cast to JSON for the type checker."""
    json_value: Json = value
    return json_value


def _micros(value: datetime) -> int:
    plain = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    return (plain - _1970) // timedelta(microseconds=1)


def _float(number: float) -> Json:
    if math.isfinite(number):
        return number + 0.0  # of zero and minus zero, which are equal, one text: else the order of rows would choose
    return next(name for name, special in _NOT_NUMBERS.items() if _same(special, number))


def _same(number: float, other: float) -> bool:
    return number == other or (math.isnan(number) and math.isnan(other))


def _float_order(value: Any) -> tuple[bool, float]:
    number = _NOT_NUMBERS[value] if isinstance(value, str) else float(value)
    return (math.isnan(number), 0.0 if math.isnan(number) else number)
