"""Named bounds of the explorer."""

from __future__ import annotations

from dataclasses import replace

from onceonly_lab.model.parts import MARKERS_LEFT, RESTORED, Harm, Kind
from onceonly_lab.model.spark import RESTARTED, Damage, Source
from onceonly_lab.model.world import Bound, Program

_POSTGRES, _KAFKA, _DELTA = Kind.POSTGRES, Kind.KAFKA, Kind.DELTA

_OPERATED = Bound((_POSTGRES, _DELTA), records=3, drivers=2, unknowns=0, ledgers=1, source=Source(begins=True), obeys=2)

_BEGINS = Bound(
    (_POSTGRES,),
    records=3,
    drivers=2,
    ledgers=1,
    damages=(*RESTARTED, Damage.DELETED_LATER),
    source=Source(begins=True),
    trims=True,
)

_MISUSE = Bound(
    (_POSTGRES,),
    records=3,
    drivers=2,
    damages=(Damage.ANOTHER,),
    source=Source(begins=True),
    programs=tuple(Program),
    watched=True,
)

_REFUSING = Bound((_POSTGRES, _DELTA), records=2, drivers=2, harms=(Harm.PICKY, Harm.REPLACED, Harm.HOLLOW), ledgers=1)

_REFRESHED = Bound(
    (_POSTGRES, _DELTA), records=1, drivers=3, ledgers=1, damages=(Damage.REFRESHED,), on_refresh="replace"
)

_TOGETHER = Bound((_POSTGRES, _POSTGRES), records=2, drivers=3, ledgers=1, bad=(0b01, 0b10), together=True, turns=True)

BOUNDS: dict[str, Bound] = {
    "pair": Bound((_POSTGRES, _DELTA), records=2, drivers=2, ledgers=1),
    "readers": Bound((_POSTGRES, _DELTA), records=2, drivers=2, ledgers=1, reads=True),
    "conflicts": Bound((_POSTGRES, _POSTGRES), records=2, drivers=2, unknowns=2, conflicts=True),
    "idempotent": Bound((Kind.PUTS,), records=4, drivers=3, ledgers=1, deterministic=True, alone=True),
    "sinks": Bound((_POSTGRES, _KAFKA, _DELTA), records=2, drivers=3, ledgers=1),
    "checkpoint": Bound((_KAFKA, _DELTA), records=3, drivers=2, ledgers=1, damages=RESTARTED),
    "begins": _BEGINS,
    "begins-files": Bound(
        (_DELTA,),
        records=3,
        drivers=2,
        ledgers=1,
        damages=RESTARTED,
        source=Source(files=True),
        trims=True,
        stages=True,
    ),
    "misuse": _MISUSE,
    "refusing": _REFUSING,
    "operator": replace(_OPERATED, damages=(*RESTARTED, Damage.DELETED_LATER), harms=tuple(RESTORED), errs=True),
    "operator-state": replace(
        _OPERATED, damages=RESTARTED, harms=tuple(RESTORED), source=Source(begins=True, stateful=True), errs=True
    ),
    "operator-files": replace(_OPERATED, damages=RESTARTED, loses_files=True, source=Source(files=True)),
    "restored-one": replace(_OPERATED, kinds=(_POSTGRES,), unknowns=1, harms=(*RESTORED, Harm.REPLACED), cuts=True),
    "restored": replace(_OPERATED, harms=tuple(RESTORED)),
    "operator-cut": replace(
        _OPERATED,
        records=2,
        ledgers=0,
        damages=(Damage.DELETED, Damage.DELETED_LATER, Damage.ROLLED_BACK),
        harms=(*RESTORED, Harm.REPLACED),
        cuts=True,
    ),
    "operator-cut-one": replace(
        _OPERATED, kinds=(_POSTGRES,), damages=(Damage.ROLLED_BACK_TWO,), harms=tuple(RESTORED), drivers=1, cuts=True
    ),
    "rewound": replace(
        _OPERATED, harms=(*RESTORED, Harm.REPLACED), drivers=1, ledgers=0, obeys=1, cuts=True, reads=True
    ),
    "rewound-one": replace(
        _OPERATED, kinds=(_POSTGRES,), harms=tuple(RESTORED), drivers=1, ledgers=0, obeys=2, cuts=True
    ),
    "rewound-altered": replace(
        _OPERATED, harms=tuple(RESTORED), meanwhile=(Harm.ALTERED,), drivers=1, ledgers=0, obeys=2
    ),
    "rewound-astray": replace(_OPERATED, records=4, harms=(Harm.ASTRAY,), drivers=1, ledgers=0, obeys=2, cuts=True),
    "rewound-files": replace(
        _OPERATED,
        kinds=(_POSTGRES,),
        harms=tuple(RESTORED),
        drivers=1,
        ledgers=0,
        obeys=2,
        loses_files=True,
        source=Source(files=True),
        cuts=True,
    ),
    "rewound-both": replace(_OPERATED, harms=tuple(RESTORED), meanwhile=tuple(RESTORED), drivers=1, ledgers=0, obeys=4),
    "rewound-rows": replace(_OPERATED, harms=tuple(MARKERS_LEFT), drivers=1, ledgers=0, obeys=2, cuts=True),
    "rewound-rows-one": replace(_OPERATED, kinds=(_DELTA,), harms=tuple(MARKERS_LEFT), ledgers=0, obeys=2, cuts=True),
    "rewound-rows-both": replace(
        _OPERATED,
        kinds=(_DELTA, _DELTA),
        harms=tuple(MARKERS_LEFT),
        meanwhile=tuple(MARKERS_LEFT),
        drivers=1,
        ledgers=0,
        obeys=4,
    ),
    "operator-late": replace(_OPERATED, harms=tuple(RESTORED), meanwhile=(*RESTORED, Harm.REPLACED), obeys=4),
    "operator-prunes": replace(_OPERATED, damages=RESTARTED, harms=tuple(RESTORED), prunes=True),
    "left-out": replace(_OPERATED, records=2, unknowns=1, leaves_out=True, cuts=True),
    "refreshed": _REFRESHED,
    "outputs": Bound((_POSTGRES, _DELTA), records=2, drivers=3, ledgers=1, outputs=(0b01, 0b10)),
    "quarantine": Bound((_POSTGRES, _DELTA), records=2, drivers=3, ledgers=1, bad=(0b01, 0b10)),
    "together": _TOGETHER,
    "together-beside": replace(_TOGETHER, kinds=(_POSTGRES, _POSTGRES, _DELTA), drivers=2, ledgers=0),
    "keeper": Bound((_POSTGRES, _KAFKA), records=3, drivers=2, ledgers=1, keys=(1, 2, 1), windows=True),
    "keeper-delta": Bound((_DELTA, _KAFKA), records=3, drivers=2, ledgers=1, keys=(1, 2, 1)),
    "windows": Bound((_POSTGRES, _KAFKA), records=3, drivers=2, ledgers=1, bad=(0b001, 0b010), windows=True),
    "drivers": Bound((_POSTGRES, _KAFKA), records=3, drivers=4, ledgers=1),
    "begins-larger": replace(_BEGINS, kinds=(_POSTGRES, _DELTA)),
    "misuse-larger": replace(_MISUSE, kinds=(_POSTGRES, _DELTA), drivers=3),
    "refusing-larger": replace(_REFUSING, kinds=(_POSTGRES, _KAFKA, _DELTA), drivers=3),
    "operator-larger": replace(
        _OPERATED, damages=(*RESTARTED, Damage.DELETED_LATER), harms=tuple(RESTORED), unknowns=1, drivers=3, errs=True
    ),
    "refreshed-larger": replace(_REFRESHED, records=2),
    "answers": Bound((_POSTGRES, _KAFKA, _DELTA), records=2, drivers=3, unknowns=2, ledgers=1),
}
"""``pair`` takes seconds; those of :data:`MERGED` are what must hold before a change is merged; the others are for the
night."""

NIGHTLY = (
    "drivers",
    "answers",
    "begins-larger",
    "misuse-larger",
    "refusing-larger",
    "operator-larger",
    "refreshed-larger",
)
"""Bounds that take longer than anybody waits."""

MERGED = tuple(name for name in BOUNDS if name not in {"pair", *NIGHTLY})
"""Bounds that must hold before a change is merged."""

GROUPS = {"merged": MERGED, "nightly": NIGHTLY}
"""Bounds that are searched side by side."""
