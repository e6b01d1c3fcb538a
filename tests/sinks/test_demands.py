"""What sinks say that their destinations demand: a value breaks a rule exactly if it is refused on its way there."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from tests.demands import SAMPLES, aware

from onceonly.errors import DestinationError
from onceonly.protocol.row_rules import Condition, NotNull, OneOf, Rule
from onceonly_sinks.delta import row_rules as of_delta
from onceonly_sinks.delta.columns import METADATA_KEY, Column
from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.merge import Upsert
from onceonly_sinks.delta.planning import Settings
from onceonly_sinks.delta.schema_compatibility import Demands
from onceonly_sinks.kafka import columns as of_kafka
from onceonly_sinks.kafka.columns import Columns
from onceonly_sinks.postgres import bad_rows as of_postgres
from onceonly_sinks.postgres import schema
from onceonly_sinks.postgres.lanes import ValueRefused
from onceonly_sinks.postgres.server import TableName
from onceonly_sinks.postgres.type_mapping import map_types
from onceonly_sinks.postgres.upsert import Merge

VALUES = 5000


def judge_alike(rules: Iterable[Rule], values: Iterable[Any], refused: Callable[[Any], bool]) -> None:
    rules, found = tuple(rules), set[bool]()
    for value in values:
        broken = [rule.says for rule in rules if not rule.met(value)]
        assert bool(broken) == refused(value), f"{value!r}: broken {broken}"
        found.add(bool(broken))
    assert found == {True, False}, "values of one kind prove nothing"


def numbers(draw: random.Random) -> int:
    return draw.choice([-1, 1]) * draw.getrandbits(draw.randint(1, 63))


def texts(draw: random.Random) -> str:
    return "".join(draw.choice("aé日🧾\0 ") for _ in range(draw.randrange(8)))


def moments(draw: random.Random) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(
        microseconds=draw.choice([1, 10, 10**3, 10**6]) * numbers(draw) % 10**15
    )


def decimals(draw: random.Random) -> Any:
    return SAMPLES["digits"].draw(draw)


def uuids(draw: random.Random) -> str:
    return SAMPLES["uuid"].draw(draw)


def several(of: Callable[[random.Random], Any]) -> Callable[[random.Random], list[Any]]:
    return lambda draw: [draw.choice([None, of(draw)]) for _ in range(draw.randrange(3))]


def modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


SHORT = {"type": "varchar", "modifier": 3 + 4}
MONEY = {"type": "numeric", "modifier": modifier(6, 2)}
LANES: dict[str, tuple[dict[str, Any], pa.DataType, Callable[[random.Random], Any]]] = {
    "not null": ({"type": "int8", "required": True}, pa.int64(), lambda draw: draw.choice([None, 1])),
    "smallint": ({"type": "int2"}, pa.int64(), lambda draw: numbers(draw) >> draw.randrange(60)),
    "integer": ({"type": "int4"}, pa.int64(), numbers),
    "varchar": (SHORT, pa.string(), texts),
    "char": ({"type": "bpchar", "modifier": 3 + 4}, pa.string(), texts),
    "text": ({"type": "text"}, pa.string(), texts),
    "jsonb of text": ({"type": "jsonb"}, pa.string(), lambda draw: draw.choice(['"a"', '"\0"'])),
    "numeric": (MONEY, pa.decimal128(20, 4), decimals),
    "numeric of whole numbers": (MONEY, pa.int32(), lambda draw: numbers(draw) >> 32),
    "numeric of more scale": (
        {"type": "numeric", "modifier": modifier(20, 18)},
        pa.decimal128(38, 0),
        SAMPLES["more scale"].draw,
    ),
    "numeric without one": ({"type": "numeric", "modifier": modifier(5, 0)}, pa.decimal128(20, 4), decimals),
    "uuid": ({"type": "uuid"}, pa.string(), uuids),
    "uuid of bytes": ({"type": "uuid"}, pa.binary(), lambda draw: draw.randbytes(draw.randint(15, 17))),
    "milliseconds": ({"type": "timestamp", "modifier": 3}, pa.timestamp("us"), moments),
    "seconds": ({"type": "timestamp", "modifier": 0}, pa.timestamp("us"), moments),
    "smallints": ({"type": "int2", "array": True}, pa.list_(pa.int64()), several(lambda draw: numbers(draw) >> 46)),
    "texts": ({"type": "text", "array": True}, pa.list_(pa.string()), several(texts)),
    "numerics": ({**MONEY, "array": True}, pa.list_(pa.decimal128(20, 4)), several(decimals)),
}


def column(**said: Any) -> schema.Column:
    usual = {"modifier": -1, "array": False, "required": False, "filled": False, "writable": True, "ddl": "its type"}
    return schema.Column(name="v", **{**usual, **said})


@pytest.mark.parametrize("lane", LANES)
def test_postgres_a_rule_is_broken_exactly_where_the_lane_refuses(lane: str) -> None:
    said, kind, of = LANES[lane]
    batch = pa.schema([("v", kind)])
    table = schema.Table(TableName("public", "target"), 1, (column(**said),), frozenset(), None)
    plan = map_types("postgres:target", batch, table)

    def refused(value: Any) -> bool:
        try:
            plan.convert(pa.record_batch([pa.array([value], kind)], schema=batch))
        except ValueRefused:
            return True
        return False

    draw = random.Random(8)
    judge_alike(of_postgres.of(plan, batch, Merge()), (of(draw) for _ in range(VALUES)), refused)


def test_postgres_what_fits_whatever_it_is_has_no_rule() -> None:
    kinds = {
        "int8": pa.int32(),
        "numeric": pa.decimal128(38, 18),
        "bytea": pa.binary(),
        "timestamptz": pa.timestamp("us", "UTC"),
        "float8": pa.float32(),
        "json": pa.list_(pa.int64()),
    }
    for type_, kind in kinds.items():
        table = schema.Table(TableName("public", "target"), 1, (column(type=type_),), frozenset(), None)
        batch = pa.schema([("v", kind)])
        assert of_postgres.of(map_types("postgres:target", batch, table), batch, Merge()) == (), type_


def test_postgres_a_key_and_what_orders_it_are_never_null() -> None:
    batch = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("gone", pa.bool_()), ("note", pa.int64())])
    columns = tuple(schema.Column(one.name, "int8", -1, False, False, False, True, "bigint") for one in batch)
    columns = tuple(column for column in columns if column.name != "gone")
    table = schema.Table(TableName("public", "target"), 1, columns, frozenset(), None)
    merge = Merge(("id",), "at", "gone")
    plan = map_types("postgres:target", batch, table, merge.key, merge.delete)
    assert of_postgres.of(plan, batch, merge) == tuple(Rule(name, NotNull()) for name in ("id", "at", "gone"))


def test_postgres_an_enum_takes_its_labels() -> None:
    batch = pa.schema([("v", pa.string())])
    table = schema.Table(TableName("public", "t"), 1, (column(type="enum", labels=["sad"]),), frozenset(), None)
    rules = of_postgres.of(map_types("postgres:t", batch, table), batch, Merge())
    assert Rule("v", OneOf(("sad",))) in rules


# ---- Delta


SETTINGS = Settings(Upsert((), None, None), None, None, "auto", 0, (), False, ChangePolicy.APPENDS)


def delta_column(name: str, *, type_: str = '"string"', nullable: bool = True, **metadata: Any) -> Column:
    return Column(name, type_, nullable, metadata)


VARCHAR = delta_column("v", **{METADATA_KEY: "varchar(3)"})
TEXTS = delta_column("v", type_='{"elementType": "string", "type": "array"}', **{METADATA_KEY: "array<char(3)>"})
NEVER_NULL = delta_column("v", nullable=False)
DELTAS: dict[str, tuple[Column, pa.DataType, Callable[[random.Random], Any]]] = {
    "varchar": (VARCHAR, pa.string(), texts),
    "chars": (TEXTS, pa.list_(pa.string()), several(texts)),
    "not null": (NEVER_NULL, pa.string(), lambda draw: draw.choice([None, "a"])),
}


@pytest.mark.parametrize("name", DELTAS)
def test_delta_a_rule_is_broken_exactly_where_the_table_refuses(name: str) -> None:
    said, kind, of = DELTAS[name]
    rules = [one for one in of_delta.of(SETTINGS, [said], {}, [delta_column("v")]) if isinstance(one, Rule)]
    table, draw = Demands.of([said]), random.Random(8)

    def refused(value: Any) -> bool:
        return table.broken(pa.table({"v": pa.array([value], kind)})) is not None

    judge_alike(rules, (of(draw) for _ in range(VALUES)), refused)


INVARIANT = {"delta.invariants": '{"expression": {"expression": "v > 3"}}'}
FEW = {"delta.constraints.few": "v < 10", "delta.appendOnly": "false"}


def test_delta_constraints_are_conditions_on_columns_of_the_tables_types() -> None:
    table = [delta_column("v", type_='"long"', **INVARIANT)]
    rules = of_delta.of(SETTINGS, table, FEW, [delta_column("V", type_='"long"')])
    assert rules == (Condition("few", "v < 10"), Condition("of v", "v > 3"))
    assert of_delta.of(SETTINGS, table, FEW, [delta_column("v", type_='"integer"')]) == ()


def test_delta_a_row_that_may_delete_others_is_asked_for_its_key_alone() -> None:
    keyed = Settings(Upsert(("id",), None, "gone"), None, None, "auto", 0, (), False, ChangePolicy.APPENDS)
    batch = [delta_column(name) for name in ("id", "gone", "v")]
    rules = of_delta.of(keyed, [delta_column("id"), NEVER_NULL], FEW, batch)
    assert rules == (Rule("id", NotNull()), Rule("gone", NotNull()))


# ---- Kafka

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def headers(draw: random.Random) -> Any:
    one = [None, {"key": None, "value": b""}, {"key": "k", "value": None}, {"key": "", "value": b""}]
    return draw.choice([None, [draw.choice(one) for _ in range(draw.randrange(3))]])


KAFKAS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "partition": (pa.int32(), lambda draw: draw.choice([None, draw.randint(-5, 5)])),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda draw: draw.choice([None, aware(pa.timestamp("us", "UTC"), SAMPLES["after 1970"].draw(draw))]),
    ),
    "headers": (HEADERS, headers),
    "topic": (pa.string(), lambda draw: draw.choice([None, "orders"])),
}


@pytest.mark.parametrize("name", KAFKAS)
def test_kafka_a_rule_is_broken_exactly_where_the_record_is_refused(name: str) -> None:
    kind, of = KAFKAS[name]
    topic = None if name == "topic" else "orders"
    draw = random.Random(8)

    def rows(value: Any) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"value": pa.array(["x"]), name: pa.array([value], kind)})

    columns = Columns.check("kafka:orders", rows(None).schema, topic)

    def refused(value: Any) -> bool:
        try:
            columns.arguments(rows(value))
            columns.topics(rows(value))
        except DestinationError:
            return True
        return False

    judge_alike(of_kafka.rules_of(columns.present, (), compacted=False), (of(draw) for _ in range(VALUES)), refused)


def test_kafka_a_compacted_topic_demands_a_key_and_a_known_one_its_partitions() -> None:
    rules = of_kafka.rules_of(frozenset({"key", "partition"}), (0, 1, 2), compacted=True)
    assert [rule.says for rule in rules] == ["key: not null", "partition: from 0 to 2"]
    assert of_kafka.rules_of(frozenset({"key"}), (0,), compacted=False) == ()
