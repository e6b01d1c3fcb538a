"""Exactly once into a Delta table: ``DeltaSink`` writes it, ``with_delta`` gives a Spark session Delta's jars and settings."""

from onceonly_sinks.delta.session import with_delta
from onceonly_sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink", "with_delta"]
