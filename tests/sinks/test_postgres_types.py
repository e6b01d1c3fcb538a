"""Every type of Spark arrives as it was, in tables that are made and in tables that exist; decimals are fuzzed."""

import datetime as dt
import uuid
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.refusal_length import MOST, lines_of
from tests.sinks.postgres_writer import Writer, rows, run
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import DestinationError
from onceonly.spark.frames import USER_DEFINED
from onceonly_sinks.postgres import lanes
from onceonly_sinks.postgres.ddl import planned, spark_name
from onceonly_sinks.postgres.lanes import ValueRefused, spell
from onceonly_sinks.postgres.schema import Column, Table
from onceonly_sinks.postgres.server import TableName
from onceonly_sinks.postgres.type_mapping import TypeMapping, map_types

UTC = dt.UTC


# ---- tables that the sink makes

ODD = {
    "datestyle": "german",
    "timezone": "Asia/Kolkata",
    "bytea_output": "escape",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "-15",
}
"""Settings that a role may have of its own, by each of which a server spells values in another way."""

NATIVE: list[tuple[pa.DataType, str, list[Any]]] = [
    (pa.int8(), "smallint", [-128, 127]),
    (pa.int16(), "smallint", [-32768, 32767]),
    (pa.int32(), "integer", [-(2**31), 2**31 - 1]),
    (pa.int64(), "bigint", [-(2**63), 2**63 - 1]),
    (pa.float32(), "real", [1.5, float("inf")]),
    (pa.float64(), "double precision", [0.1, 5e-324, float("-inf")]),
    (pa.decimal128(38, 10), "numeric(38,10)", [Decimal("-9999999999999999999999999999.0123456789"), Decimal("0E-10")]),
    (pa.string(), "text", ["", "naïve 日本 🧾 \\N \\. 'quoted' \t\n"]),
    (pa.large_string(), "text", ["long"]),
    (pa.binary(), "bytea", [b"", bytes(range(256))]),
    (pa.bool_(), "boolean", [True, False]),
    (pa.date32(), "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (
        pa.timestamp("us", "UTC"),
        "timestamp with time zone",
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
    ),
    (
        pa.timestamp("us"),
        "timestamp without time zone",
        [dt.datetime(1582, 10, 4), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
    ),
    (pa.duration("us"), "interval", [dt.timedelta(days=-3, microseconds=7), dt.timedelta(0)]),
    (pa.time64("us"), "time without time zone", [dt.time(1, 2, 3, 4)]),
    (pa.list_(pa.int64()), "bigint[]", [[1, None, 3], []]),
    (pa.list_(pa.string()), "text[]", [["a", None, '"{}"'], []]),
    (pa.list_(pa.decimal128(10, 2)), "numeric[]", [[Decimal("1.25"), None]]),
    (pa.list_(pa.date32()), "date[]", [[dt.date(2024, 1, 1)]]),
    (pa.list_(pa.binary()), "bytea[]", [[b"\0"]]),
    (pa.null(), "text", []),
]


@pytest.mark.postgres
@pytest.mark.parametrize("via", BOTH_WAYS)
def test_every_type_that_postgres_has_comes_back_as_it_was(dsn: str, via: str) -> None:
    run(dsn, "ALTER DATABASE tests SET timezone = 'UTC'")
    columns = {f"c{index}": pa.array([*values, None], type_) for index, (type_, _, values) in enumerate(NATIVE)}
    longest = max(map(len, columns.values()))
    table = pa.table({name: pa.concat_arrays([c, pa.nulls(longest - len(c), c.type)]) for name, c in columns.items()})
    with Writer(dsn, load=via) as writer:
        writer.write(table)
    types = run(
        dsn,
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'target'::regclass AND attnum > 0",
    )
    assert [kind for (kind,) in types] == [ddl.replace("numeric[]", "numeric(10,2)[]") for _, ddl, _ in NATIVE] + [
        "bigint"
    ]
    for name in columns:
        got = [value for (value,) in run(dsn, f"SELECT {name} FROM target")]
        assert sorted(got, key=repr) == sorted(table[name].to_pylist(), key=repr), name


def with_settings(dsn: str) -> str:
    """The connection string of somebody who has other settings."""
    said = " ".join(f"-c {name}={value}" for name, value in ODD.items())
    return f"{dsn}{'&' if '?' in dsn else '?'}options={quote(said)}"


@pytest.mark.postgres
def test_values_are_read_the_same_whatever_a_role_has_set(dsn: str) -> None:
    kinds = NATIVE[:-1]
    columns = {f"c{at}": pa.array([values[-1]], kind) for at, (kind, _, values) in enumerate(kinds)}
    columns |= {"more": pa.array([[0.1 + 0.2]], pa.list_(pa.float64())), "json": pa.array(['{"n": 0.10}'])}
    typed = ", ".join(f"c{at} {ddl}" for at, (_, ddl, _) in enumerate(kinds))
    found = []
    for name, login in {"plain": dsn, "odd": with_settings(dsn)}.items():
        run(dsn, f"CREATE TABLE {name} ({typed}, more float8[], json jsonb, _epoch bigint)")
        with Writer(login, table=name) as writer:
            receipt = writer.write(pa.table(columns))
            by_epoch = list(writer.sink.read_by_epoch((1, 1)) or ())
            found.append((by_epoch, writer.sink.read_at(receipt).to_pylist()))
    assert found[0] == found[1]
    assert found[0][0][0][1]["json"] == '{"n": 0.10}'


@pytest.mark.postgres
def test_two_changes_that_differ_in_the_last_digit_are_two_whatever_a_role_has_set(dsn: str) -> None:
    changes = pa.table({"id": [1, 1], "at": [1, 1], "heat": [0.1, 0.1 + 1e-16]})
    with Writer(with_settings(dsn), key="id", sequence="at") as writer, pytest.raises(DestinationError, match="E505"):
        writer.write(changes)


NESTED: list[tuple[pa.DataType, Any, Any]] = [
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 2**63 - 1, "b": 'x"y\\u0000'}, None),
    (pa.map_(pa.string(), pa.int32()), [("k", 1), ("l", None)], {"k": 1, "l": None}),
    (pa.map_(pa.int32(), pa.string()), [(1, "a")], {"1": "a"}),
    (pa.list_(pa.struct([("d", pa.decimal128(20, 3))])), [{"d": Decimal("1.250")}, None], [{"d": 1.25}, None]),
    (pa.list_(pa.list_(pa.int32())), [[1], [], None], None),
    (pa.list_(pa.timestamp("us", "UTC")), [dt.datetime(2024, 1, 1, tzinfo=UTC)], ["2024-01-01T00:00:00+00:00"]),
    (
        pa.struct([("f", pa.float64()), ("b", pa.binary())]),
        {"f": float("nan"), "b": b"\xff"},
        {"f": "NaN", "b": "/w=="},
    ),
]


@pytest.mark.postgres
@pytest.mark.parametrize("via", BOTH_WAYS)
def test_nested_values_become_jsonb(dsn: str, via: str) -> None:
    table = pa.table({f"c{index}": pa.array([value, None], type_) for index, (type_, value, _) in enumerate(NESTED)})
    with Writer(dsn, load=via) as writer:
        writer.write(table)
    for index, (_, value, expected) in enumerate(NESTED):
        got = run(dsn, f"SELECT c{index} FROM target")
        assert sorted(got, key=repr) == sorted([(value if expected is None else expected,), (None,)], key=repr)


# ---- tables that exist

EXISTING: list[tuple[str, pa.DataType, Any, Any]] = [
    ("bigint", pa.int8(), 5, 5),
    ("smallint", pa.int64(), -32768, -32768),
    ("double precision", pa.float32(), 1.5, 1.5),
    ("double precision", pa.int32(), 7, 7.0),
    ("numeric", pa.int64(), -(2**63), Decimal(-(2**63))),
    ("numeric", pa.decimal128(38, 37), Decimal("1.0000000000000000000000000000000000001"), None),
    ("numeric(12,2)", pa.int64(), 9_999_999_999, Decimal("9999999999.00")),
    ("numeric(50,20)", pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678"), None),
    ("varchar(3)", pa.string(), "日本語", "日本語"),
    ("char(3)", pa.string(), "x", "x  "),
    ("uuid", pa.string(), "6BA7B810-9dad-11d1-80b4-00c04fd430c8", uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
    ("uuid", pa.binary(), uuid.UUID(int=7).bytes, uuid.UUID(int=7)),
    ("json", pa.string(), '{"a": [1]}', {"a": [1]}),
    ("jsonb", pa.string(), '{"a": [1]}', {"a": [1]}),
    ("jsonb", pa.list_(pa.int64()), [1, 2], [1, 2]),
    ("timestamp(3)", pa.timestamp("us"), dt.datetime(2024, 1, 1, 0, 0, 0, 123000), None),
    ("mood", pa.string(), "happy", "happy"),
    ("positive", pa.int32(), 3, 3),
    ("numeric(6,2)[]", pa.list_(pa.decimal128(10, 3)), [Decimal("1.250")], [Decimal("1.25")]),
    ("smallint[]", pa.list_(pa.int64()), [1], [1]),
    ("time", pa.time64("ns"), dt.time(1, 2, 3), dt.time(1, 2, 3)),
]


@pytest.mark.postgres
@pytest.mark.parametrize("via", BOTH_WAYS)
def test_a_wider_or_other_type_of_the_table_is_filled_exactly(dsn: str, via: str) -> None:
    run(dsn, "CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN positive AS bigint CHECK (VALUE > 0)")
    run(dsn, f"CREATE TABLE target ({', '.join(f'c{n} {ddl}' for n, (ddl, _, _, _) in enumerate(EXISTING))})")
    table = pa.table({f"c{n}": pa.array([None, value], type_) for n, (_, type_, value, _) in enumerate(EXISTING)})
    with Writer(dsn, load=via) as writer:
        writer.write(table.slice(1))  # a slice: offsets into shared buffers
    [found] = rows(dsn)
    for (ddl, _, value, expected), got in zip(EXISTING, found, strict=True):
        assert got == (value if expected is None else expected), ddl


@pytest.mark.postgres
@pytest.mark.parametrize(("ddl", "value"), [("mood", "angry"), ("positive", "-1"), ("positive", None)])
def test_a_value_outside_a_type_of_the_users_own_is_refused(dsn: str, ddl: str, value: str | None) -> None:
    run(dsn, "CREATE TYPE mood AS ENUM ('happy'); CREATE DOMAIN positive AS bigint NOT NULL CHECK (VALUE > 0)")
    run(dsn, f"CREATE TABLE target (v {ddl})")
    type_ = pa.string() if ddl == "mood" else pa.int64()
    with Writer(dsn) as writer, pytest.raises(DestinationError) as caught:
        writer.write(pa.table({"v": pa.array([value and (value if ddl == "mood" else int(value))], type_)}))
    assert caught.value.code == "E503"


# ---- decimals, fuzzed

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=10)


@pytest.mark.postgres
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.none() | DECIMALS, min_size=1, max_size=400), scale=st.integers(10, 17))
def test_decimals_come_back_digit_for_digit(dsn: str, values: list[Decimal | None], scale: int) -> None:
    # One table per scale: each example appends to what the ones before have left.
    name, column = f"fuzz_{scale}", pa.array(values, pa.decimal128(38, scale))
    with Writer(dsn, name) as writer:
        receipt = writer.write(pa.table({"v": column}))
    got = run(dsn, f"SELECT v FROM {name} WHERE _epoch = {receipt.epoch}")
    assert sorted(map(repr, (value for (value,) in got))) == sorted(map(repr, column.to_pylist()))


# ---- the plan, without a database


def column(ddl: str, **more: Any) -> Column:
    base = {"type": ddl, "modifier": -1, "array": False, "required": False, "filled": False, "writable": True}
    return Column(name="v", ddl=ddl, **{**base, **more})


def plan(type_: pa.DataType, target: Column) -> TypeMapping:
    table = Table(TableName("public", "target"), 1, (target,), frozenset(), None)
    return map_types("postgres:target", pa.schema([("v", type_)]), table)


@example((29, 9), Decimal("99999999999999999999.9999999950"))
@example((19, 0), Decimal("1562499999999999999.9999999995"))
@example((38, 38), Decimal("3.4028236693"))  # with 38 digits after the point this is a little more than 128 bits hold
@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))), DECIMALS)
def test_a_decimal_is_kept_or_refused_never_rounded(shape: tuple[int, int], value: Decimal) -> None:
    precision, scale = shape
    target = column("numeric", modifier=(precision << 16 | scale) + 4)
    batch = pa.record_batch([pa.array([value], pa.decimal128(38, 10))], names=["v"])
    with localcontext(prec=60):  # the usual 28 digits would round the value that is judged here
        exponent = value.normalize().as_tuple().exponent
        assert isinstance(exponent, int)
        fits = exponent >= -scale and abs(value) < Decimal(10) ** (precision - scale)
    try:
        [converted] = plan(pa.decimal128(38, 10), target).convert(batch)
    except ValueRefused:
        assert not fits
    else:
        assert fits
        assert converted.to_pylist() == [value]


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=5), max_size=20), st.integers(0, 19))
def test_a_nul_is_found_wherever_it_is_and_nowhere_else(values: list[str | None], start: int) -> None:
    array = pa.array(values, pa.string()).slice(start)
    lane = lanes.ColumnEncoder("v", "string", "text", pa.string(), how="text")
    held = any(value and "\0" in value for value in values[start:])
    try:
        lanes.convert(lane, array)
    except ValueRefused:
        assert held
    else:
        assert not held


def test_a_value_inside_json_keeps_every_digit() -> None:
    assert spell({"d": Decimal("1E+3"), "e": Decimal("0.10")}) == '{"d":1000,"e":0.10}'
    assert spell(dt.timedelta(days=1, microseconds=1)) == '"PT86400.000001S"'
    assert spell([float("inf"), None, True, dt.date(2024, 1, 1), b"a"]) == '["Infinity",null,true,"2024-01-01","YQ=="]'


def test_types_are_named_as_spark_names_them() -> None:
    type_ = pa.struct([("a", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.decimal128(5, 2)))])
    assert spark_name(type_) == "struct<a:array<bigint>,m:map<string,decimal(5,2)>>"


NAME = TableName("public", "target")


# ---- what has no form: refused by the name that it has in Spark

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
STAGED_VARIANT = pa.struct([("metadata", pa.large_binary()), ("value", pa.large_binary())])
GEOMETRY = pa.struct(
    [
        pa.field("srid", pa.int32(), nullable=False),
        pa.field("wkb", pa.binary(), nullable=False, metadata={b"geometry": b"true", b"srid": b"4326"}),
    ]
)
GEOGRAPHY = pa.struct(
    [
        pa.field("srid", pa.int32()),
        pa.field("wkb", pa.binary(), metadata={b"geography": b"true", b"srid": b"4326"}),
    ]
)
POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])


def formed(field: "pa.Field[Any]", existing: str | None) -> Any:
    """The plan of a table that is made for the column, or is there."""
    if existing is None:
        return planned(NAME, [field], (), None, "sink")
    return map_types("sink", pa.schema([field]), Table(NAME, 1, (column(existing),), frozenset(), None))


@pytest.mark.parametrize("existing", [None, "jsonb"])
@pytest.mark.parametrize(
    ("type_", "named", "remedy"),
    [
        (VARIANT, "variant", "to_json(v)"),
        (STAGED_VARIANT, "variant", "to_json(v)"),
        (pa.list_(VARIANT), "array<variant>", "to_json(v)"),
        (pa.struct([("a", pa.map_(pa.string(), VARIANT))]), "struct<a:map<string,variant>>", "to_json(v)"),
        (GEOMETRY, "geometry", "st_asbinary"),
        (GEOGRAPHY, "geography", "st_asbinary"),
        (pa.month_day_nano_interval(), "month_day_nano_interval", "cast it"),
        (pa.map_(POINT, pa.int64()), "map<struct<x:double,y:double>,bigint>", "map_entries()"),
        (pa.list_(pa.map_(pa.list_(pa.int64()), pa.int64())), "array<map<array<bigint>,bigint>>", "map_entries()"),
    ],
    ids=str,
)
def test_a_type_without_a_form_is_refused_by_its_name(
    type_: pa.DataType, named: str, remedy: str, existing: str | None
) -> None:
    with pytest.raises(DestinationError) as caught:
        formed(pa.field("v", type_), existing)
    assert caught.value.code == "E506"
    assert f"column v {'is' if existing else 'of type'} {named} " in caught.value.what
    assert remedy in caught.value.remedy


def test_a_users_own_type_is_refused_by_its_name_whatever_it_is_stored_as() -> None:
    for existing in (None, "jsonb"):
        with pytest.raises(DestinationError, match="PointUDT") as caught:
            formed(pa.field("v", POINT, metadata={USER_DEFINED: b"PointUDT"}), existing)
        assert caught.value.code == "E506"


def test_everything_that_does_not_fit_is_said_at_once() -> None:
    there = (
        replace(column("bigint", writable=False), name="made"),
        replace(column("integer", required=True), name="who"),
    )
    table = Table(NAME, 1, (column("date"), *there), frozenset(), None)
    batch = pa.schema([("v", pa.int64()), ("made", pa.int64()), ("a", pa.int32()), ("b", pa.string())])
    with pytest.raises(DestinationError, match="E506") as caught:
        map_types("sink", batch, table)
    wanted = (
        "no column a, b",
        "made is generated",
        "no column who",
        "column v is bigint in the batch, date in the table",
    )
    assert [one for one in wanted if one not in caught.value.what] == []
    assert f'ALTER TABLE {NAME.printed} ADD COLUMN "a" integer,ADD COLUMN "b" text; ' in caught.value.remedy


# ---- moments beyond what Python, the encoder or the server can say


@pytest.mark.postgres
@pytest.mark.parametrize("via", BOTH_WAYS)
@pytest.mark.parametrize(
    ("ddl", "storage", "ticks"),
    [
        ("jsonb", pa.struct([("a", pa.timestamp("us", "UTC"))]), {"a": 2**61}),
        ("jsonb", pa.struct([("a", pa.timestamp("us"))]), {"a": 253402300800000000}),
        ("jsonb", pa.struct([("a", pa.date32())]), {"a": 2**30}),
        ("jsonb", pa.list_(pa.struct([("a", pa.date32())])), [{"a": -800_000}]),
        ("date", pa.date32(), -(2**31)),
        ("date", pa.date32(), 2**31 - 1),
        ("date[]", pa.list_(pa.date32()), [-(2**31)]),
        ("timestamp", pa.timestamp("us"), -(2**63)),
        ("timestamptz", pa.timestamp("us", "UTC"), -(2**63)),
        ("timestamp(3)", pa.timestamp("us"), -(2**63)),
    ],
    ids=str,
)
def test_a_moment_beyond_the_range_is_refused_naming_the_column(
    dsn: str, via: str, ddl: str, storage: pa.DataType, ticks: Any
) -> None:
    run(dsn, f"CREATE TABLE target (v {ddl})")
    values = pa.array([ticks], _as_ticks(storage)).cast(storage)
    with Writer(dsn, load=via) as writer:
        with pytest.raises(DestinationError) as caught:
            writer.write(pa.table({"v": values}))
        assert caught.value.code == "E503", str(caught.value)
        assert "column v (" in caught.value.what
        assert str(ticks).strip("{}[]") not in str(caught.value)
    assert rows(dsn) == []


def _as_ticks(type_: pa.DataType) -> pa.DataType:
    """The same with numbers for moments, as no Python object can say such a moment."""
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _as_ticks(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(_as_ticks(type_.value_type))
    return pa.int32() if pa.types.is_date32(type_) else pa.int64()


def test_a_hundred_columns_that_do_not_fit_leave_a_short_refusal() -> None:
    names = [f"column_{number}" for number in range(100)]
    there = Table(NAME, 1, tuple(replace(column("bigint"), name=name) for name in names), frozenset(), None)
    with pytest.raises(DestinationError) as misfit:
        map_types("sink", pa.schema([(name, pa.bool_()) for name in names]), there)
    with pytest.raises(DestinationError) as formless:
        planned(NAME, [pa.field(name, VARIANT) for name in names], (), None, "sink")
    assert [lines_of(str(caught.value)) <= MOST for caught in (misfit, formless)] == [True, True]
    assert all("column column_3 " in caught.value.what for caught in (misfit, formless))
    assert all(caught.value.what.endswith(" and 96 more.") for caught in (misfit, formless))
    listed = ", ".join(names[:8])
    assert misfit.value.remedy == f"cast {listed} and 92 more in the query; then restart the query"
