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
    """Epochs of a dataset that say what is complete at a position, and the writers whose newer ones are gone.

    Of a writer all epochs are read down to one that lies before the position for certain: older ones lie there, too,
    and say less. Each time that there is none yet, the stretch that is read becomes eight times as long, so what is
    read is in proportion to how far behind the newest epoch the position is.

    Args:
        source: where markers are.
        newest: number of the newest epoch of each writer, 0 where it is not known.
        position: the next offset by partition; ``None``: everything is read.
        until: version of the target up to which is read.
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
