"""Errors of sinks that do not answer, and their reasons."""

from __future__ import annotations

from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import OutcomeUnknown
from onceonly_checkpoints.model import UnreadableMarker

UNREADABLE = (OnceOnlyError, OutcomeUnknown, UnreadableMarker, OSError)
"""What asking a sink may raise where it does not answer, or cannot be understood."""


def reason_of(error: Exception) -> str:
    """One line of words for an error, without secrets."""
    text = error.what if isinstance(error, OnceOnlyError) else str(error)
    return mask(text.strip().splitlines()[0] if text.strip() else type(error).__name__)
