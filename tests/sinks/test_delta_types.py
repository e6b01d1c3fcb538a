"""Types at their edges, on every path into a Delta table: kept as they are, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, Schema
from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType
from tests.sinks.delta_harness import DeltaHarness

from onceonly.errors import ConfigurationError, DestinationError
from onceonly.protocol.batch import ArrowBatch
from onceonly_lab.conformance.scenario import Scenario
from onceonly_sinks.delta import Merge
from onceonly_sinks.delta.columns import METADATA_KEY, Unread, delta_schema, parse

DRIVER, EXECUTORS = 1 << 30, 0
PATHS = pytest.mark.parametrize("limit", [DRIVER, EXECUTORS], ids=["driver", "executors"])


def variant() -> pa.DataType:
    """A VARIANT as Spark hands it over."""
    return pa.struct(
        [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]
    )


def geometry() -> pa.DataType:
    return pa.struct([pa.field("srid", pa.int32()), pa.field("wkb", pa.binary(), metadata={b"geometry": b"true"})])


# ---- types that Arrow carries as another


@PATHS
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (variant(), "column x is VARIANT"),
        (pa.list_(variant()), "column x is VARIANT"),
        (geometry(), "column x is GEOMETRY"),
        (pa.map_(pa.string(), geometry()), "column x is GEOMETRY"),
        (pa.uuid(), "column x is arrow.uuid"),
        (pa.duration("us"), "column x is duration[us]"),
    ],
    ids=str,
)
def test_a_type_that_only_arrow_knows_in_another_form_is_refused(
    tmp_path: Path, limit: int, kind: Any, told: str
) -> None:
    with Scenario(DeltaHarness(tmp_path, driver_limit=limit)) as story:
        driver = story.driver()
        rows = pa.table({"x": pa.nulls(1, kind)}, schema=pa.schema([pa.field("x", kind)]))
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(ArrowBatch(rows), 1)
        assert refused.value.code == "E506"
        assert told in str(refused.value)


def test_all_columns_of_types_that_delta_lacks_are_named_at_once() -> None:
    names = [f"column_{number}" for number in range(20)]
    kinds = [variant() if number % 2 else pa.duration("us") for number in range(20)]
    with pytest.raises(DestinationError) as refused:
        delta_schema("orders", pa.schema(zip(names, kinds, strict=True)))
    assert "column_0 is duration[us]" in refused.value.what
    assert "column_1 is VARIANT" in refused.value.what
    assert refused.value.what.endswith(" and 16 more.")
    carried, unknown = (", ".join(names[first::2][:8]) for first in (1, 0))
    expected = (
        f"turn {carried} and 2 more into plain columns with transform=; cast {unknown} and 2 more with transform="
    )
    assert refused.value.remedy == expected


# ---- beyond the calendar of Python


DAY = 86_400_000_000
BEYOND = pa.table(
    {
        "id": pa.array([1, 2, 3]),
        "at": pa.array([2_932_897 * DAY, 0, -719_163 * DAY], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "local": pa.array([2_932_897 * DAY, 0, -719_163 * DAY], pa.int64()).cast(pa.timestamp("us")),
        "day": pa.array([2_932_897, 0, -719_163], pa.int32()).cast(pa.date32()),
    }
)


class Staged(ArrowBatch):
    """A batch that lies in a file already."""

    def __init__(self, table: pa.Table, folder: Path) -> None:
        super().__init__(table)
        folder.mkdir(exist_ok=True)
        self.paths = [folder / "staged.parquet"]
        pq.write_table(table, self.paths[0])


@pytest.mark.parametrize("way", ["driver", "executors", "adopted"])
@pytest.mark.parametrize("partition_by", [(), ("id",)], ids=["plain", "partitioned"])
def test_times_beyond_the_year_9999_and_before_the_first_are_kept(
    tmp_path: Path, way: str, partition_by: tuple[str, ...]
) -> None:
    harness = DeltaHarness(tmp_path, driver_limit=DRIVER if way == "driver" else EXECUTORS, partition_by=partition_by)
    with Scenario(harness) as story:
        driver = story.driver()
        for _ in range(2):
            planned = driver.plan(rows=3)
            batch = Staged(BEYOND, tmp_path / "staged") if way == "adopted" else ArrowBatch(BEYOND)
            driver.commits(planned, driver.sink.prepare(batch, planned.epoch.number))
    found = stored(harness.path, BEYOND.schema)
    assert found.equals(pa.concat_tables([BEYOND, BEYOND]).sort_by("id").combine_chunks())


def stored(path: Path, schema: pa.Schema) -> pa.Table:
    """Rows of a table, out of its files: the readers of Python stumble over such bounds in a log."""
    rows = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t"))
    return rows.select(schema.names).cast(schema).sort_by("id").combine_chunks()


def test_a_day_beyond_the_calendar_cannot_be_a_partition(tmp_path: Path) -> None:
    with Scenario(DeltaHarness(tmp_path, driver_limit=EXECUTORS, partition_by="day")) as story:
        driver = story.driver()
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(ArrowBatch(BEYOND), 1)
        assert refused.value.code == "E503"
        assert "column day" in str(refused.value)
        assert not list((tmp_path / "rows").glob("*.parquet"))


# ---- CHAR(n) and VARCHAR(n)


TEXT = PrimitiveType("string")
LIMITED = [
    Field("id", PrimitiveType("long")),
    Field("code", TEXT, metadata={METADATA_KEY: "char(3)"}),
    Field("name", TEXT, metadata={METADATA_KEY: "varchar(3)"}),
    Field(
        "deep",
        StructType([Field("x", TEXT), Field("many", ArrayType(TEXT, contains_null=True))]),
        metadata={METADATA_KEY: "struct<x:string,many:array<varchar(2)>>"},
    ),
    Field("pairs", MapType(TEXT, TEXT), metadata={METADATA_KEY: "map<varchar(2),char(2)>"}),
]
FITS = {"id": 1, "code": "äöü", "name": "abc", "deep": {"x": "no limit", "many": ["ab", None]}, "pairs": [("k", "v")]}
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("code", pa.string()),
        ("name", pa.string()),
        ("deep", pa.struct([("x", pa.string()), ("many", pa.list_(pa.string()))])),
        ("pairs", pa.map_(pa.string(), pa.string())),
    ]
)


@pytest.mark.parametrize("way", ["driver", "executors", "adopted", "merge"])
@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"code": "abc "}, "code"),
        ({"name": "too long"}, "name"),
        ({"deep": {"x": "", "many": ["ab", "abc"]}}, "deep"),
        ({"pairs": [("key", "v")]}, "pairs"),
        ({"pairs": [("k", "v"), ("l", "value")]}, "pairs"),
    ],
    ids=str,
)
def test_a_text_longer_than_its_column_is_refused_on_every_path(
    tmp_path: Path, way: str, change: dict[str, Any], column: str
) -> None:
    options = {"key": "id"} if way == "merge" else {}
    harness = DeltaHarness(tmp_path, driver_limit=EXECUTORS if way in ("executors", "adopted") else DRIVER, **options)
    DeltaTable.create(harness.path, Schema(LIMITED))
    with Scenario(harness) as story:
        driver = story.driver()
        nothing = dict.fromkeys(ROWS.names, None) | {"id": 2}
        wrong = pa.Table.from_pylist([FITS, nothing, {**FITS, "id": 3, **change}], ROWS)
        for rows in (wrong, pa.Table.from_pylist([FITS, nothing], ROWS)):
            planned = driver.plan(rows=rows.num_rows)
            batch = Staged(rows, tmp_path / "staged") if way == "adopted" else ArrowBatch(rows)
            if rows is wrong:
                with pytest.raises(DestinationError) as refused:
                    driver.sink.prepare(batch, planned.epoch.number)
                assert refused.value.code == "E503"
                assert f"column {column}" in str(refused.value)
                assert "char(" in str(refused.value)
                assert not list(harness.path.glob("*.parquet"))
            else:
                driver.commits(planned, driver.sink.prepare(batch, planned.epoch.number))
        assert len(harness.rows()) == 2


def test_texts_that_a_merge_computes_are_left_to_sparks_writer(tmp_path: Path) -> None:
    """deltalake does not look at them, and this process sees only what they are made of."""
    merge = Merge("t.id = s.id").when_matched_update(None, {"name": "s.name || t.name"}).when_not_matched_insert()
    harness = DeltaHarness(tmp_path, merge=merge)
    DeltaTable.create(harness.path, Schema(LIMITED))
    with Scenario(harness) as story, pytest.raises(ConfigurationError, match="a CHAR or VARCHAR") as refused:
        story.driver().sink.prepare(ArrowBatch(pa.Table.from_pylist([FITS], ROWS)), 1)
    assert refused.value.code == "E110"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("string", None),
        ("varchar(3)", ("varchar(3)", 3)),
        ("array<string>", None),
        ("struct<a:decimal(10,2),b:map<string,char(4)>>", ("struct", ((1, ("map", ((1, ("char(4)", 4)),))),))),
        ("struct<`a:<b`:varchar(1)>", ("struct", ((0, ("varchar(1)", 1)),))),
    ],
)
def test_limits_are_read_from_types_as_spark_spells_them(text: str, limit: Any) -> None:
    assert parse(text) == limit


@pytest.mark.parametrize("text", ["", "struct<a varchar(3)>", "array<varchar(3)", "varchar(3)>"])
def test_what_is_spelled_otherwise_is_not_guessed(text: str) -> None:
    with pytest.raises(Unread):
        parse(text)
