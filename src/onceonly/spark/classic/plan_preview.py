"""Preview the plan of a query from its streaming DataFrame. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onceonly.spark.classic.plan import UNSTABLE, nondeterministic, spelled, walk
from onceonly.spark.engine import QueryPlan, Source, passes_over
from onceonly.spark.sources import class_name, items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEEPS_STATE = frozenset({"Aggregate", "Distinct", "GlobalLimit", "Join"})
"""Operators for which Spark keeps state where what they read is a stream; for a join both sides must be."""

_ALWAYS = ("WithState", "Deduplicate")
"""Parts of the names of logical operators that keep state wherever they stand. The trait by which a running query is
asked belongs to the physical plan, which is made only once the query runs."""

_FILES = "FileStreamSource"


def plan_of(df: DataFrame) -> QueryPlan:
    """Return the plan of a query before its start, from the DataFrame for ``writeStream``.

    The same as ``SparkEngine.discover`` finds later, except that a running Kafka source is not asked: sources are
    identified by class and options.
    """
    plan = analysed(df)
    nodes = list(walk(plan))
    relations = [node for node in nodes if class_name(node).startswith("StreamingRelation")]
    return QueryPlan(
        stateful=any(map(_keeps_state, nodes)),
        nondeterministic=nondeterministic(plan, UNSTABLE),
        sources=tuple(_source(df, at, node) for at, node in enumerate(relations)),
        text=spelled(plan),
    )


def analysed(df: Any) -> Any:
    """Return the unchanged analysed plan in the JVM. ``select`` would add a projection to it."""
    return df._jdf.queryExecution().analyzed()


def _keeps_state(node: Any) -> bool:
    name = class_name(node)
    if not node.isStreaming():
        return False
    if name == "Join":
        return all(child.isStreaming() for child in items(node.children()))
    return name in _KEEPS_STATE or any(part in name for part in _ALWAYS)


def _source(df: DataFrame, at: int, node: Any) -> Source:
    second = class_name(node).endswith("V2")
    said = {name.lower(): value for name, value in _options(node, second=second)}
    kind = _kind(node, second=second)
    return Source(
        id=str(at),
        kind=kind,
        origin=str(node.sourceName()),
        passes_over=passes_over(df, said) if kind.endswith((_FILES, "DeltaSource")) else None,
        reads_on=said.get("failondataloss", "true").lower() == "false",
        clears_up=_clears_up(said) if kind.endswith(_FILES) else None,
    )


def _kind(node: Any, *, second: bool) -> str:
    if second:
        return str(node.table().getClass().getName())
    return _FILES if str(node.sourceName()).startswith("FileSource") else str(node.dataSource().className())


def _options(node: Any, *, second: bool) -> Iterator[tuple[str, str]]:
    # What the user gave, before the source exists; a running one has made settings of its own of it (``sources``).
    if second:
        yield from ((str(name), str(value)) for name, value in dict(node.extraOptions()).items())
        return
    for pair in items(node.dataSource().options().toSeq()):
        yield str(pair._1()), str(pair._2())


def _clears_up(said: Mapping[str, str]) -> str | None:
    found = said.get("cleansource", "off").lower()
    return None if found == "off" else found
