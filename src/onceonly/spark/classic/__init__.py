# pyright: reportPrivateUsage=false
"""Classic engine: PySpark beside a JVM, called through py4j.

Each use of a private API notes the cost of a public way. Names and places are those of the minor versions in
``versions.LINES``. :mod:`onceonly.spark.detect` refuses others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.spark.classic import plan
from onceonly.spark.classic import rows as jvmrows
from onceonly.spark.digest import Summed
from onceonly.spark.engine import NOTHING_TOLD, AnalysedPlan, Caller, Observed, QueryHint, QueryPlan, Rows, Run
from onceonly.spark.sources import HadoopFiles, class_in, class_name, field, java_class
from onceonly.spark.versions import SparkVersion
from onceonly_checkpoints.storage import LocalStorage, Readable, is_local

# ---- Name missing PySpark private APIs before a sink is opened (E113).
#
# A vendor's Spark may carry the version of a line and lack some of its private APIs. So every use of a private API
# runs under :func:`told`. Private APIs that only a later step of a batch uses are tried once by :func:`try_rows`, at
# the first batch of a run.

_GONE = ("ClassNotFoundException", "NoClassDefFoundError", "NoSuchMethodError", "NoSuchFieldError")
"""What Java says of a class or a member that is not there."""

_METHOD = re.compile(r"(?:Method|Constructor) ([\w.$]+)\(")
_IN_JVM = re.compile(r"([\w.$]+) does not exist in the JVM")
_IMPORTED = re.compile(r"cannot import name '(\w+)'")


@contextmanager
def name_missing_api(line: SparkVersion) -> Generator[None]:
    """Report a missing private API, which this Spark lacks but its line has, by its name (E113)."""
    try:
        yield
    except (Py4JError, AttributeError, ImportError) as error:
        if name := missing(error):
            raise lacking(line, name) from error
        raise


def lacking(line: SparkVersion, name: str) -> OnceOnlyError:
    """E113, for a Spark that lacks a call that its line has."""
    return refuse(
        "E113",
        problem=f"PySpark {pyspark.__version__} here lacks {name}, which onceonly calls.",
        cause=f"a build whose insides are not those of Apache Spark {line.minor}: a vendor's fork, or a preview",
        next=f"run the query on Apache Spark {line.minor}, or on a runtime that has this call",
    )


def missing(error: Exception) -> str | None:
    """Return the name of the missing API from an error, or ``None`` for any other error."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        java: Any = error.java_exception
        gone = str(java.getClass().getSimpleName()) in _GONE
        return str(java.getMessage()).replace("/", ".") if gone else None
    if isinstance(error, ImportError):
        match = _IMPORTED.search(text)
        return f"{error.name}.{match[1]}" if match else error.name
    if isinstance(error, AttributeError):
        return f"{type(error.obj).__name__}.{error.name}" if error.name else text
    for pattern in (_METHOD, _IN_JVM):
        if match := pattern.search(text):
            return match[1]
    return None


def try_rows(line: SparkVersion, df: DataFrame) -> None:
    """Collect no rows of a batch, observed like a real one: some 35 calls and a job without tasks (E113).

    Reading rows and digest uses other private APIs than discovery. Without this try, a missing one would surface when
    sinks are open and an epoch has begun.
    """
    with name_missing_api(line):
        none = df.limit(0)
        metrics = jvmrows.metrics(line, none, [f.count(f.lit(1)).alias("rows")])
        observed = jvmrows.Observation(line, line.frame(none._jdf, none.sparkSession), metrics)
        try:
            line.arrow_schema(StructType([StructField("id", LongType())]))
            with closing(jvmrows.ArrowStream(line, observed.dataframe)) as batches:
                came = sum(batch.num_rows for batch in batches)
            right = came == observed.get()["rows"] == 0
        except (TypeError, ValueError, KeyError) as error:
            raise lacking(line, f"what brings rows to the driver as Arrow ({error})") from error
    if not right:
        raise lacking(line, "what brings rows to the driver as Arrow and counts them")


# ---- Classic engine: PySpark beside a JVM, called through py4j.

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Query:
    """The running query in the JVM: ``Run.handle`` of this engine. A restarted query has another ``execution``."""

    execution: Any
    offsets: Any
    context: SparkContext


class ClassicEngine:
    """``SparkEngine`` over py4j, which documents each method. Stateless: one serves the process."""

    def __init__(self, line: SparkVersion) -> None:
        self._line = line

    # ---- who is calling

    def caller(self, df: DataFrame, hint: QueryHint = NOTHING_TOLD) -> Caller:
        """Identify the batch, by two calls into the JVM, which each batch can afford."""
        # Not the callback's argument: that one is the user's to pass on, and a counter of theirs names other batches.
        batch_id = df.sparkSession.sparkContext.getLocalProperty("streaming.sql.batchId")
        if batch_id is None:
            raise _outside()
        # The session's id has no public name. Properties of the thread the callback may change; this it cannot: told by
        # its job group, each batch after a ``setJobGroup`` would be a run of its own.
        with name_missing_api(self._line):
            return Caller(_session_id(df.sparkSession._jsparkSession), int(batch_id))

    def group(self, df: DataFrame) -> str:
        """The job group, which Spark sets to the run's id."""
        return df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id") or ""

    def application(self, df: DataFrame) -> str:
        """Return Spark's id of the application, which PySpark has without a call."""
        return str(df.sparkSession.sparkContext.applicationId)

    def discover(self, df: DataFrame, hint: QueryHint = NOTHING_TOLD) -> Run:
        """Discover a run by a few dozen calls into the JVM, some for each node of its plan, and a self-test."""
        with name_missing_api(self._line):
            run = self._discovered(df)
        try_rows(self._line, df)
        return run

    def _discovered(self, df: DataFrame) -> Run:
        # PySpark's StreamingQuery tells ids and name, and only of queries that its own session started.
        # Checkpoint, plan, sources and session of a run are nowhere public: they come from Spark's own object.
        execution = running(df)
        checkpoint = execution.resolvedCheckpointRoot()
        return Run(
            run_id=execution.runId().toString(),
            query_id=execution.id().toString(),
            name=execution.name(),
            checkpoint=checkpoint,
            mode=unsupported_mode(class_name(execution.trigger()), class_name(execution)),
            # A path below java.io.tmpdir would not tell: a user may choose one there, and it stays.
            temporary=bool(field(execution, "deleteCheckpointOnStop")),
            # Not ``sparkSession()``, the user's: batches come with the clone that the stream runs in.
            session=_session_id(execution.sparkSessionForStream()),
            plan=plan.plan_of(df, execution, self._line),
            engine=self,
            handle=Query(execution, execution.offsetLog(), df.sparkSession.sparkContext),
            files=_files(df, execution, checkpoint),
            output=str(execution.outputMode().toString()).lower(),
            describing=partial(_describing, df.sparkSession.sparkContext),
        )

    def still_running(self, df: DataFrame, query_id: str, run_id: str) -> bool:
        """Whether a run is active in this process."""
        execution = _active(df, query_id)
        return execution is not None and execution.runId().toString() == run_id

    def await_end(self, run: Run) -> None:
        """Wait in the JVM for Spark's own object: a polling thread would cost the query a call each time."""
        # That a query failed is told to everybody who waits for it; and its JVM may be gone before it.
        with suppress(PySparkException, Py4JError, OSError):
            _query(run).execution.awaitTermination()

    # ---- what a batch reads

    def entries(self, run: Run, numbers: Sequence[int]) -> Mapping[int, str] | None:
        """Read entries through the query's own log object: half a dozen calls, on any store."""
        query = _query(run)
        try:
            return _read_offset_texts(query, numbers)
        except Py4JError as error:
            error_name = type(error).__name__
            log.info("the query's own offset log cannot be asked (%s): reading %s", error_name, run.checkpoint)
            return None

    def file_size(self, df: DataFrame, path: str) -> int | None:
        """Read the size through the application's Hadoop, which reaches Spark's input with its login."""
        context: Any = df.sparkSession.sparkContext
        hadoop_path = class_in(context, "org.apache.hadoop.fs.Path")(path)
        # PySpark has no public name for a file system; an fsspec driver would need a login of its own.
        system = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())
        return int(system.getFileStatus(hadoop_path).getLen()) if system.exists(hadoop_path) else None

    def late_rows(self, run: Run) -> int:
        """Count late rows by the operators' own counters: the query's progress has them only after the batch."""
        try:
            nodes = plan.stateful_nodes(_query(run).execution, self._line)
            return sum(int(node.getProgress().numRowsDroppedByWatermark()) for node in nodes)
        except Py4JError as error:
            log.warning("rows that came too late are not counted: %s", type(error).__name__)
            return 0

    # ---- plans

    def foreseen(self, df: DataFrame) -> QueryPlan:
        """Return the plan of a query before its start."""
        with name_missing_api(self._line):
            return plan.preview_of(df)

    def analysed(self, rows: DataFrame, *, started: bool) -> AnalysedPlan:
        """Return the analysed plan. That of a batch is below a projection that names its columns."""
        if not started:
            return plan.Analysed(plan.analysed(rows), plan.UNSTABLE)
        named: Any = jvmrows.select(self._line, rows, jvmrows.columns(self._line, rows, f.col("*")))
        return plan.Analysed(named._jdf.queryExecution().analyzed(), plan.CLOCKS)

    # ---- rows

    def hadoop_setting(self, df: DataFrame, name: str) -> str | None:
        """Read a setting of Hadoop. PySpark's ``spark.conf`` lacks those in Hadoop's own files."""
        context: Any = df.sparkSession.sparkContext
        value: str | None = context._jsc.hadoopConfiguration().get(name)
        return value

    def hashed(self, df: DataFrame, leave_out: frozenset[str]) -> DataFrame:
        """The rows with their hash."""
        return jvmrows.select(self._line, df, jvmrows.digesting(self._line, df, leave_out).hashed)

    def observed(
        self,
        df: DataFrame,
        leave_out: frozenset[str],
        summed: tuple[Summed, ...] = (),
        batch_metrics: tuple[Column, ...] = (),
    ) -> Observed:
        """The rows with their digest on the side."""
        digesting = jvmrows.digesting(self._line, df, leave_out, summed)
        metrics = jvmrows.more(self._line, df, digesting.metrics, batch_metrics)
        return jvmrows.Observation(self._line, df, metrics, digesting.hashes)

    def arrow(self, df: DataFrame) -> Rows:
        """Start collecting the rows."""
        return jvmrows.ArrowStream(self._line, df)


_DESCRIPTION = "spark.job.description"


@contextmanager
def _describing(context: Any) -> Generator[Callable[[str], None]]:
    """Add a line to the description of this thread's jobs, and restore it. The job group stays: Spark cancels by it."""
    before = context.getLocalProperty(_DESCRIPTION)
    try:
        yield lambda text: context.setLocalProperty(_DESCRIPTION, f"{before}\n{text}" if before else text)
    finally:
        with suppress(Exception):  # the JVM may be gone, and another error tells why
            context.setLocalProperty(_DESCRIPTION, before)


def _query(run: Run) -> Query:
    query: Query = run.handle
    return query


def _session_id(session: Any) -> str:
    return str(session.sessionUUID())


def running(df: DataFrame) -> Any:
    """Return the calling execution (E110: not called from a streaming query)."""
    query_id = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    execution = _active(df, query_id) if query_id else None
    if execution is None:
        raise _outside()
    return execution


def _outside() -> OnceOnlyError:
    return misused(
        "exactly_once() was called outside of a streaming query, or from a thread of your own.",
        "it was called directly, or inside a plain threading.Thread, which loses the query's context",
        "pass it to .foreachBatch(...), or use pyspark.InheritableThread",
    )


def _active(df: DataFrame, query_id: str) -> Any:
    # Everything that a run is asked hangs on this object; to find it and ask takes 3 to 12 ms on a loaded machine.
    # Not ``spark.streams.get``: the batch's own session is a clone, whose list of active queries is empty.
    session: Any = df.sparkSession._jsparkSession
    uuid = java_class(df, "java.util.UUID").fromString(query_id)
    return session.sharedState().activeStreamingQueries().get(uuid)


def _files(df: DataFrame, execution: Any, checkpoint: str) -> Readable:
    """Return the checkpoint's files, local or through the session's Hadoop, with its login."""
    if is_local(checkpoint):
        return LocalStorage(checkpoint)
    return HadoopFiles(df.sparkSession.sparkContext, execution.sparkSession(), checkpoint)


def unsupported_mode(trigger: str, execution: str) -> str | None:
    """Return why a run cannot have epochs, from simple names of its Java classes, or ``None`` if it can.

    Today Spark refuses ``foreachBatch`` for such a query. This is for a version that accepts it.
    """
    if "Continuous" in trigger or "RealTime" in trigger:
        return f"trigger {trigger}"
    return "async progress tracking" if "Async" in execution else None


def _read_offset_texts(query: Query, numbers: Sequence[int]) -> dict[int, str]:
    texts: dict[int, str] = {}
    # The log keeps its newest entries in memory: about 1 ms each, where a file through Hadoop takes 10 to 50. They are
    # spelled by the log itself, so that one parser reads what comes from here and what comes from the disk.
    for number in numbers:
        entry = query.offsets.get(number)
        if not entry.isEmpty():
            stream = class_in(query.context, "java.io.ByteArrayOutputStream")()
            query.offsets.serialize(entry.get(), stream)
            texts[number] = str(stream.toString("UTF-8"))
    return texts
