"""What destinations demand of values: Spark judges a value as Python does."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from tests.demands import SAMPLES, Sample, aware
from tests.sinks.sqlite_harness import RuledSQLiteSink, WholeSQLiteHarness

from onceonly.protocol.row_rules import Condition, Digits, Rule
from onceonly.quality import spark_row_rules
from onceonly.spark import detect, frames
from onceonly_lab.conformance import SinkHarness, check, spark_conditions
from onceonly_lab.conformance.claims_rules import rows_that_the_destination_takes_meet_every_condition as meet
from onceonly_lab.conformance.harness import claims_of


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


ROWS = pa.table({"id": [1, 2, 3], "note": ["a", None, "b"]})
ANSWERS = {
    "note <> 'b'": [True, False, False],
    "id > 1": [False, True, True],
    "false": [False, False, False],
    "price > 1": None,
    "unheard_of(id)": None,
}
"""By condition: whether each row meets it. None: it is on a column, or calls a function, that is not there."""

_OWN_SESSION = """
import json, pyarrow as pa
from onceonly.protocol.row_rules import Condition
from onceonly_lab.conformance import spark_conditions
rows = pa.table({"id": [1, 2]})
print(json.dumps([spark_conditions.evaluate([Condition("few", "id < 2")], rows) for _ in range(2)]))
"""


@pytest.mark.spark
def test_the_conformance_suite_evaluates_conditions_as_a_query_does(spark: Any) -> None:
    conditions = [Condition(sql, sql) for sql in ANSWERS]
    assert spark_conditions.evaluate(conditions, ROWS) == list(ANSWERS.values())
    assert spark.range(1).count() == 1, "the session of others still runs"


@pytest.mark.spark
def test_the_conformance_suite_starts_spark_where_no_session_runs() -> None:
    ended = subprocess.run([sys.executable, "-c", _OWN_SESSION], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout.splitlines()[-1]) == [[[True, False]], [[True, False]]]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "evidence"),
    [
        ("true", ""),
        ("false", "The constraint more withholds a row that the destination takes"),
        ("id + 1", "cannot be evaluated"),
        ("CAST(raise_error('no') AS BOOLEAN)", "cannot be evaluated"),
    ],
)
def test_a_condition_that_withholds_rows_or_stops_a_query_breaks_a_claim(sql: str, evidence: str, spark: Any) -> None:
    class Sink(RuledSQLiteSink):
        more = (Condition("more", sql),)

    class Harness(WholeSQLiteHarness):
        evaluate = SinkHarness.evaluate

    report = check(lambda: Harness(Sink), claims_of(meet))
    assert report.conforms is not bool(evidence), report
    assert evidence in str(report)
