"""Prometheus metrics from a driver: ``spark.streams.addListener(Listener(ledger))``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import StreamingQueryListener

from onceonly.metrics.exporter import Exporter
from onceonly_checkpoints.epoch_time import now_ms
from onceonly_checkpoints.ledger import LedgerPlace, LedgerUnavailable
from onceonly_checkpoints.ledger.sql import SqlLedger

log = logging.getLogger(__name__)


class Listener(StreamingQueryListener, Collector):  # type: ignore[misc]
    """Expose the pipelines behind this Spark session's queries, in the metrics of :class:`Exporter`.

    The ledger is read at each query progress and each collection of the registry. So the age of an epoch in doubt grows
    while its batch hangs. Counters start at 0 with the listener: add it before queries are started. Besides the
    exporter's metrics there is ``onceonly_query_running``, 1 or 0 for each pipeline.

    Args:
        ledger: the ``ledger`` of :func:`onceonly.exactly_once`: a path, a URL, or an open one.
        registry: by default the one that ``prometheus_client.start_http_server`` serves.

    Raises:
        ValueError: not an address of a ledger, or the registry has a listener already.
    """

    def __init__(self, ledger: LedgerPlace, registry: CollectorRegistry = REGISTRY) -> None:
        self._ledger = SqlLedger(os.fspath(ledger)) if isinstance(ledger, str | os.PathLike) else ledger
        self._own_queries: set[str] = set()
        self._running: set[str] = set()
        self._exporter = Exporter(self._ledger, lambda entry: entry.query_id in self._own_queries)
        self._alive = Gauge(
            "onceonly_query_running", "Whether the query runs in this driver.", ["pipeline"], registry=None
        )
        registry.register(self)

    # ---- Spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Spark calls this before ``start()`` returns. Earlier activity of the pipeline is not counted."""
        self._running.add(str(event.id))
        try:
            # The first batch would make the tables; made here, a new pipeline is seen from its first epoch on.
            self._ledger.open()
        except LedgerUnavailable as error:
            log.warning("the ledger cannot be opened: %s", error)
        self._exporter.begin()
        self._own_queries.add(str(event.id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name and arguments
        """Spark calls this after each batch."""
        self._exporter.look(now_ms())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Spark calls this when a query has stopped or failed."""
        self._running.discard(str(event.id))
        self._exporter.look(now_ms())

    # ---- Prometheus

    def describe(self) -> list[Metric]:
        """Return nothing: registering must not read the ledger."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric from the current ledger."""
        self._exporter.look(now_ms())
        for entry in self._exporter.shown:
            self._alive.labels(entry.name).set(entry.query_id in self._running)
        yield from self._exporter.registry.collect()
        yield from self._alive.collect()
