"""What destinations demand of values: Spark judges a value as Python does."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.demands import SAMPLES, Sample, aware

from onceonly.protocol.demands import Digits, Rule
from onceonly.spark import choose, demands, frames


@pytest.mark.spark
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=[*SAMPLES])
@pytest.mark.parametrize("each", [False, True], ids=["value", "elements"])
def test_spark_judges_a_value_as_python_does(spark: Any, sample: Sample, each: bool) -> None:
    if not demands.judges(sample.demand):
        assert (choose.line().minor, type(sample.demand)) == ("3.5", Digits)
        return
    values = [aware(sample.kind, one) for one in sample.values(20)]
    rule = Rule("c d", sample.demand, each)
    drawn = random.Random(7)
    held = [drawn.choice([None, [], [one], [values[-1], one]]) for one in values] if each else values
    kind = pa.list_(sample.kind) if each else sample.kind
    table = pa.table({"c d": pa.array(held, kind), "at": [*range(len(held))]})
    rows = frames.of_arrow(spark, table)
    column = rows["`c d`"]
    judged = rows.select("at", demands.met(rule, column, rows.schema["c d"].dataType).alias("met"))
    found = [row["met"] for row in judged.orderBy("at").collect()]
    wanted = [rule.met(one) for one in held]
    assert found == wanted, [(one, met) for one, met, said in zip(held, found, wanted, strict=True) if met != said][:5]
    assert {True, False} == set(wanted), "values of one kind prove nothing"
