"""The digest of a batch: one and the same whichever way its rows go, and another one for any other rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType
from tests.plain_values import plain_table

from onceonly.protocol import Estimate
from onceonly.protocol.batch import AsOf
from onceonly.protocol.row_times import Clock
from onceonly.quality.spark_dedupe import DedupeConfig, DedupingBatch
from onceonly.quality.spark_outputs import DividedBatch, OutputSpec, ResolvedOutput, forecast
from onceonly.spark import digest
from onceonly.spark.batch import SparkBatch
from onceonly.spark.digest import row_hash
from onceonly.spark.frames import arrow_schema, of_arrow
from onceonly_checkpoints.digests import Digest, OutputDigest, column_of

pytestmark = pytest.mark.spark


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
    assert (whole := driver(rows)) == executors(rows) == nowhere(rows) == staged.digest()
    assert whole.rows == 500


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
    assert [(output.digest.rows, output.filtered, output.reasons) for output in few.outputs()] == [
        (8, 37, ()),
        (0, 45, ()),
        (5, 45, (("x", 5),)),
    ]


def test_bad_rows_that_nobody_expected_are_those_of_a_plan_that_expects_them(rows: DataFrame) -> None:
    several = rows.where("number >= 0").drop("list", "record", "map").repartitionByRange(3, "number")
    bad = OutputSpec("bad", ("b",), "number > 9", ("to_json(struct(*)) AS row", "'[\"x\"]' AS reasons"), ("x",))
    outputs = resolved(several, OutputSpec("few", ("a",), "number % 2 = 0", ("price", "seen")), bad)
    expected = forecast(several, outputs)
    assert expected is not None
    wide, narrow, again = (DividedBatch(several, outputs, FEW, forecast=its) for its in (None, expected, expected))
    held = []
    for batch, is_expected in ((wide, False), (narrow, True), (again, True)):
        held.append(str(pa.Table.from_batches(list(batch.arrow()), batch.schema).sort_by("number").to_pylist()))
        assert expected.bad is is_expected
    assert held[0] == held[1] == held[2]
    assert wide.digest() == narrow.digest() == again.digest()
    assert wide.outputs() == narrow.outputs() == again.outputs()
    assert 0 < wide.outputs()[1].digest.rows < several.count()

    good = several.where("number < 5")
    for _ in range(2):
        batch = DividedBatch(good, outputs, FEW, forecast=expected)
        assert pa.Table.from_batches(list(batch.arrow()))[column_of("bad")].null_count == batch.digest().rows > 0
        assert batch.outputs() == taken(DividedBatch(good, outputs, FEW))
        assert not expected.bad


def test_bad_rows_that_need_more_than_the_columns_are_always_planned(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    bad = OutputSpec("bad", ("b",), "id > 1", ("_metadata.file_name AS row", "'' AS reasons"))
    assert forecast(rows, resolved(rows, bad)) is None
    assert forecast(rows, resolved(rows, replace(bad, select=("id AS row", "'' AS reasons")))) is not None


def test_ids_have_a_time_that_is_never_null_and_compiled_for_no_batch(
    rows: DataFrame, compiled: Callable[[], int]
) -> None:
    repeats = DedupeConfig(("text",), "a", lambda as_of: lambda ids: iter(()))
    spec = repeats.output_spec("orders", rows)
    assert {column.name: column.nullable for column in spec.of(rows).schema} == {"id": True, "at": False}
    counts, wanted = [], rows.count()
    for clock_ms in range(1, 5):
        selected = rows.select(repeats.clock(clock_ms)).where(f"unix_millis(at) = {digest.of_batch(clock_ms, 'text')}")
        assert selected.count() == wanted
        counts.append(compiled())
    assert counts[1:] == [counts[0]] * 3


def taken(batch: DividedBatch) -> tuple[OutputDigest, ...]:
    _ = list(batch.arrow())
    return batch.outputs()


def plain(session: SparkSession) -> DataFrame:
    """Every value beside every other column's, and nulls."""
    return of_arrow(session, plain_table())


def test_the_driver_hashes_plain_rows_as_spark_does(spark: SparkSession) -> None:
    for df in (plain(spark), plain(spark).repartition(5), plain(spark).limit(0)):
        assert digest.hashing(df.schema) is not None
        assert driver(df, FEW) == driver(df) == nowhere(df)


def with_hashes(df: DataFrame) -> pa.Table:
    """The rows, and behind their columns what Spark makes of each column by itself, in one job."""
    hashes = [row_hash(StructType([field])).alias(f"hash {at}") for at, field in enumerate(df.schema.fields)]
    return pa.Table.from_batches(list(SparkBatch(df.select("*", *hashes), UNKNOWN).arrow()))


def hashes_of(table: pa.Table, at: int) -> pa.Array:
    """Spark's hashes of a column."""
    return table[f"hash {at}"].combine_chunks()


def test_the_driver_hashes_values_of_each_type_as_spark_does(spark: SparkSession) -> None:
    df = plain(spark)
    table, otherwise = with_hashes(df), []
    for at, field in enumerate(df.schema.fields):
        schema = StructType([field])
        by_driver, by_row = digest.hashing(schema), digest.hashing_rows(schema)
        assert by_driver is not None
        assert by_row is not None
        for rows in (table, table.filter(table.column(at).is_null())):
            [batch] = rows.select([at]).combine_chunks().to_batches()
            assert batch.num_rows > 0
            if not by_row(batch).equals(hashes_of(rows, at)):
                otherwise.append(f"{field.name}: each of {batch.num_rows} rows")
            if by_driver(batch) != digest.of_hashes(hashes_of(rows, at)):
                otherwise.append(f"{field.name}: {batch.num_rows} rows together")
    assert otherwise == []


def test_a_column_that_the_digest_leaves_out_is_left_out_by_the_driver_too(spark: SparkSession) -> None:
    digests, others = set(), set()
    for estimate in (UNKNOWN, FEW):
        for df in (plain(spark), plain(spark).withColumn("a.b", f.lit(7.0))):
            batch = SparkBatch(df, estimate, frozenset({"a.b"}))
            assert sum(part.num_rows for part in batch.arrow()) == 400
            digests.add(batch.digest())
            others.add(driver(df, estimate))
    assert len(digests) == 1, "whatever the column holds"
    assert len(others) == 2
    [left_out] = digests
    assert left_out.left_out == ("a.b",)


def test_types_with_a_hash_of_their_own_are_left_to_spark(rows: DataFrame) -> None:
    folded = rows.sparkSession.sql("SELECT 'a' COLLATE UTF8_LCASE AS word")
    others = [rows.select(name) for name in ("list", "record", "map")]
    assert [digest.hashing(df.schema) for df in (folded, *others)] == [None] * 4
    assert driver(rows, FEW) == driver(rows)


def test_rows_in_another_order_or_partition_have_the_same_digest(rows: DataFrame) -> None:
    wanted = nowhere(rows)
    for partitions, way in ((1, driver), (7, nowhere)):
        again = rows.repartition(partitions).sortWithinPartitions(f.desc("number"))
        assert way(again) == wanted, f"{partitions} partitions, {way.__name__}"


def test_no_rows_have_a_digest(rows: DataFrame) -> None:
    assert driver(rows.limit(0)) == nowhere(rows.limit(0)) == Digest(0)


OTHER_ROWS = (
    ("(1, 2)", "(1, 3)"),
    ("(1, null)", "(null, 1)"),
    ("(1, 1), (2, 2)", "(1, 2), (2, 1)"),
    ("(1, 1), (1, 1)", "(2, 2), (2, 2)"),
    ("(1, 1)", "(1, 1), (1, 1), (1, 1)"),
)
"""Rows that differ in what a sum of hashes of their values would not see."""


def test_other_rows_have_another_digest(spark: SparkSession) -> None:
    sides = [(case, side, rows) for case, pair in enumerate(OTHER_ROWS) for side, rows in enumerate(pair)]
    each = [f"SELECT {case} AS case, {side} AS side, * FROM VALUES {rows} AS t(a, b)" for case, side, rows in sides]
    every = spark.sql(" UNION ALL ".join(each))
    sums = digest.metrics(StructType(every.schema.fields[2:]))
    summed = every.groupBy("case", "side").agg(*sums).collect()
    found = {(row["case"], row["side"]): digest.from_metrics(row.asDict()) for row in summed}
    assert len(found) == len(sides)
    assert [pair for case, pair in enumerate(OTHER_ROWS) if found[case, 0] == found[case, 1]] == []
    # The ways of a batch sum up alike.
    ways = (driver, nowhere, partial(driver, estimate=FEW))
    one = every.where("case = 3 AND side = 0").select("a", "b")
    assert [way(one) for way in ways] == [found[3, 0]] * len(ways)


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


def test_other_values_of_a_nested_type_have_another_digest(spark: SparkSession) -> None:
    sides = [", ".join(f"{pair[side]} AS it{at}" for at, pair in enumerate(NESTED)) for side in (0, 1)]
    both = spark.sql(f"SELECT {sides[0]} UNION ALL SELECT {sides[1]}").coalesce(1)
    one, two = both.select([row_hash(StructType([field])) for field in both.schema.fields]).collect()
    assert [pair for at, pair in enumerate(NESTED) if one[at] == two[at]] == []
    # On each way of a batch its digest is that of these hashes.
    hashes = pa.array([row[0] for row in both.select(row_hash(both.schema)).collect()], pa.int64())
    assert [driver(both), nowhere(both), driver(both, FEW)] == [digest.of_hashes(hashes)] * 3


def test_the_order_of_a_maps_entries_is_not_its_value(spark: SparkSession) -> None:
    one, two = (spark.sql(f"SELECT map({it}) AS it") for it in ("'a', 1, 'b', null", "'b', null, 'a', 1"))
    assert driver(one) == driver(two) == nowhere(two)


def test_rows_without_columns_are_counted(spark: SparkSession) -> None:
    bare = spark.range(10).select()
    assert driver(bare) == driver(bare, FEW) == nowhere(bare) == executors(bare)
    assert driver(bare).rows == 10


SCALARS = {"int": [0, 1, 5], "bigint": [0, 1, 2**40], "boolean": [False, True], "string": ["", "0", "1"]}
"""Few values, so that flags, lengths and values of other depths look alike."""

COLUMNS, VALUES = 12, 60
"""Drawn types, which are hashed beside one another, and how many values each has."""


def drawn_type(draw: random.Random, depth: int = 3) -> DataType:
    """A type, nested up to a depth."""
    kind = draw.choice(["scalar", "array", "struct", "map"]) if depth else "scalar"
    match kind:
        case "array":
            return ArrayType(drawn_type(draw, depth - 1))
        case "struct":
            return StructType().add("a", drawn_type(draw, depth - 1)).add("b", drawn_type(draw, depth - 1))
        case "map":
            return MapType(StructType().add("k", drawn_type(draw, 0)), drawn_type(draw, depth - 1))
    return StructType.fromDDL(f"it {draw.choice(sorted(SCALARS))}")["it"].dataType


def drawn_value(draw: random.Random, kind: DataType, null: bool = True) -> Any:
    """A value of a type as Python has it, null now and then but for keys."""
    if null and draw.random() < 0.2:
        return None
    match kind:
        case ArrayType(elementType=element):
            return [drawn_value(draw, element) for _ in range(draw.randrange(4))]
        case StructType(fields=fields):
            return tuple(drawn_value(draw, field.dataType) for field in fields)
        case MapType(keyType=key, valueType=value):
            return {drawn_value(draw, key, null=False): drawn_value(draw, value) for _ in range(draw.randrange(3))}
    return draw.choice(SCALARS[kind.simpleString()])


def spelled(value: Any) -> str:
    """One text per value, whatever the order in which a map came."""
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{spelled(key)}: {spelled(each)}" for key, each in value.items())) + "}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(spelled, value))})"
    return repr(value)


def test_rows_of_any_nested_type_hash_alike_only_where_they_are_alike(spark: SparkSession) -> None:
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    schema = StructType([StructField(f"it{at}", drawn_type(draw, at % 4)) for at in range(COLUMNS)])
    found = [tuple(drawn_value(draw, field.dataType) for field in schema.fields) for _ in range(VALUES)]
    df = spark.createDataFrame(found, schema).coalesce(1)
    hashes = df.select([row_hash(StructType([field])) for field in schema.fields]).collect()
    otherwise = []
    for at, field in enumerate(schema.fields):
        pairs = {(spelled(row[at]), hashed[at]) for row, hashed in zip(found, hashes, strict=True)}
        values, numbers = ({pair[side] for pair in pairs} for side in (0, 1))
        if not len(values) == len(numbers) == len(pairs):
            otherwise.append(f"{field.dataType.simpleString()}: {len(values)} values, {len(numbers)} hashes")
    assert otherwise == [], f"seed {seed}"
    assert driver(df) == nowhere(df) == executors(df.repartition(3)) == driver(df, FEW), f"seed {seed}"


WITH_ITEMS = (
    "array<int>",
    "map<string,int>",
    "struct<x:struct<y:array<int>>>",
    "array<array<double>>",
    "array<map<int,int>>",
    "map<int,map<int,string>>",
    "map<struct<k:array<int>>,struct<v:map<int,int>>>",
)
"""Types whose values are hashed item by item, by a lambda."""


def observed(df: DataFrame) -> list[str]:
    """Each observation in the plan that Spark runs, with its aggregates as Spark spells them."""
    found, left = [], [df._jdf.queryExecution().optimizedPlan()]
    while left:
        node = left.pop()
        if node.nodeName() == "CollectMetrics":
            found.append(node.metrics().mkString(", "))
        left += [node.children().apply(at) for at in range(node.children().size())]
    return found


def resolved(rows: DataFrame, *wanted: OutputSpec) -> list[ResolvedOutput]:
    return [ResolvedOutput(one, "", arrow_schema(one.of(rows)), frozenset(), one.column()) for one in wanted]


def test_no_lambda_is_observed_whose_variable_would_go_to_the_driver_with_a_tasks_result(spark: SparkSession) -> None:
    def empty(columns: str) -> DataFrame:
        return spark.createDataFrame([], columns)

    batches = {kind: SparkBatch(empty(f"it {kind}"), UNKNOWN) for kind in ("double", "struct<x:int>", *WITH_ITEMS)}
    rows = empty("at timestamp, list array<int>, map map<string,int>, maps array<map<int,int>>")
    batches["a column left out"] = SparkBatch(rows, UNKNOWN, frozenset({"map"}))
    batches["event time"] = SparkBatch(rows, UNKNOWN).timed(Clock("at", "ms", 0))
    # The user's own lambdas, each where a row is asked for it.
    outputs = resolved(
        rows,
        OutputSpec("some", ("a",), "exists(list, x -> x > 1)", ("maps", "transform(list, x -> x + 1) AS more")),
        OutputSpec("bad", ("b",), "forall(list, x -> x > 1)", ("array_join(list, '') AS reasons", "map"), ("x",)),
    )
    batches["outputs"] = DividedBatch(rows, outputs, UNKNOWN)
    repeats = DedupeConfig(("aggregate(list, 0, (sum, x) -> sum + x)",), "a", lambda as_of: lambda ids: iter(()))
    ids = resolved(rows, repeats.output_spec("orders", rows))
    batches["repeats"] = DedupingBatch(rows, ids, UNKNOWN, repeats=repeats).as_of(AsOf(1, 1, 0, "orders"))

    found = {name: observed(batch.dataframe) for name, batch in batches.items()}
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(batches, 1) | {"repeats": 2}
    assert [name for name, each in found.items() if any("lambda" in aggregates for aggregates in each)] == []
    # It is by this word that one would be seen.
    inline = {kind: (df := empty(f"it {kind}")).observe("all", *digest.metrics(df.schema)) for kind in WITH_ITEMS}
    assert [kind for kind, df in inline.items() if "lambda" not in observed(df)[0]] == []


def test_an_observed_row_has_its_own_columns_and_no_hash(spark: SparkSession) -> None:
    names = ("it", digest.HASH, digest.HASH.upper() + "_", "a.b")
    rows = spark.range(7).select([f.array("id", f.lit(at)).alias(name) for at, name in enumerate(names)])
    assert SparkBatch(rows, UNKNOWN).dataframe.schema == rows.schema
    assert nowhere(rows) == driver(rows) == executors(rows)


def test_an_output_with_lists_and_maps_has_the_digest_of_its_rows(rows: DataFrame) -> None:
    wanted = (
        OutputSpec("lists", ("a",), "number % 2 = 0", ("list", "array(map) AS maps")),
        OutputSpec("plain", ("b",), "number % 5 = 0", ("number",)),
        OutputSpec("bad", ("c",), "number % 7 = 0", ("map(number, map) AS maps", "'' AS reasons")),
    )
    batch = DividedBatch(rows, resolved(rows, *wanted), UNKNOWN)
    whole = batch.execute()
    found = {output.name: output.digest for output in batch.outputs()}
    assert found == {one.name: nowhere(one.of(rows)) for one in wanted}
    assert whole == nowhere(rows.where("number % 7 <> 0 OR number IS NULL"))


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
