"""Which columns hang on floats that were added up, on plans as Spark spells them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceonly import lineage

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
    return lineage.loose(lineage.parse(json.dumps(plan)), lineage.parse(json.dumps(top)))


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
    assert lineage.loose(lineage.parse(json.dumps(plan)), lineage.parse(json.dumps(top))) == {"b"}


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
    plan = lineage.parse(json.dumps(node("Project", SOURCE, projectList=[alias("a", 8, inner)])))
    assert lineage.functions(plan, plan) == ("half", "twice")


@pytest.mark.parametrize("text", ["[]", "{}", "null"])
def test_what_is_no_plan_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a tree"):
        lineage.parse(text)
