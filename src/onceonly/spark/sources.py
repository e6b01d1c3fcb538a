# pyright: reportPrivateUsage=false
"""Read source settings, Kafka brokers and Hadoop files through the JVM."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError

from onceonly.machine.source_order import kafka_identity
from onceonly.spark import engine
from onceonly_checkpoints.storage import visible, without_secrets

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# ---- Means to ask the JVM what PySpark has no public name for: classes by name, private fields, Scala sequences.
#
# Only the classic engine comes here: its session lives in a JVM of the same machine, behind py4j. Names and places
# are those of the minor versions in ``lines.LINES``. A call costs about a tenth of a millisecond on both sides.


def java_class(df: DataFrame, name: str) -> Any:
    """Return a Java class. By path (``jvm.java.util.UUID``), each part is searched in all jars: milliseconds."""
    return class_in(df.sparkSession.sparkContext, name)


def class_in(context: SparkContext, name: str) -> Any:
    """Return a Java class without a DataFrame, for code that outlives a batch."""
    # Not ``context._jvm``, for the reason above.
    gateway: Any = context._gateway
    return JavaClass(name, gateway._gateway_client)


def private(instance: Any, name: str) -> Any:
    """Read a private field of a Java object, declared by its class or one above, or ``None`` without one.

    Takes a call or two for each field that is declared before it, so once per run.
    """
    declared = instance.getClass()
    while declared is not None:
        for candidate in declared.getDeclaredFields():
            # Scala puts the class before the name of a field that a closure or a trait reaches.
            if candidate.getName().endswith(name):
                candidate.setAccessible(True)
                return candidate.get(instance)
        declared = declared.getSuperclass()
    return None


def field(instance: Any, name: str) -> Any:
    """Read a private field that must exist (``AttributeError``)."""
    value = private(instance, name)
    if value is None:
        raise AttributeError(f"{_class_of(instance)} has no field {name}")
    return value


def items(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(index) for index in range(sequence.size())]


def class_name(node: Any) -> str:
    """Return the simple name of an object's class."""
    return str(node.getClass().getSimpleName())


# ---- A Kafka source: the settings it was given, and what its brokers say that its offsets are of.
#
# The brokers are asked by the client that the source itself brings along, with the source's own settings, so there is
# no second driver, login or network path to configure.

_PATIENCE = 10
"""Seconds that brokers have to say who they are. The batch itself waits longer; without an answer it still runs."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id that brokers older than topic ids give to every topic: taken for one, it would make all topics the same."""


class Brokers:
    """Brokers of one Kafka source.

    A topic can be recreated between two batches, so they are asked for each. The source's own admin client asks, which
    the source keeps connected for offsets. If it does not answer, a client of ours asks. If the source keeps none, ours
    asks once per run. ``stops_at_loss`` is ``failOnDataLoss``: whether Spark stops when offsets of a slice are gone.
    ``client`` has the settings of the source's own client, as the JVM holds them. They may hold secrets.
    """

    def __init__(self, context: SparkContext, stops_at_loss: bool, client: Any, reader: Any = None) -> None:
        self.stops_at_loss = stops_at_loss
        self._context, self._client = context, client
        self.servers = str(client.get("bootstrap.servers"))
        self._reader = reader
        self._cluster: str | None = None
        self._cluster_ids: dict[tuple[str, ...], str] = {}

    def identity(self, topics: Iterable[str]) -> str | None:
        """Identify the topics of these offsets, or ``None`` if brokers do not answer, or not in time."""
        names = tuple(sorted(topics))
        try:
            if self._reader is not None:
                return self._by_source(names) or self._ask(names)
            if names not in self._cluster_ids and (identity := self._ask(names)):
                self._cluster_ids[names] = identity
            return self._cluster_ids.get(names)
        except Py4JError as error:
            log.warning("the identity of topics %s is unknown: no answer (%s)", names, type(error).__name__)
            return None

    def _by_source(self, names: tuple[str, ...]) -> str | None:
        """Ask the source's own client. ``None`` while the source recreates it, which it does after an error."""
        # The field, not ``admin()``, which makes a client where there is none: that is for the source's own thread.
        client = self._reader._admin()
        try:
            return self._described(client, names) if client is not None else None
        except Py4JError as error:
            log.info("the source's own client does not answer (%s); another one asks", type(error).__name__)
            return None

    def _ask(self, names: tuple[str, ...]) -> str | None:
        admin = self._admin()
        try:
            return self._described(admin, names)
        finally:
            admin.close(self._java("java.time.Duration").ofSeconds(1))

    def _java(self, name: str) -> Any:
        return class_in(self._context, name)

    def _admin(self) -> Any:
        config = self._java("java.util.HashMap")(self._client)
        config.put("request.timeout.ms", str(_PATIENCE * 500))
        config.put("default.api.timeout.ms", str(_PATIENCE * 1000))
        return self._java("org.apache.kafka.clients.admin.AdminClient").create(config)

    def _described(self, admin: Any, names: tuple[str, ...]) -> str | None:
        seconds, topics = self._java("java.util.concurrent.TimeUnit").SECONDS, self._java("java.util.ArrayList")()
        for name in names:
            topics.add(name)
        described = admin.describeTopics(topics).allTopicNames().get(_PATIENCE, seconds)
        ids = {name: str(described.get(name).topicId().toString()) for name in names}
        if self._cluster is None:  # of one client there is one: it holds to the cluster that it found first
            self._cluster = admin.describeCluster().clusterId().get(_PATIENCE, seconds)
        if self._cluster is None or _NO_ID in ids.values():
            return None
        return kafka_identity(str(self._cluster), ids)


def brokers(df: DataFrame, source: Any) -> Brokers | None:
    """Return the brokers of a source in the JVM, or ``None`` if it is not Kafka's."""
    if not str(source.getClass().getName()).startswith("org.apache.spark.sql.kafka"):
        return None
    # The source's own settings stand in private fields only; what the user gave lacks what the source made of it.
    stops = bool(field(source, "failOnDataLoss"))
    reader = private(source, "kafkaOffsetReader")
    return Brokers(df.sparkSession.sparkContext, stops, field(source, "executorKafkaParams"), reader)


# ---- What Spark's file and Delta sources were told to do with files: to pass over unreadable ones, or to clear up.

_READ_FILES = ("FileStreamSource", "DeltaSource")


def passes_over(df: DataFrame, source: Any) -> str | None:
    """Return the setting with which a source in the JVM skips missing files, or ``None`` if it stops."""
    if not _class_of(source).endswith(_READ_FILES):
        return None
    options = _options(source)
    return engine.passes_over(df, {name: setting for name in engine.PASSING if (setting := _option(options, name))})


def clears_up(source: Any) -> str | None:
    """Return a JVM source's treatment of files that it has read: ``archive``, ``delete``, or ``None`` for nothing."""
    if not _class_of(source).endswith("FileStreamSource"):
        return None
    setting = (_option(_options(source), "cleanSource") or "off").lower()
    return None if setting == "off" else setting


def reads_on(source: Any) -> bool:
    """Check whether a Delta source in the JVM continues past missing versions (``failOnDataLoss=false``)."""
    return _class_of(source).endswith("DeltaSource") and not bool(field(source, "options").failOnDataLoss())


def _class_of(source: Any) -> str:
    return str(source.getClass().getName())


def _options(source: Any) -> Any:
    """Return the source's own options, a Scala map that ignores the case of names."""
    # Nothing public of a running query says them; of a query that is not started, see ``foreseen``.
    if _class_of(source).endswith("DeltaSource"):
        return field(source, "options").options()
    return field(field(source, "sourceOptions"), "parameters")


def _option(options: Any, name: str) -> str | None:
    option = options.get(name)
    return None if option.isEmpty() else str(option.get())


# ---- A checkpoint's files through the running session's own Hadoop: ``hdfs://``, ``s3a://``, ``abfss://`` ...
#
# What Spark can write its checkpoint to can be read here too, with the same login and the same jars; an fsspec driver
# of the same store need not be installed on the driver's machine.

_MISSING = "java.io.FileNotFoundException"


_STATUS = re.compile(r"path=(.*?); isDirectory=(?:true|false; length=(\d+));")
"""A status as Hadoop spells it."""


class HadoopFiles:
    """Reading half of a storage, on any of Hadoop's file systems, by the settings of ``session``."""

    def __init__(self, context: SparkContext, session: Any, url: str) -> None:
        # With all settings of the session, as the query itself reaches its checkpoint; the context has only its own.
        self._path = class_in(context, "org.apache.hadoop.fs.Path")
        self._texts = class_in(context, "scala.runtime.ScalaRunTime")
        self._root = url.rstrip("/")
        self._fs = self._path(self._root).getFileSystem(session.sessionState().newHadoopConf())

    @property
    def url(self) -> str:
        """The given root, without credentials."""
        return without_secrets(self._root)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return names in a directory, sorted, without hidden ones. Empty without such a directory."""
        try:
            with _missing_is_missing(directory):
                return visible(status.getPath().getName() for status in self._fs.listStatus(self._at(directory)))
        except FileNotFoundError:
            return ()

    def sizes(self, directory: str, pattern: re.Pattern[str]) -> dict[str, int | None]:
        """Return names, with bytes if they match, in one call. Each status asked for would be several into the JVM."""
        try:
            with _missing_is_missing(directory):
                listed = str(self._texts.stringOf(self._fs.listStatus(self._at(directory))))
        except FileNotFoundError:
            return {}
        sizes = {match[1].rpartition("/")[2]: match[2] for match in _STATUS.finditer(listed)}
        return {name: int(sizes[name]) if pattern.fullmatch(name) else None for name in visible(sizes)}

    def read(self, path: str) -> bytes:
        """Read a file. ``FileNotFoundError``: there is none."""
        with _missing_is_missing(path):
            stream = self._fs.open(self._at(path))
        try:
            # In one call: read by pieces, each would be a call into the JVM.
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def exists(self, path: str) -> bool:
        """Check whether there is a file or directory."""
        return bool(self._fs.exists(self._at(path)))

    def _at(self, path: str) -> Any:
        return self._path(f"{self._root}/{path}" if path else self._root)


@contextmanager
def _missing_is_missing(path: str) -> Generator[None]:
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != _MISSING:
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
