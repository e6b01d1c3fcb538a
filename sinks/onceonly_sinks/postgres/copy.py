"""Arrow record batches into a binary COPY: encoded here, sent over the connection that holds the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly_sinks.postgres import classify
from onceonly_sinks.postgres.castplan import Plan
from onceonly_sinks.postgres.classify import Refused
from onceonly_sinks.postgres.culprit import Sent
from onceonly_sinks.postgres.server import quote

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

_SLICE_ROWS = 32_768
"""Rows encoded at a time: bounds the memory of one write, whatever the batch's size."""


def statement(relation: str, columns: Iterable[str]) -> str:
    """The COPY statement. ``relation`` is quoted already."""
    return f"COPY {relation} ({', '.join(map(quote, columns))}) FROM STDIN (FORMAT binary)"


class Encoder:
    """Encodes batches of one plan.

    Args:
        plan: how columns are converted.
        constants: further columns, the same in every row, with their Arrow values.
        whose: what rows are numbered within, for messages; empty for the batch.

    Attributes:
        sent: the rows that were encoded last.
    """

    def __init__(self, plan: Plan, constants: Mapping[str, Any], whose: str = "") -> None:
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
        """The bytes of a whole COPY.

        Raises:
            ValueRefused: the table cannot hold a value.
        """
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
        """Which column holds what Postgres has no form for: the encoder names none."""
        for lane in self._plan.lanes:
            try:
                Encoder(Plan(self._plan.table, (lane,)), {})._encoder.write_batch(batch.select([lane.target]))
            except ValueError:
                return lane.refuse(f"a value lies outside of what {lane.ddl} can hold")
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
    """Send a COPY in the cursor's transaction; return how many rows the server took.

    Raises:
        Refused: the server refused a row.
        psycopg.Error: the server refused, or was lost.
        ValueRefused: the table cannot hold a value.
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
    failure = classify.read(error)
    assert failure is not None
    place, shape = encoder.sent.describe(failure.line, failure.column)
    return Refused(replace(failure, place=place, shape=shape))
