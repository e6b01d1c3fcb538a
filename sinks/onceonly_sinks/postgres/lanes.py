"""Convert Arrow arrays to column values that Postgres keeps without loss.

A value that Postgres would round, trim or reject is refused.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa


# ---- Nested values as JSON text, the way Spark's ``to_json`` spells them: exact numbers, ISO times, bytes in base64.


def render(values: Iterable[Any]) -> list[str | None]:
    """JSON text of every value of Arrow's ``to_pylist``. A null stays a null of the column."""
    return [None if value is None else spell(value) for value in values]


def spell(value: Any) -> str:
    """JSON text of one value. Decimals keep every digit, which the standard encoder cannot do."""
    match value:
        case dict():
            text = "{" + ",".join(f"{json.dumps(_key(key))}:{spell(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            text = "[" + ",".join(map(spell, value)) + "]"
        case Decimal():
            text = format(value, "f")
        case float() if not math.isfinite(value):
            text = json.dumps("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
        case _:
            text = json.dumps(_plain(value))
    return text


def _plain(value: Any) -> Any:
    match value:
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return f"PT{Decimal(value // datetime.timedelta(microseconds=1)).scaleb(-6).normalize():f}S"
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else spell(key).strip('"')


# ---- The lane itself.

Array = Any
"""An Arrow array: the type stubs do not know the compute functions well enough to be of help."""


class ValueRefused(ValueError):
    """A value that the table cannot hold. ``spark`` is its column's type in the batch."""

    def __init__(self, column: str, spark: str, reason: str) -> None:
        super().__init__(f"{column} ({spark}): {reason}")
        self.column = column
        self.spark = spark
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ColumnEncoder:
    """Conversion of one column.

    Attributes:
        spark: type in the batch, by Spark's name.
        ddl: type in the table.
        arrow: type in which it is encoded.
        how: name of the conversion, a key of :data:`CONVERSIONS`.
        length: longest text in characters, or ``None`` for any.
        unit: microseconds that a time must be a multiple of.
        required: whether a null is refused.
    """

    target: str
    spark: str
    ddl: str
    arrow: pa.DataType
    how: str = "as it is"
    jsonb: bool = False
    length: int | None = None
    unit: int = 1
    required: bool = False

    def refuse(self, reason: str) -> ValueRefused:
        """The error for a value of this column."""
        return ValueRefused(self.target, self.spark, reason)


def convert(lane: ColumnEncoder, array: Array) -> Array:
    """Convert one array. Raises :class:`ValueRefused` if the table cannot hold a value of it."""
    if lane.required and array.null_count:
        raise lane.refuse(f"{array.null_count} nulls, and the column is not null")
    converted = CONVERSIONS[lane.how](lane, array)
    if lane.unit > 1:
        import pyarrow as pa

        pc = _compute()
        ticks = converted.cast(pa.int64())
        rest = pc.subtract(ticks, pc.multiply(pc.divide(ticks, lane.unit), lane.unit))
        if pc.any(pc.not_equal(rest, 0), min_count=0).as_py():
            raise lane.refuse(f"a time finer than {lane.ddl} would be rounded")
    return converted


def _compute() -> Any:
    import pyarrow.compute

    return pyarrow.compute


def _cast(lane: ColumnEncoder, array: Array) -> Array:
    import pyarrow as pa

    try:
        return array.cast(lane.arrow, safe=True)
    except pa.ArrowInvalid:
        raise lane.refuse(f"a value does not fit {lane.ddl}") from None  # Arrow's own words quote it


def _decimal(lane: ColumnEncoder, array: Array) -> Array:
    import pyarrow as pa

    # Arrow wants room for every 64-bit integer before it looks at the values; only a decimal is checked value by value.
    decimals = array.cast(pa.decimal128(19, 0)) if pa.types.is_integer(array.type) else array
    scale: int = cast("Any", lane.arrow).scale
    if scale > decimals.type.scale:
        # In 128 bits Arrow appends digits without looking, and what grows past them comes back as another number.
        decimals = decimals.cast(pa.decimal256(76, scale))
    return _cast(lane, decimals)


def _text(lane: ColumnEncoder, array: Array) -> Array:
    pc = _compute()

    text = array if array.type == lane.arrow else array.cast(lane.arrow)
    _check_nul(lane, text)
    if lane.length is not None:
        longest = pc.max(pc.utf8_length(text)).as_py()
        if longest is not None and longest > lane.length:
            raise lane.refuse(f"a text of {longest} characters does not fit {lane.ddl}")
    return text


def _texts(lane: ColumnEncoder, array: Array) -> Array:
    converted = array if array.type == lane.arrow else array.cast(lane.arrow)
    _check_nul(lane, converted.flatten())
    return converted


def _uuid(lane: ColumnEncoder, array: Array) -> Array:
    import pyarrow as pa

    pc = _compute()
    digits = pc.replace_substring(array, "-", "")
    good = pc.match_substring_regex(digits, "^[0-9a-fA-F]{32}$")
    if not pc.all(good, min_count=0).as_py():
        raise lane.refuse("a text that is not a UUID")
    values = digits.to_pylist()
    return pa.array([None if value is None else bytes.fromhex(value) for value in values], lane.arrow)


def _json(lane: ColumnEncoder, array: Array) -> Array:
    import pyarrow as pa

    try:
        texts = render(array.to_pylist(maps_as_pydicts="lossy"))
    except (OverflowError, ValueError):
        raise lane.refuse("a date or time inside is outside of the years 1 to 9999") from None
    if lane.jsonb and any(text is not None and _JSON_NUL.search(text) for text in texts):
        raise lane.refuse("a text inside holds the character NUL, which jsonb cannot hold")
    return pa.array(texts, lane.arrow)


CONVERSIONS: dict[str, Callable[[ColumnEncoder, Any], Any]] = {
    "as it is": lambda _, array: array,
    "cast": _cast,
    "decimal": _decimal,
    "text": _text,
    "texts": _texts,
    "uuid": _uuid,
    "json": _json,
}
"""Every conversion, by the name that a lane carries: names travel to executors, functions need not."""

# An escaped backslash before u0000 is a backslash and five ordinary characters.
_JSON_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_NUL = re.compile(b"\0")


def _check_nul(lane: ColumnEncoder, text: Array) -> None:
    pc = _compute()

    if not _may_hold_nul(text):
        return
    # The bytes of a null slot are nobody's: the exact answer is asked only when the quick one says maybe.
    count = pc.sum(pc.match_substring(text, "\0"), min_count=0).as_py()
    if count:
        raise lane.refuse(f"{count} texts hold the character NUL, which Postgres cannot hold")


def _may_hold_nul(text: Array) -> bool:
    """Search the bytes of the array's own slice at the speed of memchr."""
    _, offsets, data = text.buffers()
    if offsets is None or data is None or not len(text):
        return False
    positions = memoryview(offsets).cast("i")
    first, last = positions[text.offset], positions[text.offset + len(text)]
    return _NUL.search(memoryview(data)[first:last]) is not None
