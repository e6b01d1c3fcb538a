"""Spark's micro-batch behind the ``Batch`` contract: each way of reading it runs one action and fills the digest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from onceonly import digest, frames, refusals, rowhash
from onceonly.estimate import TEXT_BYTES, schema_width
from onceonly.protocol import Attempt, Estimate, Task, TooLargeForDriver
from onceonly.trim import Trim
from onceonly_checkpoints.epoch import Digest
from onceonly_checkpoints.storage import is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_HASH = "onceonly row hash"

_FEW_BYTES = 1024 * 1024
"""In Arrow form, as estimated: a few thousand rows, which take as many microseconds each as they have columns."""

_LOCAL_FILES = "fs.file.impl"
_PLAIN_FILES = {
    _LOCAL_FILES: "org.apache.hadoop.fs.RawLocalFileSystem",
    # Else the session's own one is handed out, whatever class is asked for.
    f"{_LOCAL_FILES}.disable.cache": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Without native code Hadoop's local file systems start a process, ``chmod``, for each file and directory they make.
The usual one makes twice as many files, for checksums that only Hadoop reads. A manifest, not ``_SUCCESS``, says that
the files are whole."""

_DICTIONARY = "parquet.dictionary.page.size"
_DICTIONARY_BYTES = 128 * 1024
"""Up to which a column's distinct values are worth one. Up to the usual 1 MiB, a column of hardly any repetition is
hashed through tens of thousands of values before the writer gives up: a quarter of the time that it takes to write.
Who has columns that repeat among more values sets the same name in the session."""

_WORK = "_temporary/0/_temporary"
"""Where Hadoop's committer lets tasks write; removed by it at the end. What is there already needs no ``chmod``."""

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_USUAL_ROWS = "10000"
_LEAST_ROWS = 256
_PIECE_BYTES = 256 * 1024
"""As estimated. A Java array of half a megabyte is more than a region of a small heap holds, and each such array may
begin another marking of the whole heap: with Spark's own number of rows, collecting them took twice the time of the
processor in the garbage collector."""

_BEYOND = re.compile(r"Total size of serialized results[^\n]*spark\.driver\.maxResultSize[^\n]*\)")
"""Spark knows no class and no condition for this."""


@dataclass(frozen=True, slots=True)
class _Digesting:
    """What computes a digest, as the JVM takes it: building it takes hundreds of calls into the JVM.

    Attributes:
        metrics: to observe, where rows do not come to the driver.
        hashed: all columns and the hash of the row, to select where they do: an observation costs a small epoch more
            than all its rows.
    """

    metrics: frames.Metrics
    hashed: Any


_Known = dict[tuple["StructType", frozenset[str]], _Digesting]

_known: WeakKeyDictionary[SparkContext, _Known] = WeakKeyDictionary()
"""By schema and what the digest leaves out."""


class SparkBatch:
    """The ``Batch`` contract over the DataFrame that ``foreachBatch`` hands out.

    Args:
        df: the batch.
        estimate: expected size.
        leave_out: columns that the digest leaves out.
        without: makes the same DataFrame without the rows that a trim leaves out; ``None`` where there is no such way.
    """

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
        self._schema = frames.arrow_schema(df)
        self._digest: Callable[[], Digest] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema; timestamps are UTC."""
        return self._schema

    @property
    def estimate(self) -> Estimate:
        """Expected size."""
        return self._estimate

    @property
    def dataframe(self) -> DataFrame:
        """The observed DataFrame; every access starts a new attempt."""
        observation = frames.Observation(self._df, self._digesting.metrics)
        self._digest = lambda: digest.from_metrics(observation.get(), self._leave_out)
        return observation.dataframe

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Rows as they arrive at the driver; there is a digest once the last one has.

        Raises:
            TooLargeForDriver: there are more than Spark brings to a driver.
        """
        self._digest = None
        found = Digest(0, left_out=tuple(sorted(self._leave_out)))
        here = rowhash.hashing(self._df.schema, self._leave_out) if self._few else None
        rows = self._df if here else frames.select(self._df, self._digesting.hashed)
        with self._pieces(), closing(frames.ArrowStream(rows)) as batches, _collecting():
            for batch in batches:
                found += here(batch) if here else digest.of_hashes(batch.columns[-1])
                yield _cast(batch if here else batch.select(range(batch.num_columns - 1)), self._schema)
        self._digest = lambda: found

    def _pieces(self) -> AbstractContextManager[None]:
        """Say how many rows a record batch has, unless they are few or the user said it."""
        if self._few or self._df.sparkSession.conf.get(_ROWS) != _USUAL_ROWS:
            return nullcontext()
        rows = _PIECE_BYTES // max(1, schema_width(self._schema, TEXT_BYTES))
        return frames.setting(self._df, _ROWS, str(min(max(rows, _LEAST_ROWS), int(_USUAL_ROWS))))

    @property
    def _few(self) -> bool:
        """Whether hashing the rows here takes less than having the hash compiled."""
        return self._estimate.size is not None and self._estimate.size <= _FEW_BYTES

    @property
    def _digesting(self) -> _Digesting:
        from pyspark.sql import functions as f

        known = _known.setdefault(self._df.sparkSession.sparkContext, {})
        key = (self._df.schema, self._leave_out)
        if key not in known:
            hashed = frames.columns(self._df, f.col("*"), digest.row_hash(*key).alias(_HASH))
            known[key] = _Digesting(frames.metrics(self._df, digest.metrics(*key)), hashed)
        return known[key]

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run ``task`` over every partition.

        Raises:
            OnceOnlyError: what a task raised each time that Spark tried it.
        """
        # PySpark looks columns up by name there, and takes a dot for a path.
        numbered = self.dataframe.toDF(*map(str, range(len(self._schema))))
        with _told():
            answers = numbered.mapInArrow(_on_partition(task, self._schema), "answer string").collect()
        return [json.loads(row.answer) for row in answers]

    def write(self, directory: str) -> None:
        """Write all rows as Parquet by Spark's own writer, times in microseconds, into a path or a URL of a store."""
        writer = self.dataframe.write
        if not frames.hadoop_setting(self._df, _DICTIONARY):
            writer = writer.option(_DICTIONARY, str(_DICTIONARY_BYTES))
        if is_local(directory) and not frames.hadoop_setting(self._df, _LOCAL_FILES):
            Path(directory, _WORK).mkdir(parents=True)
            writer = writer.mode("append").options(**_PLAIN_FILES)
        with frames.setting(self._df, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
            writer.parquet(_spelled(directory))

    def reread(self, paths: tuple[str, ...]) -> SparkBatch:
        """The same columns out of Parquet files; the number of rows is not known here."""
        reader = self._df.sparkSession.read.schema(self._df.schema)
        found = reader.parquet(*map(_spelled, paths)) if paths else self._df.limit(0)
        return SparkBatch(found, Estimate(None, None), self._leave_out)

    def trimmed(self, trim: Trim) -> SparkBatch:
        """The batch without the rows that are left out.

        Raises:
            TypeError: its rows cannot be told apart by position.
        """
        if self._without is None:
            raise TypeError("this batch cannot be trimmed")
        return SparkBatch(self._without(trim), self._estimate, self._leave_out)

    def execute(self) -> Digest:
        """Run the whole plan and write nothing: what a skipped batch of a stateful query needs."""
        self.dataframe.write.format("noop").mode("append").save()
        return self.digest()

    def digest(self) -> Digest:
        """Digest of the last attempt.

        Raises:
            RuntimeError: no action was started, or its rows were not taken to the last.
        """
        if self._digest is None:
            raise RuntimeError("the batch was not read to its end, so it has no digest")
        return self._digest()


@contextmanager
def _collecting() -> Generator[None]:
    """Tell Spark's own limit of what it collects from everything else that ends a job."""
    try:
        yield
    except Exception as error:
        if limit := _BEYOND.search(str(error)):
            raise TooLargeForDriver(limit[0]) from error
        raise


@contextmanager
def _told() -> Generator[None]:
    """Raise what a task raised, and not the error that Spark makes of it."""
    try:
        yield
    except Exception as error:
        if told := refusals.told_by(error):
            raise told from None
        raise


def _spelled(place: str) -> str:
    """A path is one of this machine, whichever file system is Spark's default."""
    return f"file:{place}" if is_local(place) else place


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns under their own names and types; a cast of none forgets how many rows there are."""
    return batch.rename_columns(schema.names).cast(schema) if schema.names else batch


def _on_partition(task: Task, schema: pa.Schema) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = Attempt(context.partitionId(), context.taskAttemptId())
        answer = task(attempt, (_cast(batch, schema) for batch in batches))
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    return run
