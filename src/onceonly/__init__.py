"""Exactly-once sinks for PySpark Structured Streaming, with a receipt for every epoch.

``.foreachBatch(exactly_once(PostgresSink(dsn, table="orders")))`` is the one line that changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceonly.api.arguments import Staging
    from onceonly.api.start import start
    from onceonly.api.wrapper import ExactlyOnce, exactly_once
    from onceonly.errors import OnceOnlyError
    from onceonly.errors.read_refusal import Refused, refusal
    from onceonly.event_time.event_time_argument import Dataset, EventTime
    from onceonly.event_time.from_upstream import FromUpstream
    from onceonly.protocol.row_times import TimedEpoch
    from onceonly.quality.bad_row import bad_rows
    from onceonly.quality.dedupe import Dedupe
    from onceonly.quality.output import Output
    from onceonly.quality.quality import Quality
    from onceonly.quality.routes import Route
    from onceonly.reading.read_point import ReadPoint, history, read_point
    from onceonly.spark.row_times import heartbeat

__all__ = [
    "Dataset",
    "Dedupe",
    "EventTime",
    "ExactlyOnce",
    "FromUpstream",
    "OnceOnlyError",
    "Output",
    "Quality",
    "ReadPoint",
    "Refused",
    "Route",
    "Staging",
    "TimedEpoch",
    "bad_rows",
    "exactly_once",
    "heartbeat",
    "history",
    "read_point",
    "refusal",
    "start",
]


def __getattr__(name: str) -> Any:
    """Load public names on demand, so that unpickling on an executor does not import the whole library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("OnceOnlyError", "Refused", "refusal"):
        from onceonly.errors import OnceOnlyError
        from onceonly.errors.read_refusal import Refused, refusal

        found: dict[str, Any] = {"OnceOnlyError": OnceOnlyError, "Refused": Refused, "refusal": refusal}
    elif name in ("ReadPoint", "history", "read_point"):
        from onceonly.reading.read_point import ReadPoint, history, read_point

        found = {"ReadPoint": ReadPoint, "history": history, "read_point": read_point}
    elif name in ("Dataset", "EventTime", "FromUpstream", "TimedEpoch"):
        from onceonly.event_time.event_time_argument import Dataset, EventTime
        from onceonly.event_time.from_upstream import FromUpstream
        from onceonly.protocol.row_times import TimedEpoch

        said = {"Dataset": Dataset, "EventTime": EventTime, "FromUpstream": FromUpstream}
        found = {**said, "TimedEpoch": TimedEpoch}
    elif name in ("Dedupe", "Output", "Quality", "Route", "Staging"):
        from onceonly.api.arguments import Staging
        from onceonly.quality.dedupe import Dedupe
        from onceonly.quality.output import Output
        from onceonly.quality.quality import Quality
        from onceonly.quality.routes import Route

        found = {"Dedupe": Dedupe, "Output": Output, "Quality": Quality, "Route": Route, "Staging": Staging}
    elif name == "bad_rows":
        from onceonly.quality.bad_row import bad_rows

        found = {"bad_rows": bad_rows}
    elif name == "heartbeat":
        from onceonly.spark.row_times import heartbeat

        found = {"heartbeat": heartbeat}
    elif name == "start":
        from onceonly.api.start import start

        found = {"start": start}
    else:
        from onceonly.api.wrapper import ExactlyOnce, exactly_once

        found = {"ExactlyOnce": ExactlyOnce, "exactly_once": exactly_once}
    return found[name]
