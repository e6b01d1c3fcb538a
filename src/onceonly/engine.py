# pyright: reportPrivateUsage=false
"""What the running query knows of itself, seen from inside the callback. PySpark privates: here and in ``frames`` only.

Names and places are those of PySpark 4.2; another minor version is refused. The offset-log entries are taken from the
query's own log object in the text form that is also on disk, so both ways of reading go through one parser.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse
from onceonly.frames import java_class
from onceonly.hadoop import HadoopFiles
from onceonly.kafkasource import Brokers, brokers, private
from onceonly.sources import FILES
from onceonly_checkpoints import chain, filelog, sparklog
from onceonly_checkpoints.epoch import Lineage
from onceonly_checkpoints.slices import InputFile, Slice, SourceIdentity, SourceOffsets
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


@dataclass(frozen=True, slots=True)
class Seen:
    """What is read for each batch; fields as in ``facts.Offer``."""

    slice: Slice
    lineage: Lineage
    sources: tuple[SourceIdentity, ...]
    files: tuple[InputFile, ...]
    begins: SourceOffsets | None


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


def see(df: DataFrame, batch_id: int, run: Run) -> Seen:
    """What the engine says of this batch: by the files of its offset log, where they lie on a disk of this machine.

    Elsewhere the running query is asked, in half a dozen calls into the JVM; files only where it has no such log.

    Raises:
        CheckpointError: E601, E602: the offset log cannot be understood.
    """
    from py4j.protocol import Py4JError

    known = {number: text for number, text in run.entry.items() if number == batch_id - 1}
    wanted = [number for number in (batch_id - 1, batch_id) if number >= 0 and number not in known]
    try:
        texts = {**known, **(_on_disk(run, wanted) or _asked(df, run.offsets, wanted))}
    except Py4JError as error:
        log.info("the query's own offset log cannot be asked (%s): reading %s", type(error).__name__, run.checkpoint)
        return see_on_disk(run.files, batch_id, run)
    seen = _seen(texts, batch_id, run)
    run.entry.clear()
    run.entry[batch_id] = texts[batch_id]
    return seen


def _on_disk(run: Run, numbers: Sequence[int]) -> dict[int, str] | None:
    """Entries of the offset log on this machine's disk; ``None`` if they are not there."""
    if not isinstance(run.files, LocalStorage):
        return None
    try:
        return {number: run.files.read(f"offsets/{number}").decode() for number in numbers}
    except FileNotFoundError:
        return None


def see_on_disk(storage: Readable, batch_id: int, run: Run) -> Seen:
    """The same from the checkpoint's files; the fallback, and what :func:`see` is tested against.

    Raises:
        CheckpointError: E601, E602: the offset log cannot be understood.
    """
    texts: dict[int, str] = {}
    for number in (batch_id, batch_id - 1):
        if storage.exists(f"offsets/{number}"):
            texts[number] = storage.read(f"offsets/{number}").decode()
    return _seen(texts, batch_id, run)


def _asked(df: DataFrame, log: Any, numbers: Sequence[int]) -> dict[int, str]:
    """Entries of the offset log in the JVM; what it has not is left out."""
    texts: dict[int, str] = {}
    for number in numbers:
        found = log.get(number)
        if not found.isEmpty():
            stream = java_class(df, "java.io.ByteArrayOutputStream")()
            log.serialize(found.get(), stream)
            texts[number] = str(stream.toString("UTF-8"))
    return texts


def _seen(texts: dict[int, str], batch_id: int, run: Run) -> Seen:
    with _readable(run):
        slice_, clock = sparklog.slice_from(texts, batch_id)
        files, begins = _input_files(run, slice_), _begins(run, slice_)
    lineage = Lineage(run.query_id, run.run_id, run.checkpoint, batch_id, clock.batch_timestamp_ms, clock.watermark_ms)
    return Seen(slice_, lineage, _identities(run, slice_, files), files, begins)


@contextmanager
def _readable(run: Run) -> Generator[None]:
    try:
        yield
    except sparklog.UnreadableCheckpoint as error:
        code = "E601" if error.kind == "unknown-version" else "E602"
        raise refuse(
            code, path=error.path, found=error.reason, reason=error.reason, checkpoint=run.checkpoint
        ) from error


def earlier_files(run: Run, slice_: Slice) -> tuple[InputFile, ...]:
    """Files that the query's file sources handed out before a batch, by their own logs: all of them, so not for each.

    Raises:
        CheckpointError: E601, E602: a source's log cannot be understood.
    """
    nothing = SourceOffsets(tuple((source, None) for source in slice_.start.sources))
    with _readable(run):
        return _input_files(run, Slice(nothing, slice_.start))


def _begins(run: Run, slice_: Slice) -> SourceOffsets | None:
    """The slice's start, with what Kafka sources noted of their own where the offset log has nothing yet."""
    noted = {
        id_: sparklog.kafka_start(run.files, id_)
        for id_, start in slice_.start.entries
        if start is None and run.plan.source(id_).brokers
    }
    if not any(noted.values()):
        return None
    return SourceOffsets.of({id_: noted.get(id_) or start for id_, start in slice_.start.entries})


def _input_files(run: Run, slice_: Slice) -> tuple[InputFile, ...]:
    files: list[InputFile] = []
    starts = dict(slice_.start.entries)
    for id_, end in slice_.end.entries:
        source = run.plan.source(id_)
        last = sparklog.log_offset(end) if source.reads_files else None
        if last is not None:
            first = sparklog.log_offset(starts.get(id_))
            found = filelog.input_files(run.files, source.id, first, last)
            files += [replace(file, source=id_) for file in found]
    return tuple(files)


def _identities(run: Run, slice_: Slice, files: tuple[InputFile, ...]) -> tuple[SourceIdentity, ...]:
    identities: list[SourceIdentity] = []
    for id_, offset in slice_.end.entries:
        source = run.plan.source(id_)
        if source.reads_files:
            own = [file for file in files if file.source == id_]
            identities.append(SourceIdentity(id_, FILES + source.origin, chain.inputs(own)))
        elif source.brokers and offset:
            identities.append(SourceIdentity(id_, source.brokers.identity(json.loads(offset))))
        else:
            identities.append(SourceIdentity(id_, sparklog.reservoir_id(offset)))
    return tuple(identities)


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
