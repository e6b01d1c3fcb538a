"""Exactly once into Delta: ``DeltaSink``, ``Merge``, and ``with_delta`` for sessions."""

from onceonly_sinks.delta.merge import Merge
from onceonly_sinks.delta.session import with_delta
from onceonly_sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink", "Merge", "with_delta"]
