"""Event time of a dataset: what a query declares, what other writers declare, and up to when a reader may compute."""

from __future__ import annotations

from onceonly.event_time.positions import At
from onceonly.event_time.reader import NotComplete, Reader
from onceonly.event_time.timestamps import Moment
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.fixed_windows import Fixed, Window

__all__ = ["At", "Fixed", "Moment", "NotComplete", "Reader", "TimeWindow", "Window"]
