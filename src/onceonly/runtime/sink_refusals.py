"""Refuse sinks that cannot be read, or cannot replace rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from onceonly.errors import OnceOnlyError, RowsRefused, mask, refuse
from onceonly.protocol import OutcomeUnknown, ReplacesRows, Sink
from onceonly.protocol.capabilities import Span
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_checkpoints.install import upgrade
from onceonly_checkpoints.model import UnreadableMarker


def unable(sinks: Sequence[Sink], span: Span | None = None) -> tuple[Sink, str] | None:
    """Return the first sink that cannot replace rows, with the reason. ``None``: all can.

    Without ``span``, the epochs that leave, only the class of the sink is checked, not its destination.
    """
    for sink in sinks:
        reason = (sink.cannot_replace(span) if span else "") if isinstance(sink, ReplacesRows) else _NEVER
        if reason:
            return sink, reason
    return None


_NEVER = "such a sink cannot take rows away in the transaction that brings others"


def demand(sinks: Sequence[Sink], pipeline: str, span: Span | None = None) -> None:
    """Refuse a refresh that one of the sinks cannot carry out, before any of them has begun (E247)."""
    if obstacle := unable(sinks, span):
        sink, reason = obstacle
        raise refusal(sink.id, pipeline, reason)


def refusal(sink: str, pipeline: str, reason: str) -> OnceOnlyError:
    """Error of a sink that cannot replace."""
    return refuse("E247", sink=sink, pipeline=pipeline, reason=reason)


def able(sink: Sink) -> ReplacesRows:
    """Return the sink typed as one that can replace (E247: it cannot)."""
    if not isinstance(sink, ReplacesRows):
        raise refusal(sink.id, "", _NEVER)
    return sink


# ---- Errors of sinks that cannot be read, with sink and reason.


UNREADABLE = (OnceOnlyError, OutcomeUnknown, UnreadableMarker, OSError)
"""Errors of a sink that does not answer, or whose answer cannot be read."""


def reason_of(error: Exception) -> str:
    """Return an error as one line, without secrets."""
    text = error.what if isinstance(error, OnceOnlyError) else str(error)
    return mask(text.strip().splitlines()[0] if text.strip() else type(error).__name__)


@contextmanager
def naming(sink: Sink) -> Generator[None]:
    """Name the sink if its marker cannot be read (E508)."""
    try:
        yield
    except UnreadableMarker as error:
        cause = "a newer onceonly wrote it, or it was edited"
        next_ = f"{upgrade()}, then restart the query"
        reason = f"a marker cannot be read: {error}"
        raise refuse("E508", sink=sink.id, reason=reason, cause=cause, next=next_) from error


@contextmanager
def proposing_output(sink: Sink, sinks: Iterable[Sink]) -> Generator[None]:
    """Where a topic is written beside tables, propose an output in place of a column for all of them (E506)."""
    try:
        yield
    except RowsRefused as refused:
        absent, kinds = refused.details.get("absent"), {other.capabilities.records for other in (sink, *sinks)}
        if len(kinds) == 1 or not isinstance(absent, tuple) or not {"value"} <= {*absent} <= _OF_RECORD:
            raise
        raise refuse(refused.code, **{**dict(refused.details), "next": _OUTPUT}) from None


_OF_RECORD = frozenset({"key", "value", "topic", "partition", "timestamp", "headers"})

_OUTPUT = """compute the topic's columns for the topic alone, and leave them out of the query:
exactly_once(table, Output(KafkaSink(...), name="records", select=["to_json(struct(*)) AS value"]))"""


def histories(sinks: Iterable[Sink], after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
    """Yield markers of every sink, sink by sink, from epoch ``after + 1`` on (E508: one cannot be read)."""
    for sink in sinks:
        with naming(sink):
            yield from sink.history(after)


def content(sink: Sink) -> int | None:
    """Return the epoch whose rows a sink holds, or ``None`` if it does not know it (E508: unreadable marker)."""
    if not isinstance(sink, ReplacesRows):
        return None
    with naming(sink):
        return sink.content_epoch()
