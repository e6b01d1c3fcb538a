"""A fingerprint is that of the code: another start spells it alike, and a change of what it computes does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from tests.core.test_lineage import Tree, alias, node

from onceonly.spark import fingerprint, float_lineage
from onceonly.spark.fingerprint import describe

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("plan-format-1.json").read_text())


def column(name: str, id_: int, jvm: str = "here") -> Tree:
    return node("AttributeReference", name=name, dataType="long", exprId={"id": id_, "jvmId": jvm})


def plan(
    *, literal: str = "1", first: int = 1, jvm: str = "here", place: str = "/in", top: str = "Filter", delay: str = ""
) -> str:
    relation = node("StreamingExecutionRelation", output=[column("x", first, jvm)], source=place)
    above = node(
        "GreaterThan", column("x", first, jvm), node("Literal", value=literal, dataType="long"), left=0, right=1
    )
    written = node("WriteToMicroBatchDataSourceV1", node(top, relation, condition=above, child=0), queryId=jvm, query=0)
    return fingerprint.spell(float_lineage.parse(json.dumps(written)), delays=[delay] if delay else [])


def test_what_another_start_has_otherwise_is_left_out() -> None:
    assert plan() == plan(first=7, jvm="there", place="/moved")


@pytest.mark.parametrize("change", [{"literal": "2"}, {"top": "Other"}, {"delay": "1 minutes"}])
def test_a_change_of_what_is_computed_is_seen(change: dict[str, Any]) -> None:
    assert plan() != plan(**change)


def test_a_column_has_one_number_wherever_it_is_named() -> None:
    assert plan().splitlines() == [
        "Filter",
        "  condition: GreaterThan",
        "    AttributeReference exprId=#0 name=x",
        "    Literal dataType=long value=1",
        "  relation",
        "    column: AttributeReference dataType=long exprId=#0 name=x",
    ]


def test_a_seed_that_spark_draws_is_left_out() -> None:
    drawn = [
        fingerprint.spell(float_lineage.parse(json.dumps(alias("r", 1, node("Rand", node("Literal", value=seed))))))
        for seed in ("17", "18")
    ]
    assert drawn[0] == drawn[1]


def test_branches_are_told_as_children_and_not_among_fields() -> None:
    pair = {"product-class": "scala.Tuple2", "_1": column("x", 1, "here"), "_2": column("x", 1, "here")}
    case = node("CaseWhen", column("x", 1), column("x", 1), branches=[pair])
    assert "here" not in fingerprint.spell(float_lineage.parse(json.dumps(case)))


def test_a_plan_of_a_thousand_nodes_in_a_row_is_spelled() -> None:
    deep = node("Relation", output=[column("x", 1)])
    for _ in range(3000):
        deep = node("Project", deep)
    assert len(fingerprint.spell(float_lineage.parse(json.dumps(deep))).splitlines()) == 3002


def test_the_text_of_this_format_stays_what_it_was() -> None:
    """Who has to change the file beside this test raises ``fingerprint.FORMAT``, and records a file of the new one."""
    assert fingerprint.FORMAT == 1
    plans = [float_lineage.parse(json.dumps(one)) for one in RECORDED["plans"]]
    text = fingerprint.spell(*plans, delays=RECORDED["delays"])
    assert text.splitlines() == RECORDED["text"]
    assert fingerprint.fingerprint(text, "").plan == RECORDED["plan"]


# ---- Python functions.


def made(source: str, **globals_: Any) -> Any:
    """The function ``f`` of a module of this text."""
    space: dict[str, Any] = {"__name__": "jobs", **globals_}
    exec(compile(source, "jobs.py", "exec"), space)
    return space["f"]


ORIGINAL = "def f(df):\n    'What it does.'\n    return g(df, 5)\n\ndef g(df, n):\n    return n + 1\n"


@pytest.mark.parametrize(
    "source",
    [
        ORIGINAL.replace("5", "6"),
        ORIGINAL.replace("n + 1", "n + 2"),
        ORIGINAL.replace("n + 1", "n - 1"),
        ORIGINAL.replace("g(df, 5)", "g(df.where, 5)"),
        ORIGINAL.replace("g(df, 5)", "(lambda: g(df, 5))()"),
    ],
)
def test_a_body_that_changed_is_seen_in_what_is_called_as_well(source: str) -> None:
    assert describe(made(ORIGINAL)) != describe(made(source))


@pytest.mark.parametrize(
    "source",
    [
        "# moved down\n\n" + ORIGINAL,
        ORIGINAL.replace("What it does", "What else"),
        ORIGINAL + "\ndef unused():\n    return 7\n",
    ],
    ids=["lines", "docstring", "beside"],
)
def test_what_does_not_change_the_body_is_not_seen(source: str) -> None:
    assert describe(made(ORIGINAL)) == describe(made(source))


def closing(value: object) -> Callable[[object], object]:
    return lambda df: (df, value)


def test_plain_values_that_a_function_holds_count_and_objects_by_their_class() -> None:
    assert describe(closing(1)) != describe(closing(2))
    assert describe(closing({"b": 1, "a": {3, 2}})) == describe(closing({"a": {2, 3}, "b": 1}))
    assert describe(closing(Path("/one"))) == describe(closing(Path("/other")))
    assert describe(partial(closing, 1)) != describe(partial(closing, 2))


class Shaping:
    def __call__(self, df: object) -> object:
        return df


def test_an_object_that_is_called_goes_by_its_method() -> None:
    told = describe(Shaping()).splitlines()
    assert told[0] == "object of Shaping"
    assert told[1].startswith("function Shaping.__call__ ")


def test_our_own_functions_and_those_of_pyspark_go_by_their_name() -> None:
    own: FunctionType = describe  # type: ignore[assignment]
    assert describe(own) == "closed onceonly.spark.fingerprint.describe"


def test_what_cannot_be_looked_into_goes_by_name_and_distribution() -> None:
    import pyarrow as pa

    assert describe(len) == "closed builtins.len"
    assert describe(pa.array).startswith("closed pyarrow.lib.array")
