"""The levels of the lab: how real what is broken is. L0, every interleaving, is a search and plays no schedule."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """Where a schedule is played."""

    SIMULATED = "L1"
    STORES = "L2"
    WARM = "L3"
    COLD = "L4"

    @property
    def runs_jobs(self) -> bool:
        """Whether a user's job is run there, by drivers that are killed."""
        return self in (Level.WARM, Level.COLD)
