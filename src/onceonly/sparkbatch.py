"""Spark's micro-batch behind the ``Batch`` contract: each way of reading it runs one action and fills the digest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from onceonly import digest, frames
from onceonly.protocol import Attempt, Estimate, Task
from onceonly_checkpoints.epoch import Digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_Known = dict[tuple["StructType", frozenset[str]], frames.Metrics]

_known_metrics: WeakKeyDictionary[SparkContext, _Known] = WeakKeyDictionary()
"""Metrics of the digest by schema and what it leaves out: building them takes hundreds of calls into the JVM."""


class SparkBatch:
    """The ``Batch`` contract over the DataFrame that ``foreachBatch`` hands out.

    Args:
        df: the batch.
        estimate: expected size.
        leave_out: columns that the digest leaves out.
    """

    def __init__(self, df: DataFrame, estimate: Estimate, leave_out: frozenset[str] = frozenset()) -> None:
        self._df = df
        self._estimate = estimate
        self._leave_out = leave_out
        self._schema = frames.arrow_schema(df)
        self._observation: frames.Observation | None = None

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
        self._observation = frames.Observation(self._df, _metrics(self._df, self._leave_out))
        return self._observation.dataframe

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Rows as they arrive at the driver."""
        for batch in frames.stream_arrow(self.dataframe):
            yield batch.cast(self._schema)

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run ``task`` over every partition."""
        answers = self.dataframe.mapInArrow(_on_partition(task, self._schema), "answer string").collect()
        return [json.loads(row.answer) for row in answers]

    def write(self, directory: str) -> None:
        """Write all rows as Parquet by Spark's own writer, times in microseconds."""
        with frames.setting(self._df, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
            self.dataframe.write.parquet(directory)

    def reread(self, paths: tuple[str, ...]) -> SparkBatch:
        """The same columns out of Parquet files; the number of rows is not known here."""
        found = self._df.sparkSession.read.schema(self._df.schema).parquet(*paths) if paths else self._df.limit(0)
        return SparkBatch(found, Estimate(None, None), self._leave_out)

    def execute(self) -> Digest:
        """Run the whole plan and write nothing: what a skipped batch of a stateful query needs."""
        self.dataframe.write.format("noop").mode("append").save()
        return self.digest()

    def digest(self) -> Digest:
        """Digest of the last attempt.

        Raises:
            RuntimeError: no action was started.
        """
        if self._observation is None:
            raise RuntimeError("the batch was not read yet, so it has no digest")
        return digest.from_metrics(self._observation.get())


def _metrics(df: DataFrame, leave_out: frozenset[str]) -> frames.Metrics:
    known = _known_metrics.setdefault(df.sparkSession.sparkContext, {})
    key = (df.schema, leave_out)
    if key not in known:
        known[key] = frames.metrics(df, digest.metrics(*key))
    return known[key]


def _on_partition(task: Task, schema: pa.Schema) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = Attempt(context.partitionId(), context.taskAttemptId())
        answer = task(attempt, (batch.cast(schema) for batch in batches))
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    return run
