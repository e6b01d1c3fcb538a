"""Find columns that depend on the order of summed floats.

Another order of the same rows gives them other values. They are read from the analysed plans in Spark's JSON
(``TreeNode.toJSON``): one call brings a whole plan, and all of this is pure. A tree is a list of its nodes, each before
its children, with ``num-children``. Other trees of a node, expressions above all, are among its fields.

Plans of a thousand nodes in a row are real. So each node is judged once, after all below it, and without recursion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, eq=False)
class Node:
    """One node of a plan or of an expression, by the simple name of its class. Equal only to itself."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Node, ...]

    @property
    def id(self) -> str | None:
        """Spark's id of the column that this expression names, or ``None`` for all others."""
        expression_id = self.fields.get("exprId")
        return str(expression_id["id"]) if isinstance(expression_id, Mapping) else None

    @property
    def type(self) -> Any:
        """Its declared type, as Spark spells types in JSON, or ``None`` without one."""
        return self.fields.get("dataType")

    def hung(self, *names: str) -> Iterator[Node]:
        """Return the trees among the fields of these names, or among all fields without names."""
        for name in names or self._hanging:
            yield from self._hanging.get(name, ())

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, with the trees in their fields, parents first."""
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed((*node.children, *node.hung())))

    @cached_property
    def _hanging(self) -> Mapping[str, tuple[Node, ...]]:
        trees_by_name = {name: tuple(_trees(value)) for name, value in self.fields.items()}
        return {name: trees for name, trees in trees_by_name.items() if trees}

    @cached_property
    def floats(self) -> bool:
        """Whether an expression has a float in its type, as far as leaves and casts show."""
        if _INTEGRAL_RESULT.fullmatch(self.kind):
            return False
        if self.kind == "GetStructField" and (inner := _field_type(self)):
            return holds_float(inner)
        if self.type is not None:
            return holds_float(self.type)
        return any(child.floats for child in self.children)

    @cached_property
    def output(self) -> tuple[str, ...]:
        """Ids of a plan node's output columns, in order."""
        own = next((name for name in _OUTPUTS if name in self.fields), None)
        columns = tuple(node.id for node in self.hung(own) if node.id) if own else ()
        if self.kind in ("Window", "Generate"):
            return self.children[0].output + columns
        if own or not self.children:
            return columns
        if self.kind.endswith("Join"):
            return tuple(column for child in self.children for column in child.output)
        return self.children[0].output


def _upwards(root: Node, below: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """Yield a tree's nodes, each after all below it."""
    nodes: list[Node] = []
    waiting = [root]
    while waiting:
        nodes.append(waiting.pop())
        waiting.extend(below(nodes[-1]))
    return reversed(nodes)


def parse(text: str) -> Node:
    """Parse a tree from Spark's JSON. ``ValueError``: it is none."""
    tree = next(_trees(json.loads(text)), None)
    if tree is None:
        raise ValueError("not a tree")
    return tree


def _trees(value: Any) -> Iterator[Node]:
    if not isinstance(value, list) or not value:
        return
    first = value[0]
    if isinstance(first, Mapping) and "num-children" in first:
        made: list[Node] = []
        for fields in reversed(value):
            children = tuple(made.pop() for _ in range(fields["num-children"]))
            made.append(Node(str(fields["class"]).rsplit(".", 1)[-1].rsplit("$", 1)[-1], fields, children))
        yield made[-1]
    else:
        for each in value:
            yield from _trees(each)


_EXACT = re.compile(
    "Min|Max|Count|CountIf|BoolAnd|BoolOr|BitAndAgg|BitOrAgg|BitXorAgg|HyperLogLogPlusPlus|MaxBy|MinBy|First|Last"
)
"""Aggregates that give one of their inputs back, or a whole number."""

_RATIOS = re.compile(
    "Average|Stddev.*|Variance.*|Skewness|Kurtosis|Corr|Cov.*|Regr.*|ApproximatePercentile|Percentile|HistogramNumeric"
)
"""Aggregates that compute in floats, whatever they are given; decimals are the exception."""

_INTEGRAL_RESULT = re.compile(
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
    """Return names of the written columns that another order of the same rows may change.

    ``None`` if rows do not come from the query's plan in a traceable way. ``written`` is a projection over its rows.
    """
    tracker = _Loose()
    tracker.add(stream)
    stream_ids = {node.id for node in stream.walk() if node.id}
    handed = [[column.id for column in leaf.hung("output")] for leaf in written.walk() if leaf.kind == "LogicalRDD"]
    ours = [ids for ids in handed if ids and set(ids) <= stream_ids]
    if not ours:
        return None
    # A join of the batch with itself gives one of its sides new ids.
    for ids in handed:
        if len(ids) == len(ours[0]):
            tracker.columns.update(new for new, old in zip(ids, ours[0], strict=True) if old in tracker.columns and new)
    tracker.add(written)
    return frozenset(
        str(column.fields["name"]) for column in written.hung("projectList") if column.id in tracker.columns
    )


class _Loose:
    """Collect ids of columns that depend on the order of rows, from the sources upwards."""

    def __init__(self) -> None:
        self.columns: set[str] = set()
        self._objects: set[str] = set()
        """Objects that a user's function made of several rows: floats taken out of them are loose."""
        self._hanging: set[Node] = set()
        """Expressions whose value hangs on the order of rows."""
        self._holding: set[Node] = set()
        """Nodes with one of the objects at any depth."""

    def add(self, plan: Node) -> None:
        for node in _upwards(plan, lambda node: node.children):
            self._add(node)

    def _add(self, plan: Node) -> None:
        for hung in plan.hung():
            for node in _upwards(hung, _expressions):
                self._judge(node)
        if plan.kind == "Union":
            self._add_union(plan)
        elif plan.kind == "Generate":
            self._add_all(
                plan.hung("generatorOutput"), any(expression in self._hanging for expression in plan.hung("generator"))
            )
        elif plan.children and plan.kind != "Project":
            self._add_made(plan)
        self._note_objects(plan)

    def _add_union(self, plan: Node) -> None:
        outputs = [child.output for child in plan.children]
        for columns in zip(*outputs, strict=False):
            if any(column in self.columns for column in columns):
                self.columns.add(columns[0])

    def _add_made(self, plan: Node) -> None:
        """Add columns that a node makes in a way of its own: by a function of the user, or by several projections."""
        made = [node for node in plan.hung(*_MADE) if node.id]
        input_ids = {column for child in plan.children for column in child.output}
        new = [node for node in made if node.id not in input_ids]
        self._add_all(new, bool(input_ids & self.columns))
        if any(part in plan.kind for part in _SEVERAL):
            self._add_all((node for node in new if holds_float(node.type)), True)
            # A column of Java objects: its type has no spelling in JSON, or is marked as one.
            typed = ((node, "object" if node.type is None else json.dumps(node.type).lower()) for node in new)
            self._objects.update(str(node.id) for node, text in typed if "object" in text)

    def _add_all(self, nodes: Iterable[Node], hang: bool) -> None:
        if hang:
            self.columns.update(node.id for node in nodes if node.id)

    def _judge(self, expression: Node) -> None:
        for plan in expression.hung("plan"):
            self.add(plan)
        self._note_objects(expression)
        if self._hangs(expression):
            self._hanging.add(expression)
            if expression.kind == "Alias" and expression.id:
                self.columns.add(expression.id)

    def _note_objects(self, node: Node) -> None:
        if node.id in self._objects or any(part in self._holding for part in (*node.children, *node.hung())):
            self._holding.add(node)

    def _hangs(self, expression: Node) -> bool:
        """Check whether the value of an expression depends on the order of rows."""
        if expression.kind == "AttributeReference":
            return expression.id in self.columns
        if expression.kind == "AggregateExpression" and any(map(_adds_floats, expression.children)):
            return True
        if expression.floats and expression in self._holding:
            return True
        if any(column in self.columns for plan in expression.hung("plan") for column in plan.output):
            return True
        return any(child in self._hanging for child in expression.children)


def _expressions(node: Node) -> Iterable[Node]:
    """Return the parts of an expression, without the plans of subqueries: these are followed as plans."""
    plans = tuple(node.hung("plan"))
    return (*node.children, *(part for part in node.hung() if part not in plans))


def _adds_floats(function: Node) -> bool:
    """Check whether an aggregate function computes in floats, so that its result depends on the order of its input."""
    if _EXACT.fullmatch(function.kind):
        return False
    if holds_float(function.type) or any(child.floats for child in function.children):
        return True
    has_decimal = any("decimal" in json.dumps(node.type) for node in function.walk())
    return _RATIOS.fullmatch(function.kind) is not None and not has_decimal


def _field_type(expression: Node) -> Any:
    struct_type = expression.children[0].type
    fields = struct_type.get("fields") if isinstance(struct_type, Mapping) else None
    return fields[expression.fields["ordinal"]]["type"] if fields else None


def functions(*plans: Node) -> tuple[str, ...]:
    """Return names of the user's own functions in plans, sorted."""
    nodes = (node for plan in plans for node in plan.walk() if node.kind.endswith(("UDF", "UDAF", "UDTF")))
    return tuple(sorted({str(node.fields.get("name") or node.fields.get("udfName") or node.kind) for node in nodes}))


def holds_float(kind: Any) -> bool:
    """Check whether a type holds a float at any depth."""
    if not isinstance(kind, Mapping):
        return kind in ("float", "double")
    inner = [field["type"] for field in kind.get("fields", ())]
    return any(map(holds_float, (*inner, *(kind.get(part) for part in ("elementType", "keyType", "valueType")))))
