"""Plan and create a missing Postgres table from a batch's schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.spark.frames import USER_DEFINED
from onceonly_checkpoints.model import shorten_list
from onceonly_sinks.postgres.schema import EPOCH_COLUMN, Column, Table, stamping
from onceonly_sinks.postgres.server import TableName, quote

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

NAMED = "cannot use a column that an argument names"


def planned(
    name: TableName, schema: Iterable[pa.Field[Any]], key: Sequence[str], epoch_column: str | None, sink: str
) -> Table:
    """Plan the table that holds such a batch. Raises E506: a column's type has no form in Postgres."""
    columns = _columns_for(sink, schema, key)
    extra = EPOCH_COLUMN if epoch_column == "auto" else epoch_column
    if extra is not None:
        columns.append(Column(extra, "int8", -1, False, False, False, True, "bigint"))
    keys = frozenset([frozenset(key)]) if key else frozenset[frozenset[str]]()
    return Table(name, 0, tuple(columns), keys, extra)


def lacking(sink: str, batch: pa.Schema, table: Table, delete: str | None) -> tuple[Column, ...]:
    """Columns of a batch that the table lacks, all nullable. Raises E506: a column's type has no form in Postgres."""
    there = {column.name.lower() for column in table.columns}
    new = (field for field in batch if field.name != delete and field.name.lower() not in there)
    return tuple(_columns_for(sink, new))


def add(connection: Connection, table: Table, added: Sequence[Column]) -> Table:
    """Add columns in the open transaction. Until it ends, the table is locked against any access."""
    lines = ", ".join(f"ADD COLUMN {quote(column.name)} {column.ddl}" for column in added)
    connection.exec_driver_sql(f"ALTER TABLE {table.name.sql} {lines}", {})
    return replace(table, columns=(*table.columns, *added))


def flag(sink: str, field: pa.Field[Any]) -> Column:
    """The boolean delete column, which waits beside the target. Raises E506: it is not boolean."""
    if str(field.type) != "bool":
        raise no_flag(sink, field.name, spark_name(field.type))
    return Column(field.name, "bool", -1, False, False, False, True, "boolean")


def no_flag(sink: str, name: str, kind: str) -> OnceOnlyError:
    """The error for a batch that has no boolean column of that name."""
    difference = f"column {name}, which delete_flag= names, is {kind} in the batch; it must be boolean"
    cause, remedy = "delete_flag= names another column than was meant", "name a boolean column of the batch"
    return refuse("E506", sink=sink, mismatch=NAMED, difference=difference, because=cause, next=remedy)


def create(connection: Connection, table: Table, key: Sequence[str]) -> Table:
    """Make a planned table in the open transaction."""
    lines = [f"{quote(column.name)} {column.ddl}" for column in table.columns]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(quote(name) for name in key)})")
    connection.exec_driver_sql(f"CREATE TABLE {table.name.sql} ({', '.join(lines)})", {})
    stamp = connection.exec_driver_sql(*stamping(table.name)).one()
    return replace(table, oid=int(stamp[0]), stamp=tuple(stamp))


def _columns_for(sink: str, fields: Iterable[pa.Field[Any]], key: Sequence[str] = ()) -> list[Column]:
    columns: list[Column] = []
    formless: list[pa.Field[Any]] = []
    for field in fields:
        if (ddl := ddl_of(field.type)) is None or own_type(field):
            formless.append(field)
            continue
        base, required = _BASE[ddl.removesuffix("[]").split("(")[0]], field.name in key
        modifier, array = modifier_of(field.type), ddl.endswith("[]")
        columns.append(Column(field.name, base, modifier, array, required, False, True, ddl))
    if formless:
        mismatch, cause = "cannot hold a type of the batch", "Postgres lacks a type that Spark has"
        difference = shorten_list([no_form(field) for field in formless], 4, "; ")
        remedy = "; ".join(dict.fromkeys(map(advice, formless)))
        raise refuse("E506", sink=sink, mismatch=mismatch, difference=difference, because=cause, next=remedy)
    return columns


def is_formless(field: pa.Field[Any]) -> bool:
    """Whether Postgres has no type for a column."""
    return ddl_of(field.type) is None or own_type(field) is not None


def no_form(field: pa.Field[Any]) -> str:
    """Describe a column of a type that Postgres lacks."""
    return f"column {field.name} of type {own_type(field) or spark_name(field.type)} has no form in Postgres"


_BASE: Mapping[str, str] = {
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "numeric": "numeric",
    "text": "text",
    "bytea": "bytea",
    "boolean": "bool",
    "date": "date",
    "timestamp with time zone": "timestamptz",
    "timestamp": "timestamp",
    "interval": "interval",
    "time": "time",
    "jsonb": "jsonb",
}


def own_type(field: pa.Field[Any]) -> str | None:
    """Name of the user-defined type that the column has in Spark. Arrow carries its storage type."""
    name = (field.metadata or {}).get(USER_DEFINED)
    return name.decode() if name else None


def advice(field: pa.Field[Any]) -> str:
    """Advice for a column whose type has no form in Postgres."""
    if own_type(field):
        return "in the query, select the parts that you want to keep as plain columns"
    if holds_map_by_nested_key(field.type):
        return "turn the map into an array in the query, e.g. with map_entries()"
    if inner := stored_as(field.type):
        return f"turn it into text or plain columns in the query, e.g. {_IN_SPARK.get(inner, 'its fields')}"
    return "cast it in the query, e.g. to string"


_IN_SPARK: Mapping[str, str] = {
    "variant": "to_json(v) or variant_get(v, '$.a', 'int')",
    "geometry": "st_asbinary(g)",
    "geography": "st_asbinary(g)",
}


def stored_as(type_: pa.DataType) -> str | None:
    """Name of an inner type that Arrow carries as a struct of internal bytes, if any: SQL cannot read them."""
    import pyarrow.types as t

    if t.is_struct(type_) and (own := _storage(type_)):
        return own
    inside = (stored_as(type_.field(index).type) for index in range(type_.num_fields))
    return next((name for name in inside if name), None)


def _storage(type_: pa.DataType) -> str | None:
    """By the mark that Spark sets, and by the names of the fields, as staged files keep no mark."""
    fields = [type_.field(index) for index in range(type_.num_fields)]
    marked = {key.decode() for field in fields for key in (field.metadata or {})}
    named = {field.name: str(field.type).removeprefix("large_") for field in fields}
    if "variant" in marked or named == {"value": "binary", "metadata": "binary"}:
        return "variant"
    if named == {"srid": "int32", "wkb": "binary"}:
        return "geography" if "geography" in marked else "geometry"
    return None


def holds_map_by_nested_key(type_: pa.DataType) -> bool:
    """Whether a map in it has keys that are structs, arrays or maps: JSON names members by text alone."""
    import pyarrow.types as t

    if t.is_map(type_) and t.is_nested(type_.key_type):
        return True
    return any(holds_map_by_nested_key(type_.field(index).type) for index in range(type_.num_fields))


def ddl_of(type_: pa.DataType) -> str | None:
    """Postgres type for a column of a batch, as SQL, or ``None`` if it has no form."""
    import pyarrow.types as t

    if t.is_nested(type_) and (stored_as(type_) or holds_map_by_nested_key(type_)):
        return None
    if t.is_struct(type_) or t.is_map(type_):
        return "jsonb"
    if t.is_list(type_) or t.is_large_list(type_):
        element = ddl_of(type_.value_type)
        # The encoder writes no arrays of timestamptz, time or jsonb; Postgres takes no ragged arrays of arrays.
        plain = (
            element is not None
            and element not in ("jsonb", "timestamp with time zone", "time")
            and element[-2:] != "[]"
        )
        return f"{element}[]" if plain else "jsonb" if element else None
    if t.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    if t.is_timestamp(type_):
        return "timestamp with time zone" if type_.tz else "timestamp"
    return _SCALAR.get(str(type_))


_SCALAR: Mapping[str, str] = {
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "large_string": "text",
    "null": "text",
    "binary": "bytea",
    "large_binary": "bytea",
    "bool": "boolean",
    "date32[day]": "date",
    "duration[us]": "interval",
    "time64[us]": "time",
    "time64[ns]": "time",
}


def modifier_of(type_: pa.DataType) -> int:
    """Type modifier of the planned type, -1 for none."""
    import pyarrow.types as t

    if t.is_list(type_) or t.is_large_list(type_):
        return modifier_of(type_.value_type)
    return (type_.precision << 16 | type_.scale) + 4 if t.is_decimal(type_) else -1


_SPARK: Mapping[str, str] = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "large_string": "string",
    "large_binary": "binary",
    "bool": "boolean",
    "date32[day]": "date",
    "null": "void",
    "duration[us]": "interval day to second",
}


def spark_name(type_: pa.DataType) -> str:
    """Spark's name of a type."""
    import pyarrow.types as t

    if t.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if t.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    if t.is_map(type_):
        return f"map<{spark_name(type_.key_type)},{spark_name(type_.item_type)}>"
    if t.is_list(type_) or t.is_large_list(type_):
        return f"array<{spark_name(type_.value_type)}>"
    if t.is_struct(type_):
        return _storage(type_) or f"struct<{','.join(f'{field.name}:{spark_name(field.type)}' for field in type_)}>"
    return _SPARK.get(str(type_), str(type_))
