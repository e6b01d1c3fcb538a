"""Sinks that break one thing each. What they do not override is the reference model, and is right."""

from tests.sinks.broken import fences, looking, mishaps, order, reading, recalling, replacing, rows, together, unknown
from tests.sinks.broken.registry import VERDICTS

__all__ = [
    "VERDICTS",
    "fences",
    "looking",
    "mishaps",
    "order",
    "reading",
    "recalling",
    "replacing",
    "rows",
    "together",
    "unknown",
]
