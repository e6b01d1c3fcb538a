"""What past epochs say of a pipeline: how long transactions stay open, how long it stands still. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from onceonly_checkpoints.epoch import EpochRecord

_OPEN = ("prepare", "commit")
"""Phases in which a sink's transaction is open."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What past epochs took.

    Attributes:
        epochs: how many were looked at.
        longest_open_s: longest time from the first row to the answer of the commit, seconds.
        longest_gap_s: longest time between two epochs, or since the newest, seconds.
    """

    epochs: int = 0
    longest_open_s: float = 0.0
    longest_gap_s: float = 0.0


UNOBSERVED = Observed()
"""Nothing is known yet."""


def observe(records: Sequence[EpochRecord], now_ms: int) -> Observed:
    """Measure recorded epochs.

    Args:
        records: oldest first.
        now_ms: milliseconds since 1970.
    """
    times = [record.recorded_ms for record in records if record.recorded_ms] + [now_ms]
    gaps = [(after - before) / 1000 for before, after in pairwise(times)]
    opened = [sum(seconds for phase, seconds in record.phases if phase in _OPEN) for record in records]
    return Observed(len(records), max(opened, default=0.0), max(gaps, default=0.0))


def worst(seen: Sequence[Observed]) -> Observed:
    """The longest times of several pipelines."""
    return Observed(
        sum(one.epochs for one in seen),
        max((one.longest_open_s for one in seen), default=0.0),
        max((one.longest_gap_s for one in seen), default=0.0),
    )


def spell(seconds: float) -> str:
    """A time in words: ``12.5 s``, ``3 min``, ``40 days``."""
    for limit, unit, size in ((120.0, "s", 1.0), (7200.0, "min", 60.0), (172800.0, "h", 3600.0)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.0f} days"
