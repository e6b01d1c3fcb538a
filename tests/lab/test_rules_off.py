"""Rules are found in the source and taken out of it, one at a time; a world that needs one notices."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onceonly_lab.rulesoff import rules as rulesoff
from onceonly_lab.rulesoff.rules import INSTEAD, rules, source_of, without
from onceonly_lab.rulesoff.scenes import SCENES
from onceonly_lab.rulesoff.trial import alike, changed, chosen, page, recorded

ROOT = Path(__file__).parents[2]
CHILD = Path(rulesoff.__file__).with_name("child.py")


def test_rules_have_names_of_their_own():
    names = [rule.name for rule in rules()]
    assert len(names) == len(set(names))
    assert any(name.startswith("comparison.same_batch") for name in names)
    assert {"opening._r6_behind_receipt", "transitions._absent", "transitions._heal#1"} <= set(names)
    assert INSTEAD.keys() <= {name.partition(".")[2] for name in names}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_a_rule_can_be_taken_out_and_what_is_left_compiles(rule):
    whole = source_of(rule.module)
    left = without(rule.module, frozenset({rule.name}), whole)
    compile(left, rule.module, "exec")
    assert left != ast.unparse(ast.parse(whole))
    assert without(rule.module, frozenset(), whole) == ast.unparse(ast.parse(whole))


def test_rules_are_drawn_by_a_seed_whether_any_was_tried_before_or_not():
    drawn = chosen((), new=False, count=2, seed=1)
    assert len(drawn) == 2
    assert drawn == chosen((), new=False, count=2, seed=1)
    assert len({chosen((), new=False, count=2, seed=seed) for seed in range(9)}) > 1


def seen(names: str, world: str) -> list[dict[str, str]]:
    line = [sys.executable, str(CHILD), names, world]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=300, check=True)
    found: list[dict[str, str]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_the_product_with_all_its_rules_breaks_nothing():
    assert seen("", "restored-one") == []


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_with_all_rules_nothing_is_wrong_at_the_end_of_a_scene(scene):
    assert scene() == ""


def test_a_sink_that_is_healed_for_ever_is_noticed_where_a_destination_holds_nothing():
    assert seen("transitions._heal#1", "refusing")[0]["noticed"] == "X-STUCK"


def test_a_rule_that_another_stands_in_for_is_noticed_beside_it():
    both = "transitions._looked#1,transitions._read_one#1"
    assert [one["at"] for one in seen(both, "scenes")] == ["markers_of_another_pipeline"]
    assert not any(seen(name, "scenes") for name in both.split(","))


def test_rules_stand_in_for_each_other_where_they_read_or_ask_the_same_or_are_of_one_proof():
    by_name = {rule.name: rule for rule in rules()}
    looked, clock = by_name["transitions._looked#1"], by_name["comparison.same_batch#1"]
    assert alike(looked, by_name["transitions._read_one#1"])
    assert alike(clock, by_name["comparison.same_batch#2"])
    assert not alike(looked, clock)


def test_every_rule_is_in_the_table_and_was_noticed():
    """New and changed ones come there by ``onceonly lab rules-off --changed --record --page docs/rules-off.md``."""
    assert [one.rule for one in recorded().values() if not one.noticed] == []
    assert list(recorded()) == [rule.name for rule in rules()]


def test_the_page_of_the_documentation_is_what_was_recorded():
    assert (ROOT / "docs" / "rules-off.md").read_text() == page(tuple(recorded().values()))


def test_a_rule_whose_text_is_another_one_is_tried_again():
    by_name = {rule.name: rule for rule in rules()}
    first, second = by_name["comparison.same_batch#1"], by_name["comparison.same_batch#2"]
    another = replace(second, source="True")
    assert second not in changed((first, second))
    assert changed((first, another)) == [first, another]  # the one stands beside the other in the table
