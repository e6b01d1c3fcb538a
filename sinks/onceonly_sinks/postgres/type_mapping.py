"""Map Arrow columns of a batch to Postgres types without loss.

The types are decided once per schema, the values are checked one by one. A binary COPY carries no types, and Postgres
rounds and trims in silence. So a value that would be rounded, trimmed or wrapped is refused here, with its column.
Pure: no database, runs on executors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly_checkpoints.model import shorten_list
from onceonly_sinks.postgres import ddl
from onceonly_sinks.postgres.ddl import advice, ddl_of, own_type, spark_name
from onceonly_sinks.postgres.lanes import ColumnEncoder, convert
from onceonly_sinks.postgres.schema import Column, Table
from onceonly_sinks.postgres.server import printed, quote

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """Conversion of a batch of one schema for one table.

    Attributes:
        lanes: one per column of the batch, in its order.
        added: columns of ``table`` that it does not have yet. The commit adds them.
        delete: boolean column of the batch that marks keys to remove. The table does not hold it.
    """

    table: Table
    lanes: tuple[ColumnEncoder, ...]
    added: tuple[Column, ...] = ()
    delete: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are written, without the epoch column."""
        return tuple(lane.target for lane in self.lanes)

    @property
    def stored(self) -> tuple[str, ...]:
        """Those of them that the table holds."""
        return tuple(name for name in self.columns if name != self.delete)

    @property
    def ddl(self) -> str:
        """All of :attr:`columns` with their types, as SQL."""
        return ", ".join(f"{quote(lane.target)} {lane.ddl}" for lane in self.lanes)

    @property
    def original(self) -> Table:
        """The table as it was found."""
        return replace(self.table, columns=tuple(column for column in self.table.columns if column not in self.added))

    @property
    def types(self) -> dict[str, str]:
        """Spark's type by column of the table, for messages."""
        return {lane.target: lane.spark for lane in self.lanes}

    def convert(self, batch: pa.RecordBatch) -> list[pa.Array[Any]]:
        """Convert every column. Raises :class:`ValueRefused` if the table cannot hold a value."""
        return [convert(lane, batch.column(index)) for index, lane in enumerate(self.lanes)]


def map_types(
    sink: str, batch: pa.Schema, table: Table, key: Sequence[str] = (), delete: str | None = None, *, grow: bool = False
) -> TypeMapping:
    """Plan how to write such a batch to such a table.

    Nulls in the columns of ``key`` pass: the caller counts them over the whole batch. ``delete`` is a boolean column of
    the batch that the table does not hold. ``grow`` adds columns that the table lacks. Raises E506: columns are missing
    on either side, or a type cannot be written without loss.
    """
    added = ddl.lacking(sink, batch, table, delete) if grow else ()
    table = replace(table, columns=(*table.columns, *added))
    targets = {
        field.name: ddl.flag(sink, field) if field.name == delete else _target(field.name, table) for field in batch
    }
    if delete is not None and delete not in batch.names:
        raise ddl.no_flag(sink, delete, "not there")
    lanes = [_lane(field, column) for field in batch if (column := targets[field.name]) and column.writable]
    ours = {table.epoch_column} & {*batch.names}
    misfits = [
        *(Misfit(f"column {name} is the one that takes the epoch's number", "rename it in the query") for name in ours),
        *_lacking(batch, table, targets),
        *_incomplete({column.name for name, column in targets.items() if column and name != delete}, table),
        *(lane for lane in lanes if isinstance(lane, Misfit)),
    ]
    if misfits:
        raise _refused(sink, table, misfits)
    fitting = (lane for lane in lanes if isinstance(lane, ColumnEncoder))
    keyed = (replace(lane, required=False) if lane.target in key else lane for lane in fitting)
    return TypeMapping(table, tuple(keyed), added, delete)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a batch does not fit a table, and the remedy: a change of the query, or a clause of ``ALTER TABLE``.

    ``absent``: columns that the table lacks. ``cast``: the column whose type does not fit.
    """

    difference: str
    remedy: str = ""
    clause: str = ""
    absent: tuple[str, ...] = ()
    cast: str = ""


def _refused(sink: str, table: Table, misfits: Sequence[Misfit]) -> OnceOnlyError:
    """All misfits at once, with one statement for all that the table can change."""
    # No blank behind the comma: what comes after ", " is prose.
    clauses = ",".join(misfit.clause for misfit in misfits if misfit.clause)
    widened = [misfit.cast for misfit in misfits if misfit.cast and misfit.clause]
    cast = [misfit.cast for misfit in misfits if misfit.cast and not misfit.clause and not misfit.remedy]
    ways = {
        f"ALTER TABLE {table.name.printed} {clauses}": clauses,
        f"or cast {shorten_list(widened)} in the query": widened,
        f"cast {shorten_list(cast)} in the query": cast,
        **{misfit.remedy: misfit.remedy for misfit in misfits},
    }
    details: dict[str, object] = {"difference": shorten_list([misfit.difference for misfit in misfits], 4, "; ")}
    if all(misfit.cast for misfit in misfits):
        details |= {"mismatch": "cannot hold a type of the batch", "because": "the query or the table has changed"}
    next_ = f"{'; '.join(way for way, applies in ways.items() if applies)}; then restart the query"
    return refuse("E506", sink=sink, next=next_, absent=misfits[0].absent if len(misfits) == 1 else (), **details)


def _target(name: str, table: Table) -> Column | None:
    """The column of that name. Else the only one that differs from it in case, as Spark resolves names."""
    alike = [column for column in table.columns if column.name.lower() == name.lower()]
    exact = [column for column in alike if column.name == name]
    matches = exact or (alike if len(alike) == 1 else [])
    return matches[0] if matches and name != table.epoch_column else None


def _lacking(batch: pa.Schema, table: Table, targets: Mapping[str, Column | None]) -> Iterator[Misfit]:
    lacking = [field for field in batch if targets[field.name] is None and field.name != table.epoch_column]
    yield from (Misfit(ddl.no_form(field), advice(field)) for field in lacking if ddl.is_formless(field))
    if lacking := [field for field in lacking if not ddl.is_formless(field)]:
        absent = tuple(field.name for field in lacking)
        clauses = (f"ADD COLUMN {printed(field.name)} {ddl_of(field.type)}" for field in lacking)
        yield Misfit(f"the table has no column {shorten_list(absent)}", clause=",".join(clauses), absent=absent)
    generated = [name for name, column in targets.items() if column and not column.writable]
    if generated:
        names = shorten_list(generated)
        yield Misfit(f"column {names} is generated by the table", f"leave {names} out of the query's columns")


def _incomplete(written: set[str], table: Table) -> Iterator[Misfit]:
    missing = [
        column.name
        for column in table.columns
        if column.required and not column.filled and column.writable and column.name not in written
    ]
    if missing := [name for name in missing if name != table.epoch_column]:
        yield Misfit(
            f"the batch has no column {shorten_list(missing)}, which the table wants and cannot fill itself",
            f"add it to the others, e.g. with {_added(missing)}, or give it a default in the table",
        )


def _added(missing: Sequence[str]) -> str:
    """A ``selectExpr`` that adds columns: ``*`` keeps those that other sinks of the pipeline want."""
    return f"selectExpr({', '.join(json.dumps(part) for part in ('*', *(f'... AS {name}' for name in missing)))})"


# ---- which way a column goes


def _lane(field: pa.Field[Any], column: Column) -> ColumnEncoder | Misfit:
    name, type_ = field.name, field.type
    encoding = _array_way(type_, column) if column.array else _scalar_way(type_, column)
    own, formed = own_type(field), ddl_of(type_)
    spark = own or spark_name(type_)
    if encoding is None or own:
        # Postgres changes the column to a wider type by itself, and keeps every value.
        wider = formed == "text" or column.type in _WIDER.get((formed or "").partition("(")[0], ())
        widens = wider and not column.array and not own
        clause = f"ALTER COLUMN {printed(column.name)} TYPE {formed}" if widens else ""
        return Misfit(
            f"column {name} is {spark} in the batch, {column.ddl} in the table, which could not keep it",
            advice(field) if own or formed is None else "",
            clause,
            cast=name,
        )
    return ColumnEncoder(column.name, spark, column.ddl, required=column.required, **encoding)


_WIDER: Mapping[str, tuple[str, ...]] = {
    "real": ("int2",),
    "double precision": ("int2", "int4", "float4"),
    "numeric": ("int2", "int4", "int8"),
    "timestamp": ("date",),
}


def _array_way(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    if not (pa.types.is_list(type_) or pa.types.is_large_list(type_)) or column.type in ("timestamptz", "varchar"):
        return None
    inner = Column(column.name, column.type, column.modifier, False, False, False, True, column.ddl)
    encoding = _scalar_way(type_.value_type, inner)
    if (
        encoding is None
        or encoding.get("how", "cast") not in ("cast", "decimal", "text")
        or encoding.get("unit", 1) != 1
        or encoding.get("length") is not None
    ):
        return None
    target = pa.list_(encoding["arrow"])
    how = "texts" if encoding.get("how") == "text" else "as it is" if type_ == target else "cast"
    return {"arrow": target, "how": how}


def _scalar_way(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    family = next((family for family, names in _FAMILIES.items() if column.type in names), None)
    encoding = _WAYS[family](type_, column) if family else None
    if encoding is not None and "how" not in encoding and encoding["arrow"] != type_:
        encoding["how"] = "cast"
    return encoding


def _integer(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    integer_type = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64()}[column.type]
    return {"arrow": integer_type} if pa.types.is_signed_integer(type_) else None


def _float(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    exact = {"float4": ("int8", "int16", "float"), "float8": ("int8", "int16", "int32", "float", "double")}
    target = {"float4": pa.float32(), "float8": pa.float64()}[column.type]
    return {"arrow": target} if str(type_) in exact[column.type] else None


def _numeric(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    if pa.types.is_signed_integer(type_):
        type_ = pa.decimal128(19, 0)
    if not pa.types.is_decimal128(type_):
        return None
    if column.modifier < 0:
        return {"arrow": type_, "how": "decimal"}
    precision, scale = _precision(column.modifier)
    if precision > 38 or scale < 0:
        # Arrow has no such type; every value that fits 38 digits is written as it is.
        wide = precision - scale >= type_.precision - type_.scale and scale >= type_.scale
        return {"arrow": type_, "how": "decimal"} if wide else None
    return {"arrow": pa.decimal128(precision, scale), "how": "decimal"}


def _precision(modifier: int) -> tuple[int, int]:
    scale = (modifier - 4) & 0x7FF
    return (modifier - 4) >> 16 & 0xFFFF, scale - 0x800 if scale > 1000 else scale


def _text(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    if not (pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_null(type_)):
        return None
    length = column.modifier - 4 if column.type in ("varchar", "bpchar") and column.modifier >= 4 else None
    return {"arrow": pa.string(), "how": "text", "length": length}


def _same(*names: str, arrow: Any) -> Callable[[pa.DataType, Column], dict[str, Any] | None]:
    # ``arrow`` is the alias of a type, for which the stubs want a literal.
    def encoder_options(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
        import pyarrow as pa

        # A precision, as in time(3), rounds in silence.
        return {"arrow": pa.type_for_alias(arrow)} if str(type_) in names and column.modifier < 0 else None

    return encoder_options


def _moment(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    if not pa.types.is_timestamp(type_) or bool(type_.tz) != (column.type == "timestamptz"):
        return None
    unit = 10 ** (6 - column.modifier) if 0 <= column.modifier < 6 else 1
    return {"arrow": pa.timestamp("us", type_.tz), "unit": unit}


def _uuid(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    if str(type_) in ("string", "large_string"):
        return {"arrow": pa.binary(16), "how": "uuid"}
    return {"arrow": pa.binary(16)} if str(type_) in ("binary", "fixed_size_binary[16]") else None


def _json(type_: pa.DataType, column: Column) -> dict[str, Any] | None:
    import pyarrow as pa

    jsonb = column.type == "jsonb"
    if str(type_) in ("string", "large_string"):
        return {"arrow": pa.string(), "how": "text", "jsonb": jsonb}
    nested = pa.types.is_nested(type_) and ddl_of(type_) is not None
    return {"arrow": pa.string(), "how": "json", "jsonb": jsonb} if nested else None


_FAMILIES = {
    "integer": ("int2", "int4", "int8"),
    "float": ("float4", "float8"),
    "numeric": ("numeric",),
    "text": ("text", "varchar", "bpchar", "citext", "enum"),
    "bytes": ("bytea",),
    "boolean": ("bool",),
    "date": ("date",),
    "moment": ("timestamp", "timestamptz"),
    "interval": ("interval",),
    "time": ("time",),
    "uuid": ("uuid",),
    "json": ("json", "jsonb"),
}

_WAYS: dict[str, Callable[[pa.DataType, Column], dict[str, Any] | None]] = {
    "integer": _integer,
    "float": _float,
    "numeric": _numeric,
    "text": _text,
    "bytes": _same("binary", "large_binary", arrow="binary"),
    "boolean": _same("bool", arrow="bool"),
    "date": _same("date32[day]", arrow="date32"),
    "moment": _moment,
    "interval": _same("duration[us]", arrow="duration[us]"),
    "time": _same("time64[us]", "time64[ns]", arrow="time64[us]"),
    "uuid": _uuid,
    "json": _json,
}
