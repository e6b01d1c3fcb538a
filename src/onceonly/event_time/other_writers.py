"""Read the newest markers of a dataset's other writers, without a fence."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from onceonly.errors import OnceOnlyError
from onceonly.event_time.marker_sources import OfSink, newest_of_all
from onceonly.machine.completeness import newest_of
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol import OutcomeUnknown, Sink
from onceonly_checkpoints.model import UnreadableMarker

UNREAD = (OnceOnlyError, OutcomeUnknown, UnreadableMarker, OSError)
"""What a sink raises that cannot be read."""


class Peers:
    """Reads the other writers of a pipeline's dataset in all of its sinks.

    A pipeline that notes event time for itself alone is no writer of the dataset. It knows no other writer and waits
    for none. The sinks are not open yet.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sources = [OfSink(copy.copy(sink)) for sink in sinks]

    def __call__(self, pipeline: str, known: Sequence[str]) -> tuple[tuple[TimedMarker, ...], str]:
        """Return the newest epochs of other writers, and the sinks that could not be read."""
        found: list[TimedMarker] = []
        unread: list[str] = []
        for source in self._sources:
            try:
                newest = newest_of_all(source, pipeline, known)
            except UNREAD as error:
                # Older knowledge of writers lags, but is never wrong, so neither stop nor wait.
                unread.append(f"{source.sink}: {str(error).splitlines()[0]}")
                source.close()
            else:
                found += [one.timed for name, one in newest.items() if name != pipeline and one.timed]
        return newest_of(one for one in found if one.time.observed), "; ".join(unread)

    def close(self) -> None:
        """Release connections. Idempotent. The next call opens them again."""
        for source in self._sources:
            source.close()
