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


def __getattr__(name: str) -> Any:
    """Load public names on demand, so that unpickling on an executor does not import the whole library."""
    if name not in __all__:
        from onceonly_checkpoints import absent

        return absent(__name__, name)
    if name == "OnceOnlyError":
        from onceonly.errors import OnceOnlyError

        exports: dict[str, Any] = {"OnceOnlyError": OnceOnlyError}
    elif name in ("datasets", "read_at"):
        from onceonly.reading.epoch_rows import read_at
        from onceonly.reading.points import datasets

        exports = {"datasets": datasets, "read_at": read_at}
    elif name == "EventTime":
        from onceonly.event_time.event_time_argument import EventTime

        exports = {"EventTime": EventTime}
    elif name == "Windows":
        from onceonly.windows import Windows

        exports = {"Windows": Windows}
    elif name in ("Dedupe", "Output", "Quality", "Route", "bad_rows"):
        from onceonly.quality.outputs import Output, Route
        from onceonly.quality.quality import Dedupe, Quality
        from onceonly.quality.quarantine import bad_rows

        exports = {"Dedupe": Dedupe, "Output": Output, "Quality": Quality, "Route": Route, "bad_rows": bad_rows}
    elif name == "start":
        from onceonly.api.start import start

        exports = {"start": start}
    else:
        from onceonly.api.arguments import Recovery, Storage
        from onceonly.api.wrapper import ExactlyOnce, exactly_once

        exports = {"Recovery": Recovery, "Storage": Storage, "ExactlyOnce": ExactlyOnce, "exactly_once": exactly_once}
    return exports[name]
