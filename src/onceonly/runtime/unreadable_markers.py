"""Refuse a marker of a newer version, and name its sink."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from onceonly.errors import refuse
from onceonly.protocol import Sink
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_checkpoints.model import UnreadableMarker


@contextmanager
def naming(sink: Sink) -> Generator[None]:
    """Name the sink if its marker cannot be read.

    Raises:
        DestinationError: E508.
    """
    try:
        yield
    except UnreadableMarker as error:
        cause = "a newer onceonly wrote it, or somebody edited it"
        next_ = "upgrade onceonly to the version that wrote it (pip install --upgrade onceonly), and restart the query"
        reason = f"a marker cannot be read: {error}"
        raise refuse("E508", sink=sink.id, reason=reason, cause=cause, next=next_) from error


def histories(sinks: Iterable[Sink], after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
    """Yield markers of every sink, sink by sink, from epoch ``after + 1`` on.

    Raises:
        DestinationError: E508, one cannot be read.
    """
    for sink in sinks:
        with naming(sink):
            yield from sink.history(after)
