"""Map a batch's columns to a Delta table's columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceonly.errors import OnceOnlyError, refuse
from onceonly_sinks.delta import columns as lengths
from onceonly_sinks.delta.columns import Limit

if TYPE_CHECKING:
    from onceonly_sinks.delta.columns import Column

# ---- What a table demands of values, looked at wherever the rows are. Picklable; needs only pyarrow.

NULL = "null in a NOT NULL column"

_REMEDIES = {NULL: "filter or fill it before the sink"}
_SHORTEN = "mend such rows before the sink, e.g. with transform="


@dataclass(frozen=True, slots=True)
class Demands:
    """A table's rules for values: columns that may not be null, and limits of CHAR or VARCHAR anywhere in a column."""

    required: tuple[str, ...] = ()
    limits: tuple[tuple[str, Limit], ...] = ()

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Demands:
        """The rules of a table's columns. Raises ``Unread`` if a CHAR or VARCHAR is spelled in an unknown way."""
        required = tuple(column.name for column in columns if not column.nullable)
        return cls(required, lengths.limits({column.name: column.metadata for column in columns}))

    @property
    def read(self) -> tuple[str, ...]:
        """Columns whose values must be read to check them."""
        return tuple(name for name, _ in self.limits)

    def broken(self, rows: pa.Table) -> tuple[str, str] | None:
        """The first column that breaks a rule, and how, without a value. Columns that the rows lack break none."""
        there = set(rows.column_names)
        for name in self.required:
            if name in there and rows.column(name).null_count:
                return name, NULL
        for name, limit in self.limits:
            if name in there and (problem := lengths.too_long(rows.column(name), limit)):
                return name, problem
        return None


def refusal(sink: str, column: str, reason: str) -> OnceOnlyError:
    """The refusal of a value that a column cannot hold."""
    return refuse("E503", sink=sink, column=column, reason=reason, next=_REMEDIES.get(reason, _SHORTEN))


# ---- What may go where, and the cast that carries it out.
#
# As Delta's own sink does it: a name may differ in case where only one fits, a column that may be null may be left
# out, and a type may become a wider one that holds all its values. deltalake itself would write 1.5 into a long as 1,
# so what narrows is refused here, before any writer is chosen.

_INTEGERS: Mapping[str, int] = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""With the digits that each may have; in ascending order."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


class IncompatibleSchema(Exception):
    """A value does not fit into its column. ``reason`` leaves the value out."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(column, reason)
        self.column = column
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Shape:
    """Target columns of rows. Picklable.

    ``columns`` are serialised Arrow. ``sources`` has the batch's column of each. ``None``: nulls.
    """

    columns: bytes
    sources: tuple[str | None, ...]

    @classmethod
    def of(cls, schema: pa.Schema, sources: Sequence[str | None]) -> Shape:
        """A shape with these columns."""
        return cls(schema.serialize().to_pybytes(), tuple(sources))

    @property
    def schema(self) -> pa.Schema:
        """Columns to write."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))

    def shaped(self, rows: pa.Table) -> pa.Table:
        """Cast the rows to these columns. Raises :class:`IncompatibleSchema` if a value is beyond its column."""
        schema = self.schema
        if list(self.sources) == rows.column_names and schema.equals(rows.schema):
            return rows
        arrays = [_column(rows, source, field) for field, source in zip(schema, self.sources, strict=True)]
        return pa.table(arrays, schema=schema)


def _column(rows: pa.Table, source: str | None, field: pa.Field[Any]) -> Any:
    if source is None:
        return pa.nulls(rows.num_rows, field.type)
    values = rows.column(source)
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        # The text of such an error quotes the value.
        raise IncompatibleSchema(field.name, f"a value of {values.type} is beyond {field.type}") from error


def paired(table: Sequence[Column], batch: Sequence[str]) -> dict[str, str]:
    """Pair a batch's columns with the table's: the same name, or the only one that differs in case."""
    there = {column.name for column in table}
    pairs = {name: name for name in batch if name in there}
    for column in table:
        alike = [name for name in batch if name.lower() == column.name.lower()]
        if column.name not in pairs and len(alike) == 1:
            pairs[alike[0]] = column.name
    return pairs


def differences(table: Sequence[Column], batch: Sequence[Column], pairs: Mapping[str, str]) -> list[str]:
    """Reasons why a batch does not fit a table. Empty if it does."""
    there, paired_names = {column.name: column for column in table}, set(pairs.values())
    problems = [f"{new_column.name} is new" for new_column in batch if new_column.name not in pairs]
    problems += [
        f"{column.name} is missing"
        for column in table
        if column.name not in paired_names and not (column.nullable or column.filled)
    ]
    for batch_column in batch:
        column = there.get(pairs.get(batch_column.name, ""))
        if column is not None and not column.takes_values:
            problems.append(
                f"{batch_column.name} is GENERATED ALWAYS AS IDENTITY in the table, and takes no value of the batch"
            )
        elif column is not None and not holds(json.loads(column.type), json.loads(batch_column.type)):
            old_type, new_type = json.loads(column.type), json.loads(batch_column.type)
            problems.append(f"{batch_column.name} is {old_type} in the table and {new_type} in the batch")
    return problems


def holds(wide: Any, narrow: Any) -> bool:
    """Whether a Delta type, as parsed JSON without nullability, holds every value of another one unchanged."""
    if wide == narrow:
        return True
    if isinstance(wide, dict) and isinstance(narrow, dict):
        return _holds_parts(wide, narrow)
    if not isinstance(wide, str) or not isinstance(narrow, str):
        return False
    if decimal := _DECIMAL.fullmatch(wide):
        return _decimal_holds(int(decimal[1]), int(decimal[2]), narrow)
    if narrow in _INTEGERS:
        order = list(_INTEGERS)
        return (wide in order and order.index(narrow) < order.index(wide)) or (wide == "double" and narrow != "long")
    return (wide, narrow) == ("double", "float")


def _decimal_holds(precision: int, scale: int, narrow: str) -> bool:
    if narrow in _INTEGERS:
        return precision - scale >= _INTEGERS[narrow]
    match = _DECIMAL.fullmatch(narrow)
    if match is None:
        return False
    digits, places = int(match[1]), int(match[2])
    return scale >= places and precision - scale >= digits - places


def _holds_parts(wide: Mapping[str, Any], narrow: Mapping[str, Any]) -> bool:
    """Nested types may widen in their parts. Names and order of a struct's fields stay."""
    if wide.get("type") != narrow.get("type"):
        return False
    if wide.get("type") == "struct":
        pairs = list(zip(wide["fields"], narrow["fields"], strict=False))
        same = len(wide["fields"]) == len(narrow["fields"]) == len(pairs)
        return same and all(w["name"] == n["name"] and holds(w["type"], n["type"]) for w, n in pairs)
    parts = ("elementType",) if wide.get("type") == "array" else ("keyType", "valueType")
    return all(holds(wide[part], narrow[part]) for part in parts)
