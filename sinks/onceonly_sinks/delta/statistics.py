"""Compute exact statistics of a data file for the Delta log.

They are counted, or read from a Parquet footer. Inexact ones are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

# ---- Statistics of a data file for the log: exact or left out, because readers skip files by them.

_INDEXED_COLUMNS = 32
"""Statistics cover the first columns, as Delta's own writers do."""

_LONGEST_TEXT = 128
_MILLISECOND = timedelta(milliseconds=1)


class Statistics:
    """Minimum, maximum and null count per column, exact or left out. A wrong bound makes readers skip rows."""

    def __init__(self) -> None:
        self._nulls: dict[str, int] = {}
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}
        self._without_range: set[str] = set()

    def add(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        for field in covered(table.schema):
            values = table.column(field.name)
            self._nulls[field.name] = self._nulls.get(field.name, 0) + values.null_count
            if not _orderable(field.type):
                continue
            if types.is_floating(field.type) and pc.any(pc.is_nan(values)).as_py():
                self._without_range.add(field.name)
            least, greatest = _bounds(pc.min_max(values)) or (None, None)
            if least is None and values.null_count < len(values):
                self._without_range.add(field.name)
            self._widen(field.name, least, greatest)

    def take(self, field: pa.Field[Any], column_statistics: ColumnStatistics) -> None:
        """Add known statistics of a column without its rows."""
        self._nulls[field.name] = self._nulls.get(field.name, 0) + column_statistics.nulls
        if _orderable(field.type):
            self._widen(field.name, column_statistics.least, column_statistics.greatest)

    def _widen(self, name: str, least: Any, greatest: Any) -> None:
        if least is None:
            return
        self._least[name] = min(self._least.get(name, least), least)
        self._greatest[name] = max(self._greatest.get(name, greatest), greatest)

    def text(self, rows: int) -> str:
        """The ``stats`` of an add action."""
        least = {name: _json(value, math.floor) for name, value in self._least.items()}
        greatest = {name: _json(value, math.ceil) for name, value in self._greatest.items()}
        ranged = {
            name
            for name in least
            if name not in self._without_range and least[name] is not None and greatest[name] is not None
        }
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: least[name] for name in least if name in ranged},
                "maxValues": {name: greatest[name] for name in greatest if name in ranged},
                "nullCount": self._nulls,
            }
        )


def _bounds(extremes: Any) -> tuple[Any, Any] | None:
    return python_bounds(lambda: (extremes["min"].as_py(), extremes["max"].as_py()))


def python_bounds(bounds: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any] | None:
    """Bounds as Python values. ``None`` outside of Python's calendar, which has the years 1 to 9999."""
    try:
        return bounds()
    except (OverflowError, ValueError):
        return None


def covered(schema: pa.Schema) -> list[pa.Field[Any]]:
    """The columns that statistics are kept of."""
    return [field for field in list(schema)[:_INDEXED_COLUMNS] if not types.is_nested(field.type)]


def _orderable(kind: pa.DataType) -> bool:
    """Whether Delta's readers use the range of a type, and JSON holds its bounds exactly."""
    return bool(
        types.is_signed_integer(kind)
        or types.is_floating(kind)
        or types.is_string(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
    )


def _json(value: Any, towards: Callable[[float], int]) -> Any:
    """A bound in JSON, rounded outwards where Delta keeps milliseconds. ``None`` if it must be left out."""
    if isinstance(value, datetime):
        return _milliseconds(value, towards)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    return value


def _milliseconds(value: datetime, towards: Callable[[float], int]) -> str | None:
    full_second = value.replace(microsecond=0)
    try:
        rounded = full_second + towards(value.microsecond / 1000) * _MILLISECOND
    except OverflowError:
        return None
    text = rounded.replace(tzinfo=None).isoformat(sep="T", timespec="milliseconds")
    return f"{text}Z" if value.tzinfo is not None else text


# ---- What a Parquet file's own footer says of its columns: taken only where it is as exact as reading the rows.


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """A column of one file: rows without a value, smallest and greatest value. Both are ``None`` without any value."""

    nulls: int
    least: Any
    greatest: Any


def footer_statistics(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, ColumnStatistics]:
    """Columns with complete statistics in the footer, by name. Others have to be read.

    Nested columns and three kinds of others are left out. Of floating point numbers a writer may omit NaN from the
    bounds, while Delta's readers treat it as the greatest value. Some texts are too long for a footer. Some names could
    be a path into a nested column.

    ``footer`` is of a file with rows. ``schema`` has the wanted columns.
    """
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    columns: dict[str, ColumnStatistics] = {}
    for field in schema:
        if types.is_floating(field.type) or types.is_nested(field.type) or "." in field.name:
            continue
        at = places.get(field.name)
        column = _column(footer, at) if at is not None else None
        if column is not None:
            columns[field.name] = column
    return columns


def _column(footer: pq.FileMetaData, at: int) -> ColumnStatistics | None:
    nulls, least, greatest = 0, list[Any](), list[Any]()
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(at)
        statistics: Any = chunk.statistics
        if statistics is None or statistics.null_count is None:
            return None
        nulls += statistics.null_count
        if statistics.has_min_max:
            bounds = python_bounds(lambda: (statistics.min, statistics.max))  # noqa: B023 - it is called at once
            if bounds is None:
                return None
            least.append(bounds[0])
            greatest.append(bounds[1])
        elif statistics.null_count != chunk.num_values:
            return None
    return ColumnStatistics(nulls, min(least, default=None), max(greatest, default=None))
