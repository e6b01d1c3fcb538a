"""Four faults that are easy to make, each put into the product by hand: searches and real stores find every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from onceonly.faults import Point
from onceonly.machine import commands as c
from onceonly.machine.state import State
from onceonly_checkpoints.epoch import Fence
from onceonly_lab.checker import Anomaly, Verdict, judge
from onceonly_lab.explorer.search import lines, search
from onceonly_lab.fuzzer.world import fuzz, play
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.spark import Damage, Source
from onceonly_lab.model.world import Bound
from onceonly_lab.mutants.play import mutants
from onceonly_lab.play.many import broken
from onceonly_lab.play.play import Played
from onceonly_lab.schedule import Action, Fault, Schedule
from onceonly_lab.stores.places import Servers
from onceonly_lab.stores.runner import RecordingRunner
from onceonly_lab.stores.world import ORDINARY, SHIPPED, Making, Terms
from onceonly_lab.stores.world import play as play_on_stores
from onceonly_sinks.postgres import head

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
        Bound((P,), records=2, unknowns=0, damages=(Damage.DELETED,), source=Source(files=True)),
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


AT_RANDOM = {"slices are matched as text": Anomaly.DUP}
"""What random schedules meet first where that is something else: a batch that is cut shorter before one cut longer."""


@pytest.mark.lab
@pytest.mark.parametrize("fault", SEEDED)
def test_a_seeded_fault_is_found_by_random_schedules_and_made_small(fault: str) -> None:
    rule, _, anomaly = SEEDED[fault]
    fuzzed = fuzz(1, SEEDS, frozenset({rule}), checked=False)
    assert fuzzed.failed is not None
    assert fuzzed.shrunk is not None
    print(f"seed {fuzzed.failed.schedule.seed}: {fuzzed.shrunk.schedule.line}")
    assert fuzzed.shrunk.name == AT_RANDOM.get(fault, anomaly)
    assert broken(play(fuzzed.shrunk.schedule)) is None


# ---- on real stores


@dataclass(frozen=True)
class Seed:
    """A fault in what ships.

    Attributes:
        put: puts it in, and says how the parts of the run are made.
        schedule: under which it shows.
        called: what the checker must call it.
        terms: what is played besides.
    """

    put: Callable[[pytest.MonkeyPatch], Making]
    schedule: Schedule
    called: tuple[Anomaly, ...]
    terms: Terms = ORDINARY


class SweepsBeforeItsFences(RecordingRunner):
    """Removes what no newest marker names as soon as it has asked for the fences that stand."""

    def _carry_out(self, state: State, command: c.Command) -> c.Outcome:
        outcome = super()._carry_out(state, command)
        if isinstance(outcome, c.Probed) and self._staging is not None:
            highest = max((fence.generation for fence in outcome.fences if fence), default=0)
            epochs = [marker.epoch for sink in self._sinks.values() for marker, _ in sink.history()]
            newest = max(epochs, key=lambda epoch: epoch.number, default=None)
            self._staging.sweep(highest + 1, newest.manifest if newest else None)
        return outcome


def forget_the_owner(patch: pytest.MonkeyPatch) -> Making:
    """Two fences of one generation are taken for one, in every comparison and in the statement that commits."""
    without = head.ADVANCE.replace(" AND h.owner = %(owner)s", "")
    assert without != head.ADVANCE
    patch.setattr(head, "ADVANCE", without)
    patch.setattr(Fence, "__eq__", lambda one, other: isinstance(other, Fence) and one.generation == other.generation)
    return SHIPPED


def of_mutant(name: str) -> Seed:
    found = next(mutant for mutant in mutants() if mutant.id == name)
    return Seed(lambda _: found.making, found.schedule, found.expected, found.terms)


# The first driver has asked which generation stands and sleeps. The second one installs the next, then the first does;
# it is told yes and dies, and the second one commits.
ONE_GENERATION = (
    Fault(1, Point.PROBE_AFTER, Action.PAUSE, steps=7),
    Fault(1, Point.READ_AFTER, Action.KILL),
)
# The second driver looks and dies. The first one wakes, commits to one sink what was swept meanwhile, and dies, too.
ASLEEP_AT_ITS_COMMIT = (
    Fault(1, Point.COMMIT_BEFORE, Action.PAUSE, steps=4),
    Fault(1, Point.COMMIT_AFTER, Action.KILL),
    Fault(2, Point.RECALL_AFTER, Action.KILL),
)
ON_STORES = {
    "the owner is not checked": Seed(
        forget_the_owner, Schedule((P,), records=2, incarnations=2, faults=ONE_GENERATION), (Anomaly.ZOMBIE,)
    ),
    "the marker is written after the rows' transaction": of_mutant("M1"),
    "slices are matched as text": of_mutant("M21"),
    "staging is swept too early": Seed(
        lambda _: Making(runner=SweepsBeforeItsFences),
        Schedule((P, D), records=2, incarnations=2, faults=ASLEEP_AT_ITS_COMMIT),
        (Anomaly.STUCK,),
        Terms(random=True),
    ),
}


def assert_played(played: Played) -> None:
    assert set(played.schedule.faults) == played.acted


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("fault", SEEDED)
def test_a_seeded_fault_is_found_on_real_stores(fault: str, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = ON_STORES[fault]
    shipped = play_on_stores(seed.schedule, servers, terms=seed.terms)
    assert_played(shipped)
    assert judge(shipped.history).verdict is Verdict.CLEAN, judge(shipped.history).findings
    with monkeypatch.context() as patch:
        seeded = play_on_stores(seed.schedule, servers, seed.put(patch), seed.terms)
    assert_played(seeded)
    found = judge(seeded.history)
    assert found.anomalies == set(seed.called), found.findings
