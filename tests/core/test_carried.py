"""Types that Arrow carries in the form of another: named for what they are, however deep they lie."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.testing.objects import ExamplePointUDT

from onceonly.spark import frames
from onceonly.spark.frames import stands_for

VARIANT, POINT = t.VariantType(), ExamplePointUDT()


class Frame:
    """What ``arrow_schema`` asks of a DataFrame."""

    def __init__(self, kind: t.DataType) -> None:
        self.schema = t.StructType([t.StructField("x", t.LongType()), t.StructField("y", kind)])


def told(kind: t.DataType) -> str | None:
    schema = frames.arrow_schema(Frame(kind))  # type: ignore[arg-type]
    assert stands_for(schema.field("x")) is None
    return stands_for(schema.field("y"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (VARIANT, "VARIANT"),
        (t.ArrayType(VARIANT), "VARIANT"),
        (t.MapType(t.StringType(), t.StructType([t.StructField("a", VARIANT)])), "VARIANT"),
        (t.GeometryType(4326), "GEOMETRY"),
        (t.GeographyType(4326), "GEOGRAPHY"),
        (POINT, "the user-defined type ExamplePointUDT"),
        (t.StructType([t.StructField("a", t.ArrayType(POINT))]), "the user-defined type ExamplePointUDT"),
        (t.MapType(t.StringType(), POINT), "the user-defined type ExamplePointUDT"),
        (t.YearMonthIntervalType(), "interval year to month"),
        (t.CalendarIntervalType(), "interval"),
    ],
    ids=str,
)
def test_a_type_that_arrow_lacks_is_named(kind: t.DataType, name: str) -> None:
    assert told(kind) == name


@pytest.mark.parametrize(
    "kind",
    [
        t.StructType([t.StructField("value", t.BinaryType()), t.StructField("metadata", t.BinaryType())]),
        t.StructType([t.StructField("srid", t.IntegerType()), t.StructField("wkb", t.BinaryType())]),
        t.ArrayType(t.DoubleType()),
        t.MapType(t.StringType(), t.ArrayType(t.DecimalType(38, 10))),
        t.DayTimeIntervalType(),
        t.StringType(),
    ],
    ids=str,
)
def test_a_struct_that_only_looks_like_one_is_what_it_is(kind: t.DataType) -> None:
    assert told(kind) is None


@pytest.mark.parametrize("kind", [pa.uuid(), pa.json_(), pa.list_(pa.bool8()), pa.struct([("a", pa.uuid())])], ids=str)
def test_an_extension_of_arrow_is_named(kind: Any) -> None:
    assert "an Arrow extension" in (stands_for(pa.field("x", kind)) or "")
