"""Encode Arrow batches for a binary COPY, and locate a refused row."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly_sinks.postgres import errors
from onceonly_sinks.postgres.errors import Refused
from onceonly_sinks.postgres.server import quote
from onceonly_sinks.postgres.type_mapping import TypeMapping

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

# ---- Says of a row that the server refused where it came from and what shape its value has; never the value itself.

_PIECES_REMEMBERED = 8
"""Pieces that are remembered: an error arrives while later rows are on their way already."""

KAFKA = ("topic", "partition", "offset")
"""Columns by which a row of Kafka is found there."""


class Sent:
    """The last rows that were sent, so that one of them can be described by its number.

    ``whose`` names the scope of the numbers, empty for the batch.
    """

    def __init__(self, whose: str = "") -> None:
        self._whose = whose
        self._pieces: deque[tuple[int, pa.RecordBatch]] = deque(maxlen=_PIECES_REMEMBERED)
        self.rows = 0

    def add(self, piece: pa.RecordBatch) -> None:
        """Note a piece that is sent now."""
        self._pieces.append((self.rows, piece))
        self.rows += piece.num_rows

    def describe(self, line: int, column: str) -> tuple[str, str]:
        """Place of a row, counted from 1, and the shape of one of its values, empty if unknown."""
        if not line:
            return "", ""
        for start, piece in self._pieces:
            if start < line <= start + piece.num_rows:
                row = piece.slice(line - 1 - start, 1)
                shown = KAFKA if from_kafka(row.schema.names, column) else ()
                position = [row.column(name)[0].as_py() for name in shown]
                value_shape = _shape(row.column(column)[0]) if column in piece.schema.names else ""
                return describe_row(line, self._whose, position), value_shape
        return describe_row(line, self._whose), ""


def from_kafka(columns: Iterable[str], refused: str) -> bool:
    """Whether rows have a position in a topic that may be shown: a value that was refused is not repeated."""
    return set(KAFKA) <= set(columns) and refused not in KAFKA


def describe_row(line: int | None, whose: str = "", position: Sequence[Any] = ()) -> str:
    """Describe a row's origin by its number, from 1 within ``whose``, and its topic, partition and offset in Kafka.

    ``line`` is ``None`` if the order is not known, and ``whose`` is empty for the batch.
    """
    row = "a row" if line is None else f"row {line}"
    within = f" of {whose}" if whose else ""
    suffix = "".join(f", {name} {value}" for name, value in zip(KAFKA, position, strict=False))
    return f"{row}{within}{suffix}"


def _shape(scalar: Any) -> str:
    import pyarrow.types as t

    if not scalar.is_valid or counted(scalar.type):
        return shape(scalar.as_py())
    return f"an array of {len(scalar)} elements" if t.is_list(scalar.type) else ""


def counted(kind: pa.DataType) -> bool:
    """Whether :func:`shape` has words for values of a type."""
    import pyarrow.types as t

    text = t.is_string(kind) or t.is_large_string(kind)
    bytes_ = t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind)
    return text or bytes_ or t.is_integer(kind) or t.is_decimal(kind)


def shape(value: Any) -> str:
    """Describe the shape of a text, bytes, a number or a null without its value."""
    if value is None:
        return "a null"
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return f"a number of {len(str(value).lstrip('-').replace('.', ''))} digits"


# ---- Arrow record batches into a binary COPY: encoded here, sent over the connection that holds the transaction.

_SLICE_ROWS = 32_768
"""Rows encoded at a time: bounds the memory of one write, whatever the batch's size."""


def statement(relation: str, columns: Iterable[str]) -> str:
    """The COPY statement. ``relation`` is quoted already."""
    return f"COPY {relation} ({', '.join(map(quote, columns))}) FROM STDIN (FORMAT binary)"


class Encoder:
    """Encodes batches of one plan.

    ``constants`` are further columns with the same Arrow value in every row. ``whose`` is the scope of row numbers in
    messages, empty for the batch.

    ``sent`` has the rows that were encoded last.
    """

    def __init__(self, plan: TypeMapping, constants: Mapping[str, Any], whose: str = "") -> None:
        import pgpq
        import pyarrow as pa

        self.sent = Sent(whose)
        self._plan = plan
        self._constants = constants
        fields = [pa.field(lane.target, lane.arrow) for lane in plan.lanes]
        fields += [pa.field(name, scalar.type) for name, scalar in constants.items()]
        self._schema = pa.schema(fields)
        jsonb = {lane.target for lane in plan.lanes if lane.jsonb}
        encoders = {field.name: _encoder(field, field.name in jsonb) for field in self._schema}
        self._encoder = pgpq.ArrowToPostgresBinaryEncoder.new_with_encoders(self._schema, encoders)

    def encode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        """The bytes of a whole COPY. Raises :class:`ValueRefused` if the table cannot hold a value."""
        yield self._encoder.write_header()
        for batch in batches:
            for start in range(0, batch.num_rows, _SLICE_ROWS):
                yield self._write(self._with_constants(batch.slice(start, _SLICE_ROWS)))
        yield self._encoder.finish()

    def _write(self, batch: pa.RecordBatch) -> bytes:
        try:
            written: bytes = self._encoder.write_batch(batch)
        except ValueError:
            raise self._misfit(batch) from None
        self.sent.add(batch)
        return written

    def _misfit(self, batch: pa.RecordBatch) -> Exception:
        """Find the column whose value Postgres has no form for: the encoder names none."""
        for lane in self._plan.lanes:
            try:
                Encoder(TypeMapping(self._plan.table, (lane,)), {})._encoder.write_batch(batch.select([lane.target]))
            except ValueError:
                return lane.refuse(f"a value is outside of the range of {lane.ddl}")
        return ValueError("the encoder refuses rows whose columns it takes one by one")

    def _with_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = self._plan.convert(batch)
        arrays += [pa.repeat(scalar, batch.num_rows) for scalar in self._constants.values()]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _encoder(field: pa.Field[Any], jsonb: bool) -> Any:
    import pgpq
    from pgpq.encoders import StringEncoderBuilder
    from pgpq.schema import Jsonb

    if jsonb:
        return StringEncoderBuilder.new_with_output(field, Jsonb())
    return pgpq.ArrowToPostgresBinaryEncoder.infer_encoder(field)


def copy_in(cursor: psycopg.Cursor[Any], copy: str, encoder: Encoder, batches: Iterable[pa.RecordBatch]) -> int:
    """Send a COPY in the cursor's transaction, and return how many rows the server took.

    Raises ``Refused``: the server refused a row. Raises ``psycopg.Error``: the server refused, or was lost. Raises
    ``ValueRefused``: the table cannot hold a value.
    """
    import psycopg

    try:
        # Names are quoted for statements with placeholders; a COPY has none: the driver leaves its percent signs alone.
        with cursor.copy(copy.replace("%%", "%").encode()) as sending:
            for chunk in encoder.encode(batches):
                sending.write(chunk)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise _located(error, encoder) from None
    return cursor.rowcount


def _located(error: psycopg.Error, encoder: Encoder) -> Refused:
    failure = errors.read(error)
    assert failure is not None
    location, shape = encoder.sent.describe(failure.line, failure.column)
    return Refused(replace(failure, row_text=location, shape=shape))
