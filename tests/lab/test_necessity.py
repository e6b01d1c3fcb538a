"""Drop a condition of exactness and its violation is seen, as often as the model says; keep them all and none is."""

from __future__ import annotations

import pytest

from onceonly_lab.necessity import designs
from onceonly_lab.necessity.crashes import Fencing, Shown, interleavings, shown, tallies
from onceonly_lab.necessity.designs import VARIANTS, Variant
from onceonly_lab.necessity.world import MEANING, Function, Symptom

TABLE = {
    "append, position saved after": (91, "DUP 66 TORN 91", "CHANGED 66", ""),
    "append, position saved before": (91, "LOSS 66 TORN 91", "", ""),
    "upsert row by row, position after": (91, "TORN 91", "CHANGED 66", "DUP 66"),
    "the same, state and position saved apart": (157, "WRONG 54 TORN 157 CHANGED 54", "CHANGED 126", "DUP 126"),
    "one transaction for outputs, state, position": (13, "", "", ""),
    "two stores, output first": (43, "DUP 24", "CHANGED 24", ""),
    "two stores, position first": (43, "LOSS 24", "", ""),
    "sink commit with marker, state apart": (43, "", "BROKEN 15", ""),
    "the same, epoch's range not logged": (43, "LOSS 14 TORN 21", "BROKEN 1", ""),
    "prepare, decide, commit, roll forward": (157, "", "", ""),
    "the same without the durable decision": (91, "", "BROKEN 42", ""),
    "staged, upsert row by row": (157, "TORN 157", "", ""),
    "staged, appended row by row": (157, "DUP 96 TORN 157", "", ""),
    "staged, sink commit with marker": (91, "", "", ""),
    "visible rows, raw reader": (91, "TORN 91", "CHANGED 66", "DUP 66"),
    "visible rows, reader filters by epoch": (91, "", "", "DUP 66 CHANGED 66"),
    "two sinks with markers, unstaged": (91, "", "BROKEN 42 DISAGREE 36", ""),
    "two sinks with markers, staged": (157, "", "", ""),
}
"""Schedules, counts with a deterministic F, what random state changes in them, and random ids beside that."""


def counts(words: str) -> dict[str, int]:
    cells = words.split()
    return dict(zip(cells[::2], map(int, cells[1::2]), strict=True))


@pytest.fixture(scope="module")
def found() -> Shown:
    return shown()


def test_each_variant_shows_its_violations_as_often_as_the_model_says(found):
    shown = {(one.variant.name, one.function): (one.schedules, one.counts) for one in found.crashed}
    expected = {}
    for name, (schedules, *words) in TABLE.items():
        right: dict[str, int] = {}
        for function, cell in zip(Function, words, strict=True):
            right = right | counts(cell)
            expected[name, function] = schedules, right
    assert {key: value for key, value in shown.items() if value != expected.get(key)} == {}
    assert shown.keys() == expected.keys()


def test_every_variant_is_in_the_table_and_shows_what_it_must(found):
    assert [variant.name for variant in VARIANTS] == list(TABLE)
    assert found.surprises == ()


def test_what_keeps_every_condition_is_clean_and_what_drops_one_is_not(found):
    stable = [one for one in found.crashed if one.function is not Function.RANDOM_IDS]
    broken = {one.variant.name for one in stable if one.counts}
    assert broken == {variant.name for variant in VARIANTS if variant.drops}


def test_only_a_fence_checked_in_the_writing_transaction_keeps_a_zombie_out():
    assert [(interleaving.fencing, interleaving.orders, interleaving.doubled) for interleaving in interleavings()] == [
        (Fencing.NONE, 20, 18),
        (Fencing.CHECKED, 20, 3),
        (Fencing.ATOMIC, 20, 0),
    ]


def test_a_variant_that_shows_something_else_is_named():
    hopeful = Variant("hopeful", "", designs.saved_after, {function: frozenset[Symptom]() for function in Function})
    surprises = Shown(tallies((hopeful,)), ()).surprises
    assert surprises[0] == "hopeful, deterministic F: must show nothing, showed DUP 66, TORN 91"
    assert len(surprises) == len(Function)


def test_every_symptom_is_explained():
    assert list(MEANING) == list(Symptom)
