"""Commit to a Delta table through Spark.

Covers merges too large for the driver, and tables that deltalake does not write. Spark's Delta silently ignores a
commit whose application version is not greater: no exception, nothing written. So the committer trusts no answer, and
looks for its commit in the log by the token.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from deltalake import DeltaTable, Schema

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.protocol import Batch
from onceonly.spark import detect, frames
from onceonly.spark.digest import quote
from onceonly_checkpoints.storage import scheme_of
from onceonly_sinks.delta import columns as rules
from onceonly_sinks.delta import files
from onceonly_sinks.delta.marker import Note, pack
from onceonly_sinks.delta.merge import Kind, Merge, Say, Upsert
from onceonly_sinks.delta.prepared import HeldRows, Rows, StagedRows, WrittenFiles
from onceonly_sinks.delta.schema_compatibility import Shape
from onceonly_sinks.delta.session import EXTENSION
from onceonly_sinks.delta.table import Table, location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_ZONE = "spark.sql.session.timeZone"
_AS_DELTALAKE = {
    # As INT96, which deltalake reads as nanoseconds: an instant of the year 9999 would be another one after a merge.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.write.utcTimestampPartitionValues": "true",
}
"""Settings by which rows lie in a file as deltalake would have written them."""
_S3 = ("s3", "s3a", "s3n")
# The store that Delta takes for S3 orders the writers of one driver only: two drivers may both get the same version.
_ORDERING_STORE = "io.delta.storage.S3DynamoDBLogStore"


def store_orders_writers(root: str, settings: Callable[[str], str | None]) -> bool:
    """Whether Spark's log store gives a version to one writer only. The default store on S3 does not.

    ``settings`` reads a setting of the session.
    """
    scheme = scheme_of(root)
    if scheme not in _S3:
        return True
    chosen = settings(f"spark.delta.logStore.{scheme}.impl") or settings("spark.delta.logStore.class")
    return chosen == _ORDERING_STORE


def _python_package(sink: str) -> Any:
    """Delta's class for MERGE, which is in a separate package. Raises E108 without it."""
    try:
        from delta.tables import DeltaTable
    except ImportError:
        built = detect.line().delta
        raise refuse(
            "E108",
            what=f"MERGE by Spark into {sink}",
            package="delta-spark",
            extra=built.extra if built else "delta-spark",
        ) from None
    return DeltaTable


def active_session() -> SparkSession | None:
    """The session of this thread, or of the process. ``None`` without Delta or without a local JVM."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    # A thread of the user's own has no active session, and the process has one all the same.
    session = SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)
    # Spark's committer speaks to Delta's own classes, which are out of reach on Spark Connect.
    if session is None or not hasattr(session, "_jsparkSession"):
        return None
    return session if EXTENSION in (session.conf.get("spark.sql.extensions", None) or "") else None


def locate(sink: str, name: str) -> str:
    """Directory of a table in Spark's catalog.

    Raises E508 without a session with Delta, without such a table, or for a table of another format.
    """
    session = active_session()
    if session is None:
        raise _lost(sink, name, "only Spark knows the path of a named table, and no session with Delta is running here")
    from pyspark.errors import PySparkException

    quoted = ".".join(f"`{part}`" for part in name.split("."))
    try:
        detail = session.sql(f"DESCRIBE DETAIL {quoted}").collect()[0]
    except PySparkException as error:
        raise _lost(sink, name, f"Spark does not find it ({frames.condition(error)})") from error
    if detail["format"] != "delta":
        raise _lost(sink, name, f"it is a table of format {detail['format']}")
    return location(detail["location"])


def _lost(sink: str, name: str, reason: str) -> OnceOnlyError:
    return refuse(
        "E508",
        sink=sink,
        reason=f"table {name}: {reason}",
        cause="a path without a slash, which counts as a name; a name without a session; a misspelt name; or a table "
        "that was never created",
        next=f"CREATE TABLE {name} (...) USING delta, or, if a folder was meant: DeltaSink(Path({name!r}))",
    )


def needed(sink: str, spark: SparkCommitter | None, why: str | None) -> SparkCommitter:
    """The committer, or E110 if there is none. ``why`` names the obstacle for deltalake."""
    if spark is not None:
        return spark
    raise misused(
        f"{sink} can only be written by Spark's Delta ({why}), and this session has none.",
        "the session was built without Delta's jars and extension, or the sink has "
        'tuning=DeltaTuning(committer="log")',
        "build it with onceonly_sinks.delta.with_delta(SparkSession.builder)",
    )


def _several(rows: DataFrame, key: Sequence[str]) -> tuple[Any, ...] | None:
    found = rows.groupBy(*[quote(name) for name in key]).count().filter("count > 1").limit(1).collect()
    return tuple(found[0][name] for name in key) if found else None


class SparkCommitter:
    """Commits for one sink through a session of its own, so that its settings never affect other writes.

    ``session`` needs Delta.
    """

    _busy: ClassVar[set[str]] = set()
    """Applications whose commit was sent and not seen to end; a commit may outlive the object that sent it."""

    def __init__(self, table: Table, session: SparkSession) -> None:
        self._table = table
        # A MERGE is stamped by settings of its session. Left in the user's, they stamp every plain write, too, and the
        # second such write is passed over as a repetition, without a version and without a word.
        self._session = session.newSession()
        for name, value in _AS_DELTALAKE.items():
            self._session.conf.set(name, value)
        self._uri = table.uri

    @classmethod
    def of(cls, table: Table, session: SparkSession) -> SparkCommitter:
        """Make a committer in a new session beside ``session``.

        Raises E112 if the session's log store does not order writers.
        """
        if not store_orders_writers(table.root, lambda name: session.conf.get(name, None)):
            raise refuse("E112", path=table.root)
        return cls(table, session)

    @classmethod
    def at_rest(cls, table: Table) -> bool:
        """Whether no commit that this process sent to a table can still be running in the JVM."""
        return table.app not in cls._busy

    def stage(
        self,
        batch: Batch,
        epoch: int,
        generation: int,
        *,
        schema: Schema,
        epoch_column: str | None,
        shape: Shape | None,
        partition_by: Sequence[str],
        upsert: Upsert,
        merge: Merge | None,
        grow: bool,
    ) -> StagedRows:
        """Run the batch's one action into a folder beside the data. A MERGE would otherwise run the batch's plan twice.

        ``schema`` has columns for a table that has none yet. ``shape`` is ``None`` if the rows already match the table.
        ``upsert`` uses the names in ``shape``. ``merge`` is ``None`` for an append. Raises E108, before any read or
        write, without the package that a MERGE needs. Raises E503 to E505 for a null, or for a key that is not unique.
        """
        from pyspark.sql import functions as f

        if merge is not None:
            _python_package(self._table.sink)
        frame = batch.dataframe
        self._session.conf.set(_ZONE, self._zone(frame))
        if epoch_column:
            frame = frame.withColumn(epoch_column, f.lit(epoch).cast("bigint"))
        frame = frame if shape is None else _shaped(frame, shape)
        for name, kind in frame.dtypes:
            if name in partition_by and kind == "string":  # Spark's Delta makes null of it, but only after the merge
                frame = frame.withColumn(name, f.expr(f"nullif({quote(name)}, '')"))
        folder = files.attempt(self._table.app, generation, epoch)
        try:
            frame.write.parquet(f"{self._uri}/{folder}")
        except BaseException:
            self.discard(folder)
            raise
        rows = self._session.read.schema(frame.schema).parquet(f"{self._uri}/{folder}")
        staged = StagedRows(self, folder, rows, rows.count(), schema, merge, grow)
        try:
            if upsert.key:
                staged.frame = self._one_per_key(rows, upsert)
        except OnceOnlyError:
            staged.abandon()
            raise
        return staged

    def _zone(self, frame: DataFrame) -> str:
        """UTC, as for deltalake. In a zone with summer time Spark merges two hours of a night into one partition.

        Columns that the table computes depend on the writer's zone. For them the zone is the session's, as for Spark's
        own append.
        """
        computes = any(column.filled for column in self._table.columns)
        return str(frame.sparkSession.conf.get(_ZONE)) if computes else "UTC"

    def _one_per_key(self, rows: DataFrame, upsert: Upsert) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        key, sequence = list(upsert.key), upsert.sequence
        if flag := upsert.delete:
            rules.check_flag(self._table.sink, flag, rows.filter(f"{quote(flag)} IS NULL").count())
        missing = " OR ".join(f"{quote(name)} IS NULL" for name in key)
        rules.check_keys(self._table.sink, upsert, rows.filter(missing).count(), None)
        order = Window.partitionBy(*[quote(name) for name in key])
        if sequence:
            first = f.rank().over(order.orderBy(f.col(quote(sequence)).desc_nulls_last()))
            rows = rows.withColumn("#", first).filter("`#` = 1").drop("#")
        several = _several(rows, key)
        if several and sequence and "map<" not in rows.schema.simpleString():  # Spark compares no maps
            rows = rows.dropDuplicates()
            several = _several(rows, key)
        rules.check_keys(self._table.sink, upsert, 0, several)
        return rows

    def discard(self, folder: str) -> None:
        """Delete a staging folder."""
        files.delete(self._table.root, self._table.options, folder)

    def send(self, handle: DeltaTable, note: Note, rows: Rows | None) -> None:
        """Make one log entry from staged rows, and delete their folder. See :class:`Committer`."""
        match rows:
            case None:
                self._mark(note)
            case StagedRows(merge=Merge() as merge):
                self._merge(note, rows.frame, merge, grow=rows.grow)
                rows.abandon()
            case StagedRows():
                self._append(note, rows.frame, grow=rows.grow)
                rows.abandon()
            case HeldRows() | WrittenFiles():
                raise TypeError("what Spark did not stage is committed through deltalake")

    def _append(self, note: Note, rows: DataFrame, *, grow: bool = False) -> None:
        with self._sending():
            mode = "overwrite" if note.replaces else "append"
            writer = rows.write.format("delta").mode(mode).option("userMetadata", note.text)
            writer.option("mergeSchema", grow)
            if note.replaces:  # an application may have Spark overwrite none but the partitions that rows come for
                writer.option("partitionOverwriteMode", "static")
            writer.option("txnAppId", note.app).option("txnVersion", pack(self._table.sink, *note.packed)).save(
                self._uri
            )

    def _mark(self, note: Note) -> None:
        there = self._session.read.format("delta").load(self._uri).schema
        column_names = {column.name for column in self._table.columns if not column.filled}
        schema = type(there)([field for field in there.fields if field.name in column_names])
        # No rows, and yet a commit: an append with an application version always makes one; without, it makes none.
        self._append(note, self._session.createDataFrame([], schema))

    def _merge(self, note: Note, rows: DataFrame, merge: Merge, *, grow: bool) -> None:
        """Merge rows. If Spark found nothing to commit, commit the note alone."""
        tables = _python_package(self._table.sink)
        before = self._table.followed.head()
        version = pack(self._table.sink, *note.packed)
        target = tables.forPath(self._session, self._uri)
        with self._sending(), self._stamped(note, version):
            merge = merge.anew if note.replaces else merge
            builder = target.alias("t").merge(rows.alias("s"), merge.on)
            builder = builder.whenNotMatchedBySourceDelete() if note.replaces else builder
            builder = builder.withSchemaEvolution() if grow else builder
            merge.build(builder, rows.columns, _SAY).execute()
        if not any(entry.note and entry.note.token == note.token for entry in self._table.log.since(before + 1)):
            self._mark(note)

    @contextmanager
    def _stamped(self, note: Note, version: int) -> Generator[None]:
        """Set application id and metadata in the session, where MERGE reads them.

        Left there, they would stamp the next write.
        """
        stamps = {_APP_ID: note.app, _APP_VERSION: str(version), _METADATA: note.text}
        try:
            for name, value in stamps.items():
                self._session.conf.set(name, value)
            yield
        finally:
            for name in stamps:
                self._session.conf.unset(name)

    @contextmanager
    def _sending(self) -> Generator[None]:
        """Record a commit until its end is seen, since an interrupt in Python does not stop the JVM."""
        from py4j.protocol import Py4JNetworkError

        self._busy.add(self._table.app)
        try:
            yield
        except Py4JNetworkError:
            raise  # the JVM was not heard of again: it may be at it still
        except Exception:
            self._busy.discard(self._table.app)
            raise
        else:
            self._busy.discard(self._table.app)


def _shaped(frame: DataFrame, shape: Shape) -> DataFrame:
    """Cast the rows to the table's columns. A column of equal Arrow type stays, as Spark's type has more detail."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = shape.schema
    arrow_schema = detect.line().arrow_schema(frame.schema)
    kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    columns = []
    for field, kind, source in zip(schema, kinds, shape.sources, strict=True):
        column = f.lit(None) if source is None else f.col(quote(source))
        same = source is not None and arrow_schema.field(source).type == field.type
        columns.append((column if same else column.cast(kind.dataType)).alias(field.name))
    return frame.select(*columns)


_SAY: Mapping[Kind, Say] = {
    "update": lambda builder, values, condition: builder.whenMatchedUpdate(condition, values),
    "delete": lambda builder, _, condition: builder.whenMatchedDelete(condition),
    "insert": lambda builder, values, condition: builder.whenNotMatchedInsert(condition, values),
}
