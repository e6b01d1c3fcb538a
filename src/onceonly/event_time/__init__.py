"""Event time: declarations of queries and writers, and completeness for readers."""

from __future__ import annotations

from onceonly.event_time.positions import At
from onceonly.event_time.reader import NotComplete, TimeReader
from onceonly.event_time.timestamps import Moment
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.fixed_windows import FixedWindow, FixedWindows

__all__ = ["At", "FixedWindows", "Moment", "NotComplete", "TimeReader", "TimeWindow", "FixedWindow"]
