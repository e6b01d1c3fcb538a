"""Exactly-once sinks for PySpark Structured Streaming, with a receipt for every epoch.

``.foreachBatch(exactly_once(PostgresSink(dsn, table="orders")))`` is the one line that changes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceonly.errors import OnceOnlyError
    from onceonly.reading import ReadPoint, history, read_point
    from onceonly.refusals import Refused, refusal
    from onceonly.wrap import ExactlyOnce, exactly_once

__all__ = ["ExactlyOnce", "OnceOnlyError", "ReadPoint", "Refused", "exactly_once", "history", "read_point", "refusal"]

_HOMES = {
    "ExactlyOnce": "onceonly.wrap",
    "OnceOnlyError": "onceonly.errors",
    "ReadPoint": "onceonly.reading",
    "Refused": "onceonly.refusals",
    "exactly_once": "onceonly.wrap",
    "history": "onceonly.reading",
    "read_point": "onceonly.reading",
    "refusal": "onceonly.refusals",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is asked for: pytest, which loads our plugin always, must not pay for the core."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
