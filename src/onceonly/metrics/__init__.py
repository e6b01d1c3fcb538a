"""Prometheus metrics of pipelines, read from the ledger: no driver has to be touched. Needs the extra ``metrics``."""

from onceonly.metrics.exporter import Exporter

__all__ = ["Exporter"]
