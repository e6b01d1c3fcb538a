"""What destinations demand of values: Spark judges a value as Python does."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.demands import SAMPLES, Sample, aware

from onceonly.protocol.row_rules import Digits, Rule
from onceonly.quality import spark_row_rules
from onceonly.spark import detect, frames


def held(sample: Sample, each: bool) -> list[Any]:
    """The values of a sample; with ``each`` as elements of lists, of which some are empty and some are not there."""
    values = [aware(sample.kind, one) for one in sample.values(20)]
    drawn = random.Random(7)
    return [drawn.choice([None, [], [value], [values[-1], value]]) for value in values] if each else values


@pytest.mark.spark
def test_spark_judges_each_value_and_each_element_as_python_does(spark: Any) -> None:
    """All demands beside each other, each over a column of its own: one table and one job."""
    left_out = {name for name, sample in SAMPLES.items() if not spark_row_rules.judges(sample.demand)}
    assert {type(SAMPLES[name].demand) for name in left_out} == ({Digits} if detect.line().minor == "3.5" else set())
    cases = {
        f"{name}, {'elements' if each else 'value'}": (sample, each, held(sample, each))
        for name, sample in SAMPLES.items()
        for each in (False, True)
        if name not in left_out
    }
    longest = max(len(values) for _, _, values in cases.values())
    columns = {
        case: pa.array(values + [None] * (longest - len(values)), pa.list_(sample.kind) if each else sample.kind)
        for case, (sample, each, values) in cases.items()
    }
    rows = frames.of_arrow(spark, pa.table({**columns, "at": [*range(longest)]}))
    rules = {case: Rule(case, sample.demand, each) for case, (sample, each, _) in cases.items()}
    judged = rows.select(
        "at",
        *(
            spark_row_rules.satisfied(rule, rows[f"`{case}`"], rows.schema[case].dataType).alias(case)
            for case, rule in rules.items()
        ),
    )
    found = judged.orderBy("at").collect()
    wrong = {}
    for case, (_, _, values) in cases.items():
        wanted = [rules[case].met(one) for one in values]
        assert {True, False} == set(wanted), f"{case}: values of one kind prove nothing"
        pairs = zip(values, wanted, (row[case] for row in found), strict=False)
        if differing := [(value, met, said) for value, met, said in pairs if met != said]:
            wrong[case] = differing[:5]
    assert wrong == {}, "by case: value, what Python says, what Spark says"
