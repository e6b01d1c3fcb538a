"""Consistent reads across sinks, as of one epoch."""

from __future__ import annotations

from onceonly.reading.pins import pin
from onceonly.reading.read_at import read_at

__all__ = ["pin", "read_at"]
