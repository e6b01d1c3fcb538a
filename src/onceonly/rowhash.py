"""The digest of rows that the driver holds: the one that ``digest`` computes in the cluster, without asking Spark.

For an epoch of a few rows Spark needs longer to analyse and compile the hash than to read the rows. Its ``xxhash64``
is XXH64 over the little-endian bytes of each value, and the hash of one value seeds that of the next; so rows of
plain columns are hashed here by the library of that name. Nested types, collations and whatever is not listed here
stay with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.epoch import Digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

Array = Any
"""An Arrow array: the type stubs do not know the compute functions well enough to be of help."""

Encode = Callable[[Array], "list[bytes | None]"]
"""The bytes that are hashed for each value of a column; ``None`` for a null."""

_SPARK_SEED = 42
_LONG_DIGITS = 18
"""Decimals of up to so many digits are hashed as one 64-bit integer."""

_NO, _YES = ((0).to_bytes(4, "little"), (1).to_bytes(4, "little"))


def hashing(schema: StructType, leave_out: frozenset[str] = frozenset()) -> Callable[[pa.RecordBatch], Digest] | None:
    """What computes the digest of rows; ``None`` where only Spark can.

    Args:
        schema: the columns.
        leave_out: columns that the digest leaves out, as in ``digest.metrics``.
    """
    names = [field.name.lower() for field in schema.fields]
    if not _installed() or len(set(names)) < len(names):
        return None
    parts: list[tuple[int, bytes, Encode]] = []
    for at, field in enumerate(schema.fields):
        if field.name not in leave_out:
            encode = _encoding(field.dataType)
            if encode is None:
                return None
            parts.append((at, field.name.encode(), encode))
    return lambda batch: _digest(parts, batch.columns, batch.num_rows)


@cache
def _installed() -> bool:
    return find_spec("xxhash") is not None


def _digest(parts: Sequence[tuple[int, bytes, Encode]], columns: Sequence[Array], rows: int) -> Digest:
    from xxhash import xxh64_intdigest as xxh64

    hashes = [xxh64(_NO, _SPARK_SEED)] * rows
    for at, name, encode in parts:
        named = (xxh64(name, each) for each in hashes)
        hashes = [
            xxh64(_YES, each) if value is None else xxh64(value, xxh64(_NO, each))
            for value, each in zip(encode(columns[at]), named, strict=True)
        ]
    return Digest(rows, sum(each >> 32 for each in hashes), sum(each & 0xFFFFFFFF for each in hashes))


def _encoding(kind: DataType) -> Encode | None:
    """How Spark's hash sees values of a type."""
    from pyspark.sql import types as t

    # Exactly these classes: a subclass may hash in another way.
    if type(kind) is t.DecimalType:
        return _long_decimals if kind.precision <= _LONG_DIGITS else _wide_decimals
    if kind == t.StringType():  # not equal to one with a collation, whose hash is that of a sort key
        return _texts
    known: dict[type[DataType], Encode] = {
        t.BooleanType: _integers,
        t.ByteType: _integers,
        t.ShortType: _integers,
        t.IntegerType: _fours,
        t.DateType: _fours,
        t.LongType: _eights,
        t.TimestampType: _eights,
        t.TimestampNTZType: _eights,
        t.FloatType: _ratios,
        t.DoubleType: _ratios,
        t.BinaryType: lambda array: list(array.to_pylist()),
    }
    return known.get(type(kind))


def _bytes(array: Array, width: int) -> list[bytes | None]:
    """The values' own bytes, which Arrow keeps in little-endian order."""
    import pyarrow as pa

    raw: Array = pa.Array.from_buffers(pa.binary(width), len(array), array.buffers(), offset=array.offset)
    return list(raw.to_pylist())


def _fours(array: Array) -> list[bytes | None]:
    return _bytes(array, 4)


def _eights(array: Array) -> list[bytes | None]:
    return _bytes(array, 8)


def _integers(array: Array) -> list[bytes | None]:
    import pyarrow as pa

    return _fours(array.cast(pa.int32()))


def _ratios(array: Array) -> list[bytes | None]:
    """-0.0 and NaN in one form, as ``digest`` brings them: by an addition that makes each of them a double."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    doubles = compute.add(array.cast(pa.float64()), pa.scalar(0.0))
    return _eights(compute.if_else(compute.is_nan(doubles), pa.scalar(float("nan")), doubles))


def _texts(array: Array) -> list[bytes | None]:
    import pyarrow as pa

    large = pa.types.is_large_string(array.type)
    found: list[bytes | None] = array.view(pa.large_binary() if large else pa.binary()).to_pylist()
    return found


def _long_decimals(array: Array) -> list[bytes | None]:
    return [value if value is None else value[:8] for value in _bytes(array, 16)]


def _wide_decimals(array: Array) -> list[bytes | None]:
    return [value if value is None else _java_bytes(value) for value in _bytes(array, 16)]


def _java_bytes(little_endian: bytes) -> bytes:
    """As Java's ``BigInteger.toByteArray``: big-endian, and no byte more than the number and its sign need."""
    number = int.from_bytes(little_endian, "little", signed=True)
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)
