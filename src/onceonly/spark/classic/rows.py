# pyright: reportPrivateUsage=false
"""Read rows of a DataFrame through objects of the JVM.

Used where PySpark's public way is slower or holds too much. A small epoch has a few dozen calls into the JVM at most,
so objects that name columns and no batch are handed over once.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from onceonly.spark import digest
from onceonly.spark.batch_spool import Spool
from onceonly.spark.sources import java_class
from onceonly.spark.versions import SparkVersion

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


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


def more(line: SparkVersion, df: DataFrame, known: Metrics, columns: Sequence[Column]) -> Metrics:
    """Add metrics of one batch alone."""
    raw: Any = [column._jc for column in columns]
    return _metrics(line, df, [*known.raw, *raw]) if raw else known


def _metrics(line: SparkVersion, df: DataFrame, raw: Sequence[Any]) -> Metrics:
    return Metrics(raw[0], line.sequence(df.sparkSession.sparkContext, raw[1:]), tuple(raw))


def columns(line: SparkVersion, df: DataFrame, *wanted: Column) -> Any:
    """Hand columns over to the JVM, for :func:`select`. They name columns and no batch, so they are reused."""
    raw: Any = [column._jc for column in wanted]
    return line.sequence(df.sparkSession.sparkContext, raw)


def select(line: SparkVersion, df: DataFrame, wanted: Any) -> DataFrame:
    """``DataFrame.select`` of columns that are in the JVM already."""
    # ``DataFrame.select`` takes Columns only, and hands each of them over again.
    jdf: Any = df._jdf
    return line.frame(jdf.select(wanted), df.sparkSession)


@dataclass(frozen=True, slots=True)
class Hashes:
    """Columns that metrics read and no sink gets, as the JVM takes them. ``names`` are those to drop."""

    wanted: Any
    names: Any


def hashes(line: SparkVersion, df: DataFrame, found: Mapping[str, Column]) -> Hashes | None:
    """Hand hashes over to the JVM, or return ``None`` for none."""
    from pyspark.sql import functions as f

    if not found:
        return None
    names: Any = line.sequence(df.sparkSession.sparkContext, list(found))
    return Hashes(columns(line, df, f.col("*"), *found.values()), names)


class Observation:
    """``pyspark.sql.Observation`` with a third of its calls into the JVM."""

    def __init__(self, line: SparkVersion, df: DataFrame, metrics: Metrics, hashes: Hashes | None = None) -> None:
        jdf: Any = df._jdf
        self._line = line
        self._found = java_class(df, "org.apache.spark.sql.Observation")()
        observed: Any = jdf.select(hashes.wanted) if hashes else jdf
        observed = observed.observe(self._found, metrics.first, metrics.rest)
        self.dataframe = line.frame(observed.drop(hashes.names) if hashes else observed, df.sparkSession)

    def get(self) -> Mapping[str, Any]:
        """Return the metrics by name. Waits for the end of the first action."""
        return self._line.metrics(self._found)


@dataclass(frozen=True, slots=True)
class Digesting:
    """Columns that compute a digest, as the JVM takes them: building them takes hundreds of calls into the JVM.

    Attributes:
        metrics: to observe, if rows do not come to the driver.
        hashes: columns that these read besides those of the rows.
        hashed: all columns and the hash of the row, to select if rows come to the driver. An observation costs a small
            epoch more than all its rows.
    """

    metrics: Metrics
    hashes: Hashes | None
    hashed: Any


_Known = dict[tuple["StructType", frozenset[str], tuple[digest.Summed, ...]], Digesting]

_known: WeakKeyDictionary[SparkContext, _Known] = WeakKeyDictionary()
"""By schema and what the digest leaves out; for one application, since the columns are objects of its JVM."""


def digesting(
    line: SparkVersion, df: DataFrame, leave_out: frozenset[str], summed: tuple[digest.Summed, ...] = ()
) -> Digesting:
    """Return the digest columns for a schema, made once for an application and kept."""
    from pyspark.sql import functions as f

    known = _known.setdefault(df.sparkSession.sparkContext, {})
    key = (df.schema, leave_out, summed)
    if key not in known:
        hashed = columns(line, df, f.col("*"), digest.row_hash(df.schema, leave_out).alias(digest.HASH))
        found = digest.observable(*key)
        known[key] = Digesting(metrics(line, df, found.metrics), hashes(line, df, found.hashes), hashed)
    return known[key]


class ArrowStream:
    """Collect a DataFrame as record batches in the order in which partitions finish. The job begins with the object.

    ``DataFrame.toArrow`` keeps all batches until the last has come, only to restore their order, which no sink needs.
    Here a thread reads them at once (``batch_spool``). Its bound limits memory, however large the epoch.
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
        from pyspark.errors.exceptions.captured import unwrap_spark_exception

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
    import pyarrow as pa
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer

    for item in ArrowCollectSerializer().load_stream(file):
        # The last item is the order of the partitions, which nobody here wants back.
        if isinstance(item, pa.RecordBatch):
            yield item
