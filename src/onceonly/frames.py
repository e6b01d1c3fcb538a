# pyright: reportPrivateUsage=false
"""What is done with a batch's DataFrame: observed, streamed to the driver; by privates where PySpark's own way is slow.

A call into the JVM costs about a tenth of a millisecond on both sides, and a small epoch has a few dozen at most.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.carried import USER_DEFINED
from onceonly.spool import Spool

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def java_class(df: DataFrame, name: str) -> Any:
    """A Java class by its full name.

    Asked for by its path (``jvm.java.util.UUID``), each part of the name would be searched in all jars: milliseconds.
    """
    return class_in(df.sparkSession.sparkContext, name)


def class_in(context: SparkContext, name: str) -> Any:
    """The same without a DataFrame, for what outlives a batch."""
    from py4j.java_gateway import JavaClass

    gateway: Any = context._gateway
    return JavaClass(name, gateway._gateway_client)


def arrow_schema(df: DataFrame) -> pa.Schema:
    """Arrow schema of a DataFrame; timestamps are UTC. A column whose type Arrow lacks says what it stands for."""
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = df.schema
    try:
        schema: pa.Schema = to_arrow_schema(columns, timezone="UTC")
    except TypeError:
        return _column_by_column(columns)
    for at, column in enumerate(columns.fields):
        if (name := _beyond_arrow(column.dataType)) is not None:
            schema = schema.set(at, schema.field(at).with_metadata({USER_DEFINED: name}))
    return schema


def _column_by_column(columns: StructType) -> pa.Schema:
    """The schema where PySpark has no Arrow type at all for some column, whose rows no sink can get."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    fields: list[pa.Field[Any]] = []
    for column in columns.fields:
        try:
            fields.append(to_arrow_schema(StructType([column]), timezone="UTC").field(0))
        except TypeError:
            fields.append(pa.field(column.name, pa.null(), metadata={USER_DEFINED: column.dataType.simpleString()}))
    return pa.schema(fields)


def _beyond_arrow(kind: DataType) -> str | None:
    """Name of a user-defined type in a type: Arrow gets what it is stored in."""
    from pyspark.sql import types as t

    match kind:
        case t.UserDefinedType():
            return f"the user-defined type {type(kind).__name__}"
        case t.ArrayType():
            return _beyond_arrow(kind.elementType)
        case t.MapType():
            return _beyond_arrow(kind.keyType) or _beyond_arrow(kind.valueType)
        case t.StructType():
            return next((name for one in kind.fields if (name := _beyond_arrow(one.dataType))), None)
        case _:
            return None


def of_arrow(session: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of Arrow rows, in the types that a DataFrame's own rows have in Arrow."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # Spark 4.2 takes an empty batch for the end of the table: the rows behind one would be lost without a word.
    whole = table.combine_chunks()
    return session.createDataFrame(whole, from_arrow_schema(whole.schema, prefer_timestamp_ntz=True))


@dataclass(frozen=True, slots=True)
class Metrics:
    """Columns to observe, as the JVM takes them: they name columns and no batch, so they serve for many."""

    first: Any
    rest: Any


def metrics(df: DataFrame, columns: Sequence[Column]) -> Metrics:
    """Hand columns over to the JVM."""
    from pyspark.sql.classic.column import _to_seq

    raw: Any = [column._jc for column in columns]
    return Metrics(raw[0], _to_seq(df.sparkSession.sparkContext, raw[1:]))


def columns(df: DataFrame, *wanted: Column) -> Any:
    """Hand columns over to the JVM, for :func:`select`: they name columns and no batch, so they serve for many."""
    from pyspark.sql.classic.column import _to_seq

    raw: Any = [column._jc for column in wanted]
    return _to_seq(df.sparkSession.sparkContext, raw)


def select(df: DataFrame, wanted: Any) -> DataFrame:
    """``DataFrame.select`` of columns that are in the JVM already."""
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    jdf: Any = df._jdf
    return Classic(jdf.select(wanted), df.sparkSession)


class Observation:
    """What ``pyspark.sql.Observation`` is, in a third of its calls into the JVM.

    Args:
        df: what to observe.
        metrics: columns to compute in the first action on :attr:`dataframe`.

    Attributes:
        dataframe: the observed DataFrame.
    """

    def __init__(self, df: DataFrame, metrics: Metrics) -> None:
        from pyspark.sql.classic.dataframe import DataFrame as Classic

        jdf: Any = df._jdf
        self._found = java_class(df, "org.apache.spark.sql.Observation")()
        self.dataframe: DataFrame = Classic(jdf.observe(self._found, metrics.first, metrics.rest), df.sparkSession)

    def get(self) -> Mapping[str, Any]:
        """The metrics by name; waits for the end of the first action."""
        values: Mapping[str, Any] = json.loads(self._found.getRow().json())
        return values


@contextmanager
def setting(df: DataFrame, name: str, value: str) -> Generator[None]:
    """Set an option of the DataFrame's session for a while; a stream has a session of its own."""
    conf = df.sparkSession.conf
    before = conf.get(name) or ""
    conf.set(name, value)
    try:
        yield
    finally:
        conf.set(name, before)


def hadoop_setting(df: DataFrame, name: str) -> str | None:
    """What the application says for a setting of Hadoop; ``None``: nothing."""
    context: Any = df.sparkSession.sparkContext
    value: str | None = context._jsc.hadoopConfiguration().get(name)
    return value


class ArrowStream:
    """Collects a DataFrame as record batches in the order in which partitions finish; the job begins with the object.

    ``DataFrame.toArrow`` keeps all batches until the last has come, only to restore their order, which no sink needs.

    Args:
        df: what to collect.
    """

    def __init__(self, df: DataFrame) -> None:
        from pyspark.util import _create_local_socket

        jdf: Any = df._jdf
        answer: Any = jdf.collectAsArrowToPython()
        # By Java's own means: an array that is unpacked or indexed here is asked for its length each time.
        item = java_class(df, "java.lang.reflect.Array").get
        port, secret, self._server = item(answer, 0), item(answer, 1), item(answer, 2)
        connect: Any = _create_local_socket
        self._file, self._socket = connect((port, secret))
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
        with unwrap_spark_exception():
            self._server.getResult()

    def close(self) -> None:
        """Let the connection go; a job that has not come to its end is broken off. May repeat."""
        self._spool.close()
        self._file.close()
        self._socket.close()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _batches(file: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer

    for item in ArrowCollectSerializer().load_stream(file):
        if isinstance(item, pa.RecordBatch):
            yield item
