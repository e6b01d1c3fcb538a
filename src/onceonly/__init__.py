"""Exactly-once sinks for PySpark Structured Streaming, with a receipt for every epoch.

``.foreachBatch(exactly_once(PostgresSink(dsn, table="orders")))`` is the one line that changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceonly.api.dedupe import Dedupe
    from onceonly.api.noting import Dataset, EventTime
    from onceonly.api.outputs import Output
    from onceonly.api.quality import Quality
    from onceonly.api.routes import Route
    from onceonly.api.staging import Staging
    from onceonly.api.starting import start
    from onceonly.api.upstream import FromUpstream
    from onceonly.api.wrapper import ExactlyOnce, exactly_once
    from onceonly.errors import OnceOnlyError
    from onceonly.errors.refusals import Refused, refusal
    from onceonly.protocol.times import TimedEpoch
    from onceonly.runtime.readpoint import ReadPoint, history, read_point
    from onceonly.spark.badrow import bad_rows
    from onceonly.spark.times import heartbeat

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
    """Load public names when one is asked for: what an executor unpickles must not pay for the whole library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("OnceOnlyError", "Refused", "refusal"):
        from onceonly.errors import OnceOnlyError
        from onceonly.errors.refusals import Refused, refusal

        found: dict[str, Any] = {"OnceOnlyError": OnceOnlyError, "Refused": Refused, "refusal": refusal}
    elif name in ("ReadPoint", "history", "read_point"):
        from onceonly.runtime.readpoint import ReadPoint, history, read_point

        found = {"ReadPoint": ReadPoint, "history": history, "read_point": read_point}
    elif name in ("Dataset", "EventTime", "FromUpstream", "TimedEpoch"):
        from onceonly.api.noting import Dataset, EventTime
        from onceonly.api.upstream import FromUpstream
        from onceonly.protocol.times import TimedEpoch

        said = {"Dataset": Dataset, "EventTime": EventTime, "FromUpstream": FromUpstream}
        found = {**said, "TimedEpoch": TimedEpoch}
    elif name in ("Dedupe", "Output", "Quality", "Route", "Staging"):
        from onceonly.api.dedupe import Dedupe
        from onceonly.api.outputs import Output
        from onceonly.api.quality import Quality
        from onceonly.api.routes import Route
        from onceonly.api.staging import Staging

        found = {"Dedupe": Dedupe, "Output": Output, "Quality": Quality, "Route": Route, "Staging": Staging}
    elif name == "bad_rows":
        from onceonly.spark.badrow import bad_rows

        found = {"bad_rows": bad_rows}
    elif name == "heartbeat":
        from onceonly.spark.times import heartbeat

        found = {"heartbeat": heartbeat}
    elif name == "start":
        from onceonly.api.starting import start

        found = {"start": start}
    else:
        from onceonly.api.wrapper import ExactlyOnce, exactly_once

        found = {"ExactlyOnce": ExactlyOnce, "exactly_once": exactly_once}
    return found[name]
