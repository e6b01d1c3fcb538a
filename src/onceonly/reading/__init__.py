"""Consistent reads across sinks, as of one epoch."""

from __future__ import annotations

from onceonly.reading.epoch_rows import changes, read_at
from onceonly.reading.points import Dataset, DatasetWriter, ReadPoint, datasets, history, pin, read_point

__all__ = ["Dataset", "DatasetWriter", "ReadPoint", "changes", "datasets", "history", "pin", "read_at", "read_point"]
