"""Every world within small bounds: the product as it is breaks nothing, and without any one of its rules something."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from onceonly.lab.checker import Anomaly
from onceonly.lab.explorer.bounds import BOUNDS, RESTARTED
from onceonly.lab.explorer.report import lines
from onceonly.lab.explorer.search import Search, search
from onceonly.lab.model.parts import Kind, Target
from onceonly.lab.model.rules import Rule
from onceonly.lab.model.spark import Damage
from onceonly.lab.model.world import Bound

P, D, K = Kind.POSTGRES, Kind.DELTA, Kind.KAFKA


@pytest.mark.parametrize("kinds", [(P,), (D,), (K,), (P, D), (K, P), (D, K)], ids="-".join)
def test_two_drivers_a_lost_answer_and_a_lost_ledger_break_nothing(kinds):
    found = search(Bound(kinds, records=2 if len(kinds) == 1 else 1, drivers=2, unknowns=1, ledgers=1))
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


@pytest.mark.parametrize("damage", RESTARTED)
def test_a_damaged_checkpoint_breaks_nothing(damage):
    found = search(Bound((P,), records=3, drivers=2, unknowns=0, ledgers=1, damages=(damage,)))
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


@pytest.mark.parametrize("damage", [Damage.DELETED, Damage.ROLLED_BACK, Damage.COPIED])
def test_a_damaged_checkpoint_of_a_source_whose_offsets_count_batches_breaks_nothing(damage):
    found = search(Bound((P,), records=2, drivers=2, unknowns=0, ledgers=1, damages=(damage,), files=True))
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sinks", "checkpoint"])
def test_what_must_hold_before_a_change_is_merged_holds(name):
    found = search(BOUNDS[name])
    print(*lines(found), sep="\n")
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


def rows_of(bound: Bound) -> set[object]:
    """Everything that can come to lie in the sinks: which epochs in which order, and who computed their rows.

    Generations are left out: a proposal that came too late is made again, and then its number is higher.
    """
    searched = Search(bound)
    assert searched.run().violation is None
    return {tuple(_rows_in(cast(Target, target)) for target in world) for world in searched.targets()}


def _rows_in(target: Target) -> tuple[object, ...]:
    return tuple((held.epoch.slice, held.content.high if held.content else None, held.whole) for held in target.held)


@pytest.mark.parametrize(("kinds", "unknowns"), [((P,), 1), ((K,), 0), ((P, D), 0)], ids=str)
def test_steps_that_are_taken_together_reach_the_same_sinks_as_steps_taken_one_by_one(kinds, unknowns):
    whole = Bound(kinds, records=1 if len(kinds) > 1 else 2, drivers=2, unknowns=unknowns)
    assert rows_of(whole) == rows_of(replace(whole, apart=True))


@pytest.mark.parametrize("kind", [D, pytest.param(K, marks=pytest.mark.slow)])
def test_checking_and_writing_apart_breaks_nothing(kind):
    found = search(Bound((kind,), records=1, drivers=2, unknowns=1, fine=True))
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


ONE = {"records": 1, "unknowns": 0}
LOST = {"records": 1, "unknowns": 1}
BROKEN = [
    (Rule.OWNER, (P,), ONE, Anomaly.ZOMBIE),
    (Rule.HIGHEST, (P,), {**ONE, "drivers": 3, "ledgers": 1}, Anomaly.ZOMBIE),
    (Rule.FENCED_COMMIT, (P,), ONE, Anomaly.ZOMBIE),
    (Rule.MARKER_WITH_ROWS, (P,), ONE, Anomaly.STUCK),
    (Rule.ROWS_WITH_MARKER, (P,), ONE, Anomaly.LOSS),
    (Rule.LOOKED_UP, (P,), {**LOST, "drivers": 1}, Anomaly.AUDIT),
    (Rule.ONE_COPY, (P,), {**LOST, "drivers": 1}, Anomaly.DUP),
    (Rule.LOCKED, (P,), {**LOST, "drivers": 1}, Anomaly.ZOMBIE),
    (Rule.ONE_HANDLE, (D,), ONE, Anomaly.ZOMBIE),
    (Rule.CLAIM, (K,), ONE, Anomaly.ZOMBIE),
    (Rule.SETTLED, (K,), LOST, Anomaly.ZOMBIE),
    (Rule.NEW_PRODUCER, (K,), {**LOST, "drivers": 1}, Anomaly.TORN),
    (Rule.STAGED, (P, D), {**ONE, "drivers": 1}, Anomaly.CROSS),
    (Rule.WHOLE, (P, D), ONE, Anomaly.TORN),
    (Rule.NAMED, (P, D), {**ONE, "drivers": 3}, Anomaly.CROSS),
    (Rule.KEPT, (P, D), ONE, Anomaly.STUCK),
    (Rule.SWEPT_LAST, (P, D), ONE, Anomaly.STUCK),
    (Rule.LINEAGE, (P,), {"unknowns": 0, "damages": (Damage.DELETED,), "files": True}, Anomaly.LOSS),
    (Rule.EVERY_SINK, (P, D), {**ONE, "drivers": 1}, Anomaly.STUCK),
]
"""Each rule that is off by itself, where, and what that breaks first."""


@pytest.mark.parametrize(
    ("rule", "kinds", "sizes", "anomaly"), BROKEN, ids=lambda one: one.name if isinstance(one, Rule) else ""
)
def test_a_rule_off_is_found(rule, kinds, sizes, anomaly):
    found = search(Bound(kinds, off=frozenset({rule}), **sizes))
    assert found.violation is not None
    print(*lines(found), sep="\n")
    assert found.violation.name is anomaly
    assert found.story[-1].startswith(anomaly)


def test_what_was_read_before_the_fence_is_harmless_only_because_a_commit_looks_at_what_stands_before_it():
    stale = Bound((P,), records=1, unknowns=0, off=frozenset({Rule.FENCE_FIRST}))
    assert search(stale).violation is None
    blind = search(replace(stale, off=frozenset({Rule.FENCE_FIRST, Rule.CHAIN})))
    assert blind.violation is not None
    assert blind.violation.name is Anomaly.DUP


def test_every_rule_is_shown_to_be_needed():
    assert {rule for rule, *_ in BROKEN} | {Rule.FENCE_FIRST, Rule.CHAIN} == set(Rule)


def test_a_counterexample_is_the_shortest_and_told_in_words(capsys):
    found = search(Bound((P,), records=1, drivers=1, unknowns=1, off=frozenset({Rule.ONE_COPY})))
    assert found.story == (
        "driver A starts on the checkpoint",
        "driver A is handed batch 0, records 1 to 1, by the checkpoint",
        "driver A looks at every sink and proposes generation 1",
        "driver A reads the ledger: nothing",
        "driver A installs generation 1 in sink 'postgres'",
        "driver A reads sink 'postgres'",
        "driver A enters itself into the ledger and sweeps staging",
        "driver A asks the ledger for batch 0: no epoch",
        "driver A commits epoch 1 to sink 'postgres', the answer is lost, it is sent again",
        "X-DUP: sink 'postgres': records 1 to 1 are in epoch 1 and again in epoch 1",
    )


def test_a_search_that_reaches_its_limit_says_that_it_is_incomplete():
    found = search(BOUNDS["sinks"], limit=0)
    assert not found.complete
    assert "incomplete" in list(lines(found))[-1]
