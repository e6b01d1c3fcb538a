"""Reads what was written: how far a dataset has come in time, and the sinks of a pipeline as of one epoch."""

from __future__ import annotations

from onceonly.machine.fixed import Fixed, Window
from onceonly.machine.windows import TimeWindow
from onceonly.reading.moments import Moment
from onceonly.reading.pins import pin
from onceonly.reading.places import At
from onceonly.reading.reader import NotComplete, Reader
from onceonly.reading.sealed import read_at

__all__ = ["At", "Fixed", "Moment", "NotComplete", "Reader", "TimeWindow", "Window", "pin", "read_at"]
