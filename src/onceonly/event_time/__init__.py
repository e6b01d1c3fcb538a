"""Event time of a dataset: what a query declares, what other writers declare, and up to when a reader may compute."""

from __future__ import annotations

from onceonly.event_time.positions import At
from onceonly.event_time.reader import NotComplete, TimeReader
from onceonly.event_time.timestamps import Moment
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.fixed_windows import FixedWindow, FixedWindows

__all__ = ["At", "FixedWindows", "Moment", "NotComplete", "TimeReader", "TimeWindow", "FixedWindow"]
