"""Event time: declarations of queries and writers, and completeness for readers."""

from __future__ import annotations

from onceonly.event_time.event_time_argument import EventTime, Writers
from onceonly.event_time.marker_sources import At
from onceonly.event_time.reader import Moment, NotComplete, TimeReader
from onceonly.event_time.upstream import FromUpstream
from onceonly.machine.completeness import FixedWindow, FixedWindows, TimeWindow
from onceonly.protocol.row_times import TimedEpoch
from onceonly.spark.row_times import heartbeat

__all__ = [
    "At",
    "EventTime",
    "FixedWindow",
    "FixedWindows",
    "FromUpstream",
    "Moment",
    "NotComplete",
    "TimeReader",
    "TimeWindow",
    "TimedEpoch",
    "Writers",
    "heartbeat",
]
