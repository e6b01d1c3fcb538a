"""Write exactly once into Delta tables.

``DeltaSink`` writes, with a ``Merge`` and a ``DeltaTuning``, ``with_delta`` prepares a Spark session.
"""

from functools import partial

from onceonly_checkpoints import absent
from onceonly_sinks.delta.merge import Merge
from onceonly_sinks.delta.options import AllowedChanges, Committer, DeltaTuning, SchemaChange
from onceonly_sinks.delta.session import with_delta
from onceonly_sinks.delta.sink import DeltaSink

__all__ = ["AllowedChanges", "Committer", "DeltaSink", "DeltaTuning", "Merge", "SchemaChange", "with_delta"]
__dir__ = [*__all__, "__version__"].copy
__getattr__ = partial(absent, __name__)
