"""Scan epochs backwards, no further than a position needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceonly.event_time.marker_sources import Source
from onceonly.event_time.positions import Found, placed
from onceonly.machine.completeness import Cut, started_before

_FIRST = 16
"""Epochs that are read at first: who reads along is a few behind at most."""

_WIDER = 8


def back_to(
    source: Source, newest: Mapping[str, int], position: Cut | None, until: int | None
) -> tuple[tuple[Found, ...], frozenset[str]]:
    """Return epochs that decide the completeness at a position, and writers whose newer epochs were removed.

    Each writer is read back to an epoch that certainly lies before the position. Older ones lie there too, and add
    nothing. If there is none yet, the next read is eight times as long. So the cost is proportional to the distance of
    the position from the newest epoch.

    Args:
        source: of the markers.
        newest: epoch number by writer, 0 if unknown.
        position: the next offset by partition. ``None`` reads everything.
        until: the last version of the target to read.
    """
    step = _FIRST
    known: dict[str, tuple[Sequence[Found], bool]] = {}
    left = dict(newest)
    while True:
        after = {name: max(0, number - step) if position is not None else 0 for name, number in left.items()}
        known |= {name: source.all(name, until, after[name]) for name in left}
        found = tuple(pair for pairs, _ in known.values() for pair in pairs)
        taken = frozenset(name for name, (_, gone) in known.items() if gone)
        reached = started_before(placed(found, position), position) if position is not None else frozenset[str]()
        left = {name: number for name, number in left.items() if after[name] and name not in reached}
        if not left:
            return found, taken
        step *= _WIDER
