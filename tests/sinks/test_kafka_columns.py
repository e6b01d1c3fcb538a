"""Which batches the Kafka sink takes is decided by Spark's own rules, and what it refuses is named."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from onceonly.errors import DestinationError, RowsRefused, refuse
from onceonly.protocol import Sink
from onceonly.runtime.sink_refusals import proposing_output
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.kafka.columns import Columns
from onceonly_sinks.memory import MemorySink

TOPIC, TABLE = KafkaSink("localhost:1", "orders"), MemorySink()

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def at(microseconds: int) -> pa.Array:
    return pa.array([microseconds], pa.timestamp("us", "UTC"))


def records(rows: pa.RecordBatch, topic: str | None = "orders") -> list[tuple[Any, ...]]:
    """Arguments of ``produce`` row by row, with the defaults of those that are left out."""
    columns = Columns.check("kafka:orders", rows.schema, topic).arguments(rows)
    return [(*record, *(-1, None, None, 0, None)[len(record) - 3 :]) for record in zip(*columns, strict=True)]


def refusal(rows: pa.RecordBatch, topic: str | None = "orders") -> DestinationError:
    with pytest.raises(DestinationError) as caught:
        records(rows, topic)
    return caught.value


def test_a_value_alone_is_enough() -> None:
    assert records(batch(value=pa.array(["a", None]))) == [
        ("orders", b"a", None, -1, None, None, 0, None),
        ("orders", None, None, -1, None, None, 0, None),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_keys_and_values_are_text_or_bytes(kind: pa.DataType) -> None:
    rows = batch(
        key=pa.array([b"k", None], pa.binary()).cast(kind), value=pa.array([b"v", b""], pa.binary()).cast(kind)
    )
    assert [record[1:3] for record in records(rows)] == [(b"v", b"k"), (b"", None)]


def test_text_is_written_as_utf_8() -> None:
    assert records(batch(value=pa.array(["日本 🧾"])))[0][1] == "日本 🧾".encode()


def test_headers_keep_their_order_their_doubles_and_their_nulls() -> None:
    some = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    rows = batch(value=pa.array(["x"] * 4), headers=pa.array([some, None, [], some[:1]], HEADERS))
    assert [record[7] for record in records(rows)] == [[("a", b"1"), ("a", None)], None, [], [("a", b"1")]]
    assert [record[7] for record in records(rows.slice(2))] == [[], [("a", b"1")]]


def test_a_null_partition_leaves_it_to_the_key() -> None:
    rows = batch(value=pa.array(["x"] * 3), partition=pa.array([2, None, 0], pa.int32()))
    assert [record[3] for record in records(rows)] == [2, -1, 0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_become_milliseconds_and_null_means_now(unit: str) -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    rows = batch(value=pa.array(["x", "y"]), timestamp=pa.array([moment, None], pa.timestamp(unit, "UTC")))
    assert [record[6] for record in records(rows)] == [1_704_164_645_000, 0]


def test_each_row_may_name_its_topic() -> None:
    rows = batch(value=pa.array(["x", "y"]), topic=pa.array(["a", "b"]))
    assert [record[0] for record in records(rows, topic=None)] == ["a", "b"]
    assert Columns.check("s", rows.schema, None).topics(rows) == {"a", "b"}


def test_the_sinks_own_topic_wins_over_the_column() -> None:
    rows = batch(value=pa.array(["x", "y"]), topic=pa.array([None, "b"], pa.string()))
    assert [record[0] for record in records(rows)] == ["orders", "orders"]


def test_other_columns_are_left_out() -> None:
    assert len(records(batch(value=pa.array(["x"]), price=pa.array([1.5])))[0]) == 8


@pytest.mark.parametrize(
    ("rows", "topic", "named"),
    [
        (batch(key=pa.array(["k"])), "orders", "no column value"),
        (batch(value=pa.array(["x"])), None, "no column topic"),
        (batch(value=pa.array([1])), "orders", "column value is int64, not string or binary"),
        (batch(value=pa.array(["x"]), key=pa.array([1])), "orders", "column key is int64"),
        (batch(value=pa.array(["x"]), partition=pa.array([1])), "orders", "column partition is int64, not int"),
        (batch(value=pa.array(["x"]), timestamp=pa.array([1])), "orders", "column timestamp is int64"),
        (
            batch(value=pa.array(["x"]), timestamp=pa.array([1], pa.timestamp("us"))),
            "orders",
            "timestamp[us], not timestamp",
        ),
        (
            batch(value=pa.array(["x"]), headers=pa.array([["h"]])),
            "orders",
            "array<struct<key: string, value: binary>>",
        ),
        (batch(value=pa.array(["x"]), topic=pa.array([b"t"])), None, "column topic is binary, not string"),
    ],
)
def test_a_wrong_column_is_named_with_its_type(rows: pa.RecordBatch, topic: str | None, named: str) -> None:
    error = refusal(rows, topic)
    assert error.code == "E506"
    assert named in str(error)


def test_a_missing_value_is_made_in_the_query_if_only_the_topic_gets_rows() -> None:
    error = refusal(batch(price=pa.array([1.5])))
    assert error.remedy == 'compute it from the others: df.selectExpr("to_json(struct(*)) AS value")'


def test_all_columns_of_another_type_are_named_at_once() -> None:
    error = refusal(batch(value=pa.array([1]), key=pa.array([2]), partition=pa.array([3], pa.int32())))
    assert "column value is int64, not string or binary; column key is int64, not string or binary." in error.what
    assert error.remedy == "cast value to string or binary; cast key to string or binary"
    error = refusal(batch(key=pa.array([2])), None)
    wanted = ("no column value; ", "no column topic and the sink no topic=; ", "column key is int64")
    assert [part for part in wanted if part not in error.what] == []
    assert error.details["absent"] == ()


@pytest.mark.parametrize(
    ("sink", "other", "absent", "is_output"),
    [
        (TOPIC, TABLE, ("value",), True),
        (TABLE, TOPIC, ("key", "value"), True),
        (TOPIC, TOPIC, ("value",), False),
        (TABLE, TABLE, ("value",), False),
        (TABLE, TOPIC, ("value", "price"), False),
        (TABLE, TOPIC, ("key",), False),
        (TABLE, TOPIC, (), False),
    ],
)
def test_a_topic_beside_a_table_gets_an_output_and_no_column_for_all(
    sink: Sink, other: Sink, absent: tuple[str, ...], is_output: bool
) -> None:
    with pytest.raises(RowsRefused) as caught, proposing_output(sink, [sink, other]):
        raise refuse("E506", sink=sink.id, difference="a column is missing", next="add it", absent=absent)
    output = 'Output(KafkaSink(...), name="records", select=["to_json(struct(*)) AS value"])'
    assert (output in caught.value.remedy, caught.value.remedy == "add it") == (is_output, not is_output)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (batch(value=pa.array(["x"]), partition=pa.array([-2], pa.int32())), "there is no partition -2"),
        (batch(value=pa.array(["x"]), headers=pa.array([[{"key": None, "value": b""}]], HEADERS)), "has no name"),
        (batch(value=pa.array(["x"]), timestamp=at(0)), 'which the client takes for "now"'),
        (batch(value=pa.array(["x"]), timestamp=at(999)), 'which the client takes for "now"'),
        (batch(value=pa.array(["x"]), timestamp=at(-1_000_000)), "is before 1970"),
    ],
)
def test_a_row_that_kafka_cannot_hold_is_refused_not_skipped(rows: pa.RecordBatch, named: str) -> None:
    error = refusal(rows)
    assert error.code == "E517"
    assert named in str(error)


def test_a_row_without_a_topic_is_refused() -> None:
    rows = batch(value=pa.array(["x", "y"]), topic=pa.array(["a", None]))
    with pytest.raises(DestinationError, match="column topic is null") as caught:
        Columns.check("kafka:*", rows.schema, None).topics(rows)
    assert caught.value.code == "E517"


def test_a_doubled_column_is_refused() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["value", "value"])
    assert "several columns value" in str(refusal(rows))
