"""Reads how far a dataset has come in time: from markers alone, without a fence, without Spark."""

from __future__ import annotations

from onceonly.machine.fixed import Fixed, Window
from onceonly.machine.windows import TimeWindow
from onceonly.reading.moments import Moment
from onceonly.reading.places import At
from onceonly.reading.reader import NotComplete, Reader

__all__ = ["At", "Fixed", "Moment", "NotComplete", "Reader", "TimeWindow", "Window"]
