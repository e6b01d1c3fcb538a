"""Postgres sink: each epoch's rows and marker in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceonly_sinks.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]


def __getattr__(name: str) -> object:
    # Executors unpickle functions of this package; they must not pay for what only the driver needs.
    if name == "PostgresSink":
        from onceonly_sinks.postgres.sink import PostgresSink

        return PostgresSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
