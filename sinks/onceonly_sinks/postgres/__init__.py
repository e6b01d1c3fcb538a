"""Postgres sink: each epoch's rows and marker in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_checkpoints import on_demand

if TYPE_CHECKING:
    from onceonly_sinks.postgres.options import Keep, Load, PostgresTuning, SchemaChange, Triggers
    from onceonly_sinks.postgres.sink import PostgresSink

__all__ = ["Keep", "Load", "PostgresSink", "PostgresTuning", "SchemaChange", "Triggers"]
__dir__ = [*__all__, "__version__"].copy
__getattr__ = on_demand(__name__, {**dict.fromkeys(__all__, "options"), "PostgresSink": "sink"})
