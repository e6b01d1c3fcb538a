"""Four faults that are easy to make, each put into the product by hand: both searches find every one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceonly.lab.checker import Anomaly
from onceonly.lab.explorer.report import lines
from onceonly.lab.explorer.search import search
from onceonly.lab.fuzzer.fuzz import broken, fuzz
from onceonly.lab.fuzzer.play import play
from onceonly.lab.model.parts import Kind
from onceonly.lab.model.rules import Rule
from onceonly.lab.model.spark import Damage
from onceonly.lab.model.world import Bound

P, D = Kind.POSTGRES, Kind.DELTA
SEEDS = 2000

SEEDED = {
    "the owner is not checked": (Rule.OWNER, Bound((P,), records=1, unknowns=0), Anomaly.ZOMBIE),
    "the marker is written after the rows' transaction": (
        Rule.MARKER_WITH_ROWS,
        Bound((P,), records=1, unknowns=0),
        Anomaly.STUCK,
    ),
    "slices are matched as text": (
        Rule.LINEAGE,
        Bound((P,), records=2, unknowns=0, damages=(Damage.DELETED,), files=True),
        Anomaly.LOSS,
    ),
    "staging is swept too early": (Rule.SWEPT_LAST, Bound((P, D), records=1, unknowns=0), Anomaly.STUCK),
}


@pytest.mark.parametrize("fault", SEEDED)
def test_a_seeded_fault_is_found_among_all_interleavings(fault: str) -> None:
    rule, bound, anomaly = SEEDED[fault]
    assert search(bound).violation is None
    found = search(replace(bound, off=frozenset({rule})))
    assert found.violation is not None
    assert found.violation.name is anomaly, "\n".join(lines(found))


@pytest.mark.parametrize("fault", SEEDED)
def test_a_seeded_fault_is_found_by_random_schedules_and_made_small(fault: str) -> None:
    rule, _, anomaly = SEEDED[fault]
    fuzzed = fuzz(1, SEEDS, frozenset({rule}), checked=False)
    assert fuzzed.failed is not None
    assert fuzzed.shrunk is not None
    print(f"seed {fuzzed.failed.schedule.seed}: {fuzzed.shrunk.schedule.line}")
    assert fuzzed.shrunk.name is anomaly
    assert broken(play(fuzzed.shrunk.schedule)) is None
