"""Follows a pipeline: yields each epoch once, in order, as it appears."""

from __future__ import annotations

import time
from collections.abc import Iterator

from onceonly.cli import records
from onceonly.cli.places import Place
from onceonly_checkpoints.epoch import EpochRecord


def follow(place: Place, limit: int, every: float, count: int | None) -> Iterator[EpochRecord]:
    """The newest epochs, then the new ones; ends after ``count`` new ones, or with Ctrl-C.

    Args:
        place: the pipeline.
        limit: how many to begin with.
        every: seconds between two looks.
        count: end after so many new epochs; ``None`` goes on.
    """
    newest = records.newest(place, limit)
    yield from newest
    last, seen = (newest[-1].epoch.number if newest else 0), 0
    try:
        while count is None or seen < count:
            for record in records.read(place, last + 1):
                yield record
                last, seen = record.epoch.number, seen + 1
                if seen == count:
                    return
            time.sleep(every)
    except KeyboardInterrupt:
        return
