# pyright: reportPrivateUsage=false
"""Read rows of a DataFrame through objects of the JVM.

Used where PySpark's public way is slower or holds too much. A small epoch has a few dozen calls into the JVM at most,
so objects that name columns and no batch are handed over once.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.types import StructType

from onceonly.spark import digest
from onceonly.spark.sources import java_class
from onceonly.spark.versions import SparkVersion

if TYPE_CHECKING:
    from typing_extensions import Self

# ---- Spool of record batches: read ahead in a thread, buffer or spill.
#
# Spark writes collected rows from the one thread that schedules the jobs of the whole application. While these rows
# wait for their reader, no other query makes progress. With a sink that paused for 5 s, a count of ten rows in
# another thread took 5.4 s. So a thread of the spool reads at once. Batches that the sink has not taken yet wait in
# memory or, beyond a bound, in a temporary file.

log = logging.getLogger(__name__)

MEMORY = 32 * 1024 * 1024
"""Bytes that may wait in memory."""

_PATIENCE = 5.0
"""Seconds that a read that was hung up may take to notice."""


@dataclass(frozen=True, slots=True)
class _Spilled:
    file: IO[bytes]
    schema: pa.Schema
    offset: int
    length: int


class Spool:
    """Iterate over the batches of a source, which is read ahead from the start.

    Args:
        source: read to its end by a thread of the spool.
        hang_up: unblocks a waiting read of ``source``. Called on a close before the end.
        memory: bytes that may wait in memory.

    Raises:
        Exception: while iterating: any error of ``source``, after the batches before it.
    """

    def __init__(
        self, source: Iterator[pa.RecordBatch], hang_up: Callable[[], None] = lambda: None, memory: int = MEMORY
    ) -> None:
        self._source = source
        self._hang_up = hang_up
        self._memory = memory
        self._changed = threading.Condition()
        self._waiting: deque[pa.RecordBatch | _Spilled] = deque()
        self._held = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._file: IO[bytes] | None = None
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="onceonly-spool", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                if self._error is not None:
                    raise self._error
                raise StopIteration
            item = self._waiting.popleft()
            if not isinstance(item, _Spilled):
                self._held -= item.get_total_buffer_size()
                self._changed.notify_all()
                return item
        return self._read_back(item)

    def close(self) -> None:
        """Stop reading and release all batches. May repeat."""
        with self._changed:
            self._closed = True
            ended = self._ended
            self._changed.notify_all()
        if not ended:
            self._hang_up()
        self._thread.join(_PATIENCE)
        self._waiting.clear()
        if self._file is not None:
            self._file.close()

    # ---- the reading thread

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for batch in self._source:
                if not self._take(batch):
                    break
        except BaseException as raised:  # noqa: BLE001  it is raised where the batches are asked for
            error = raised
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def _take(self, batch: pa.RecordBatch) -> bool:
        """Keep a batch, and return whether the spool is still open."""
        if not self._fits(batch) and (spilled := self._spill(batch)):
            return self._append(spilled)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._fits(batch))
            self._held += batch.get_total_buffer_size()
        return self._append(batch)

    def _append(self, item: pa.RecordBatch | _Spilled) -> bool:
        with self._changed:
            self._waiting.append(item)
            self._changed.notify_all()
            return not self._closed

    def _fits(self, batch: pa.RecordBatch) -> bool:
        """Check for room in memory. A batch larger than the bound fits if it is alone."""
        return not self._held or self._held + batch.get_total_buffer_size() <= self._memory

    def _spill(self, batch: pa.RecordBatch) -> _Spilled | None:
        """Write a batch to the file. ``None`` without room, and then the source waits."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="onceonly-", buffering=0)  # noqa: SIM115  closed with the spool
            offset = self._file.seek(0, os.SEEK_END)
            written = batch.serialize()
            length = self._file.write(written)
        except OSError as full:
            if not self._warned:
                self._warned = True
                log.warning(
                    "no room for rows that the sink has not taken yet (%s): until it takes some, Spark starts no job "
                    "of any query; free some, or point TMPDIR to another disk and restart",
                    full,
                )
            return None
        return _Spilled(self._file, batch.schema, offset, length) if length == written.size else None

    @staticmethod
    def _read_back(spilled: _Spilled) -> pa.RecordBatch:
        held = os.pread(spilled.file.fileno(), spilled.length, spilled.offset)
        return pa.ipc.read_record_batch(pa.py_buffer(held), spilled.schema)


# ---- Read rows of a DataFrame through objects of the JVM.


@dataclass(frozen=True, slots=True)
class Metrics:
    """Columns to observe, as the JVM takes them. They name columns and no batch, so they are reused."""

    first: Any
    rest: Any
    raw: tuple[Any, ...] = ()


def metrics(line: SparkVersion, df: DataFrame, columns: Sequence[Column]) -> Metrics:
    """Hand columns over to the JVM, for :class:`Observation`."""
    # ``DataFrame.observe`` builds them anew for each batch: hundreds of calls for the hash of a row, at about a tenth
    # of a millisecond each, where a whole epoch of 100 rows costs some milliseconds more than an empty callback.
    raw: Any = [column._jc for column in columns]
    return _metrics(line, df, raw)


def more(line: SparkVersion, df: DataFrame, shared_metrics: Metrics, columns: Sequence[Column]) -> Metrics:
    """Add metrics of one batch alone."""
    raw: Any = [column._jc for column in columns]
    return _metrics(line, df, [*shared_metrics.raw, *raw]) if raw else shared_metrics


def _metrics(line: SparkVersion, df: DataFrame, raw: Sequence[Any]) -> Metrics:
    return Metrics(raw[0], line.sequence(df.sparkSession.sparkContext, raw[1:]), tuple(raw))


def columns(line: SparkVersion, df: DataFrame, *spark_columns: Column) -> Any:
    """Hand columns over to the JVM, for :func:`select`. They name columns and no batch, so they are reused."""
    raw: Any = [column._jc for column in spark_columns]
    return line.sequence(df.sparkSession.sparkContext, raw)


def select(line: SparkVersion, df: DataFrame, selection: Any) -> DataFrame:
    """``DataFrame.select`` of columns that are in the JVM already."""
    # ``DataFrame.select`` takes Columns only, and hands each of them over again.
    jdf: Any = df._jdf
    return line.frame(jdf.select(selection), df.sparkSession)


@dataclass(frozen=True, slots=True)
class Hashes:
    """Columns that metrics read and no sink gets, as the JVM takes them. ``names`` are those to drop."""

    selection: Any
    names: Any


def hashes(line: SparkVersion, df: DataFrame, hash_columns: Mapping[str, Column]) -> Hashes | None:
    """Hand hashes over to the JVM, or return ``None`` for none."""
    if not hash_columns:
        return None
    names: Any = line.sequence(df.sparkSession.sparkContext, list(hash_columns))
    return Hashes(columns(line, df, f.col("*"), *hash_columns.values()), names)


class Observation:
    """``pyspark.sql.Observation`` with a third of its calls into the JVM."""

    def __init__(self, line: SparkVersion, df: DataFrame, metrics: Metrics, hashes: Hashes | None = None) -> None:
        jdf: Any = df._jdf
        self._line = line
        self._observation = java_class(df, "org.apache.spark.sql.Observation")()
        observed: Any = jdf.select(hashes.selection) if hashes else jdf
        observed = observed.observe(self._observation, metrics.first, metrics.rest)
        self.dataframe = line.frame(observed.drop(hashes.names) if hashes else observed, df.sparkSession)

    def get(self) -> Mapping[str, Any]:
        """Return the metrics by name. Waits for the end of the first action."""
        return self._line.metrics(self._observation)


@dataclass(frozen=True, slots=True)
class Digesting:
    """Columns that compute a digest, as the JVM takes them: building them takes hundreds of calls into the JVM.

    ``hashes`` are columns that ``metrics`` read besides those of the rows. ``hashed`` has all columns and the row's
    hash, to select if rows come to the driver: an observation costs a small epoch more than all its rows.
    """

    metrics: Metrics
    hashes: Hashes | None
    hashed: Any


_DigestingCache = dict[tuple["StructType", frozenset[str], tuple[digest.Summed, ...]], Digesting]

_digesting_cache: WeakKeyDictionary[SparkContext, _DigestingCache] = WeakKeyDictionary()
"""By schema and what the digest leaves out; for one application, since the columns are objects of its JVM."""


def digesting(
    line: SparkVersion, df: DataFrame, leave_out: frozenset[str], summed: tuple[digest.Summed, ...] = ()
) -> Digesting:
    """Return the digest columns for a schema, made once for an application and kept."""
    cache = _digesting_cache.setdefault(df.sparkSession.sparkContext, {})
    key = (df.schema, leave_out, summed)
    if key not in cache:
        hashed = columns(line, df, f.col("*"), digest.row_hash(df.schema, leave_out).alias(digest.HASH))
        observable = digest.observable(*key)
        cache[key] = Digesting(metrics(line, df, observable.metrics), hashes(line, df, observable.hashes), hashed)
    return cache[key]


class ArrowStream:
    """Collect a DataFrame as record batches in the order in which partitions finish. The job begins with the object.

    ``DataFrame.toArrow`` keeps all batches until the last has come, only to restore their order, which no sink needs.
    Here a thread reads them at once (:class:`Spool`). Its bound limits memory, however large the epoch.
    """

    def __init__(self, line: SparkVersion, df: DataFrame) -> None:
        jdf: Any = df._jdf
        # The public ways: ``collect`` brings rows as pickled objects, 13k a second where Arrow brings 190k and more;
        # ``toLocalIterator`` runs a job for each partition, so Spark cannot notice a shuffle that was computed again
        # between two of them, and rows may repeat.
        answer: Any = jdf.collectAsArrowToPython()
        # By Java's own means: an array that is unpacked or indexed here is asked for its length each time.
        item = java_class(df, "java.lang.reflect.Array").get
        port, secret, self._server = item(answer, 0), item(answer, 1), item(answer, 2)
        self._file, self._socket = line.connect((port, secret))
        self._spool = Spool(_batches(self._file), self._hang_up)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._spool
        except GeneratorExit:
            raise  # whoever takes no more rows does not ask how the job ended
        except BaseException:
            with unwrap_spark_exception():
                self._server.getResult()  # what broke the stream, if it was the job
            raise
        # What ended the job comes by this answer alone, and as the error that PySpark makes of it everywhere else.
        with unwrap_spark_exception():
            self._server.getResult()

    def close(self) -> None:
        """Close the connection, and cancel a job that has not ended. May repeat."""
        self._spool.close()
        self._file.close()
        self._socket.close()

    def _hang_up(self) -> None:
        # A read that waits in the spool's thread does not notice that its socket is closed, only that it is shut down.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _batches(file: Any) -> Iterator[pa.RecordBatch]:
    for item in ArrowCollectSerializer().load_stream(file):
        # The last item is the order of the partitions, which nobody here wants back.
        if isinstance(item, pa.RecordBatch):
            yield item
