"""What a Parquet file's own footer says of its columns: taken only where it is as exact as reading the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly_sinks.delta.statistics import told as calendar

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Told:
    """A column of one file.

    Attributes:
        nulls: rows without a value.
        least: smallest value; ``None`` if there is no value at all.
        greatest: greatest value, likewise.
    """

    nulls: int
    least: Any
    greatest: Any


def told(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, Told]:
    """Columns of which the footer tells everything, by name; whoever needs another one has to read it.

    Left out are floating point numbers, of which a writer may leave NaN out of the bounds while Delta's readers take it
    for the greatest value of all; texts that are too long for a footer; and names that could be a path into a nested
    column.

    Args:
        footer: of a file with rows.
        schema: the columns that are asked for.
    """
    from pyarrow import types

    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    found: dict[str, Told] = {}
    for field in schema:
        if types.is_floating(field.type) or types.is_nested(field.type) or "." in field.name:
            continue
        at = places.get(field.name)
        column = _column(footer, at) if at is not None else None
        if column is not None:
            found[field.name] = column
    return found


def _column(footer: pq.FileMetaData, at: int) -> Told | None:
    nulls, least, greatest = 0, list[Any](), list[Any]()
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(at)
        statistics = chunk.statistics
        if statistics is None or statistics.null_count is None:
            return None
        nulls += statistics.null_count
        if statistics.has_min_max:
            bounds = _bounds(statistics)
            if bounds is None:
                return None
            least.append(bounds[0])
            greatest.append(bounds[1])
        elif statistics.null_count != chunk.num_values:
            return None
    return Told(nulls, min(least, default=None), max(greatest, default=None))


def _bounds(statistics: Any) -> tuple[Any, Any] | None:
    return calendar(lambda: (statistics.min, statistics.max))
