"""Write exactly once into Delta tables.

``DeltaSink`` writes, with a ``Merge`` and a ``DeltaTuning``, ``with_delta`` prepares a Spark session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_checkpoints import on_demand

if TYPE_CHECKING:
    from onceonly_sinks.delta.merge import Merge
    from onceonly_sinks.delta.options import AllowedChanges, Committer, DeltaTuning, SchemaChange
    from onceonly_sinks.delta.session import with_delta
    from onceonly_sinks.delta.sink import DeltaSink

__all__ = ["AllowedChanges", "Committer", "DeltaSink", "DeltaTuning", "Merge", "SchemaChange", "with_delta"]
__dir__ = [*__all__, "__version__"].copy
_find = on_demand(
    __name__, {**dict.fromkeys(__all__, "options"), "DeltaSink": "sink", "Merge": "merge", "with_delta": "session"}
)


def __getattr__(name: str) -> object:
    try:
        return _find(name)
    except ModuleNotFoundError as missing:  # all but a session's need deltalake
        from onceonly.protocol.registry import is_ours, needs_extra

        if is_ours(missing):
            raise
        raise needs_extra(missing, "DeltaSink", "delta") from missing
