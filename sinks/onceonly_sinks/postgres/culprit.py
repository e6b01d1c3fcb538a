"""Says of a row that the server refused where it came from and what shape its value has; never the value itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = 8
"""Pieces that are remembered: an error arrives while later rows are on their way already."""

KAFKA = ("topic", "partition", "offset")
"""Columns by which a row of Kafka is found there."""


class Sent:
    """The rows that were sent last, so that one of them can be described by its number.

    Args:
        whose: what the numbers count within; empty for the batch.
    """

    def __init__(self, whose: str = "") -> None:
        self._whose = whose
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
                found = _position(row) if from_kafka(row.schema.names, column) else ()
                return place(line, self._whose, found), _shape(
                    row.column(column)[0]
                ) if column in piece.schema.names else ""
        return place(line, self._whose), ""


def from_kafka(columns: Iterable[str], refused: str) -> bool:
    """Whether rows tell where they lie in a topic, and may: a value that was refused is not repeated."""
    return set(KAFKA) <= set(columns) and refused not in KAFKA


def place(line: int | None, whose: str = "", position: Sequence[Any] = ()) -> str:
    """Where a row came from.

    Args:
        line: its number there, from 1; ``None`` where its order is not known.
        whose: what the number counts within; empty for the batch.
        position: its topic, partition and offset, if it came from Kafka.
    """
    row = "a row" if line is None else f"row {line}"
    within = f" of {whose}" if whose else ""
    told = "".join(f", {name} {value}" for name, value in zip(KAFKA, position, strict=False))
    return f"{row}{within}{told}"


def _position(row: pa.RecordBatch) -> tuple[Any, ...]:
    return tuple(row.column(name)[0].as_py() for name in KAFKA)


def _shape(scalar: Any) -> str:
    if not scalar.is_valid:
        return shape(None)
    return shape(scalar.as_py()) if counted(scalar.type) else _elements(scalar)


def _elements(scalar: Any) -> str:
    import pyarrow.types as t

    return f"an array of {len(scalar)} elements" if t.is_list(scalar.type) else ""


def counted(kind: pa.DataType) -> bool:
    """Whether :func:`shape` has words for values of a type."""
    import pyarrow.types as t

    text = t.is_string(kind) or t.is_large_string(kind)
    bytes_ = t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind)
    return text or bytes_ or t.is_integer(kind) or t.is_decimal(kind)


def shape(value: Any) -> str:
    """What a text, bytes, a number or a null look like, without saying them."""
    if value is None:
        return "a null"
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return f"a number of {len(str(value).lstrip('-').replace('.', ''))} digits"
