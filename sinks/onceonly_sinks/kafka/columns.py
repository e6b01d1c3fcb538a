"""Columns of a record batch, as Spark's Kafka sink has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.protocol.row_rules import AfterEpoch, Between, Named, NotNull, Rule
from onceonly_sinks.kafka.transactions import NotFlushed

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer
    from typing_extensions import Self

# ---- Which columns, of which types, and how they become records.
#
# ``value`` is required (string or binary, null is a tombstone); ``key`` (string or binary), ``headers``
# (``array<struct<key: string, value: binary>>``), ``partition`` (int, null: the key decides) and ``timestamp`` are
# optional; ``topic`` (string) is read where the sink has no ``topic=``, which otherwise wins. Other columns are left
# out, as Spark does.

_ANY_PARTITION = -1
_NOW = 0


@dataclass(frozen=True, slots=True)
class Columns:
    """Mapping of one batch's columns to records.

    ``topic`` is the sink's own. ``None``: the column names it. ``present`` are the batch's optional columns.
    """

    sink: str
    topic: str | None
    present: frozenset[str]

    @classmethod
    def check(cls, sink: str, schema: pa.Schema, topic: str | None) -> Self:
        """Check names and types. Raises E506 with the column's name."""
        differences: dict[str, str] = {}
        if "value" not in schema.names:
            differences[_NO_VALUE] = 'compute it from the others: df.selectExpr("to_json(struct(*)) AS value")'
        if topic is None and "topic" not in schema.names:
            difference = "the batch has no column topic and the sink no topic="
            differences[difference] = "name the topic: KafkaSink(..., topic='orders')"
        for name, (fits, expected) in _types().items():
            if name not in schema.names or (name == "topic" and topic is not None):
                continue
            if len(schema.get_all_field_indices(name)) > 1:
                differences[f"the batch has several columns {name}"] = f"keep one column {name}"
            elif not fits(column_type := schema.field(name).type):
                differences[f"column {name} is {column_type}, not {expected}"] = f"cast {name} to {expected}"
        if differences:
            mismatch, absent = "cannot make records of the batch", ("value",) if [*differences] == [_NO_VALUE] else ()
            cause = "a topic takes the columns key, value, topic, partition, timestamp and headers, each in its type"
            details = {"difference": "; ".join(differences), "because": cause, "next": "; ".join(differences.values())}
            raise refuse("E506", sink=sink, mismatch=mismatch, absent=absent, **details)
        optional = {"key", "headers", "partition", "timestamp"} | ({"topic"} if topic is None else set[str]())
        return cls(sink, topic, frozenset(optional & set(schema.names)))

    def topics(self, batch: pa.RecordBatch) -> set[str]:
        """Topics of a batch's rows. Raises E517 if a row names none."""
        if self.topic is not None:
            return {self.topic}
        column = batch.column("topic")
        if column.null_count:
            reason, cause = "its column topic is null", "the query gave a row no topic, and the sink has no topic="
            raise refuse("E517", sink=self.sink, reason=reason, cause=cause, next="filter such rows, or give topic=")
        return {str(name) for name in column.unique().to_pylist()}

    def keyless(self, batch: pa.RecordBatch) -> bool:
        """Whether a row of a batch has no key."""
        return "key" not in self.present or batch.column("key").null_count > 0

    def arguments(self, batch: pa.RecordBatch) -> tuple[Sequence[Any], ...]:
        """Columns of arguments of ``Producer.produce`` in its own order, without those at the end that no row has.

        The order is topic, value, key, partition, two callbacks, time, headers. Raises E517 for a header without a
        name, or for a negative partition.
        """
        rows = batch.num_rows
        nothing: list[None] = [None] * rows
        topics = batch.column("topic").to_pylist() if self.topic is None else [self.topic] * rows
        keys = _bytes(batch.column("key")) if "key" in self.present else nothing
        few = (topics, _bytes(batch.column("value")), keys)
        if not self.present - {"topic", "key"}:
            return few
        headers = self._headers(batch.column("headers")) if "headers" in self.present else nothing
        times = self._times(batch.column("timestamp")) if "timestamp" in self.present else [_NOW] * rows
        return (*few, self._partitions(batch), nothing, nothing, times, headers)

    def _partitions(self, batch: pa.RecordBatch) -> list[int]:
        import pyarrow.compute as pc

        if "partition" not in self.present:
            return [_ANY_PARTITION] * batch.num_rows
        column: Any = batch.column("partition")
        least = pc.min(column).as_py()
        if least is not None and least < 0:
            cause, next_ = "the column partition is negative", "correct the column; null lets the key decide"
            raise refuse("E517", sink=self.sink, reason=f"there is no partition {least}", cause=cause, next=next_)
        numbers: list[int] = column.fill_null(_ANY_PARTITION).to_pylist()
        return numbers

    def _times(self, column: Any) -> list[int]:
        import pyarrow.compute as pc

        times = _milliseconds(column)
        least = pc.min(times).as_py()
        if least is not None and least <= _NOW:
            zero = 'is 1970-01-01 00:00 UTC, which the client takes for "now"'
            reason = f"its column timestamp {zero if least == _NOW else 'is before 1970'}"
            cause = "a clock that was never set, or a default of 0 in the rows"
            next_ = "correct the column; null lets the client say when the row was sent"
            raise refuse("E517", sink=self.sink, reason=reason, cause=cause, next=next_)
        timestamps: list[int] = times.fill_null(_NOW).to_pylist()
        return timestamps

    def _headers(self, column: Any) -> list[list[tuple[str, bytes | None]] | None]:
        flat = column.flatten()
        if flat.null_count or flat.field("key").null_count:
            cause, next_ = "an entry of the column headers has a null key", "give each header a name"
            raise refuse("E517", sink=self.sink, reason="a header has no name", cause=cause, next=next_)
        pairs = list(zip(flat.field("key").to_pylist(), _bytes(flat.field("value")), strict=True))
        headers: list[list[tuple[str, bytes | None]] | None] = []
        start = 0
        # The flattened array holds the entries of all rows one after another; null rows have none.
        for length in column.value_lengths().to_pylist():
            headers.append(None if length is None else pairs[start : start + length])
            start += length or 0
        return headers


def _bytes(column: Any) -> list[bytes | None]:
    import pyarrow as pa

    # A cast of text to bytes copies nothing, and bytes are taken without being encoded row by row.
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _milliseconds(column: Any) -> Any:
    """Milliseconds since 1970, truncated towards it. Null stays null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = column.type.unit
    divisor = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[unit]
    numbers: Any = column.cast(pa.int64())
    compute: Any = pc
    return compute.multiply(numbers, 1000) if divisor == 0 else compute.divide(numbers, divisor)


def _types() -> dict[str, tuple[Callable[[Any], bool], str]]:
    import pyarrow as pa

    def text(kind: Any) -> bool:
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)

    def binary(kind: Any) -> bool:
        return text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

    def headers(kind: Any) -> bool:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
            return False
        fields = list(kind.value_type)
        names = [field.name for field in fields]
        return names == ["key", "value"] and text(fields[0].type) and pa.types.is_binary(fields[1].type)

    return {
        "value": (binary, "string or binary"),
        "key": (binary, "string or binary"),
        "topic": (text, "string"),
        "headers": (headers, "array<struct<key: string, value: binary>>"),
        "partition": (pa.types.is_int32, "int"),
        # A time without a zone is an instant only by the session's: a cast in the query says which.
        "timestamp": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, "timestamp"),
    }


_NO_VALUE = "the batch has no column value"

# ---- Feeds record batches to the producer: one call per row, with as little Python around it as can be.

_POLL = 0.05


class Feeder:
    """Puts rows into the producer's queue, and waits if it is full.

    ``producer`` is inside a transaction. ``patience`` is in seconds, for a full queue.
    """

    def __init__(self, producer: Producer, columns: Columns, patience: float) -> None:
        self._producer = producer
        self._columns = columns
        self._patience = patience

    def feed(self, batch: pa.RecordBatch) -> int:
        """Queue every row of a batch. Returns their number.

        Raises KafkaException if a row was refused or the producer was fenced out, and ``NotFlushed`` if the queue stays
        full. Raises E517 for a row that Kafka cannot hold.
        """
        self._all(self._columns.arguments(batch))
        self._producer.poll(0)
        return int(batch.num_rows)

    def _all(self, arguments: Sequence[Sequence[Any]]) -> None:
        produce: Callable[..., None] = self._producer.produce
        for record in zip(*arguments, strict=True):
            try:
                produce(*record)
            except BufferError:
                self._wait(produce, record)

    def _wait(self, produce: Callable[..., None], record: Sequence[Any]) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            self._producer.poll(_POLL)
            try:
                return produce(*record)
            except BufferError:
                if time.monotonic() > deadline:
                    raise NotFlushed(f"the queue stayed full for {self._patience:g} s") from None


# ---- What a topic demands of the values of records, as rules. Pure.
#
# Left to the brokers: how large a record may be, which they judge as it comes out of compression, and their own
# clocks.


_LAST_PARTITION = 2**31 - 1


def rules_of(present: frozenset[str], partitions: Sequence[int], *, compacted: bool) -> tuple[Rule, ...]:
    """The rules for a batch.

    ``present`` are its optional columns, with ``topic`` only if the sink was given none. ``partitions`` are of the
    given topic, and empty if their number is unknown. ``compacted``: that topic keeps rows by key.
    """
    most = max(partitions, default=_LAST_PARTITION)
    rules = {
        "topic": [Rule("topic", NotNull())],
        "key": [Rule("key", NotNull())] if compacted else [],
        "partition": [Rule("partition", Between(0, most))],
        "timestamp": [Rule("timestamp", AfterEpoch())],
        "headers": [Rule("headers", NotNull(), each=True), Rule("headers", Named("key"), each=True)],
    }
    return tuple(rule for name, column_rules in rules.items() if name in present for rule in column_rules)
