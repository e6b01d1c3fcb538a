"""Columns of a batch are taken as Delta's own sink takes them, on every path; what would lose something is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import ArrayType, PrimitiveType, StructType
from tests.sinks.delta_harness import DeltaHarness

from onceonly.errors import DestinationError
from onceonly.protocol.batch import ArrowBatch
from onceonly_lab.conformance.scenario import Scenario
from onceonly_sinks.delta import DeltaTuning
from onceonly_sinks.delta.columns import Column
from onceonly_sinks.delta.ladder import ChangePolicy
from onceonly_sinks.delta.merge import Upsert
from onceonly_sinks.delta.planning import Planner, Settings
from onceonly_sinks.delta.schema_compatibility import differences, holds, paired
from onceonly_sinks.delta.table import Table

DRIVER, EXECUTORS = 1 << 30, 0
WAYS: dict[str, dict[str, Any]] = {
    "driver": {"tuning": DeltaTuning(driver_limit=DRIVER)},
    "executors": {"tuning": DeltaTuning(driver_limit=EXECUTORS)},
    "partitioned": {"tuning": DeltaTuning(driver_limit=EXECUTORS), "partition_by": "id"},
    "merge": {"tuning": DeltaTuning(driver_limit=DRIVER), "key": "id"},
    "merge, capital key": {"tuning": DeltaTuning(driver_limit=DRIVER), "key": "ID"},
    "adding columns": {"tuning": DeltaTuning(driver_limit=DRIVER), "schema": "add_columns"},
}

WIDE = Schema(
    [
        Field("id", PrimitiveType("long")),
        Field("small", PrimitiveType("integer")),
        Field("real", PrimitiveType("double")),
        Field("exact", PrimitiveType("decimal(20,2)")),
        Field("deep", StructType([Field("x", ArrayType(PrimitiveType("long"), contains_null=True))])),
        Field("later", PrimitiveType("string")),
    ]
)

TOLERATED = {
    "names by case": (
        {"Id": pa.array([1, 2], pa.int64()), "SMALL": pa.array([3, None], pa.int32())},
        [{"id": 1, "small": 3}, {"id": 2, "small": None}],
    ),
    "a missing column": ({"id": pa.array([1, 2], pa.int64())}, [{"id": 1, "later": None}, {"id": 2, "small": None}]),
    "narrower numbers": (
        {
            "id": pa.array([1, 2], pa.int16()),
            "small": pa.array([-128, 127], pa.int8()),
            "real": pa.array([0.5, None], pa.float32()),
        },
        [{"id": 1, "small": -128, "real": 0.5}, {"id": 2, "small": 127, "real": None}],
    ),
    "numbers to a decimal, and in depth": (
        {
            "id": pa.array([1, 2], pa.int32()),
            "real": pa.array([-(2**31), 2**31 - 1], pa.int32()),
            "exact": pa.array([2**31 - 1, -1], pa.int32()),
            "deep": pa.array([{"x": [1, None]}, None], pa.struct([("x", pa.list_(pa.int8()))])),
        },
        [
            {"id": 1, "real": -(2.0**31), "exact": 2**31 - 1, "deep": {"x": [1, None]}},
            {"id": 2, "real": 2.0**31 - 1, "exact": -1, "deep": None},
        ],
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tolerance", TOLERATED)
def test_what_loses_nothing_is_taken_on_every_path(tmp_path: Path, way: str, tolerance: str) -> None:
    columns, expected = TOLERATED[tolerance]
    options = WAYS[way]
    if way == "merge, capital key":
        columns = {"ID" if name.lower() == "id" else name: values for name, values in columns.items()}
    elif "key" in options and "Id" in columns:
        options = options | {"key": "Id"}
    harness = DeltaHarness(tmp_path, **options)
    DeltaTable.create(harness.path, WIDE, partition_by=["id"] if "partition_by" in options else None)
    before = DeltaTable(harness.path).schema().to_json()
    with Scenario(harness) as story:
        driver = story.driver()
        for times in (1, 2):
            planned = driver.plan(rows=2)
            driver.commits(planned, driver.sink.prepare(ArrowBatch(pa.table(columns)), planned.epoch.number))
            found = sorted(harness.rows(), key=lambda row: row["id"])
            copies = 1 if "key" in options else times
            wanted = [row for row in expected for _ in range(copies)]
            assert [{name: row[name] for name in one} for row, one in zip(found, wanted, strict=True)] == wanted
    assert DeltaTable(harness.path).schema().to_json() == before


def test_a_merge_leaves_what_the_batch_lacks_as_it_stands(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path, key="id")
    with Scenario(harness) as story:
        driver = story.driver()
        for rows in ({"id": [1], "note": ["kept"], "n": [1]}, {"id": [1, 2], "n": [2, 2]}):
            planned = driver.plan(rows=len(rows["id"]))
            driver.commits(planned, driver.sink.prepare(ArrowBatch(pa.table(rows)), planned.epoch.number))
    found = sorted((row["id"], row["note"], row["n"]) for row in harness.rows())
    assert found == [(1, "kept", 2), (2, None, 2)]


NARROWING = [
    ("byte", pa.array([1], pa.int16())),
    ("short", pa.array([1], pa.int32())),
    ("integer", pa.array([1], pa.int64())),
    ("long", pa.array([1.5], pa.float64())),
    ("long", pa.array([1], pa.float32())),
    ("float", pa.array([1.5], pa.float64())),
    ("double", pa.array([1], pa.int64())),
    ("decimal(18,0)", pa.array([1], pa.int64())),
    ("decimal(10,1)", pa.array([1], pa.decimal128(10, 2))),
    ("decimal(12,2)", pa.array([1], pa.decimal128(12, 1))),
    ("long", pa.array([1], pa.decimal128(5, 0))),
    ("long", pa.array(["1"])),
    ("timestamp", pa.array([1], pa.int32()).cast(pa.date32())),
    ("date", pa.array([1], pa.timestamp("us", "UTC"))),
    ("string", pa.array([1], pa.int64())),
]


@pytest.mark.parametrize("way", ["driver", "executors", "merge"])
@pytest.mark.parametrize(("kind", "values"), NARROWING, ids=str)
def test_what_may_lose_something_is_refused_on_every_path(
    tmp_path: Path, way: str, kind: str, values: pa.Array[Any]
) -> None:
    harness = DeltaHarness(tmp_path, **WAYS[way])
    DeltaTable.create(harness.path, Schema([Field("id", PrimitiveType("long")), Field("x", PrimitiveType(kind))]))
    with Scenario(harness) as story:
        driver = story.driver()
        with pytest.raises(DestinationError) as refused:
            driver.sink.prepare(ArrowBatch(pa.table({"id": [1], "x": values})), 1)
        assert refused.value.code == "E506"
        assert "x is " in str(refused.value)
    assert harness.rows() == []


def test_a_column_that_may_not_be_null_is_missed(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    columns = [Field("id", PrimitiveType("long")), Field("x", PrimitiveType("long"), nullable=False)]
    DeltaTable.create(harness.path, Schema(columns))
    with Scenario(harness) as story, pytest.raises(DestinationError, match="x is missing"):
        story.driver().sink.prepare(ArrowBatch(pa.table({"id": [1]})), 1)


def test_a_column_that_others_add_stops_nothing(tmp_path: Path) -> None:
    harness = DeltaHarness(tmp_path)
    with Scenario(harness) as story:
        driver = story.driver()
        driver.writes()
        DeltaTable(harness.path).alter.add_columns([Field("later", PrimitiveType("string"))])
        driver.writes()
        story.driver().writes()
    assert {row["later"] for row in harness.rows()} == {None}


FILLED = {
    "default": Field("x", PrimitiveType("integer"), nullable=False, metadata={"CURRENT_DEFAULT": "7"}),
    "generated": Field("x", PrimitiveType("long"), metadata={"delta.generationExpression": "id / 2"}),
}
SETTINGS = Settings(Upsert(), None, None, "auto", DRIVER, (), grows=False, foreign=ChangePolicy.APPENDS)


def test_a_column_that_the_table_fills_is_left_to_it(tmp_path: Path) -> None:
    """And not filled up with nulls; what an expression gives, only Spark says."""
    found = {}
    for name, filled in FILLED.items():
        DeltaTable.create(tmp_path / name, Schema([Field("id", PrimitiveType("long")), filled]))
        table = Table("delta:rows", str(tmp_path / name), "app", None)
        table.reopen()
        plan = Planner(table, SETTINGS, lambda: None).plan(ArrowBatch(pa.table({"id": [1]})), 1, 1)
        found[name] = (plan.shape.schema.names, plan.choice.log_refuses)
    assert found == {"default": (["id"], None), "generated": (["id"], "generated column x")}


def test_an_identity_that_is_always_generated_takes_no_value() -> None:
    told = []
    for explicit in (False, True):
        metadata = {"delta.identity.start": 1, "delta.identity.allowExplicitInsert": explicit}
        number = Column("number", '"long"', nullable=True, metadata=metadata)
        assert differences([number], [], {}) == []
        told += differences([number], [column("number")], {"number": "number"})
    assert told == ["number is GENERATED ALWAYS AS IDENTITY in the table, and takes no value of the batch"]


MAP = {"type": "map"}


def column(name: str) -> Column:
    return Column(name, '"long"', nullable=True, metadata={})


def test_a_name_that_fits_exactly_goes_before_one_that_differs_in_case() -> None:
    assert paired([column("id")], ["ID", "id"]) == {"id": "id"}
    assert paired([column("id")], ["ID", "iD"]) == {}
    assert paired([column("id"), column("n")], ["N", "ID"]) == {"N": "n", "ID": "id"}


@pytest.mark.parametrize(
    ("wide", "narrow", "does"),
    [
        ("decimal(19,0)", "long", True),
        ("decimal(20,2)", "long", False),
        ("decimal(3,0)", "byte", True),
        ("decimal(38,18)", "decimal(20,2)", True),
        ("double", "integer", True),
        ("float", "short", False),
        ("timestamp", "timestamp_ntz", False),
        (MAP | {"keyType": "long", "valueType": "double"}, MAP | {"keyType": "byte", "valueType": "float"}, True),
        ({"type": "array", "elementType": "integer"}, {"type": "array", "elementType": "long"}, False),
        ({"type": "array", "elementType": "integer"}, "integer", False),
    ],
    ids=str,
)
def test_a_type_holds_another_if_it_holds_all_its_values(wide: Any, narrow: Any, does: bool) -> None:
    assert holds(wide, narrow) is does
