"""The order-free digest of a batch, as Spark columns: computed in the cluster, in the action that writes the rows.

Spark's ``xxhash64`` skips nulls, so (1, null) and (null, 1) would be equal, and it does not take maps. Here every
value is hashed behind a null flag, those of a row behind their column's name, too; so are the parts of structs, arrays
and maps, keys included. Arrays and maps begin with their length, so what is hashed can be read in one way only. A map
is the sorted hashes of its entries; -0.0 and NaN are brought to one form. A change here is one in ``rowhash``, which
comes to the same digest without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.epoch import Digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


def metrics(schema: StructType, leave_out: frozenset[str] = frozenset()) -> list[Column]:
    """Aggregates ``rows``, ``high`` and ``low`` for ``DataFrame.observe``.

    Args:
        schema: columns of the observed DataFrame.
        leave_out: columns that a replay may compute otherwise (see ``lineage``).
    """
    from pyspark.sql import functions as f

    row = row_hash(schema, leave_out)
    high = f.sum(f.shiftrightunsigned(row, 32)).alias("high")
    low = f.sum(row.bitwiseAND(f.lit(0xFFFFFFFF))).alias("low")
    return [f.count(f.lit(1)).alias("rows"), high, low]


def row_hash(schema: StructType, leave_out: frozenset[str] = frozenset()) -> Column:
    """The 64-bit hash of one row; arguments as for :func:`metrics`."""
    from pyspark.sql import functions as f

    parts = [f.lit(0)]
    for field in schema.fields:
        if field.name not in leave_out:
            column = f.col(quote(field.name))
            parts += [f.lit(field.name), column.isNull(), _plain(field.dataType, column)]
    return f.xxhash64(*parts)


def quote(name: str) -> str:
    """Column name as one identifier, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def from_metrics(values: Mapping[str, Any], leave_out: Iterable[str] = ()) -> Digest:
    """Digest from the observed metrics, which were asked for without some columns; sums over no rows are null."""
    return Digest(values["rows"] or 0, values["high"] or 0, values["low"] or 0, tuple(sorted(leave_out)))


def of_hashes(hashes: pa.Array[Any]) -> Digest:
    """Digest of the rows whose :func:`row_hash` is given."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bits = hashes.view(pa.uint64())
    high = pc.sum(pc.shift_right(bits, pa.scalar(32, pa.uint64()))).as_py()
    low = pc.sum(pc.bit_wise_and(bits, pa.scalar(0xFFFFFFFF, pa.uint64()))).as_py()
    return Digest(len(hashes), high or 0, low or 0)


def _plain(kind: DataType, column: Column) -> Column:
    """A column that ``xxhash64`` takes and that is equal exactly where the values are."""
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
        case t.VariantType():
            return f.to_json(column)
        case _:
            return column


def _counted(items: Column) -> Column:
    """Items behind their number: else those of one list could as well be the next one's."""
    from pyspark.sql import functions as f

    return f.struct(f.array_size(items), items)


def _entry_hash(key: DataType, value: DataType, entry: Column) -> Column:
    from pyspark.sql import functions as f

    return f.xxhash64(_plain(key, entry.getField("key")), _flagged(value, entry.getField("value")))


def _flagged(kind: DataType, column: Column) -> Column:
    from pyspark.sql import functions as f

    return f.struct(column.isNull(), _plain(kind, column))
