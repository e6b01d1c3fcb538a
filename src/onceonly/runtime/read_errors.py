"""Errors of sinks that do not answer, and their reasons."""

from __future__ import annotations

from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import OutcomeUnknown
from onceonly_checkpoints.model import UnreadableMarker

UNREADABLE = (OnceOnlyError, OutcomeUnknown, UnreadableMarker, OSError)
"""Errors of a sink that does not answer, or whose answer cannot be read."""


def reason_of(error: Exception) -> str:
    """Return an error as one line, without secrets."""
    text = error.what if isinstance(error, OnceOnlyError) else str(error)
    return mask(text.strip().splitlines()[0] if text.strip() else type(error).__name__)
