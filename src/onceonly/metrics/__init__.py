"""Prometheus metrics of pipelines, read from the ledger. Needs the extra ``metrics``.

:class:`Exporter` is for a process of its own: no driver has to be touched. :class:`onceonly.metrics.listener.Listener`
is for a driver that is asked itself; it needs PySpark, so it has to be imported from there.
"""

from onceonly.metrics.exporter import Exporter

__all__ = ["Exporter"]
