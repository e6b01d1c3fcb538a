"""Write exactly once into Delta tables.

``DeltaSink`` and ``Merge`` write, ``with_delta`` prepares a Spark session.
"""

from onceonly_sinks.delta.merge import Merge
from onceonly_sinks.delta.session import with_delta
from onceonly_sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink", "Merge", "with_delta"]
