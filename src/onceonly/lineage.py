"""Which columns of a batch hang on floats that were added up: another order of the same rows gives them other values.

Read from the analysed plans as Spark spells them in JSON (``TreeNode.toJSON``): a call brings a whole plan, and all of
this is pure. A tree is a list of its nodes, each before its children, with ``num-children``; what hangs on a node
beside its children, expressions above all, are trees among the node's fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a plan or of an expression.

    Attributes:
        kind: simple name of its class.
        fields: what it says of itself.
        children: its children, in order.
    """

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Node, ...]

    @property
    def id(self) -> str | None:
        """Spark's id of the column that this expression names; ``None`` for all others."""
        found = self.fields.get("exprId")
        return str(found["id"]) if isinstance(found, Mapping) else None

    @property
    def type(self) -> Any:
        """The type that it states, as Spark spells types in JSON; ``None`` where it states none."""
        return self.fields.get("dataType")

    def hung(self, *names: str) -> Iterator[Node]:
        """Trees among the fields of these names; among all fields, if none is given."""
        for name in names or self.fields:
            yield from _trees(self.fields.get(name))

    def walk(self) -> Iterator[Node]:
        """This node and all below it, with what hangs on them."""
        yield self
        for below in (*self.children, *self.hung()):
            yield from below.walk()


def parse(text: str) -> Node:
    """A tree from Spark's JSON.

    Raises:
        ValueError: it is none.
    """
    found = next(_trees(json.loads(text)), None)
    if found is None:
        raise ValueError("not a tree")
    return found


def _trees(value: Any) -> Iterator[Node]:
    if not isinstance(value, list) or not value:
        return
    first = value[0]
    if isinstance(first, Mapping) and "num-children" in first:
        yield _tree(iter(value))
    else:
        for each in value:
            yield from _trees(each)


def _tree(nodes: Iterator[Mapping[str, Any]]) -> Node:
    fields = next(nodes)
    children = tuple(_tree(nodes) for _ in range(fields["num-children"]))
    return Node(str(fields["class"]).rsplit(".", 1)[-1].rsplit("$", 1)[-1], fields, children)


_EXACT = re.compile(
    "Min|Max|Count|CountIf|BoolAnd|BoolOr|BitAndAgg|BitOrAgg|BitXorAgg|HyperLogLogPlusPlus|MaxBy|MinBy|First|Last"
)
"""Aggregates that give one of their inputs back, or a whole number."""

_RATIOS = re.compile(
    "Average|Stddev.*|Variance.*|Skewness|Kurtosis|Corr|Cov.*|Regr.*|ApproximatePercentile|Percentile|HistogramNumeric"
)
"""Aggregates that compute in floats, whatever they are given; decimals are the exception."""

_WHOLE = re.compile(
    "EqualTo|EqualNullSafe|GreaterThan.*|LessThan.*|In|InSet|And|Or|Not|IsNull|IsNotNull|IsNaN|Floor|Ceil|Length|Size|"
    "Murmur3Hash|XxHash64"
)
"""Expressions whose value is no float, though their input may be one."""

_SEVERAL = ("Group", "State", "MapIn", "MapPartitions")
"""Parts of the names of nodes that hand several rows at once to a function of the user."""

_MADE = ("output", "outputAttrs", "outputAttributes", "outAttributes", "outputObjAttr", "resultAttrs")
"""Fields in which a node names columns of its own making."""

_OUTPUTS = ("projectList", "aggregateExpressions", "windowExpressions", "generatorOutput", "serializer", *_MADE)


def loose(stream: Node, written: Node) -> frozenset[str] | None:
    """Names of the written columns that another order of the same rows may change.

    Args:
        stream: the query's plan.
        written: the plan of what is written, over the rows that the query hands to its callback; a projection.

    Returns:
        The names; ``None`` where rows do not come from the query's plan in a way that can be followed.
    """
    found = _Loose()
    found.add(stream)
    known = {node.id for node in stream.walk() if node.id}
    handed = [[column.id for column in leaf.hung("output")] for leaf in _leaves(written)]
    ours = [ids for ids in handed if ids and set(ids) <= known]
    if not ours:
        return None
    # A join of the batch with itself gives one of its sides new ids.
    for ids in handed:
        if len(ids) == len(ours[0]):
            found.columns.update(new for new, old in zip(ids, ours[0], strict=True) if old in found.columns and new)
    found.add(written)
    return frozenset(str(column.fields["name"]) for column in written.hung("projectList") if column.id in found.columns)


def _leaves(plan: Node) -> Iterator[Node]:
    return (node for node in plan.walk() if node.kind == "LogicalRDD")


class _Loose:
    """Ids of columns that hang on the order of rows, collected from the sources upwards."""

    def __init__(self) -> None:
        self.columns: set[str] = set()
        self._objects: set[str] = set()
        """Objects that a user's function made of several rows: floats taken out of them are loose."""

    def add(self, plan: Node) -> None:
        for child in plan.children:
            self.add(child)
        for hung in plan.hung():
            for node in hung.walk():
                if node.kind == "Alias" and node.id and self._hangs(node):
                    self.columns.add(node.id)
        if plan.kind == "Union":
            self._add_union(plan)
        elif plan.kind == "Generate":
            self._add_all(plan.hung("generatorOutput"), any(map(self._hangs, plan.hung("generator"))))
        elif plan.children and plan.kind != "Project":
            self._add_made(plan)

    def _add_union(self, plan: Node) -> None:
        outputs = [output(child) for child in plan.children]
        for columns in zip(*outputs, strict=False):
            if any(column in self.columns for column in columns):
                self.columns.add(columns[0])

    def _add_made(self, plan: Node) -> None:
        """Columns that a node makes in a way of its own: by a function of the user, or by several projections."""
        made = [node for node in plan.hung(*_MADE) if node.id]
        given = {column for child in plan.children for column in output(child)}
        new = [node for node in made if node.id not in given]
        self._add_all(new, bool(given & self.columns))
        if any(part in plan.kind for part in _SEVERAL):
            self._add_all((node for node in new if holds_float(node.type)), True)
            self._objects.update(str(node.id) for node in new if _is_object(node.type))

    def _add_all(self, nodes: Iterable[Node], hang: bool) -> None:
        if hang:
            self.columns.update(node.id for node in nodes if node.id)

    def _hangs(self, expression: Node) -> bool:
        """Whether the value of an expression hangs on the order of rows."""
        if expression.kind == "AttributeReference":
            return expression.id in self.columns
        if expression.kind == "AggregateExpression" and any(map(_adds_floats, expression.children)):
            return True
        if any(node.id in self._objects for node in expression.walk()) and _float(expression):
            return True
        if any(column in self.columns for plan in expression.hung("plan") for column in self._of_subquery(plan)):
            return True
        return any(map(self._hangs, expression.children))

    def _of_subquery(self, plan: Node) -> tuple[str, ...]:
        self.add(plan)
        return output(plan)


def output(plan: Node) -> tuple[str, ...]:
    """Ids of the columns that a node of a plan gives, in order."""
    own = next((name for name in _OUTPUTS if name in plan.fields), None)
    columns = tuple(node.id for node in plan.hung(own) if node.id) if own else ()
    if plan.kind in ("Window", "Generate"):
        return output(plan.children[0]) + columns
    if own or not plan.children:
        return columns
    if plan.kind.endswith("Join"):
        return tuple(column for child in plan.children for column in output(child))
    return output(plan.children[0])


def _adds_floats(function: Node) -> bool:
    """Whether an aggregate function computes in floats, so that its result hangs on the order of its input."""
    if _EXACT.fullmatch(function.kind):
        return False
    float_ = holds_float(function.type) or any(map(_float, function.children))
    decimal = any("decimal" in json.dumps(node.type) for node in function.walk())
    return float_ or (_RATIOS.fullmatch(function.kind) is not None and not decimal)


def _float(expression: Node) -> bool:
    """Whether an expression has a float in its type, as far as leaves and casts tell."""
    if _WHOLE.fullmatch(expression.kind):
        return False
    if expression.kind == "GetStructField" and (inner := _field_type(expression)):
        return holds_float(inner)
    if expression.type is not None:
        return holds_float(expression.type)
    return any(map(_float, expression.children))


def _field_type(expression: Node) -> Any:
    whole = expression.children[0].type
    fields = whole.get("fields") if isinstance(whole, Mapping) else None
    return fields[expression.fields["ordinal"]]["type"] if fields else None


def functions(*plans: Node) -> tuple[str, ...]:
    """Names of the user's own functions in plans, sorted."""
    found = (node for plan in plans for node in plan.walk() if node.kind.endswith(("UDF", "UDAF", "UDTF")))
    return tuple(sorted({str(node.fields.get("name") or node.fields.get("udfName") or node.kind) for node in found}))


def holds_float(kind: Any) -> bool:
    """Whether a type holds a float at any depth."""
    if not isinstance(kind, Mapping):
        return kind in ("float", "double")
    inner = [field["type"] for field in kind.get("fields", ())]
    return any(map(holds_float, (*inner, *(kind.get(part) for part in ("elementType", "keyType", "valueType")))))


def _is_object(kind: Any) -> bool:
    """Whether a column holds Java objects: their type has no spelling in JSON, or says so."""
    return kind is None or "object" in json.dumps(kind).lower()
