"""Prometheus metrics of pipelines, read from the ledger.

Needs the extra ``metrics``. :class:`Exporter` runs in a process of its own, so no driver changes.
:class:`onceonly.metrics.listener.Listener` runs in a driver. It needs PySpark, so import it from there.
"""

from onceonly.metrics.exporter import Exporter

__all__ = ["Exporter"]
