# pyright: reportPrivateUsage=false
"""Plans in the JVM: sources, state and nondeterministic expressions of a query.

The only public form is the text of ``explain``. It is made for people, cuts long lists off, and shows neither which
expressions are deterministic nor their types. Columns that depend on floats are found by their types.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.spark import sources
from onceonly.spark.engine import QueryPlan, Source
from onceonly.spark.sources import brokers, items
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
    found = items(execution.sources())
    ids = line.source_ids(execution, found)
    return tuple(_source(df, id_, source) for id_, source in zip(ids, found, strict=True))


def _source(df: DataFrame, id_: str, source: Any) -> Source:
    asked = brokers(df, source)
    return Source(
        id=id_,
        kind=str(source.getClass().getName()),
        origin=str(source.toString()),
        brokers=asked,
        passes_over=sources.passes_over(df, source),
        reads_on=sources.reads_on(source) or (asked is not None and not asked.stops_at_loss),
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
    """Return SQL of the first expression of an analysed plan that another run may compute differently, or ``None``.

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
    from py4j.protocol import Py4JJavaError

    try:
        return str(plan.toJSON())
    except Py4JJavaError as error:
        log.info("a plan cannot be spelled: %s", error.java_exception.getClass().getName())
        return None
