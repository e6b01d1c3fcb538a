"""Refuse a full refresh where a sink cannot replace rows."""

from __future__ import annotations

from collections.abc import Sequence

from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import Replaces, Sink
from onceonly.protocol.capabilities import Span


def unable(sinks: Sequence[Sink], span: Span | None = None) -> tuple[Sink, str] | None:
    """Return the first sink that cannot replace rows, with the reason, or ``None`` if all can.

    ``span`` are the epochs whose rows are to leave. ``None`` checks only the class of the sink, not its destination.
    """
    for sink in sinks:
        reason = (sink.keeps_from_replacing(span) if span else "") if isinstance(sink, Replaces) else _NEVER
        if reason:
            return sink, reason
    return None


_NEVER = "such a sink cannot take rows away in the transaction that brings others"


def demand(sinks: Sequence[Sink], pipeline: str, span: Span | None = None) -> None:
    """Refuse a refresh that one of the sinks cannot carry out, before any of them has begun.

    Raises:
        IdentityError: E247.
    """
    if found := unable(sinks, span):
        sink, reason = found
        raise refusal(sink.id, pipeline, reason)


def refusal(sink: str, pipeline: str, reason: str) -> OnceOnlyError:
    """Error of a sink that cannot replace."""
    return refuse("E247", sink=sink, pipeline=pipeline, reason=reason)


def able(sink: Sink) -> Replaces:
    """Return the sink typed as one that can replace.

    Raises:
        IdentityError: E247, it cannot.
    """
    if not isinstance(sink, Replaces):
        raise refusal(sink.id, "", _NEVER)
    return sink
