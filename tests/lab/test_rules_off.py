"""Rules are found in the source and taken out of it, one at a time; a world that needs one notices."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from onceonly.lab.rulesoff import rules as rulesoff
from onceonly.lab.rulesoff.rules import INSTEAD, rules, source_of, without
from onceonly.lab.rulesoff.trial import chosen

CHILD = Path(rulesoff.__file__).with_name("child.py")


def test_rules_have_names_of_their_own():
    names = [rule.name for rule in rules()]
    assert len(names) == len(set(names))
    assert any(name.startswith("comparison.same_batch") for name in names)
    assert {"recovery._r6_behind_receipt", "transitions._absent", "transitions._heal#1"} <= set(names)
    assert {f"transitions.{name}" for name in INSTEAD} <= set(names)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_a_rule_can_be_taken_out_and_what_is_left_compiles(rule):
    whole = source_of(rule.module)
    left = without(rule.module, frozenset({rule.name}), whole)
    compile(left, rule.module, "exec")
    assert left != ast.unparse(ast.parse(whole))
    assert without(rule.module, frozenset(), whole) == ast.unparse(ast.parse(whole))


def test_rules_are_drawn_by_a_seed_whether_any_was_tried_before_or_not():
    drawn = chosen((), changed=False, count=2, seed=1)
    assert len(drawn) == 2
    assert drawn == chosen((), changed=False, count=2, seed=1)
    assert len({chosen((), changed=False, count=2, seed=seed) for seed in range(9)}) > 1


def searched(names: str, world: str) -> dict[str, str]:
    line = [sys.executable, str(CHILD), names, world]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=300, check=True)
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_the_product_with_all_its_rules_breaks_nothing():
    assert searched("", "restored-one") == {"noticed": "", "first": ""}


def test_a_sink_that_is_healed_for_ever_is_noticed_where_a_destination_holds_nothing():
    assert searched("transitions._heal#1", "refusing")["noticed"] == "X-STUCK"
