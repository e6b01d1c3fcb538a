"""What Spark's Kafka source can be asked: the settings it was given, and what its brokers say that its offsets are of.

The brokers are asked by the client that the source itself brings along, with the source's own settings, so there is no
second driver, login or network path to configure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from onceonly.frames import class_in
from onceonly.sources import kafka_identity

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_PATIENCE = 10
"""Seconds that brokers have to say who they are. The batch itself waits longer; without an answer it still runs."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id that brokers older than topic ids give to every topic."""


class Brokers:
    """The brokers of one Kafka source.

    A topic can be deleted and made anew between two batches, so they are asked for each: by the admin client that the
    source keeps connected to ask for offsets. Where that one does not answer, one of our own asks; where the source
    keeps none, once per run.

    Args:
        context: the driver's.
        stops_at_loss: ``failOnDataLoss``: whether Spark stops when offsets of a slice are gone.
        client: settings of the source's own client, as the JVM holds them; may hold secrets.
        reader: what the source reads offsets with.

    Attributes:
        stops_at_loss: as given.
    """

    def __init__(self, context: SparkContext, stops_at_loss: bool, client: Any, reader: Any = None) -> None:
        self.stops_at_loss = stops_at_loss
        self._context, self._client = context, client
        self._reader = reader
        self._cluster: str | None = None
        self._known: dict[tuple[str, ...], str] = {}

    def identity(self, topics: Iterable[str]) -> str | None:
        """What offsets of these topics are offsets of; ``None`` where brokers do not say it, or not in time."""
        from py4j.protocol import Py4JError

        names = tuple(sorted(topics))
        try:
            if self._reader is not None:
                return self._by_source(names) or self._ask(names)
            if names not in self._known and (found := self._ask(names)):
                self._known[names] = found
            return self._known.get(names)
        except Py4JError as error:
            log.warning("the identity of topics %s is unknown: no answer (%s)", names, type(error).__name__)
            return None

    def _by_source(self, names: tuple[str, ...]) -> str | None:
        """What the source's own client says; ``None`` while the source makes it anew, which it does after an error."""
        from py4j.protocol import Py4JError

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
        asked = self._java("java.util.HashMap")(self._client)
        asked.put("request.timeout.ms", str(_PATIENCE * 500))
        asked.put("default.api.timeout.ms", str(_PATIENCE * 1000))
        return self._java("org.apache.kafka.clients.admin.AdminClient").create(asked)

    def _described(self, admin: Any, names: tuple[str, ...]) -> str | None:
        seconds, wanted = self._java("java.util.concurrent.TimeUnit").SECONDS, self._java("java.util.ArrayList")()
        for name in names:
            wanted.add(name)
        described = admin.describeTopics(wanted).allTopicNames().get(_PATIENCE, seconds)
        ids = {name: str(described.get(name).topicId().toString()) for name in names}
        if self._cluster is None:  # of one client there is one: it holds to the cluster that it found first
            self._cluster = admin.describeCluster().clusterId().get(_PATIENCE, seconds)
        if self._cluster is None or _NO_ID in ids.values():
            return None
        return kafka_identity(str(self._cluster), ids)


def brokers(df: DataFrame, source: Any) -> Brokers | None:
    """Brokers of a source in the JVM; ``None`` if it is not Kafka's."""
    if not str(source.getClass().getName()).startswith("org.apache.spark.sql.kafka"):
        return None
    stops = bool(private(source, "failOnDataLoss"))
    reader = private(source, "kafkaOffsetReader")
    return Brokers(df.sparkSession.sparkContext, stops, private(source, "executorKafkaParams"), reader)


def private(instance: Any, name: str) -> Any:
    """A private field of a Java object, declared by its class or one above; ``None`` if there is none."""
    declared = instance.getClass()
    while declared is not None:
        for candidate in declared.getDeclaredFields():
            if candidate.getName().endswith(name):
                candidate.setAccessible(True)
                return candidate.get(instance)
        declared = declared.getSuperclass()
    return None
