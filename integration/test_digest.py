"""The digest of a batch: one and the same whichever way its rows go, and another one for any other rows."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from onceonly.protocol import Estimate
from onceonly.spark import digest
from onceonly.spark.batch import SparkBatch
from onceonly.spark.digest import row_hash
from onceonly.spark.frames import arrow_schema, of_arrow
from onceonly.spark.outputs import DividedBatch, OutputSpec, ResolvedOutput
from onceonly_checkpoints.content import Digest

pytestmark = pytest.mark.spark

DECIMALS = [(sign, bits, more) for sign in (1, -1) for bits in (0, 7, 8, 63, 64, 119, 126) for more in (-1, 0, 1)]
"""Sign, power of two and what is added, around which the number of bytes changes."""


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Every kind of type, with nulls at every depth."""
    some = f.when(f.col("id") % 3 != 0, f.col("id"))
    number = f.when(f.col("id") % 5 == 0, float("nan")).otherwise(-f.col("id") * 0.0)
    return spark.range(0, 500, 1, 4).select(
        some.alias("number"),
        number.alias("ratio"),
        number.cast("float").alias("a.b"),
        some.cast("string").alias("text"),
        some.cast("string").cast("binary").alias("raw"),
        some.cast("decimal(20,4)").alias("price"),
        f.date_from_unix_date(some.cast("int")).alias("day"),
        f.timestamp_micros(some * 1_000_003).alias("seen"),
        f.timestamp_micros(some * 1_000_003).cast("timestamp_ntz").alias("clock"),
        f.array(some, f.lit(None)).alias("list"),
        f.struct(some.alias("x"), f.struct(number.alias("y")).alias("z")).alias("record"),
        f.create_map(f.lit("b"), some, f.lit("a"), f.lit(1)).alias("map"),
    )


UNKNOWN, FEW = Estimate(None, None), Estimate(None, 100)
"""Sizes with which rows that come to the driver are hashed in the cluster, and by the driver."""


def driver(df: DataFrame, estimate: Estimate = UNKNOWN) -> Digest:
    batch = SparkBatch(df, estimate)
    assert sum(part.num_rows for part in batch.arrow()) == batch.digest().rows
    return batch.digest()


def executors(df: DataFrame) -> Digest:
    batch = SparkBatch(df, Estimate(None, None))
    batch.on_executors(lambda attempt, parts: {"rows": sum(part.num_rows for part in parts)})
    return batch.digest()


def nowhere(df: DataFrame) -> Digest:
    return SparkBatch(df, Estimate(None, None)).execute()


def test_a_batch_has_one_digest_whichever_way_it_goes(rows: DataFrame, tmp_path) -> None:
    staged = SparkBatch(rows, Estimate(None, None))
    staged.write(str(tmp_path / "staged"))
    assert driver(rows) == executors(rows) == nowhere(rows) == staged.digest()
    assert driver(rows).rows == 500


def test_a_structure_may_be_null_whose_parts_never_are(spark: SparkSession, tmp_path: Path) -> None:
    record = "struct(id AS x, array(struct(id AS y, timestamp_millis(id) AS at)) AS list)"
    rows = spark.range(10).selectExpr("id", f"if(id > 4, {record}, null) AS record")
    wanted = [row["record"] and row["record"]["list"][0]["at"] for row in rows.orderBy("id").collect()]
    for size in (UNKNOWN, FEW):
        table = pa.Table.from_batches(list(SparkBatch(rows, size).arrow())).sort_by("id")
        table.validate(full=True)
        found = table["record"].to_pylist()
        assert [one and one["x"] for one in found] == [None] * 5 + [*range(5, 10)]
        assert [one and one["list"][0]["at"].timestamp() for one in found] == [
            one and one.timestamp() for one in wanted
        ]
    staged = SparkBatch(rows, UNKNOWN)
    staged.write(str(tmp_path / "staged"))
    assert driver(rows) == driver(rows, FEW) == executors(rows) == staged.digest()


def test_outputs_of_few_rows_are_counted_as_spark_counts_those_of_many(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(50).selectExpr("id", "if(id % 5 = 0, null, concat('w', id)) AS word", "id / 7 AS share")
    wanted = (
        OutputSpec("few", ("a",), "id % 10 <> 7 AND id > 40", ("id AS key", "word AS value")),
        OutputSpec("none", ("b",), "id > 100"),
        OutputSpec("bad", ("c",), "id % 10 = 7", ('concat(\'[{"rule":"x"},\', word) AS reasons', "id"), ("x", "y")),
    )
    resolved = [
        ResolvedOutput(
            one, "", arrow_schema(one.of(rows)), frozenset({"value"} if one.name == "few" else ()), one.column()
        )
        for one in wanted
    ]
    few, many = (DividedBatch(rows, resolved, size) for size in (FEW, UNKNOWN))
    here = pa.Table.from_batches(list(few.arrow()))
    there = pa.Table.from_batches(list(many.arrow()))
    assert here.sort_by("id").equals(there.sort_by("id"))
    staged = DividedBatch(rows, resolved, UNKNOWN)
    staged.write(str(tmp_path / "staged"))
    assert few.digest() == many.digest() == staged.digest()
    assert few.outputs() == many.outputs() == staged.outputs()
    assert [(one.digest.rows, one.filtered, one.reasons) for one in few.outputs()] == [
        (8, 37, ()),
        (0, 45, ()),
        (5, 45, (("x", 5),)),
    ]


PLAIN = {
    "yes": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-(2**7), 2**7 - 1]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1]),
    "number": (pa.int32(), [0, -1, -(2**31), 2**31 - 1]),
    "Größe": (pa.int64(), [0, -1, -(2**63), 2**63 - 1]),
    "single": (pa.float32(), [0.0, -0.0, nan, -inf, inf, 1.5, 1e-40]),
    "a.b": (pa.float64(), [0.0, -0.0, nan, -inf, inf, 0.1, 5e-324]),
    "text": (pa.string(), ["", "a", "ü€𝄞", "seven77", "eight888", "x" * 31, "x" * 32, "y" * 133, "nul\0"]),
    "raw": (pa.binary(), [b"", b"\xff\x00", bytes(range(256))]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "seen": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "clock": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29)]),
    "price": (pa.decimal128(18, 2), [Decimal("-0.01"), Decimal(0), Decimal("9999999999999999.99")]),
    "exact": (pa.decimal128(38, 0), [Decimal(sign * 2**bits + more) for sign, bits, more in DECIMALS]),
}
"""Columns of each type that the driver can hash by itself, with values at the edges of its forms."""


def plain(session: SparkSession) -> DataFrame:
    """Every value beside every other column's, and nulls."""
    columns = {}
    for at, (name, (kind, values)) in enumerate(PLAIN.items()):
        each = [*values, None]
        columns[name] = pa.array([each[(row * (at + 1) + row // 7) % len(each)] for row in range(400)], kind)
    return of_arrow(session, pa.table(columns))


def test_the_driver_hashes_plain_rows_as_spark_does(spark: SparkSession) -> None:
    for df in (plain(spark), plain(spark).repartition(5), plain(spark).limit(0)):
        assert digest.hashing(df.schema) is not None
        assert driver(df, FEW) == driver(df) == nowhere(df)


@pytest.mark.parametrize("name", PLAIN)
def test_the_driver_hashes_values_of_each_type_as_spark_does(spark: SparkSession, name: str) -> None:
    for df in (one := plain(spark).select(f"`{name}`"), one.where(f"`{name}` IS NULL")):
        assert driver(df, FEW) == driver(df)


def test_a_column_that_the_digest_leaves_out_is_left_out_by_the_driver_too(spark: SparkSession) -> None:
    digests = set()
    for estimate in (UNKNOWN, FEW):
        batch = SparkBatch(plain(spark), estimate, frozenset({"a.b"}))
        assert sum(part.num_rows for part in batch.arrow()) == 400
        digests.add(batch.digest())
    assert len(digests) == 1
    assert digests != {driver(plain(spark))}


def test_types_with_a_hash_of_their_own_are_left_to_spark(rows: DataFrame) -> None:
    folded = rows.sparkSession.sql("SELECT 'a' COLLATE UTF8_LCASE AS word")
    others = [rows.select(name) for name in ("list", "record", "map")]
    assert [digest.hashing(df.schema) for df in (folded, *others)] == [None] * 4
    assert driver(rows, FEW) == driver(rows)


@pytest.mark.parametrize("partitions", [1, 7])
def test_rows_in_another_order_or_partition_have_the_same_digest(rows: DataFrame, partitions: int) -> None:
    again = rows.repartition(partitions).sortWithinPartitions(f.desc("number"))
    assert driver(again) == driver(rows)
    assert nowhere(again) == driver(rows)


def test_no_rows_have_a_digest(rows: DataFrame) -> None:
    assert driver(rows.limit(0)) == nowhere(rows.limit(0)) == Digest(0)


@pytest.mark.parametrize("way", [driver, nowhere])
@pytest.mark.parametrize(
    ("given", "other"),
    [
        ("(1, 2)", "(1, 3)"),
        ("(1, null)", "(null, 1)"),
        ("(1, 1), (2, 2)", "(1, 2), (2, 1)"),
        ("(1, 1), (1, 1)", "(2, 2), (2, 2)"),
        ("(1, 1)", "(1, 1), (1, 1), (1, 1)"),
    ],
)
def test_other_rows_have_another_digest(spark: SparkSession, given: str, other: str, way) -> None:
    one, two = (spark.sql(f"SELECT * FROM VALUES {values} AS t(a, b)") for values in (given, other))
    assert way(one) != way(two)


NESTED = [
    ("array(array(5, 0), array(7))", "array(array(5), array(0, 7))"),
    ("array(array(1, 0), array())", "array(array(1), array(0))"),
    ("array(null, 0)", "array(0, null)"),
    ("array(struct(array(5, 0)), struct(array(7)))", "array(struct(array(5)), struct(array(0, 7)))"),
    ("map(struct(1, cast(null as int)), 1)", "map(struct(cast(null as int), 1), 1)"),
    ("map(array(1, 0), array(0))", "map(array(1), array(0, 0))"),
    ("array(map(1, 0), map(0, 1))", "array(map(1, 0, 0, 1), map())"),
    ("map(1, 2, 3, 4)", "map(1, 4, 3, 2)"),
    ("cast(null as array<int>)", "array()"),
    ("array(1)", "array(1, null)"),
    ("'a' collate UTF8_LCASE", "'A' collate UTF8_LCASE"),
    ("array('a' collate UTF8_LCASE)", "array('A' collate UTF8_LCASE)"),
]
"""Two values of one type, differing in what a hash of their parts alone would not see."""


@pytest.mark.parametrize("way", [driver, nowhere, partial(driver, estimate=FEW)])
@pytest.mark.parametrize(("given", "other"), NESTED)
def test_other_values_of_a_nested_type_have_another_digest(spark: SparkSession, given: str, other: str, way) -> None:
    both = spark.sql(f"SELECT 1 AS at, {given} AS it UNION ALL SELECT 2, {other}")
    one, two = (both.where(f"at = {at}").select("it") for at in (1, 2))
    assert way(one) == way(one)
    assert way(one) != way(two)


def test_the_order_of_a_maps_entries_is_not_its_value(spark: SparkSession) -> None:
    one, two = (spark.sql(f"SELECT map({it}) AS it") for it in ("'a', 1, 'b', null", "'b', null, 'a', 1"))
    assert driver(one) == driver(two) == nowhere(two)


@pytest.mark.parametrize("estimate", [UNKNOWN, FEW])
def test_rows_without_columns_are_counted(spark: SparkSession, estimate: Estimate) -> None:
    bare = spark.range(10).select()
    assert driver(bare, estimate) == nowhere(bare) == executors(bare)
    assert driver(bare, estimate).rows == 10


SCALARS = {"int": [0, 1, 5], "bigint": [0, 1, 2**40], "boolean": [False, True], "string": ["", "0", "1"]}
"""Few values, so that flags, lengths and values of other depths look alike."""

KEYS = st.sampled_from(sorted(SCALARS))
TYPES = st.recursive(
    KEYS,
    lambda inner: st.one_of(
        inner.map(lambda kind: f"array<{kind}>"),
        st.tuples(inner, inner).map(lambda kinds: f"struct<a: {kinds[0]}, b: {kinds[1]}>"),
        st.tuples(KEYS, inner).map(lambda kinds: f"map<struct<k: {kinds[0]}>, {kinds[1]}>"),
    ),
    max_leaves=4,
)


def values(kind: DataType) -> st.SearchStrategy[Any]:
    """Values of a type as Python has them, each null now and then but for keys."""
    match kind:
        case ArrayType(elementType=element):
            some: st.SearchStrategy[Any] = st.lists(values(element), max_size=3)
        case StructType(fields=fields):
            some = st.tuples(*(values(field.dataType) for field in fields))
        case MapType(keyType=key, valueType=value):
            some = st.dictionaries(values(key).filter(lambda it: it is not None), values(value), max_size=2)
        case _:
            some = st.sampled_from(SCALARS[kind.simpleString()])
    return st.none() | some


def spelled(value: Any) -> str:
    """One text per value, whatever the order in which a map came."""
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{spelled(key)}: {spelled(each)}" for key, each in value.items())) + "}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(spelled, value))})"
    return repr(value)


@settings(max_examples=12, deadline=None)
@given(data=st.data(), kind=TYPES)
def test_rows_of_any_nested_type_hash_alike_only_where_they_are_alike(spark: SparkSession, data, kind: str) -> None:
    type_ = StructType.fromDDL(f"it {kind}")
    found = data.draw(st.lists(values(type_["it"].dataType), min_size=60, max_size=60))
    df = spark.createDataFrame([(value,) for value in found], type_).coalesce(1)
    hashes = [row[0] for row in df.select(row_hash(df.schema)).collect()]
    by_value = dict(zip(map(spelled, found), hashes, strict=True))
    assert len(set(by_value.values())) == len(by_value)
    assert hashes == [by_value[spelled(value)] for value in found]
    assert driver(df) == nowhere(df) == executors(df.repartition(3)) == driver(df, FEW)


def test_rows_that_were_not_taken_to_the_last_have_no_digest(rows: DataFrame) -> None:
    batch = SparkBatch(rows, Estimate(None, None))
    with pytest.raises(RuntimeError):
        batch.digest()
    parts = batch.arrow()
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError):
        batch.digest()


def test_rows_behind_an_empty_piece_of_a_table_are_not_lost(spark: SparkSession) -> None:
    pieces = [pa.table({"id": pa.array(ids, pa.int64())}) for ids in ([1, 2], [], [3])]
    assert sorted(row["id"] for row in of_arrow(spark, pa.concat_tables(pieces)).collect()) == [1, 2, 3]


def test_a_stage_holds_rows_and_nothing_else(rows: DataFrame, tmp_path: Path) -> None:
    SparkBatch(rows, Estimate(None, None)).write(str(tmp_path / "staged"))
    assert {path.suffix for path in (tmp_path / "staged").iterdir()} == {".parquet"}


def test_a_file_system_that_the_user_chose_writes_the_stage(rows: DataFrame, tmp_path: Path) -> None:
    hadoop = rows.sparkSession.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    try:
        SparkBatch(rows, Estimate(None, None)).write(str(tmp_path / "staged"))
    finally:
        hadoop.unset("fs.file.impl")
    assert ".crc" in {path.suffix for path in (tmp_path / "staged").iterdir()}


def test_a_stage_has_small_dictionaries_unless_the_user_says_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 50_000, 1, 1).select(
        f.lpad(f.col("id") % 2000, 100, "-").alias("many"), (f.col("id") % 7).alias("few")
    )
    assert dictionaries(rows, tmp_path / "ours") == {"many": False, "few": True}
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("parquet.dictionary.page.size", str(1 << 20))
    try:
        assert dictionaries(rows, tmp_path / "theirs") == {"many": True, "few": True}
    finally:
        hadoop.unset("parquet.dictionary.page.size")


def dictionaries(rows: DataFrame, place: Path) -> dict[str, bool]:
    SparkBatch(rows, Estimate(None, None)).write(str(place))
    [file] = place.glob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return {str(column.path_in_schema): bool(column.has_dictionary_page) for column in columns}
