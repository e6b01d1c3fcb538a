"""Estimate a batch's size from its slice, before its action. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.protocol import Estimate
from onceonly_checkpoints.model import Slice
from onceonly_checkpoints.spark.offsets import partitions_of

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_PER_FILE_BYTE = 4
"""A compressed columnar file grows about this much in Arrow form, text files less: an upper bound is safe."""

TEXT_BYTES = 64
"""What a value of variable length is taken to need."""

_FIXED = ("int", "bigint", "smallint", "tinyint", "float", "double", "boolean", "date", "timestamp", "decimal")
"""How the names of types of fixed length begin."""


@dataclass(frozen=True, slots=True)
class Past:
    """Input of the last epoch of this run, in offsets or file bytes, and rows of its batch, written or not."""

    units: int
    rows: int


def units(slice_: Slice, file_sizes: Sequence[int]) -> int | None:
    """Return the bytes of a slice's files, else the difference of its offsets, or ``None`` if unknown."""
    if file_sizes:
        return sum(file_sizes)
    total, starts = 0, dict(slice_.start.entries)
    for source, end in slice_.end.entries:
        covered = _difference(starts.get(source), end)
        if covered is None:
            return None
        total += covered
    return total


def schema_width(schema: Iterable[pa.Field[Any]], unknown: int) -> int:
    """Return the bytes of one row in Arrow form. ``unknown`` is assumed for a column of variable length."""
    return sum(_width(field.type, unknown) for field in schema)


def row_width(columns: Sequence[tuple[str, str]]) -> int:
    """Return the same from Spark's column types, with 8 bytes for a number."""
    return sum(8 if kind.startswith(_FIXED) else TEXT_BYTES for _, kind in columns) or 1


def _width(kind: pa.DataType, unknown: int) -> int:
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return unknown


def _difference(start: str | None, end: str | None) -> int | None:
    if start == end:
        return 0
    try:
        first, last = (json.loads(text) if text else {} for text in (start, end))
    except ValueError:
        return None
    if isinstance(first, dict) and isinstance(last, dict) and "offset" in last:
        return int(last["offset"]) - int(first.get("offset", 0))
    starts, ends = partitions_of(start), partitions_of(end)
    return sum(max(0, offset - starts.get(partition, 0)) for partition, offset in ends.items()) if ends else None


def estimate(covered: int | None, past: Past | None, row_width: int, *, files: bool, stateful: bool) -> Estimate:
    """Return the expected size of a batch. ``covered`` is in bytes with ``files``, ``row_width`` in bytes of Arrow.

    With ``stateful``, input hardly predicts output.
    """
    if covered is None or (stateful and past is None):
        return Estimate(None, None)
    if past and past.units and not stateful:
        rows = max(1, covered * past.rows // past.units)
        return Estimate(rows, 2 * rows * row_width)
    if stateful and past:
        return Estimate(None, 4 * max(1, past.rows) * row_width)
    return Estimate(None, covered * ARROW_PER_FILE_BYTE) if files else Estimate(covered, covered * row_width)
