# pyright: reportPrivateUsage=false
"""Differences between PySpark's minor versions, as values of a :class:`SparkVersion`.

:mod:`onceonly.spark.detect` finds the line of the running PySpark. All other code takes differences from that line
and never checks the version. The defaults are those of the newest line. Each older one overrides its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onceonly.errors import refuse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def minor_of(version: str) -> str:
    """Return the minor version: ``4.2`` of ``4.2.0``."""
    return ".".join(version.split(".")[:2])


# ---- As the newest line has it.


def _named_ids(execution: Any, sources: Sequence[Any]) -> list[str]:
    # The position among the sources is not enough: a source that has a name is logged under it.
    ids = execution.sourceToIdMap()
    return [str(ids.apply(source)) for source in sources]


def _schema_at_utc(columns: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    # Without a zone, these lines refuse a schema with times.
    schema: pa.Schema = to_arrow_schema(columns, timezone="UTC")
    return schema


def _create(session: SparkSession, table: pa.Table, columns: StructType) -> DataFrame:
    return session.createDataFrame(table, columns)


def _connect(address: tuple[Any, Any]) -> tuple[Any, Any]:
    # Not ``_create_local_socket``, which keeps the socket to itself before 4.2: without it nobody could wake a read
    # that waits, and a stream that is closed early would leave its thread behind.
    from pyspark.util import local_connect_and_auth

    return _patient(local_connect_and_auth, address)


def _patient(authenticate: Any, address: tuple[Any, Any]) -> tuple[Any, Any]:
    file, socket = authenticate(*address)
    socket.settimeout(None)  # a job takes as long as it takes
    return file, socket


def _sequence(context: SparkContext, columns: Sequence[Any]) -> Any:
    from pyspark.sql.classic.column import _to_seq

    return _to_seq(context, columns)


def _frame(jdf: Any, session: SparkSession) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    return Classic(jdf, session)


def _metrics_row(observation: Any) -> Mapping[str, Any]:
    import json

    # As text in one call; PySpark's way pickles the row in the JVM for it.
    values: Mapping[str, Any] = json.loads(observation.getRow().json())
    return values


def _batches(rows: Iterator[pa.RecordBatch], _: pa.Schema) -> Iterator[pa.RecordBatch]:
    return rows


@dataclass(frozen=True, slots=True)
class Delta:
    """Build of Delta for a line: jar without its version, ``delta-spark_4.2_2.13``, version of jar and Python package.

    ``extra`` is that of this distribution, which brings the package.
    """

    jar: str
    version: str = "4.4.0"
    extra: str = "delta-spark"

    @property
    def name(self) -> str:
        """Name of the jar without its Scala version."""
        return self.jar.rpartition("_")[0]


@dataclass(frozen=True, slots=True)
class SparkVersion:
    """One minor version of PySpark.

    Attributes:
        state_writer: the common Java class of all physical operators that keep state.
        source_ids: ids in the offset log of a running query and its sources, in the order of the plan.
        arrow_schema: Arrow schema with times in UTC. Raises ``TypeError`` for a type that Arrow lacks.
        connect: a file and its socket, to read from the JVM at an address of a port and a secret.
        metrics: results of a Java ``Observation``, by name. Waits for it.
        stream_writer: PySpark's class that writes the rows of a stream's task for a data source.
        batches: input of such a writer, as Arrow batches of these columns, times in UTC.
        condition: the method of an error, here and in the JVM, that returns its stable name.
        kafka: version of the jars of Spark's Kafka source: the newest of this minor version that resolves, which may be
            older than Spark itself. ``None``: none was found.
        kafka_tokens: version of the jar that this source takes tokens from.
        java: releases of Java that Spark names, without those that onceonly does not run on.
        java_vectors: whether Spark starts only on a Java with the module ``jdk.incubator.vector``.
    """

    minor: str
    state_writer: str = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"
    source_ids: Callable[[Any, Sequence[Any]], list[str]] = _named_ids
    arrow_schema: Callable[[StructType], pa.Schema] = _schema_at_utc
    of_arrow: Callable[[SparkSession, pa.Table, StructType], DataFrame] = _create
    connect: Callable[[tuple[Any, Any]], tuple[Any, Any]] = _connect
    sequence: Callable[[SparkContext, Sequence[Any]], Any] = _sequence
    frame: Callable[[Any, SparkSession], DataFrame] = _frame
    metrics: Callable[[Any], Mapping[str, Any]] = _metrics_row
    stream_writer: str = "DataSourceStreamArrowWriter"
    batches: Callable[[Iterator[Any], pa.Schema], Iterator[pa.RecordBatch]] = _batches
    spark_connect: bool = True
    data_source: bool = True
    condition: str = "getCondition"
    scala: str = "2.13"
    delta: Delta | None = None
    kafka: str | None = None
    # Only delegation tokens need it, and its interface did not change since: some mirrors lack the later versions.
    kafka_tokens: str = "4.0.0"
    java: tuple[int, ...] = (17, 21)
    java_vectors: bool = True

    @property
    def kafka_jar(self) -> str:
        """Name of the jar with Spark's Kafka source, without its version: ``spark-sql-kafka-0-10_2.13``."""
        return f"spark-sql-kafka-0-10_{self.scala}"


# ---- What is a line's own. Each line has what the next newer one has, but for what it says here.


def _positions(_: Any, sources: Sequence[Any]) -> list[str]:
    # Sources have no names before 4.2, so their log knows them by position alone.
    return [str(at) for at in range(len(sources))]


def _schema(columns: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    # Times are in UTC always; there is no argument for it before 4.2.
    schema: pa.Schema = to_arrow_schema(columns)
    return schema


_4_3 = SparkVersion("4.3")
_4_2 = replace(_4_3, minor="4.2", delta=Delta("delta-spark_4.2_2.13"), kafka="4.2.0")
_4_1 = replace(
    _4_2, minor="4.1", source_ids=_positions, arrow_schema=_schema, delta=Delta("delta-spark_4.1_2.13"), kafka="4.1.3"
)


_ROWS_PER_BATCH = 10_000


def _batches_of_rows(rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # Before 4.1 PySpark makes a row of each line of the Arrow batches that it has itself.
    import pyarrow as pa

    while piece := _collect_rows(rows):
        values = zip(*piece, strict=True)
        columns = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _collect_rows(rows: Iterator[Any]) -> list[Any]:
    # It gives times by the clock of this machine and without a zone, so that an hour which a clock passes twice would
    # be taken for the one before it. While it makes them, this process has a clock that passes none twice.
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        return list(islice(rows, _ROWS_PER_BATCH))
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


_4_0 = replace(
    _4_1,
    minor="4.0",
    # The package ``operators.stateful`` is new in 4.1.
    state_writer="org.apache.spark.sql.execution.streaming.StateStoreWriter",
    # ``getRow`` left ``Observation`` in 4.0 and came back in 4.1.
    metrics=lambda observation: dict(observation.getAsJava()),
    stream_writer="DataSourceStreamWriter",
    batches=_batches_of_rows,
    delta=Delta("delta-spark_4.0_2.13"),
    kafka="4.0.4",
)


def _create_by_stream(session: SparkSession, table: pa.Table, columns: StructType) -> DataFrame:
    # ``createDataFrame`` takes a table from 4.0 on. This is what it does there, by the calls with which 3.5 takes
    # pandas; through pandas itself, whole numbers with a null would become floats.
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    own: Any = session
    java, context = own._jvm, own._sc
    rows = context._serialize_to_jvm(
        table.cast(_schema(columns)).to_batches(),
        ArrowStreamSerializer(),
        java.PythonSQLUtils.readArrowStreamFromFile,
        java.ArrowIteratorServer,
    )
    return _frame_3_5(java.PythonSQLUtils.toDataFrame(rows, columns.json(), own._jsparkSession), session)


def _connect_3_5(address: tuple[Any, Any]) -> tuple[Any, Any]:
    from pyspark.java_gateway import local_connect_and_auth  # pyright: ignore[reportPrivateImportUsage]

    return _patient(local_connect_and_auth, address)


def _sequence_3_5(context: SparkContext, columns: Sequence[Any]) -> Any:
    # There is no package ``pyspark.sql.classic``: the classic classes are the only ones.
    from pyspark.sql.column import _to_seq  # pyright: ignore[reportAttributeAccessIssue]

    return _to_seq(context, columns)


def _frame_3_5(jdf: Any, session: SparkSession) -> DataFrame:
    from pyspark.sql.dataframe import DataFrame as Classic

    make: Any = Classic
    made: DataFrame = make(jdf, session)
    return made


_3_5 = replace(
    _4_0,
    minor="3.5",
    of_arrow=_create_by_stream,
    connect=_connect_3_5,
    sequence=_sequence_3_5,
    frame=_frame_3_5,
    metrics=_metrics_row,
    # Its package brings no server, and its batches are not handed to a worker in the same way.
    spark_connect=False,
    data_source=False,
    # Conditions were called error classes.
    condition="getErrorClass",
    # The PySpark of the package index; a Spark that was built with Scala 2.13 needs other jars.
    scala="2.12",
    # Delta 3.3 was built for one Spark only, so its jar names none.
    delta=Delta("delta-spark_2.12", "3.3.3", extra="delta-spark-3-5"),
    kafka="3.5.7",
    kafka_tokens="3.5.7",
    java=(11, 17),
    java_vectors=False,
)

LINES: Mapping[str, SparkVersion] = MappingProxyType({line.minor: line for line in (_3_5, _4_0, _4_1, _4_2, _4_3)})
"""Lines by minor version, oldest first."""

# ---- Check the executors' Python after a task has failed.
#
# A job of its own checks whether executors can run Python tasks. It runs only after a failure: most epochs never run
# Python on executors, depending on their size and sinks.

_NEEDED = ("pyarrow", "onceonly", "onceonly_checkpoints", "onceonly_sinks")
"""What a task imports, whatever it does."""

_NOT_STARTED = ("org.apache.spark.api.python.PythonException", "java.io.IOException")
"""What Spark makes of an interpreter that is not there, or that is of another release than the driver's."""


def refusal(session: SparkSession) -> Exception | None:
    """Return why executors cannot run Python tasks. ``None``: they can, or it is unknown, as on Spark Connect."""
    context: Any = getattr(session, "sparkContext", None)
    if context is None or not (problem := _problem(context)):
        return None
    return refuse("E157", python=context.pythonExec, problem=problem, driver=sys.executable)


def _problem(context: Any) -> str:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    needed = _NEEDED

    def find_missing(_: Iterator[int]) -> Iterator[tuple[str, list[str]]]:
        # Within a function, and so sent as it is: over there is perhaps no package of ours to look it up in.
        import importlib
        import sys

        lacks: list[str] = []
        for name in needed:
            try:
                importlib.import_module(name)
            except ImportError as error:
                lacks.append(f"{name} ({error})")
        yield sys.executable, lacks

    try:
        [(executable, lacks)] = context.parallelize([0], 1).mapPartitions(find_missing).collect()
    except (Py4JError, PySparkException) as error:
        java = _causes(error)
        return f"it does not run a task: {java[0]}" if java else ""
    return f"{executable} cannot import {', '.join(lacks)}" if lacks else ""


def _causes(error: Exception) -> list[str]:
    """List Java's error texts about an interpreter, the outermost first. Of a traceback, its last line."""
    messages: list[str] = []
    java: Any = getattr(error, "java_exception", None)
    while java is not None:
        if java.getClass().getName() in _NOT_STARTED:
            messages.append(str(java.getMessage()).strip().splitlines()[-1])
        java = java.getCause()
    return messages
