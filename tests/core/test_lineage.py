"""Which columns hang on floats that were added up, on plans as Spark spells them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from onceonly.spark import float_lineage

Tree = list[dict[str, Any]]


def node(kind: str, *children: Tree, **fields: Any) -> Tree:
    below = [each for child in children for each in child]
    return [{"class": f"org.apache.spark.{kind}", "num-children": len(children), **fields}, *below]


def column(name: str, id_: int, kind: Any = "double") -> Tree:
    return node("AttributeReference", name=name, dataType=kind, exprId={"id": id_})


def alias(name: str, id_: int, value: Tree) -> Tree:
    return node("Alias", value, name=name, exprId={"id": id_})


def aggregate(function: str, *of: Tree, **fields: Any) -> Tree:
    return node("AggregateExpression", node(f"aggregate.{function}", *of, **fields))


def cast(value: Tree, kind: Any) -> Tree:
    return node("Cast", value, dataType=kind)


SOURCE = node(
    "StreamingExecutionRelation", output=[column("x", 1), column("n", 2, "long"), column("price", 3, "decimal(9,2)")]
)
X, N, PRICE = column("x", 1), column("n", 2, "long"), column("price", 3, "decimal(9,2)")
RECORD = column(
    "record", 4, {"type": "struct", "fields": [{"name": "a", "type": "double"}, {"name": "b", "type": "long"}]}
)


def loose(plan: Tree, *handed: Tree, written: list[Tree] | None = None) -> frozenset[str] | None:
    """Of a plan that hands these columns out, which are written as they are unless it is said how."""
    leaf = node("LogicalRDD", output=list(handed))
    top = node("Project", leaf, projectList=written or list(handed))
    return float_lineage.loose(float_lineage.parse(json.dumps(plan)), float_lineage.parse(json.dumps(top)))


def grouped(value: Tree) -> Tree:
    return node("Aggregate", SOURCE, groupingExpressions=[], aggregateExpressions=[alias("it", 9, value)])


@pytest.mark.parametrize(
    ("value", "hangs"),
    [
        (aggregate("Sum", X), True),
        (aggregate("Sum", N), False),
        (aggregate("Sum", cast(X, "long")), False),
        (aggregate("Sum", cast(N, "double")), True),
        (aggregate("Sum", PRICE), False),
        (aggregate("Average", N), True),
        (aggregate("Average", PRICE), False),
        (aggregate("Max", X), False),
        (aggregate("Count", X), False),
        (aggregate("Sum", node("If", node("GreaterThan", X, X), N, N)), False),
        (aggregate("Sum", node("GetStructField", RECORD, ordinal=0)), True),
        (aggregate("Sum", node("GetStructField", RECORD, ordinal=1)), False),
        (cast(node("Round", aggregate("Sum", X)), "integer"), True),
        (aggregate("PythonUDAF", N, dataType={"type": "array", "elementType": "double"}), True),
        (aggregate("PythonUDAF", N, dataType="long"), False),
        (X, False),
    ],
)
def test_an_aggregate_hangs_on_order_where_it_adds_floats(value: Tree, hangs: bool) -> None:
    assert loose(grouped(value), column("it", 9)) == ({"it"} if hangs else set())


def test_columns_are_followed_through_unions_by_their_place() -> None:
    one = node("Project", SOURCE, projectList=[X, N])
    other = node("Project", grouped(aggregate("Sum", X)), projectList=[column("it", 9), N])
    assert loose(node("Union", one, other), X, N) == {"x"}


def test_columns_of_a_join_of_the_batch_with_itself_are_followed_by_their_place() -> None:
    plan = grouped(aggregate("Sum", X))
    again = node("LogicalRDD", output=[column("it", 70), column("n", 71, "long")])
    first = node("LogicalRDD", output=[column("it", 9), N])
    top = node(
        "Project", node("Join", first, again), projectList=[N, alias("b", 80, column("it", 70)), column("n", 71)]
    )
    plan = node("Project", plan, projectList=[column("it", 9), N])
    assert float_lineage.loose(float_lineage.parse(json.dumps(plan)), float_lineage.parse(json.dumps(top))) == {"b"}


def test_floats_of_a_function_over_several_rows_hang_on_order() -> None:
    made = [column("total", 5), column("n", 6, "long"), column("list", 7, {"type": "array", "elementType": "float"})]
    plan = node("TransformWithStateInPySpark", SOURCE, outputAttrs=made)
    assert loose(plan, *made) == {"total", "list"}


def test_what_a_function_makes_of_columns_that_hang_on_order_does_so_too() -> None:
    made = column("word", 5, "string")
    plan = node("MapInPandas", grouped(aggregate("Sum", X)), output=[made])
    assert loose(plan, made) == {"word"}


def test_columns_that_cannot_be_followed_are_said_to_be_so() -> None:
    assert loose(grouped(aggregate("Sum", X)), column("elsewhere", 4711)) is None


def test_names_of_the_users_own_functions_are_found_at_any_depth() -> None:
    inner = node("Add", node("PythonUDF", X, name="half"), node("ScalaUDF", N, udfName="twice"))
    plan = float_lineage.parse(json.dumps(node("Project", SOURCE, projectList=[alias("a", 8, inner)])))
    assert float_lineage.functions(plan, plan) == ("half", "twice")


@pytest.mark.parametrize("text", ["[]", "{}", "null"])
def test_what_is_no_plan_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a tree"):
        float_lineage.parse(text)


def chained(depth: int) -> Tree:
    """An expression in which as many are nested, over a function that keeps objects."""
    value = aggregate("Sum", X)
    for _ in range(depth):
        value = node("Add", value, N)
    made = [column("state", 5, {"type": "object"}), column("n", 6, "long")]
    state = node("FlatMapGroupsWithState", SOURCE, outputAttrs=made)
    return node("Aggregate", state, groupingExpressions=[], aggregateExpressions=[alias("it", 9, value)])


def filtered(depth: int) -> Tree:
    """A plan of as many nodes that hand on what is below them."""
    plan = grouped(aggregate("Sum", X))
    for _ in range(depth):
        plan = node("Filter", plan, condition=node("GreaterThan", N, N))
    return plan


def asked(depth: int) -> Tree:
    """Subqueries within subqueries."""
    plan = grouped(aggregate("Sum", X))
    for at in range(depth):
        query = node("ScalarSubquery", plan=plan, dataType="double")
        plan = node("Project", SOURCE, projectList=[alias("it", 9, alias(f"a{at}", 100 + at, query))])
    return plan


def visits(plan: Tree) -> int:
    """How often functions of the module were entered, or entered again, to follow a plan."""
    entered = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call" and frame.f_code.co_filename == float_lineage.__file__

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert loose(plan, column("it", 9)) == {"it"}
    finally:
        sys.setprofile(before)
    return entered


@pytest.mark.parametrize(("plan", "depth"), [(chained, 80), (filtered, 80), (asked, 4)])
def test_the_work_grows_with_the_plan_and_not_with_its_square(plan: Callable[[int], Tree], depth: int) -> None:
    few, more, most = (visits(plan(times * depth)) for times in (1, 2, 3))
    assert most - more <= 1.1 * (more - few)


def test_a_plan_is_followed_however_many_expressions_are_nested() -> None:
    assert loose(chained(5000), column("it", 9)) == {"it"}
    assert loose(filtered(5000), column("it", 9)) == {"it"}
