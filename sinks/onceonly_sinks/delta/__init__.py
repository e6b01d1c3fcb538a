"""Exactly once into a Delta table: ``DeltaSink`` writes it, ``with_delta`` prepares a Spark session for it."""

from onceonly_sinks.delta.session import with_delta
from onceonly_sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink", "with_delta"]
