"""Whose open transaction holds a partition back: ours, which must be waited for, or a stranger's, which need not.

A transaction of ours that is decided but still hidden would be decided again by our next one; one of another producer
cannot be touched by us. The brokers tell them apart by producer id (KIP-664), a question that librdkafka does not have.
Kafka's own Admin client does: it is asked where Spark has it loaded, which is so in every query with a Kafka source.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from onceonly_sinks.kafka.cluster import Place
from onceonly_sinks.kafka.options import Options

log = logging.getLogger(__name__)

_ADMIN = "org.apache.kafka.clients.admin.Admin"
_SECURE = ("security.protocol", "sasl.mechanism", "sasl.mechanisms")
_MILLISECONDS = 10_000

Held = Callable[[Iterable[Place]], frozenset[Place] | None]
"""Which of these partitions hold an open transaction of ours; ``None`` where that cannot be told, and each may."""


def untold(_: Iterable[Place]) -> None:
    """Tell nothing: each is waited for."""


class Ownership:
    """Asks the brokers which partitions an open transaction of one transactional id holds back.

    Args:
        options: where the brokers are.
        transactional_id: ours.
    """

    def __init__(self, options: Options, transactional_id: str) -> None:
        self._options = options
        self._id = transactional_id

    def held(self, places: Iterable[Place]) -> frozenset[Place] | None:
        """Which of the partitions hold an open transaction of ours; ``None`` where nobody can tell."""
        wanted = frozenset(places)
        jvm = None if any(name in self._options.settings for name in _SECURE) else _loaded()
        if jvm is None:
            return None
        try:
            with _admin(jvm, self._options.servers) as admin:
                return frozenset(_held(jvm, admin, self._id, wanted))
        except Exception as error:  # noqa: BLE001  py4j raises what it likes; waiting is always right
            log.debug("the brokers do not tell whose transactions are open: %s", type(error).__name__)
            return None


def _loaded() -> Any | None:
    """The gateway of a Spark that runs here and has Kafka's client on its class path."""
    context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    jvm = getattr(context, "_jvm", None)
    if jvm is None:
        return None
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(_ADMIN, False, loader)
    except Exception:  # noqa: BLE001  ClassNotFoundException, wrapped by py4j
        return None
    return jvm


@contextmanager
def _admin(jvm: Any, servers: str) -> Generator[Any]:
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", servers)
    settings.put("client.id", "onceonly-ownership")
    settings.put("default.api.timeout.ms", str(_MILLISECONDS))
    settings.put("request.timeout.ms", str(_MILLISECONDS))
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    try:
        yield admin
    finally:
        admin.close(jvm.java.time.Duration.ZERO)


def _held(jvm: Any, admin: Any, transactional_id: str, places: Iterable[Place]) -> Iterator[Place]:
    ids = jvm.java.util.Collections.singletonList(transactional_id)
    ours = admin.describeTransactions(ids).description(transactional_id).get().producerId()
    partitions = {place: jvm.org.apache.kafka.common.TopicPartition(*place) for place in sorted(places)}
    asked = jvm.java.util.ArrayList()
    for partition in partitions.values():
        asked.add(partition)
    described = admin.describeProducers(asked)
    for place, partition in partitions.items():
        producers = described.partitionResult(partition).get().activeProducers()
        if any(one.producerId() == ours and one.currentTransactionStartOffset().isPresent() for one in producers):
            yield place
