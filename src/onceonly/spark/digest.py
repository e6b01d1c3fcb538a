"""Order-free digest of a batch, by Spark columns or Arrow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from onceonly.protocol.capabilities import EPOCH
from onceonly_checkpoints.digests import Digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from onceonly.spark.row_hash import Words


# ---- As Spark columns: computed in the cluster, in the action that writes the rows.
#
# Spark's ``xxhash64`` skips nulls, so (1, null) and (null, 1) would be equal, and it does not take maps. Here every
# value is hashed behind a null flag, those of a row behind their column's name, too; so are the parts of structs,
# arrays and maps, keys included. Arrays and maps begin with their length, so what is hashed can be read in one way
# only. A map is the sorted hashes of its entries; -0.0 and NaN are brought to one form. A change here is one in
# the second half of this module, which comes to the same digest without Spark.


@dataclass(frozen=True, slots=True)
class Summed:
    """A column whose rows are summed separately: a structure, null where a row has none.

    Attributes:
        left_out: parts that its digest omits.
        sets_aside: whether a row that has it counts nowhere else.
        reasons: possible names in its part ``reasons``, a JSON list of objects with a ``rule``.
    """

    within: str
    left_out: frozenset[str] = frozenset()
    sets_aside: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observable:
    """Columns to observe on the way to a sink: ``rows.select("*", *hashes).observe(..., *metrics)``.

    Attributes:
        hashes: columns that the metrics read, by name, to be dropped after the observation. Often empty.
        metrics: aggregates without a lambda, as of :func:`metrics`.
    """

    hashes: Mapping[str, Column]
    metrics: Sequence[Column]


def observable(
    schema: StructType, leave_out: frozenset[str] = frozenset(), summed: Sequence[Summed] = ()
) -> Observable:
    """Build metrics for ``DataFrame.observe``, with the arguments of :func:`metrics`."""
    from pyspark.sql import functions as f

    used_names = {name.lower() for name in schema.names}
    hashes: dict[str, Column] = {}

    def hash_of(parts: StructType, leave_out: frozenset[str], within: str = "") -> Column:
        hashed = row_hash(parts, leave_out, within)
        # A task's result brings the AggregatingAccumulator of an observation to the driver, its expressions included.
        # A NamedLambdaVariable among them holds its last item, which points into memory that has another row by then:
        # if it is a map, the driver's JVM dies in UnsafeMapData.readExternal. Expressions of a projection stay in the
        # task. One more stage to compile costs 100 plain rows 6 to 13 % of their processor time (1,000,000 take 8 %
        # less), so rows that need no lambda have none.
        if not any(_has_items(field.dataType) for field in parts.fields if field.name not in leave_out):
            return hashed
        name = metric(HASH, within)
        while name.lower() in used_names:
            name += "_"
        hashes[name] = hashed.alias(name)
        return f.col(quote(name))

    return Observable(hashes, metrics(schema, leave_out, summed, hash_of))


def metrics(
    schema: StructType,
    leave_out: frozenset[str] = frozenset(),
    summed: Sequence[Summed] = (),
    hash_of: Callable[[StructType, frozenset[str], str], Column] | None = None,
) -> list[Column]:
    """Build aggregates ``rows``, ``high`` and ``low`` for ``DataFrame.agg``, and for each column in ``summed``.

    Each such column also counts the rows that have neither it nor a column that sets them aside, and the rows of each
    reason. It does not belong to the rows. A replay may compute the columns of ``leave_out`` differently (see
    ``float_lineage``). ``hash_of`` returns the hash of a row, by default :func:`row_hash`.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    hash_of = hash_of or row_hash
    apart = {entry.within for entry in summed}
    own_schema = StructType([field for field in schema.fields if field.name not in apart])
    row, counted, good = hash_of(own_schema, leave_out, ""), f.lit(1), f.lit(True)
    for summed_column in summed:
        if summed_column.sets_aside:
            good = f.col(quote(summed_column.within)).isNull()
            row, counted = f.when(good, row), f.when(good, counted)
    aggregates = sums(row, counted)
    for summed_column in summed:
        column = f.col(quote(summed_column.within))
        parts = schema[summed_column.within].dataType
        if not isinstance(parts, StructType):
            raise TypeError(f"column {summed_column.within} is no structure")
        hashed = hash_of(parts, summed_column.left_out, summed_column.within)
        aggregates += sums(f.when(column.isNotNull(), hashed), f.when(column.isNotNull(), 1), summed_column.within)
        aggregates.append(f.count(f.when(good & column.isNull(), 1)).alias(metric("filtered", summed_column.within)))
        for reason in summed_column.reasons:
            named = f.instr(column.getField("reasons"), spelled(reason)) > 0
            aggregates.append(f.count(f.when(named, 1)).alias(metric_name(reason)))
    return aggregates


def sums(row: Column, counted: Column, within: str = "") -> list[Column]:
    """Build aggregates ``rows``, ``high`` and ``low`` over non-null hashes and counts, named by :func:`metric`."""
    from pyspark.sql import functions as f

    # In halves, whose sums have room: the sum of whole hashes overflows, and under ANSI the metric then held 5 of 10
    # rows while the batch went on without an error.
    high = f.sum(f.shiftrightunsigned(row, 32)).alias(metric("high", within))
    low = f.sum(row.bitwiseAND(f.lit(0xFFFFFFFF))).alias(metric("low", within))
    return [f.count(counted).alias(metric("rows", within)), high, low]


def metric(name: str, within: str) -> str:
    """Name a metric of the rows, or of a column summed separately."""
    return f"{name} of {within}" if within else name


def metric_name(reason: str) -> str:
    """Name the metric of a reason. The user may call a reason anything, even ``rows`` or ``filtered``."""
    return f"said: {reason}"


def spelled(reason: str) -> str:
    """Return the spelling of a reason in the part ``reasons``."""
    return f'"rule":"{reason}"'


HASH = "onceonly row hash"
"""Name of the column that carries a row's hash."""


def row_hash(schema: StructType, leave_out: frozenset[str] = frozenset(), within: str = "") -> Column:
    """Compute the 64-bit hash of one row or of its structure ``within``, with the arguments of :func:`metrics`."""
    from pyspark.sql import functions as f

    parts = [f.lit(0)]
    for field in schema.fields:
        if field.name not in leave_out:
            column = f.col(quote(within)).getField(field.name) if within else f.col(quote(field.name))
            parts += [f.lit(field.name), column.isNull(), _plain(field.dataType, column)]
    return f.xxhash64(*parts)


def quote(name: str) -> str:
    """Quote a column name as one identifier, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def of_batch(number: int, column: str) -> str:
    """Spell a number that is another in each batch, without a plan of its own for each. ``column`` is any SQL on a row.

    Spark compiles a number into its code, and Java warms up each such code anew: 0.1 to 0.2 s of a batch. An array is
    handed over. With a place in it that no row changes, its number would be compiled after all.
    """
    return f"get(array({number}L, {number}L), IF({column} IS NULL, 1, 0))"


def behind_bracket(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one before ``at``, or the end without one."""
    depth = 1
    for index in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index + 1
    return len(text)


def from_metrics(values: Mapping[str, Any], leave_out: Iterable[str] = (), within: str = "") -> Digest:
    """Build the digest from observed metrics, whose columns omit ``leave_out``. Sums over no rows are null."""
    rows, high, low = (values[metric(name, within)] or 0 for name in ("rows", "high", "low"))
    return Digest(rows, high, low, tuple(sorted(leave_out)))


def filtered(values: Mapping[str, Any], within: str) -> int:
    """Count rows that had neither the column nor one that sets them aside."""
    count: int = values[metric("filtered", within)]
    return count


def reasons(values: Mapping[str, Any], summed_column: Summed) -> tuple[tuple[str, int], ...]:
    """Count the rows of each reason that occurs."""
    counts = ((reason, values[metric_name(reason)]) for reason in summed_column.reasons)
    return tuple(sorted((reason, rows) for reason, rows in counts if rows))


def of_hashes(hashes: pa.Array[Any]) -> Digest:
    """Sum :func:`row_hash` values to a digest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bits = hashes.view(pa.uint64())
    high = pc.sum(pc.shift_right(bits, pa.scalar(32, pa.uint64()))).as_py()
    low = pc.sum(pc.bit_wise_and(bits, pa.scalar(0xFFFFFFFF, pa.uint64()))).as_py()
    return Digest(len(hashes), high or 0, low or 0)


def by_epoch(
    rows: DataFrame, columns: int, leave_out: frozenset[str], numbers: Sequence[int]
) -> Iterator[tuple[int, Digest]]:
    """Yield digests of rows by the epoch that wrote them, for the epochs in ``numbers`` with rows.

    Epochs without rows follow only if every row has an owner. ``rows`` come from the sink, with the column of
    ``protocol.EPOCH``. Their first ``columns`` columns were hashed, except ``leave_out``.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    sums = metrics(StructType(rows.schema.fields[:columns]), leave_out)
    epoch = f.col(quote(EPOCH))
    epoch_sums = rows.where(epoch.between(min(numbers), max(numbers))).groupBy(epoch.alias("epoch")).agg(*sums)
    absent = set(numbers)
    for row in epoch_sums.collect():
        if row["epoch"] in absent:
            absent.remove(row["epoch"])
            yield row["epoch"], from_metrics(row.asDict(), leave_out)
    # Only where every row has an owner is an epoch that owns none without rows.
    if absent and rows.where(epoch.isNull()).isEmpty():
        yield from ((number, Digest(0, left_out=tuple(sorted(leave_out)))) for number in absent)


def _plain(kind: DataType, column: Column) -> Column:
    """Return a column that ``xxhash64`` takes and that is equal exactly where the values are."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    match kind:
        case t.FloatType() | t.DoubleType():
            return f.when(f.isnan(column), f.lit(float("nan"))).otherwise(column + f.lit(0.0))
        case t.ArrayType(elementType=element):
            return _counted(f.transform(column, lambda item: _flagged(element, item)))
        case t.MapType(keyType=key, valueType=value):
            # Hashes can be sorted whatever the keys are.
            entry = partial(_entry_hash, key, value)
            return _counted(f.sort_array(f.transform(f.map_entries(column), entry)))
        case t.StructType(fields=fields):
            return f.struct(*[_flagged(field.dataType, column.getField(field.name)) for field in fields])
        # By name: 3.5 has no such class.
        case _ if type(kind).__name__ == "VariantType":
            return f.to_json(column)
        case _:
            return column


def _has_items(kind: DataType) -> bool:
    """Check whether :func:`_plain` applies a lambda to values of a type: one over items of an array or a map."""
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType() | t.MapType():
            return True
        case t.StructType(fields=fields):
            return any(_has_items(field.dataType) for field in fields)
        case _:
            return False


def _counted(items: Column) -> Column:
    """Put items after their count, so that one list's items cannot pass for the next one's."""
    from pyspark.sql import functions as f

    return f.struct(f.array_size(items), items)


def _entry_hash(key: DataType, value: DataType, entry: Column) -> Column:
    from pyspark.sql import functions as f

    return f.xxhash64(_plain(key, entry.getField("key")), _flagged(value, entry.getField("value")))


def _flagged(kind: DataType, column: Column) -> Column:
    from pyspark.sql import functions as f

    return f.struct(column.isNull(), _plain(kind, column))


# ---- The same digest of rows that the driver holds, without asking Spark.
#
# For an epoch of a few rows Spark needs longer to analyse and compile the hash than to read the rows. Its
# ``xxhash64`` is XXH64 over the little-endian bytes of each value, and the hash of one value seeds that of the next;
# so rows of plain columns are hashed here by the library of that name. Nested types, collations and whatever is not
# listed here stay with Spark.

Array = Any
"""An Arrow array: the type stubs do not know the compute functions well enough to be of help."""

Encode = Callable[[Array], Array]
"""The bytes that are hashed for each value of a column: binary values, all of one width or each as long as it is."""

_SPARK_SEED = 42
"""Of Spark's ``xxhash64``: with another one, no hash of the driver equals one of the cluster."""

_MANY = 256
"""Rows from which on hashing by columns takes less than hashing them one by one."""

_LONG_DIGITS = 18
"""Decimals of up to so many digits are hashed as one 64-bit integer."""

_NO, _YES = ((0).to_bytes(4, "little"), (1).to_bytes(4, "little"))


def hashing(schema: StructType, leave_out: frozenset[str] = frozenset()) -> Callable[[pa.RecordBatch], Digest] | None:
    """Return a function that computes the digest of rows without Spark, or ``None`` if only Spark can."""
    parts = _parts(schema, leave_out)
    return None if parts is None else lambda batch: _digest(parts, batch.columns, batch.num_rows)


HashingRows = Callable[["pa.RecordBatch"], "pa.Array[Any]"]
"""The hashes of rows, as 64-bit integers."""


def hashing_rows(schema: StructType, leave_out: frozenset[str] = frozenset()) -> HashingRows | None:
    """Return a function that computes :func:`row_hash` of each row, or ``None`` as :func:`hashing`."""
    import pyarrow as pa

    parts = _parts(schema, leave_out)
    if parts is None:
        return None
    return lambda batch: pa.array(_few(parts, batch.columns, batch.num_rows), pa.uint64()).view(pa.int64())


_Parts = list[tuple[int, bytes, Encode]]


def _parts(schema: StructType, leave_out: frozenset[str]) -> _Parts | None:
    # Of names that differ in case alone Spark cannot tell which is meant; a digest must be had in both ways.
    names = [field.name.lower() for field in schema.fields]
    if not _installed() or len(set(names)) < len(names):
        return None
    parts: _Parts = []
    for at, field in enumerate(schema.fields):
        if field.name not in leave_out:
            encode = _encoding(field.dataType)
            if encode is None:
                return None
            parts.append((at, field.name.encode(), encode))
    return parts


def why_not_in_driver(schema: StructType) -> str | None:
    """Return why only Spark can compute the digest of these columns, or ``None`` if the driver can."""
    names: set[str] = set()
    for field in schema.fields:
        if field.name.lower() in names:
            return f"column {field.name} has the name of another one but for its case"
        names.add(field.name.lower())
        if _encoding(field.dataType) is None:
            return f"column {field.name} is of type {field.dataType.simpleString()}, whose values Spark alone can hash"
    return None


@cache
def _installed() -> bool:
    return find_spec("xxhash") is not None


def _digest(parts: Sequence[tuple[int, bytes, Encode]], columns: Sequence[Array], rows: int) -> Digest:
    if rows >= _MANY and find_spec("numpy"):
        return _many(parts, columns, rows)
    hashes = _few(parts, columns, rows)
    return Digest(rows, sum(each >> 32 for each in hashes), sum(each & 0xFFFFFFFF for each in hashes))


def _few(parts: Sequence[tuple[int, bytes, Encode]], columns: Sequence[Array], rows: int) -> list[int]:
    from xxhash import xxh64_intdigest as xxh64

    hashes = [xxh64(_NO, _SPARK_SEED)] * rows
    for at, name, encode in parts:
        named = (xxh64(name, each) for each in hashes)
        hashes = [
            xxh64(_YES, each) if value is None else xxh64(value, xxh64(_NO, each))
            for value, each in zip(_listed(encode(columns[at])), named, strict=True)
        ]
    return hashes


def _listed(values: Array) -> list[bytes | None]:
    import pyarrow as pa

    raw: Any = values.buffers()[1]
    if not pa.types.is_fixed_size_binary(values.type) or raw is None:
        python_values: list[bytes | None] = values.to_pylist()
        return python_values
    # Cut out of the buffer: one by one, Arrow makes an object of its own for each, which takes ten times as long.
    width = values.type.byte_width
    cut = memoryview(raw)[values.offset * width : (values.offset + len(values)) * width]
    cells = [value for (value,) in struct.iter_unpack(f"{width}s", cut)]
    if not values.null_count:
        return cells
    return [value if there else None for value, there in zip(cells, values.is_valid().to_pylist(), strict=True)]


def _many(parts: Sequence[tuple[int, bytes, Encode]], columns: Sequence[Array], rows: int) -> Digest:
    """Hash by columns, in a third of the time for many rows."""
    import numpy as np
    from xxhash import xxh64_intdigest as xxh64

    from onceonly.spark.row_hash import of_one

    hashes = np.full(rows, xxh64(_NO, _SPARK_SEED), np.uint64)
    for at, name, encode in parts:
        values = encode(columns[at])
        named = of_one(name, hashes)
        if not values.null_count:
            hashes = _hashes(values, of_one(_NO, named))
            continue
        hashes = of_one(_YES, named)
        there = values.is_valid().to_numpy(zero_copy_only=False)
        if there.any():
            hashes[there] = _hashes(values.drop_null(), of_one(_NO, named[there]))
    low = hashes & np.uint64(0xFFFFFFFF)
    return Digest(rows, int((hashes >> np.uint64(32)).sum()), int(low.sum()))


def _hashes(values: Array, seeds: Words) -> Words:
    """Hash each non-null value with its own seed."""
    import numpy as np
    import pyarrow as pa

    from onceonly.spark.row_hash import of_rows, of_values

    count, buffers = len(values), values.buffers()
    if pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        raw_bytes = np.frombuffer(buffers[1], np.uint8, count * width, values.offset * width)
        return of_rows(raw_bytes.reshape(count, width), seeds)
    kind = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    ends = np.frombuffer(buffers[1], kind)[values.offset : values.offset + count + 1].astype(np.int64)
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    return of_values(data, ends[:-1], np.diff(ends), seeds)


def _encoding(kind: DataType) -> Encode | None:
    """Return the encoding of a type's values for Spark's hash."""
    from pyspark.sql import types as t

    # Exactly these classes: a subclass may hash in another way.
    if type(kind) is t.DecimalType:
        return _long_decimals if kind.precision <= _LONG_DIGITS else _wide_decimals
    if kind == t.StringType():  # not equal to one with a collation, whose hash is that of a sort key
        return _texts
    encodings: dict[type[DataType], Encode] = {
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
        t.BinaryType: lambda array: array,
    }
    return encodings.get(type(kind))


def _raw(array: Array, width: int) -> Array:
    """Return the values' own bytes, which Arrow keeps in little-endian order."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.binary(width), len(array), array.buffers()[:2], array.null_count, array.offset)


_fours, _eights = partial(_raw, width=4), partial(_raw, width=8)


def _integers(array: Array) -> Array:
    import pyarrow as pa

    return _fours(array.cast(pa.int32()))


def _ratios(array: Array) -> Array:
    """Bring -0.0 and NaN to one form, as in the cluster, by an addition that makes each of them a double."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    doubles = compute.add(array.cast(pa.float64()), pa.scalar(0.0))
    return _eights(compute.if_else(compute.is_nan(doubles), pa.scalar(float("nan")), doubles))


def _texts(array: Array) -> Array:
    import pyarrow as pa

    return array.view(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())


def _long_decimals(array: Array) -> Array:
    import pyarrow as pa

    # Without its scale the number that is hashed is left; it fits, or it would be a wide one.
    return _eights(array.view(pa.decimal128(38, 0)).cast(pa.int64()))


def _wide_decimals(array: Array) -> Array:
    import pyarrow as pa

    raw = _listed(_raw(array, 16))
    return pa.array([value if value is None else _java_bytes(value) for value in raw], pa.binary())


def _java_bytes(little_endian: bytes) -> bytes:
    """Encode as Java's ``BigInteger.toByteArray``: big-endian, with no byte more than the number and its sign need."""
    number = int.from_bytes(little_endian, "little", signed=True)
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)
