# pyright: reportPrivateUsage=false
"""Plans in the JVM: sources, state and nondeterministic expressions of a query.

The only public form is the text of ``explain``. It is made for people, cuts long lists off, and shows neither which
expressions are deterministic nor their types. Columns that depend on floats are found by their types.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from onceonly.spark import sources
from onceonly.spark.engine import QueryPlan, Source, passes_over
from onceonly.spark.sources import brokers, class_name, items
from onceonly.spark.versions import SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


def plan_of(df: DataFrame, execution: Any, line: SparkVersion) -> QueryPlan:
    """Return the plan of a running query. Takes some calls for each node and expression, so once per run."""
    logical = execution.logicalPlan()
    text = spelled(logical)
    return QueryPlan(
        stateful=any(True for _ in stateful_nodes(execution, line)),
        nondeterministic=nondeterministic(logical, UNSTABLE),
        sources=_sources(df, execution, line),
        text=text,
        delays=delays(logical, text),
    )


def delays(plan: Any, text: str | None) -> tuple[str, ...]:
    """Return the delays of a plan's watermarks. Nodes are walked only if the plan's text has a watermark."""
    if not text or _WATERMARK not in text:
        return ()
    nodes = (node for node in walk(plan) if str(node.nodeName()) == _WATERMARK)
    return tuple(str(node.delay().toString()) for node in nodes)


_WATERMARK = "EventTimeWatermark"
"""Name of a node whose delay has no spelling in JSON."""


def _sources(df: DataFrame, execution: Any, line: SparkVersion) -> tuple[Source, ...]:
    jvm_sources = items(execution.sources())
    ids = line.source_ids(execution, jvm_sources)
    return tuple(_source(df, id_, source) for id_, source in zip(ids, jvm_sources, strict=True))


def _source(df: DataFrame, id_: str, source: Any) -> Source:
    source_brokers = brokers(df, source)
    return Source(
        id=id_,
        kind=str(source.getClass().getName()),
        origin=str(source.toString()),
        brokers=source_brokers,
        passes_over=sources.passes_over(df, source),
        reads_on=sources.reads_on(source) or (source_brokers is not None and not source_brokers.stops_at_loss),
        clears_up=sources.clears_up(source),
    )


def stateful_nodes(execution: Any, line: SparkVersion) -> Iterator[Any]:
    """Return the stateful operators of the last planned batch."""
    # By what all of them have in common, whatever they are called. A list of their names would take a query with a new
    # one for stateless, whose skipped batch leaves its state uncommitted: no later start can load it.
    writer = execution.getClass().getClassLoader().loadClass(line.state_writer)
    # Of the physical plan: the logical one has no state. An adaptive plan is a leaf, below which nothing is seen; but
    # Spark plans queries with state without it.
    return (node for node in walk(execution.lastExecution().executedPlan()) if writer.isInstance(node))


@dataclass(frozen=True, slots=True)
class Analysed:
    """``AnalysedPlan`` of a plan in the JVM, with ``unstable`` as of :func:`nondeterministic`."""

    plan: Any
    unstable: Sequence[str]

    def text(self) -> str | None:
        """Return the plan in JSON, all of it in one call. Walking it costs several for each node."""
        return spelled(self.plan)

    def nondeterministic(self) -> str | None:
        """Return SQL of the first expression that another run may compute differently."""
        return nondeterministic(self.plan, self.unstable)

    def leaves(self) -> tuple[Any, ...]:
        """Return the relations of the plan."""
        return tuple(items(self.plan.collectLeaves()))


def walk(node: Any) -> Iterator[Any]:
    """Yield a node of a plan and all below it, at two calls or more for each. :func:`spelled` is cheaper for many."""
    yield node
    for child in items(node.children()):
        yield from walk(child)


UNSTABLE = ("now(", "current_time(")
"""Foldable in Spark's eyes, yet evaluated anew when a batch is replayed: there is no other sign than their text. A
replay of 4.2 gives ``now()`` the clock of the replay, and ``current_timestamp()`` that of the batch."""

CLOCKS = (*UNSTABLE, "current_timestamp(", "current_date(", "localtimestamp(")
"""The same outside of the query's plan, in which Spark puts the batch's own time for most of them."""


def nondeterministic(plan: Any, unstable: Sequence[str]) -> str | None:
    """Return SQL of the first expression that another run may compute differently, or ``None``.

    ``unstable`` matches such expressions that Spark calls deterministic.
    """
    for node in walk(plan):
        for expression in items(node.expressions()):
            sql = str(expression.sql())
            if not expression.deterministic() or any(word in sql.lower() for word in unstable):
                return sql
    return None


def spelled(plan: Any) -> str | None:
    """Return a plan in Spark's JSON, or ``None`` if Spark cannot spell it."""
    try:
        return str(plan.toJSON())
    except Py4JJavaError as error:
        log.info("a plan cannot be spelled: %s", error.java_exception.getClass().getName())
        return None


# ---- Preview the plan of a query from its streaming DataFrame. Runs nothing.


_KEEPS_STATE = frozenset({"Aggregate", "Distinct", "GlobalLimit", "Join"})
"""Operators for which Spark keeps state where what they read is a stream; for a join both sides must be."""

_ALWAYS = ("WithState", "Deduplicate")
"""Parts of the names of logical operators that keep state wherever they stand. The trait by which a running query is
asked belongs to the physical plan, which is made only once the query runs."""

_FILES = "FileStreamSource"


def preview_of(df: DataFrame) -> QueryPlan:
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
        sources=tuple(_previewed(df, at, node) for at, node in enumerate(relations)),
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


def _previewed(df: DataFrame, at: int, node: Any) -> Source:
    second = class_name(node).endswith("V2")
    options = {name.lower(): value for name, value in _options(node, second=second)}
    kind = _kind(node, second=second)
    return Source(
        id=str(at),
        kind=kind,
        origin=str(node.sourceName()),
        passes_over=passes_over(df, options) if kind.endswith((_FILES, "DeltaSource")) else None,
        reads_on=options.get("failondataloss", "true").lower() == "false",
        clears_up=_clears_up(options) if kind.endswith(_FILES) else None,
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


def _clears_up(options: Mapping[str, str]) -> str | None:
    setting = options.get("cleansource", "off").lower()
    return None if setting == "off" else setting
