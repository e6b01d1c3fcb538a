# pyright: reportPrivateUsage=false
"""What the running query knows of itself, seen from inside the callback. PySpark privates: here and in ``frames`` only.

Names and places are those of PySpark 4.2; another minor version is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.frames import java_class
from onceonly.hadoop import HadoopFiles
from onceonly.kafkasource import Brokers, brokers, private
from onceonly_checkpoints.storage import LocalStorage, Readable, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

SUPPORTED = "4.2"
"""The PySpark minor version whose internals are known here."""

_STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"


@dataclass(frozen=True, slots=True)
class Source:
    """One source of the query.

    Attributes:
        id: its name, or its position; names the directory of its own log in the checkpoint.
        kind: class name.
        origin: description, e.g. ``FileStreamSource[file:/in]``.
        brokers: of a Kafka source; ``None`` for others.
    """

    id: str
    kind: str
    origin: str
    brokers: Brokers | None = field(default=None, repr=False, compare=False)

    @property
    def reads_files(self) -> bool:
        """Whether it keeps a log of the files it has read."""
        return self.kind.endswith("FileStreamSource")


@dataclass(frozen=True, slots=True)
class Plan:
    """What the query's plan is, found once per run.

    Attributes:
        stateful: whether any operator keeps state.
        nondeterministic: SQL of the first expression that another run may compute otherwise; ``None`` if there is none.
        float_columns: output columns that are floats out of an aggregation.
        sources: each source of the query, in the order of the plan.
    """

    stateful: bool
    nondeterministic: str | None
    float_columns: frozenset[str]
    sources: tuple[Source, ...]

    def source(self, id_: str) -> Source:
        """The source behind an id of the offset log: its name, or, in a log of version 1, its position."""
        return {**{str(at): found for at, found in enumerate(self.sources)}, **{s.id: s for s in self.sources}}[id_]


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a query.

    Attributes:
        run_id: Spark's id of this start.
        query_id: Spark's id of the query.
        name: ``queryName``, or ``None``.
        checkpoint: resolved checkpoint root.
        mode: why epochs cannot be built on this run (trigger, temporary checkpoint ...); ``None`` if they can.
        temporary: whether the checkpoint is deleted when the query stops.
        plan: what the plan is.
        execution: the running query in the JVM; a query that was started anew has another.
        offsets: its offset log there.
        files: the checkpoint's files.
        entry: batch id and text of the offset log's entry read last; a run never changes what it has logged.
    """

    run_id: str
    query_id: str
    name: str | None
    checkpoint: str
    mode: str | None
    temporary: bool
    plan: Plan
    execution: Any = field(repr=False, compare=False)
    offsets: Any = field(repr=False, compare=False)
    files: Readable = field(repr=False, compare=False)
    entry: dict[int, str] = field(default_factory=dict[int, str], repr=False, compare=False)


def run_id(df: DataFrame) -> str | None:
    """Id of the run that is calling, from the callback thread's job group; ``None`` if there is none.

    Raises:
        ConfigurationError: E106 Spark Connect, E113 other PySpark.
    """
    _refuse_strangers(df)
    found = df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
    return None if found is None else str(found)


def _running(df: DataFrame) -> Any:
    """The execution that is calling.

    Raises:
        ConfigurationError: E110 not called from a streaming query.
    """
    execution = _execution(df) if run_id(df) else None
    if execution is None:
        raise refuse(
            "E110",
            problem="exactly_once() was called outside of a streaming query, or from a thread of your own.",
            cause="it was called directly, or inside a plain threading.Thread, which loses the query's context",
            next="pass it to .foreachBatch(...), or use pyspark.InheritableThread",
        )
    return execution


def _refuse_strangers(df: DataFrame) -> None:
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise refuse("E106")
    import pyspark

    if not pyspark.__version__.startswith(f"{SUPPORTED}."):
        raise refuse("E113", found=pyspark.__version__, supported=f"{SUPPORTED}.0")


def _execution(df: DataFrame) -> Any:
    """The running StreamExecution; ``None`` when the thread belongs to no active query."""
    query_id = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return _active(df, query_id) if query_id else None


def _active(df: DataFrame, query_id: str) -> Any:
    """The active StreamExecution of a query in this process. The batch's own session is a clone that lists none."""
    session: Any = df.sparkSession._jsparkSession
    uuid = java_class(df, "java.util.UUID").fromString(query_id)
    return session.sharedState().activeStreamingQueries().get(uuid)


def discover_run(df: DataFrame) -> Run:
    """Everything that stays the same for one start of the query. A few dozen calls into the JVM: once per run.

    Raises:
        ConfigurationError: E110 not called from a streaming query.
    """
    execution = _running(df)
    checkpoint = execution.resolvedCheckpointRoot()
    return Run(
        run_id=execution.runId().toString(),
        query_id=execution.id().toString(),
        name=execution.name(),
        checkpoint=checkpoint,
        mode=unsupported_mode(_name(execution.trigger()), _name(execution)),
        temporary=_is_temporary(execution),
        plan=_plan(df, execution),
        execution=execution,
        offsets=execution.offsetLog(),
        files=_files(df, execution, checkpoint),
    )


def _files(df: DataFrame, execution: Any, checkpoint: str) -> Readable:
    """The checkpoint's files: of this machine, or wherever the session's Hadoop finds them, with its login."""
    if is_local(checkpoint):
        return LocalStorage(checkpoint)
    return HadoopFiles(df.sparkSession.sparkContext, execution.sparkSession(), checkpoint)


def unsupported_mode(trigger: str, execution: str) -> str | None:
    """Why epochs cannot be built on a run, by the simple names of its Java classes; ``None`` if they can.

    Spark does not let such a query write through ``foreachBatch``; this is for the day on which it does.
    """
    if "Continuous" in trigger or "RealTime" in trigger:
        return f"trigger {trigger}"
    return "async progress tracking" if "Async" in execution else None


def _is_temporary(execution: Any) -> bool:
    return bool(private(execution, "deleteCheckpointOnStop"))


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _plan(df: DataFrame, execution: Any) -> Plan:
    nodes = list(_walk(execution.lastExecution().executedPlan()))
    loader = java_class(df, "java.lang.Thread").currentThread().getContextClassLoader()
    writer = java_class(df, "java.lang.Class").forName(_STATEFUL, True, loader)
    stateful = any(writer.isInstance(node) for node in nodes)
    return Plan(
        stateful=stateful,
        nondeterministic=_nondeterministic(execution.logicalPlan()) if stateful else None,
        float_columns=_float_columns(df) if any("Aggregate" in _name(node) for node in nodes) else frozenset(),
        sources=_sources(df, execution),
    )


def _sources(df: DataFrame, execution: Any) -> tuple[Source, ...]:
    ids = execution.sourceToIdMap()
    return tuple(
        Source(str(ids.apply(source)), str(source.getClass().getName()), str(source.toString()), brokers(df, source))
        for source in _items(execution.sources())
    )


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _items(node.children()):
        yield from _walk(child)


def _float_columns(df: DataFrame) -> frozenset[str]:
    return frozenset(name for name, kind in df.dtypes if kind in ("float", "double"))


_UNSTABLE = ("now(", "current_time(")
"""Foldable in Spark's eyes, yet evaluated anew when a batch is replayed."""


def _nondeterministic(plan: Any) -> str | None:
    for node in _walk(plan):
        for expression in _items(node.expressions()):
            sql = str(expression.sql())
            if not expression.deterministic() or any(word in sql.lower() for word in _UNSTABLE):
                return sql
    return None


def still_running(df: DataFrame, query_id: str, run: str) -> bool:
    """Whether another run is active in this process."""
    execution = _active(df, query_id)
    return execution is not None and execution.runId().toString() == run


def await_end(run: Run) -> None:
    """Block until the run has ended, however it ends: stopped, failed, or the JVM gone with it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # That a query failed is told to everybody who waits for it; and its JVM may be gone before it.
    with suppress(PySparkException, Py4JError, OSError):
        run.execution.awaitTermination()
