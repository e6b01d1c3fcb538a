"""The bounds that are run by name."""

from __future__ import annotations

from onceonly.lab.model.parts import Kind
from onceonly.lab.model.spark import REFUSALS, Damage
from onceonly.lab.model.world import Bound

RESTARTED = tuple(damage for damage in Damage if damage not in REFUSALS)
"""Damage after which the engine starts, and hands over what it then takes for the next batch."""

_POSTGRES, _KAFKA, _DELTA = Kind.POSTGRES, Kind.KAFKA, Kind.DELTA

BOUNDS: dict[str, Bound] = {
    "pair": Bound((_POSTGRES, _DELTA), records=2, drivers=2, ledgers=1),
    "sinks": Bound((_POSTGRES, _KAFKA, _DELTA), records=2, drivers=3, ledgers=1),
    "checkpoint": Bound((_KAFKA, _DELTA), records=3, drivers=2, ledgers=1, damages=RESTARTED),
    "drivers": Bound((_POSTGRES, _KAFKA), records=3, drivers=4, ledgers=1),
    "answers": Bound((_POSTGRES, _KAFKA, _DELTA), records=2, drivers=3, unknowns=2, ledgers=1),
}
"""``pair`` takes seconds; ``sinks`` and ``checkpoint`` are what must hold before a change is merged; the others are for
the night."""
