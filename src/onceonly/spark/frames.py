"""Arrow schemas and rows of DataFrames, and session settings."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceonly.spark import detect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType
    from pyspark.sql.types import StructType as StructType  # noqa: PLC0414  for those who see no PySpark

    from onceonly_checkpoints.epoch import Columns

# ---- Types that Arrow carries in the form of another: what a column stands for where its Arrow type lies.
#
# PySpark hands VARIANT, GEOMETRY and GEOGRAPHY over as structs of their bytes, and a user-defined type as what it is
# stored in. Whoever took the Arrow type at its word would write those bytes as if they were the value.

USER_DEFINED = b"onceonly::type"
"""Metadata of a field whose Spark type has no Arrow type of its own; its value is that type's name."""

_MARKED_BY_SPARK = (b"variant", b"geometry", b"geography")
"""Metadata that PySpark puts on a part of the struct that it carries such a value in."""


def stands_for(field: pa.Field[Any]) -> str | None:
    """Return the type that a column, or a part of it, represents, or ``None`` if its Arrow type is complete."""
    import pyarrow as pa
    from pyarrow import types

    metadata = field.metadata or {}
    if USER_DEFINED in metadata:
        return metadata[USER_DEFINED].decode()
    kind: Any = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return f"{kind.extension_name} (an Arrow extension)"
    if types.is_struct(kind) and (marked := _marked(kind)):
        return marked
    parts = [kind.field(at) for at in range(kind.num_fields)] if types.is_nested(kind) else []
    return next((type_name for part in parts if (type_name := stands_for(part))), None)


def _marked(kind: Any) -> str | None:
    marks = {mark for part in kind for mark in part.metadata or {}}
    return next((mark.decode().upper() for mark in _MARKED_BY_SPARK if mark in marks), None)


# ---- Rows in the types that a schema says.


def cast(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast Spark's rows to the names and types of a schema."""
    import pyarrow as pa

    if not schema.names:
        return rows  # rows without columns would forget how many they are
    columns = [_cast(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(array: Any, kind: pa.DataType) -> Any:
    """Cast an array part by part, as a never-null part may only be missing together with its structure.

    Arrow's own cast counts the parts of a null structure as nulls of theirs, and refuses them.
    """
    import pyarrow as pa
    from pyarrow import types

    if array.type == kind:
        return array
    if types.is_struct(kind):
        parts = [_cast(array.field(at), part.type) for at, part in enumerate(kind)]
        valid = array.is_valid().buffers()[1] if array.null_count else None
        return pa.Array.from_buffers(kind, len(array), [valid], children=parts)
    if types.is_list(kind) and types.is_list(array.type):
        values = _cast(array.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[values])
    return array.cast(kind)


# ---- Schemas, rows, settings.


def arrow_schema(df: DataFrame) -> pa.Schema:
    """Return the Arrow schema of a DataFrame, with timestamps in UTC and a mark on types that Arrow lacks."""
    return in_arrow(df.schema)


def in_arrow(columns: StructType) -> pa.Schema:
    """Return the Arrow schema of columns, as :func:`arrow_schema`."""
    # The public way is the schema of ``limit(0).toArrow()``: a job, where this asks nobody.
    try:
        schema = detect.line().arrow_schema(columns)
    except TypeError:
        return _column_by_column(columns)
    for at, column in enumerate(columns.fields):
        if (name := _beyond_arrow(column.dataType)) is not None:
            schema = schema.set(at, schema.field(at).with_metadata({USER_DEFINED: name}))
    return schema


def columns_of(schema: StructType) -> Columns:
    """Return the columns of a DataFrame."""
    return tuple((field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields)


def columns_in(schema: pa.Schema) -> Columns:
    """Return columns that are in Arrow form."""
    from pyspark.sql.pandas.types import from_arrow_type

    def kind(field: pa.Field[Any]) -> str:
        return stands_for(field) or from_arrow_type(field.type, prefer_timestamp_ntz=True).simpleString()

    return tuple((field.name, kind(field), field.nullable) for field in schema)


def _column_by_column(columns: StructType) -> pa.Schema:
    """Build the schema where PySpark has no Arrow type at all for some column, whose rows no sink can get."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    fields: list[pa.Field[Any]] = []
    for column in columns.fields:
        try:
            fields.append(detect.line().arrow_schema(StructType([column])).field(0))
        except TypeError:
            fields.append(pa.field(column.name, pa.null(), metadata={USER_DEFINED: column.dataType.simpleString()}))
    return pa.schema(fields)


def _beyond_arrow(kind: DataType) -> str | None:
    """Return the name of a user-defined type in a type: Arrow gets its storage type."""
    from pyspark.sql import types as t

    match kind:
        case t.UserDefinedType():
            return f"the user-defined type {type(kind).__name__}"
        case t.ArrayType():
            return _beyond_arrow(kind.elementType)
        case t.MapType():
            return _beyond_arrow(kind.keyType) or _beyond_arrow(kind.valueType)
        case t.StructType():
            return next((name for field in kind.fields if (name := _beyond_arrow(field.dataType))), None)
        case _:
            return None


def of_arrow(session: SparkSession, table: pa.Table) -> DataFrame:
    """Make a DataFrame of Arrow rows, in the types that a DataFrame's own rows have in Arrow."""
    # Left to itself, ``createDataFrame`` takes the session's choice for times without a zone.
    from pyspark.sql.pandas.types import from_arrow_schema

    # Spark 4.2 takes an empty batch for the end of the table: the rows behind one would be lost without a word.
    combined_table = table.combine_chunks()
    return detect.line().of_arrow(
        session, combined_table, from_arrow_schema(combined_table.schema, prefer_timestamp_ntz=True)
    )


@contextmanager
def setting(df: DataFrame, name: str, value: str) -> Generator[None]:
    """Set an option of the DataFrame's session for a while. A stream has a session of its own."""
    conf = df.sparkSession.conf
    before = conf.get(name) or ""
    conf.set(name, value)
    try:
        yield
    finally:
        conf.set(name, before)


class UnreadableRows(Exception):
    """Spark could not read rows. Its own error is the cause."""


@contextmanager
def reading() -> Generator[None]:
    """Translate Spark's errors about unreadable rows to ``UnreadableRows``, without Spark's classes."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        # The condition is stable from one Spark to the next; the message quotes paths and values.
        raise UnreadableRows(f"Spark could not read them ({condition(error)})") from error


def condition(error: Exception) -> str:
    """Return the stable name of Spark's own error, or that of its class without one."""
    return str(getattr(error, detect.line().condition)() or type(error).__name__)
