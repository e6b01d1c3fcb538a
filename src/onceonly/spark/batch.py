"""Spark micro-batch behind the ``Batch`` contract.

Each way of reading it runs one action and fills the digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, read_refusal
from onceonly.machine.estimate import TEXT_BYTES, schema_width
from onceonly.protocol import Attempt, Estimate, Task
from onceonly.protocol.batch import FileTrim, OffsetTrim, TooLargeForDriver, Trim
from onceonly.protocol.row_times import NO_TIMES, Clock, RowTimes, TimeTally
from onceonly.protocol.values import SOURCE
from onceonly.spark import digest, frames, versions
from onceonly.spark.detect import engine_for
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.storage import is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from typing_extensions import Self

    from onceonly.spark.engine import QueryPlan

# ---- Without the rows that recorded epochs hold: ``Trim.keeps`` as expressions.
#
# A row whose position the batch does not offer ends the action: its columns are then not those of the source.

_PATH, _FRESH = "onceonly file", "onceonly fresh"
"""Columns of the list of files while it is joined."""


def trimmed(df: DataFrame, trim: Trim) -> DataFrame:
    """Drop rows of a trim by ``KAFKA_COLUMNS`` or ``FILE_COLUMNS`` of ``protocol.batch``."""
    match trim:
        case OffsetTrim():
            return df.where(_by_offset(trim))
        case FileTrim():
            return _by_file(df, trim)


def _by_offset(trim: OffsetTrim) -> Column:
    from pyspark.sql import functions as f

    offset = f.col("offset")
    is_fresh = _stranger(f.concat_ws("-", "topic", "partition"), offset.cast("string"))
    for span in trim.spans:
        own = (f.col("topic") == span.topic) & (f.col("partition") == span.partition)
        inside = own & (offset >= span.first) & (offset < span.end)
        is_fresh = f.when(inside, offset >= span.fresh).otherwise(is_fresh)
    return is_fresh


def _by_file(df: DataFrame, trim: FileTrim) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql import functions as f

    # A list of literals takes a millisecond each to build; this takes a tenth of a second for any number of files.
    paths = [*trim.held, *trim.fresh]
    fresh = [False] * len(trim.held) + [True] * len(trim.fresh)
    files = frames.of_arrow(df.sparkSession, pa.table({_PATH: paths, _FRESH: fresh}))
    # As ``protocol.batch.plain``: ``file:///in`` and ``file:/in`` are one file, whose rows would else be strangers.
    path = f.regexp_replace("file_path", r"^([A-Za-z][A-Za-z0-9+.-]*):///", "$1:/")
    joined = df.join(f.broadcast(files), path == f.col(f"`{_PATH}`"), "left")
    stranger = _stranger(f.col("file_path"), f.lit("file_path"))
    fresh_rows = joined.where(f.coalesce(f.col(f"`{_FRESH}`"), stranger))
    return fresh_rows.drop(_PATH, _FRESH)


def _stranger(position: Column, where: Column) -> Column:
    from pyspark.sql import functions as f

    text = f.concat(f.lit("a row's position is not in this batch: "), f.concat_ws(" ", position, where))
    return f.raise_error(text).cast("boolean")


def ordered(rows: DataFrame, order: str, estimate: Estimate, *, keyed: bool) -> DataFrame:
    """Return the rows so that one task has all of them, in an order: see ``Capabilities.order``.

    ``keyed``: it is enough that one task has all rows of a ``key``. A task reads the parts of a source's partition in
    their order.
    """
    most = tasks(rows, estimate) if keyed and "key" in rows.columns else 1
    together = rows.coalesce(1) if order == SOURCE or most == 1 else rows.repartition(most, "key")
    return together if order == SOURCE else together.sortWithinPartitions(digest.quote(order))


def order_lost(plan: QueryPlan, df: DataFrame, rows: DataFrame) -> str:
    """Return why rows are not in the order of their source, or an empty text. They were made of ``df``."""
    engine = engine_for(rows)
    before, after = (engine.analysed(part, started=not part.isStreaming) for part in (df, rows))
    text = after.text()
    if plan.text is None or text is None:
        return "this kind of session does not show its plan"
    if moved := next((node for node in _NODES.findall(plan.text + text) if node not in _IN_ORDER), ""):
        return f"its plan has a {moved}, which moves rows"
    if before.leaves() != after.leaves():
        return "transform= reads other rows than those of the batch"
    return next((f"{source.origin} is no topic" for source in plan.sources if "sql.kafka010" not in source.kind), "")


_NODES = re.compile(r'catalyst\.plans\.logical\.(\w+)"')

_IN_ORDER = ("Project", "Filter", "SubqueryAlias", "Generate", "EventTimeWatermark")
"""Nodes of a plan that leave the rows of a partition where they are."""


def tasks(rows: DataFrame, estimate: Estimate) -> int:
    """Tasks of a shuffle: one for few rows."""
    most = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return most if estimate.size is None else max(1, min(most, -(-estimate.size // _PARTITION_BYTES)))


# ---- The batch itself.

_UNKNOWN = Estimate(None, None)

_FEW_BYTES = 1024 * 1024
"""In Arrow form, as estimated: a few thousand rows, which take as many microseconds each as they have columns."""

_PARTITION_BYTES = 4 * 1024 * 1024
"""As estimated in Arrow form: what one task sorts, up to as many tasks as Spark uses for a shuffle."""

_LOCAL_FILES = "fs.file.impl"
_PLAIN_FILES = {
    _LOCAL_FILES: "org.apache.hadoop.fs.RawLocalFileSystem",
    # Else the session's own one is handed out, whatever class is asked for.
    f"{_LOCAL_FILES}.disable.cache": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Without native code Hadoop's local file systems start a process, ``chmod``, for each file and directory they make.
The usual one makes twice as many files, for checksums that only Hadoop reads. A manifest, not ``_SUCCESS``, says that
the files are whole. An epoch of one task starts two processes with this, nine without."""

_DICTIONARY = "parquet.dictionary.page.size"
DICTIONARY_BYTES = 128 * 1024
"""Up to which a column's distinct values are worth one. Up to the usual 1 MiB, a column of hardly any repetition is
hashed through tens of thousands of values before the writer gives up: a quarter of the time that it takes to write.
Who has columns that repeat among more values sets the same name in the session."""

_WORK = "_temporary/0/_temporary"
"""Where Hadoop's committer lets tasks write; removed by it at the end. What is there already needs no ``chmod``."""

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_USUAL_ROWS = "10000"  # Spark's own: any other number was said by the user, and stands
_LEAST_ROWS = 256
_PIECE_BYTES = 256 * 1024
"""As estimated. A Java array of half a megabyte is more than a region of a small heap holds, and each such array may
begin another marking of the whole heap: for 1M rows into Postgres the processor took 3.4 s with Spark's own number of
rows, and 1.6 s with this one."""

_RESULT_SIZE_LIMIT = re.compile(r"Total size of serialized results[^\n]*spark\.driver\.maxResultSize[^\n]*\)")
"""Spark knows no class and no condition for this."""


class SparkBatch:
    """The ``Batch`` contract over the DataFrame of ``foreachBatch``. It can be trimmed only with ``without``."""

    def __init__(
        self,
        df: DataFrame,
        estimate: Estimate,
        leave_out: frozenset[str] = frozenset(),
        without: Callable[[Trim], DataFrame] | None = None,
    ) -> None:
        self._df = df
        self._estimate = estimate
        self._leave_out = leave_out
        self._without = without
        self._engine = engine_for(df)
        self._schema = frames.arrow_schema(df)
        self._digest: Callable[[], Digest] | None = None
        self._clock: Clock | None = None
        self._times: Callable[[], RowTimes] = lambda: NO_TIMES

    @property
    def session(self) -> SparkSession:
        """Session of its rows."""
        return self._df.sparkSession

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema with timestamps in UTC."""
        return self._schema

    @property
    def estimate(self) -> Estimate:
        """Expected size."""
        return self._estimate

    @property
    def dataframe(self) -> DataFrame:
        """The observed DataFrame. Every access starts a new attempt."""
        if self._clock is None:
            observed = self._engine.observed(self._df, self._leave_out)
        else:
            from onceonly.spark import row_times

            observed = self._engine.observed(self._df, self._leave_out, batch_metrics=row_times.metrics(self._clock))
            self._times = lambda: row_times.from_metrics(observed.get())
        self._digest = lambda: digest.from_metrics(observed.get(), self._leave_out)
        return observed.dataframe

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Yield rows as they arrive at the driver (``TooLargeForDriver``). The digest exists after the last one."""
        self._digest = None
        rows_digest = Digest(0, left_out=tuple(sorted(self._leave_out)))
        hasher = digest.hashing(self._df.schema, self._leave_out) if self._few else None
        rows = self._df if hasher else self._engine.hashed(self._df, self._leave_out)
        asking = self._asking()
        for batch in self._brought(rows):
            rows_digest += hasher(batch) if hasher else digest.of_hashes(batch.columns[-1])
            asking(batch)
            yield frames.cast(batch if hasher else batch.select(range(batch.num_columns - 1)), self._schema)
        self._digest = lambda: rows_digest

    def _asking(self) -> Callable[[pa.RecordBatch], None]:
        """Return a function that reads event times from rows in the engine's own types."""
        if self._clock is None:
            return lambda _: None
        tally, at = TimeTally(self._clock), self._df.columns.index(self._clock.column)
        self._times = lambda: tally.times
        return lambda rows: tally.add(rows.column(at))

    def _brought(self, rows: DataFrame) -> Iterator[pa.RecordBatch]:
        """Yield rows as they arrive at the driver, in the engine's own types."""
        with self._pieces(), columns_refused(self.session), closing(self._engine.arrow(rows)) as batches, _collecting():
            yield from batches

    def _pieces(self) -> AbstractContextManager[None]:
        """Set the rows of a record batch, unless rows are few or the user set it."""
        if self._few or self._df.sparkSession.conf.get(_ROWS) != _USUAL_ROWS:
            return nullcontext()
        rows = _PIECE_BYTES // max(1, schema_width(self._schema, TEXT_BYTES))
        return frames.setting(self._df, _ROWS, str(min(max(rows, _LEAST_ROWS), int(_USUAL_ROWS))))

    @property
    def _few(self) -> bool:
        """Whether hashing the rows here is faster than compiling the hash in Spark."""
        return self._estimate.size is not None and self._estimate.size <= _FEW_BYTES

    @property
    def _tasks(self) -> int:
        return tasks(self._df, self._estimate)

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run ``task`` over every partition. Its ``OnceOnlyError`` is one that each of Spark's attempts raised."""
        # PySpark looks columns up by name there, and takes a dot for a path.
        numbered = self.dataframe.toDF(*map(str, range(len(self._schema))))
        # One action with an answer per task: of a task that ran twice Spark keeps one. ``foreachPartition`` has none.
        with columns_refused(self.session):
            answers = numbered.mapInArrow(_on_partition(task, self._schema), "answer string").collect()
        return [json.loads(row.answer) for row in answers]

    def write(self, directory: str, shape: Callable[[DataFrame], DataFrame] | None = None) -> None:
        """Write all rows as Parquet by Spark's own writer, times in microseconds, into a path or a URL of a store."""
        writer = (shape(self.dataframe) if shape else self.dataframe).write
        if not self._engine.hadoop_setting(self._df, _DICTIONARY):
            writer = writer.option(_DICTIONARY, str(DICTIONARY_BYTES))
        if is_local(directory) and not self._engine.hadoop_setting(self._df, _LOCAL_FILES):
            Path(directory, _WORK).mkdir(parents=True)
            writer = writer.mode("append").options(**_PLAIN_FILES)
        # Spark's own choice is INT96, which Arrow reads as nanoseconds: those end in the year 2262.
        with frames.setting(self._df, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
            writer.parquet(_spelled(directory))

    def reread(self, paths: tuple[str, ...], schema: pa.Schema) -> MaterializedRows:
        """Return rows from Parquet files. Their number is unknown."""
        session, ours = self._df.sparkSession, schema.equals(self._schema)
        if not paths:
            empty = self._df.limit(0) if ours else frames.of_arrow(session, schema.empty_table())
            return MaterializedRows(empty, _UNKNOWN)
        # Told the columns of this batch, Spark would look for them in files of others, and find nulls where there are
        # none, or swap two. What it wrote it knows from the files, which takes a job of its own.
        reader = session.read.schema(self._df.schema) if ours else session.read
        return MaterializedRows(reader.parquet(*map(_spelled, paths)), _UNKNOWN)

    def trimmed(self, trim: Trim) -> SparkBatch:
        """Return the batch without trimmed rows. ``TypeError``: its rows cannot be separated by position."""
        if self._without is None:
            raise TypeError("this batch cannot be trimmed")
        return SparkBatch(self._without(trim), self._estimate, self._leave_out)

    def timed(self, clock: Clock) -> Self:
        """Return a copy whose actions also read event times."""
        batch = copy(self)
        batch._clock = clock
        return batch

    def times(self) -> RowTimes:
        """Event times of the last attempt, as valid as its digest."""
        return self._times()

    def execute(self) -> Digest:
        """Run the whole plan and write nothing, as a skipped batch of a stateful query needs."""
        # Whoever returned without an action would leave the state uncommitted. ``noop`` reads every partition to its
        # end; what takes some rows and no more (``isEmpty``, ``limit``) leaves the state of the others behind.
        self.dataframe.write.format("noop").mode("append").save()
        return self.digest()

    def digest(self) -> Digest:
        """Digest of the last attempt. ``RuntimeError``: no action was started, or it was not read to the end."""
        if self._digest is None:
            raise RuntimeError("the batch was not read to its end, so it has no digest")
        return self._digest()


class MaterializedRows(SparkBatch):
    """Rows in files. Their writer has hashed them, so they are only read."""

    @property
    def dataframe(self) -> DataFrame:
        """The rows."""
        return self._df

    def shaped(self, shape: Callable[[DataFrame], DataFrame]) -> MaterializedRows:
        """Apply a transformation. Spark reads only the columns that it needs."""
        return MaterializedRows(shape(self._df), _UNKNOWN)


@contextmanager
def _collecting() -> Generator[None]:
    """Translate Spark's limit on collected results into ``TooLargeForDriver``."""
    try:
        yield
    except Exception as error:
        if limit := _RESULT_SIZE_LIMIT.search(str(error)):
            raise TooLargeForDriver(limit[0]) from error
        raise


@contextmanager
def columns_refused(session: SparkSession) -> Generator[None]:
    """Raise a task's own error or why it cannot run (E157: executors lack modules), in place of Spark's error."""
    try:
        yield
    except (OnceOnlyError, TooLargeForDriver):
        raise
    except Exception as error:
        if refusal := read_refusal.told_by(error) or versions.refusal(session):
            raise refusal from None
        raise


def _spelled(path: str) -> str:
    """Mark a path as local, whichever file system is Spark's default."""
    return f"file:{path}" if is_local(path) else path


def _on_partition(task: Task, schema: pa.Schema) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a task of Spark runs on an executor, and nowhere else")
        attempt = Attempt(context.partitionId(), context.taskAttemptId())
        answer = task(attempt, (frames.cast(batch, schema) for batch in batches))
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    return run
