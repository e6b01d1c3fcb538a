# pyright: reportPrivateUsage=false
"""What the running query knows of itself, seen from inside the callback. PySpark privates: here and in ``frames`` only.

Names and places are those of the PySpark minors in ``pins.SPARK_LINES``; another one is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly import filesource
from onceonly.errors import OnceOnlyError, refuse
from onceonly.frames import columns, java_class, select
from onceonly.hadoop import HadoopFiles
from onceonly.kafkasource import Brokers, brokers, private
from onceonly.pins import SPARK_LINES, line_of
from onceonly_checkpoints.storage import LocalStorage, Readable, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"


LOSSY = {"TextSocket": "socket", "MemoryStream": "memory"}
"""Sources that forget what they have handed out: part of their class's name, and what users call them."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source of the query.

    Attributes:
        id: its name, or its position; names the directory of its own log in the checkpoint.
        kind: class name.
        origin: description, e.g. ``FileStreamSource[file:/in]``.
        brokers: of a Kafka source; ``None`` for others.
        passes_over: the setting with which it reads files that are gone or damaged as no rows; ``None``: it stops.
        reads_on: whether it goes on past input that is gone.
        clears_up: what becomes of files that it has read, ``archive`` or ``delete``; ``None``: they stay.
    """

    id: str
    kind: str
    origin: str
    brokers: Brokers | None = field(default=None, repr=False, compare=False)
    passes_over: str | None = None
    reads_on: bool = False
    clears_up: str | None = None

    @property
    def lossy(self) -> str | None:
        """The name of a kind of source that cannot give rows again; ``None`` for one that can, as far as is known."""
        return next((name for part, name in LOSSY.items() if part in self.kind), None)

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
        sources: each source of the query, in the order of the plan.
        text: the analysed plan, for :mod:`onceonly.lineage`; ``None`` where Spark cannot spell it.
    """

    stateful: bool
    nondeterministic: str | None
    sources: tuple[Source, ...]
    text: str | None = field(default=None, repr=False, compare=False)

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
        session: as in :class:`Caller`.
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
    session: str
    plan: Plan
    execution: Any = field(repr=False, compare=False)
    offsets: Any = field(repr=False, compare=False)
    files: Readable = field(repr=False, compare=False)
    entry: dict[int, str] = field(default_factory=dict[int, str], repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose batch a callback was handed.

    Attributes:
        session: id of the session that the rows belong to. Each start of a query has its own, which its batches keep
            whatever the callback does to the thread's properties; rows that the callback made itself have another.
        batch_id: what Spark set for the batch that the thread is to write.
    """

    session: str
    batch_id: int


def caller(df: DataFrame) -> Caller:
    """Whose batch this is: two calls into the JVM, so for each batch.

    Raises:
        ConfigurationError: E106 Spark Connect, E110 not called from a streaming query, E113 other PySpark.
    """
    _refuse_strangers(df)
    batch_id = df.sparkSession.sparkContext.getLocalProperty("streaming.sql.batchId")
    if batch_id is None:
        raise _outside()
    return Caller(_session_id(df.sparkSession._jsparkSession), int(batch_id))


def group(df: DataFrame) -> str:
    """The calling thread's job group: the run's id, unless the callback has set another; empty for none."""
    return df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id") or ""


def _session_id(session: Any) -> str:
    return str(session.sessionUUID())


def _running(df: DataFrame) -> Any:
    """The execution that is calling.

    Raises:
        ConfigurationError: E110 not called from a streaming query.
    """
    execution = _execution(df)
    if execution is None:
        raise _outside()
    return execution


def _outside() -> OnceOnlyError:
    return refuse(
        "E110",
        problem="exactly_once() was called outside of a streaming query, or from a thread of your own.",
        cause="it was called directly, or inside a plain threading.Thread, which loses the query's context",
        next="pass it to .foreachBatch(...), or use pyspark.InheritableThread",
    )


def _refuse_strangers(df: DataFrame) -> None:
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise refuse("E106")
    import pyspark

    if line_of(pyspark.__version__) not in SPARK_LINES:
        raise refuse("E113", found=pyspark.__version__, known=" and ".join(SPARK_LINES), newest=SPARK_LINES[0])


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
        mode=unsupported_mode(class_name(execution.trigger()), class_name(execution)),
        temporary=_is_temporary(execution),
        session=_session_id(execution.sparkSessionForStream()),
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


def items(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _plan(df: DataFrame, execution: Any) -> Plan:
    return Plan(
        stateful=any(True for _ in _stateful_nodes(execution)),
        nondeterministic=nondeterministic(execution.logicalPlan(), UNSTABLE),
        sources=_sources(df, execution),
        text=spelled(execution.logicalPlan()),
    )


def _sources(df: DataFrame, execution: Any) -> tuple[Source, ...]:
    ids = execution.sourceToIdMap()
    return tuple(_source(df, str(ids.apply(source)), source) for source in items(execution.sources()))


def _source(df: DataFrame, id_: str, source: Any) -> Source:
    asked = brokers(df, source)
    return Source(
        id=id_,
        kind=str(source.getClass().getName()),
        origin=str(source.toString()),
        brokers=asked,
        passes_over=filesource.passes_over(df, source),
        reads_on=filesource.reads_on(source) or (asked is not None and not asked.stops_at_loss),
        clears_up=filesource.clears_up(source),
    )


def _stateful_nodes(execution: Any) -> Iterator[Any]:
    writer = execution.getClass().getClassLoader().loadClass(_STATEFUL)
    return (node for node in walk(execution.lastExecution().executedPlan()) if writer.isInstance(node))


def class_name(node: Any) -> str:
    """The simple name of an object's class."""
    return str(node.getClass().getSimpleName())


def walk(node: Any) -> Iterator[Any]:
    """A node of a plan and all below it."""
    yield node
    for child in items(node.children()):
        yield from walk(child)


UNSTABLE = ("now(", "current_time(")
"""Foldable in Spark's eyes, yet evaluated anew when a batch is replayed."""

CLOCKS = (*UNSTABLE, "current_timestamp(", "current_date(", "localtimestamp(")
"""The same outside of the query's plan, in which Spark puts the batch's own time for most of them."""


def nondeterministic(plan: Any, unstable: Sequence[str]) -> str | None:
    """SQL of the first expression of an analysed plan that another run may compute otherwise; ``None``: none.

    Args:
        plan: in the JVM.
        unstable: what such an expression may hold, though Spark calls it deterministic.
    """
    for node in walk(plan):
        for expression in items(node.expressions()):
            sql = str(expression.sql())
            if not expression.deterministic() or any(word in sql.lower() for word in unstable):
                return sql
    return None


def analysed(df: DataFrame) -> Any:
    """The analysed plan of a DataFrame, in the JVM, under a projection that names its columns."""
    from pyspark.sql import functions as f

    named: Any = select(df, columns(df, f.col("*")))
    return named._jdf.queryExecution().analyzed()


def spelled(plan: Any) -> str | None:
    """A plan as Spark spells it in JSON; ``None`` where it cannot."""
    from py4j.protocol import Py4JJavaError

    try:
        return str(plan.toJSON())
    except Py4JJavaError as error:
        log.info("a plan cannot be spelled: %s", error.java_exception.getClass().getName())
        return None


def late_rows(run: Run) -> int:
    """Rows of the batch that was executed last which Spark dropped, since they were older than the watermark.

    They are counted after the commit, so what cannot be asked counts as none and stops nobody.
    """
    from py4j.protocol import Py4JError

    try:
        return sum(int(node.getProgress().numRowsDroppedByWatermark()) for node in _stateful_nodes(run.execution))
    except Py4JError as error:
        log.warning("rows that came too late are not counted: %s", type(error).__name__)
        return 0


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
