"""Postgres sink: each epoch's rows and marker in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_checkpoints import absent

if TYPE_CHECKING:
    from onceonly_sinks.postgres.options import Keep, Load, PostgresTuning, SchemaChange, Triggers
    from onceonly_sinks.postgres.sink import PostgresSink

__all__ = ["Keep", "Load", "PostgresSink", "PostgresTuning", "SchemaChange", "Triggers"]
__dir__ = [*__all__, "__version__"].copy


def __getattr__(name: str) -> object:
    # Executors unpickle functions of this package; they must not pay for what only the driver needs.
    if name == "PostgresSink":
        from onceonly_sinks.postgres.sink import PostgresSink

        return PostgresSink
    if name in __all__:
        from onceonly_sinks.postgres import options

        return getattr(options, name)
    return absent(__name__, name)
