"""Says of a row that the server refused where it came from and what shape its value has; never the value itself."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = 8
"""Pieces that are remembered: an error arrives while later rows are on their way already."""

_KAFKA = ("topic", "partition", "offset")


class Sent:
    """The rows that were sent last, so that one of them can be described by its number."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, pa.RecordBatch]] = deque(maxlen=_KEPT)
        self.rows = 0

    def add(self, piece: pa.RecordBatch) -> None:
        """Note a piece that is sent now."""
        self._pieces.append((self.rows, piece))
        self.rows += piece.num_rows

    def describe(self, line: int, column: str) -> tuple[str, str]:
        """Place of a row, counted from 1, and the shape of one of its values; empty where it is not known."""
        if not line:
            return "", ""
        for start, piece in self._pieces:
            if start < line <= start + piece.num_rows:
                row = piece.slice(line - 1 - start, 1)
                return _place(line, row), _shape(row.column(column)[0]) if column in piece.schema.names else ""
        return f"row {line}", ""


def _place(line: int, row: pa.RecordBatch) -> str:
    if set(_KAFKA) <= set(row.schema.names):
        topic, partition, offset = (row.column(name)[0].as_py() for name in _KAFKA)
        return f"row {line}, topic {topic}, partition {partition}, offset {offset}"
    return f"row {line}"


def _shape(value: Any) -> str:
    import pyarrow.types as t

    if not value.is_valid:
        return "a null"
    if t.is_string(value.type) or t.is_large_string(value.type):
        return f"a text of {len(value.as_py())} characters"
    if t.is_binary(value.type) or t.is_large_binary(value.type) or t.is_fixed_size_binary(value.type):
        return f"{len(value.as_py())} bytes"
    if t.is_list(value.type):
        return f"an array of {len(value)} elements"
    if t.is_integer(value.type) or t.is_decimal(value.type):
        return f"a number of {len(str(value.as_py()).lstrip('-').replace('.', ''))} digits"
    return ""
