"""Exactly-once sinks for PySpark Structured Streaming, with a receipt for every epoch.

``.foreachBatch(exactly_once(PostgresSink(dsn, table="orders")))`` is the one line that changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceonly.api.arguments import Recovery, Storage
    from onceonly.api.start import start
    from onceonly.api.wrapper import ExactlyOnce, exactly_once
    from onceonly.errors import OnceOnlyError
    from onceonly.event_time.event_time_argument import EventTime
    from onceonly.quality.outputs import Output, Route
    from onceonly.quality.quality import Dedupe, Quality
    from onceonly.quality.quarantine import bad_rows
    from onceonly.reading.epoch_rows import read_at
    from onceonly.reading.points import datasets
    from onceonly.windows import Windows

    __version__: str

__all__ = [
    "Dedupe",
    "EventTime",
    "ExactlyOnce",
    "OnceOnlyError",
    "Output",
    "Quality",
    "Recovery",
    "Route",
    "Storage",
    "Windows",
    "bad_rows",
    "datasets",
    "exactly_once",
    "read_at",
    "start",
]
__dir__ = [*__all__, "__version__"].copy
_MODULES = {
    "OnceOnlyError": "errors",
    "EventTime": "event_time.event_time_argument",
    "Windows": "windows",
    "datasets": "reading.points",
    "read_at": "reading.epoch_rows",
    "start": "api.start",
    "bad_rows": "quality.quarantine",
    **dict.fromkeys(("Dedupe", "Quality"), "quality.quality"),
    **dict.fromkeys(("Output", "Route"), "quality.outputs"),
    **dict.fromkeys(("Recovery", "Storage"), "api.arguments"),
    **dict.fromkeys(("ExactlyOnce", "exactly_once"), "api.wrapper"),
}


def __getattr__(name: str) -> Any:
    from onceonly_checkpoints import on_demand

    return on_demand(__name__, _MODULES)(name)
